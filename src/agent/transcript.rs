//! What an agent program printed: one JSON object a line.

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::exec::ExitStatus;
use crate::usage::{Tokens, Usd};

use super::actions::ReportedProgress;
use super::{AgentConclusion, AgentOutcome, AgentStep, ModelFailure};

/// How many bytes of a transcript are kept: a quarter from its beginning, the rest from its end, where the result is.
pub(super) const KEPT_OUTPUT: usize = 4 << 20;
/// The length of a summary, in characters.
const MAX_SUMMARY: usize = 4_000;

/// The events of a transcript, in order. Lines that are not an event, such as a line that was cut, are skipped.
pub(super) fn events<'a, E: DeserializeOwned + 'a>(printed: &'a str) -> impl Iterator<Item = E> + 'a {
    printed
        .lines()
        .filter(|line| line.starts_with('{'))
        .filter_map(|line| serde_json::from_str(line).ok())
}

/// The arguments that say most about a tool call, the most telling first.
const TELLING_ARGUMENTS: [&str; 12] = [
    "command",
    "pattern",
    "query",
    "url",
    "file_path",
    "filePath",
    "absolute_path",
    "path",
    "dir_path",
    "description",
    "prompt",
    "name",
];

/// A line of a transcript; `Null` if it was cut. `None` for a line that is not JSON.
pub(super) fn transcript_line(line: &str) -> Option<Value> {
    line.starts_with('{')
        .then(|| serde_json::from_str(line).unwrap_or_default())
}

/// A tool call for people: the tool, and the argument that says most.
pub(super) fn tool_call(name: &Value, arguments: &Value) -> String {
    let name = name.as_str().unwrap_or("tool");
    let telling = TELLING_ARGUMENTS.iter().find_map(|key| arguments[key].as_str());
    let any = || arguments.as_object()?.values().find_map(Value::as_str);
    match telling.or_else(any) {
        Some(argument) => format!("{name}: {argument}"),
        None => name.to_owned(),
    }
}

/// An action in the transcript of an agent program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportedAction {
    /// It starts. Its end has the same id.
    Started {
        /// Its id, unique in the transcript.
        id: String,
        /// A short text for people.
        what: String,
    },
    /// It ended.
    Ended {
        /// The id that it started with.
        id: String,
        /// Why it failed; `None` if it succeeded.
        failed: Option<String>,
    },
    /// It was performed. The program reports no start, or no end.
    Performed {
        /// A short text for people.
        what: String,
    },
}

impl ReportedAction {
    /// The start of an action with this id. Without an id its end would not be found.
    pub(super) fn started(id: &Value, what: String) -> Self {
        match id.as_str() {
            Some(id) => Self::Started {
                id: id.to_owned(),
                what,
            },
            None => Self::Performed { what },
        }
    }

    /// The end of the action with this id.
    pub(super) fn ended(id: &Value, failed: Option<String>) -> Option<Self> {
        let id = id.as_str()?.to_owned();
        Some(Self::Ended { id, failed })
    }
}

/// What a transcript says about a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TranscriptSummary {
    /// The agent's last message.
    pub text: String,
    /// What the session used.
    pub usage: ReportedUsage,
    /// How the session ended.
    pub end: TranscriptEnd,
}

/// What a session used, as the program reports it. Unknown is `None`, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedUsage {
    /// Model tokens.
    pub tokens: Option<Tokens>,
    /// Cost in dollars.
    pub cost: Option<Usd>,
}

/// How a session ended, according to its transcript.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TranscriptEnd {
    /// The transcript has no result.
    #[default]
    Missing,
    /// The program finished.
    Finished,
    /// The program failed.
    Failed {
        /// Its error message.
        error: String,
    },
    /// The budget is spent.
    OverBudget {
        /// The message of the program or the service.
        reason: String,
    },
    /// The model did not answer.
    ModelFailed(ModelFailure),
}

impl TranscriptEnd {
    /// The end of a session whose last call failed with this HTTP status. `until` is when the service accepts calls
    /// again, if it says so.
    #[must_use]
    pub fn from_status(status: u16, message: String, until: Option<Timestamp>) -> Self {
        let failure = match status {
            401 | 403 => ModelFailure::Unauthorized { message },
            // From ralph's gateway.
            402 => return Self::OverBudget { reason: message },
            404 => ModelFailure::NoSuchModel { message },
            // Anthropic answers 529 when it is overloaded.
            429 | 529 => ModelFailure::RateLimited { until, message },
            408 | 500..=599 => ModelFailure::Unavailable { message },
            // The status is about the request and not about the model.
            _ => return Self::Failed { error: message },
        };
        Self::ModelFailed(failure)
    }
}

/// Token counts under the names that `claude`, `codex` and `cursor` give them.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct TokenCounts {
    #[serde(rename = "input_tokens", alias = "inputTokens")]
    input: u64,
    #[serde(
        rename = "cache_creation_input_tokens",
        alias = "cacheCreationInputTokens",
        alias = "cacheWriteTokens"
    )]
    cache_written: u64,
    #[serde(
        rename = "cache_read_input_tokens",
        alias = "cacheReadInputTokens",
        alias = "cacheReadTokens"
    )]
    cache_read: u64,
    #[serde(rename = "output_tokens", alias = "outputTokens")]
    output: u64,
}

impl From<TokenCounts> for Tokens {
    fn from(counts: TokenCounts) -> Self {
        Self {
            input: counts
                .input
                .saturating_add(counts.cache_written)
                .saturating_add(counts.cache_read),
            output: counts.output,
        }
    }
}

impl TranscriptSummary {
    /// The last step of a session. It succeeds only if both the exit code and the transcript say so.
    pub(super) fn into_step(self, program: &str, status: ExitStatus) -> AgentStep {
        let conclusion = match (status, self.end) {
            (ExitStatus::Code(0), TranscriptEnd::Finished) => AgentConclusion::Continue,
            (ExitStatus::Code(0), TranscriptEnd::Missing) => {
                unusable(format!("{program} ended without a result"))
            }
            (ExitStatus::Code(_), TranscriptEnd::ModelFailed(failure)) => return AgentStep::Fail(failure),
            (ExitStatus::Code(_), TranscriptEnd::OverBudget { reason }) => {
                AgentConclusion::OverBudget { reason }
            }
            (ExitStatus::Code(_), TranscriptEnd::Failed { error }) => unusable(error),
            (ExitStatus::Code(code), TranscriptEnd::Finished | TranscriptEnd::Missing) => {
                unusable(format!("{program}: exit {code}"))
            }
            (
                ExitStatus::Signal(_) | ExitStatus::TimedOut | ExitStatus::Idle | ExitStatus::OutOfMemory,
                _,
            ) => AgentConclusion::Rotate {
                reason: format!("{program}: {status}"),
            },
        };
        AgentStep::Finish(AgentOutcome {
            summary: self.text.trim().chars().take(MAX_SUMMARY).collect(),
            progress: ReportedProgress::default(),
            conclusion,
        })
    }
}

fn unusable(error: String) -> AgentConclusion {
    AgentConclusion::Unusable { error }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn failure() -> ModelFailure {
        ModelFailure::Unavailable { message: "x".into() }
    }

    #[rstest]
    #[case::finished(ExitStatus::Code(0), TranscriptEnd::Finished, "continue")]
    #[case::nonzero_code_after_result(ExitStatus::Code(3), TranscriptEnd::Finished, "unusable: p: exit 3")]
    #[case::error_with_code_zero(
        ExitStatus::Code(0),
        TranscriptEnd::Failed { error: "no".into() },
        "unusable: no"
    )]
    #[case::no_result(
        ExitStatus::Code(0),
        TranscriptEnd::Missing,
        "unusable: p ended without a result"
    )]
    #[case::nonzero_code_without_result(ExitStatus::Code(1), TranscriptEnd::Missing, "unusable: p: exit 1")]
    #[case::over_budget(ExitStatus::Code(1), TranscriptEnd::OverBudget { reason: "spent".into() }, "over budget: spent")]
    #[case::model_failed(ExitStatus::Code(1), TranscriptEnd::ModelFailed(failure()), "failed")]
    #[case::model_failed_with_code_zero(ExitStatus::Code(0), TranscriptEnd::ModelFailed(failure()), "failed")]
    #[case::killed(
        ExitStatus::Idle,
        TranscriptEnd::Finished,
        "rotate: p: printed nothing for too long"
    )]
    #[case::timed_out(
        ExitStatus::TimedOut,
        TranscriptEnd::ModelFailed(failure()),
        "rotate: p: timed out"
    )]
    fn exit_and_transcript_decide_together(
        #[case] status: ExitStatus,
        #[case] end: TranscriptEnd,
        #[case] expected: &str,
    ) {
        let summary = TranscriptSummary {
            end,
            ..TranscriptSummary::default()
        };
        let step = match summary.into_step("p", status) {
            AgentStep::Fail(_) => "failed".to_owned(),
            AgentStep::Finish(outcome) => match outcome.conclusion {
                AgentConclusion::Continue => "continue".to_owned(),
                AgentConclusion::Unusable { error } => format!("unusable: {error}"),
                AgentConclusion::Rotate { reason } => format!("rotate: {reason}"),
                AgentConclusion::OverBudget { reason } => format!("over budget: {reason}"),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        assert_eq!(step, expected);
    }

    #[test]
    fn summaries_are_cut() {
        let summary = TranscriptSummary {
            text: "ö".repeat(1_000_000),
            end: TranscriptEnd::Finished,
            ..TranscriptSummary::default()
        };
        let AgentStep::Finish(outcome) = summary.into_step("p", ExitStatus::Code(0)) else {
            panic!("not finished");
        };
        assert_eq!(outcome.summary.chars().count(), MAX_SUMMARY);
    }
}
