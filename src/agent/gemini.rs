//! `gemini`: Google's Gemini CLI, without a terminal.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::exec::Command;
use crate::model::{AuthMethod, GOOGLE};
use crate::usage::Tokens;

use super::transcript::{ReportedAction, events, tool_call, transcript_line};
use super::{
    AgentBrief, AgentFile, AgentImage, AgentProgram, AgentRecord, KeyVariable, ModelAccess, ModelFailure,
    ProgramAgent, ReportedUsage, TranscriptEnd, TranscriptSummary,
};

/// The record of `gemini`.
pub static GEMINI: AgentRecord = AgentRecord {
    name: "gemini",
    summary: "The `gemini` program.",
    program: Some("gemini"),
    install: Some("npm install --global @google/gemini-cli"),
    image: AgentImage {
        name: "gemini",
        dockerfile: include_str!("../../templates/gemini/Dockerfile.j2"),
    },
    service: Some(&GOOGLE),
    base_path: "",
    accepts_base_url: true,
    key_variables: &[KeyVariable {
        name: "GEMINI_API_KEY",
        auth: AuthMethod::ApiKey,
    }],
    settings_files: &[".gemini", "GEMINI.md"],
    reports_cost: false,
    is_built_in: false,
    create: |options, access| {
        let gemini = Gemini { model: options.model };
        Ok(Arc::new(ProgramAgent::new(gemini, access)))
    },
};

/// The agent `gemini`.
#[derive(Clone, Debug, Default)]
pub struct Gemini {
    /// The value of `--model`; `None` lets the program choose a model for each prompt.
    pub model: Option<String>,
}

impl AgentProgram for Gemini {
    fn name(&self) -> &'static str {
        GEMINI.name
    }

    fn model_name(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// User settings. System settings would win over those of the repository, but the program ignores them below a
    /// directory that others can write, such as `/tmp`.
    fn files(&self, brief: &AgentBrief, _access: &ModelAccess) -> Vec<AgentFile> {
        let settings = json!({
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": false},
            "telemetry": {"enabled": false},
            // The runner handles rate limits.
            "general": {"enableAutoUpdate": false, "maxAttempts": 1, "retryFetchErrors": false},
        });
        vec![AgentFile {
            path: brief.home.join(".gemini/settings.json"),
            text: settings.to_string(),
        }]
    }

    fn command(&self, brief: &AgentBrief, access: &ModelAccess) -> Command {
        let mut command = Command::new("gemini")
            .args(["--yolo", "--skip-trust", "--output-format", "stream-json"])
            .stdin(brief.text.clone())
            .env("GEMINI_CLI_HOME", brief.home.display().to_string())
            // Otherwise it starts itself once more, with a larger heap.
            .env("GEMINI_CLI_NO_RELAUNCH", "true");
        if let Some(model) = &self.model {
            command = command.args(["--model", model]);
        }
        if let Some(base_url) = &access.base_url {
            command = command.env("GOOGLE_GEMINI_BASE_URL", base_url);
        }
        access.add_credential(command, &GEMINI)
    }

    fn parse_transcript(&self, printed: &str) -> TranscriptSummary {
        let mut summary = TranscriptSummary::default();
        for event in events(printed) {
            match event {
                GeminiEvent::Message { role, content } if role == "assistant" => {
                    summary.text.push_str(&content);
                }
                // What comes before a tool call is not the last message.
                GeminiEvent::ToolUse => summary.text.clear(),
                GeminiEvent::Result(result) => {
                    summary.usage = result.usage();
                    summary.end = result.end();
                }
                GeminiEvent::Message { .. } | GeminiEvent::Other => {}
            }
        }
        summary
    }

    fn reported_actions(&self, line: &str) -> Option<Vec<ReportedAction>> {
        let event = transcript_line(line)?;
        let action = match event["type"].as_str() {
            Some("tool_use") => {
                let what = tool_call(&event["tool_name"], &event["parameters"]);
                Some(ReportedAction::started(&event["tool_id"], what))
            }
            Some("tool_result") => {
                let texts = [&event["error"]["message"], &event["output"]];
                let reason = || texts.into_iter().find_map(Value::as_str).unwrap_or("failed");
                let failed = (event["status"] == "error").then(|| reason().to_owned());
                ReportedAction::ended(&event["tool_id"], failed)
            }
            _ => None,
        };
        Some(action.into_iter().collect())
    }
}

/// A line of the transcript. Only the fields that are used.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum GeminiEvent {
    /// A part of a message.
    Message {
        role: String,
        content: String,
    },
    ToolUse,
    Result(GeminiResult),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct GeminiResult {
    status: String,
    error: Option<GeminiError>,
    stats: Option<GeminiStats>,
}

#[derive(Deserialize)]
struct GeminiError {
    message: String,
}

#[derive(Deserialize)]
struct GeminiStats {
    /// Includes thinking, which `output_tokens` does not.
    total_tokens: u64,
    input_tokens: u64,
}

impl GeminiResult {
    fn usage(&self) -> ReportedUsage {
        let tokens = self.stats.as_ref().map(|stats| Tokens {
            input: stats.input_tokens,
            output: stats.total_tokens.saturating_sub(stats.input_tokens),
        });
        ReportedUsage { tokens, cost: None }
    }

    fn end(self) -> TranscriptEnd {
        if self.status == "success" {
            return TranscriptEnd::Finished;
        }
        let message = self.error.map_or(self.status, |error| error.message);
        match status_in(&message) {
            Some(status) => TranscriptEnd::from_status(status, message, None),
            // For some statuses the message has only the text of the service.
            None if message.contains("try again later") => {
                TranscriptEnd::ModelFailed(ModelFailure::RateLimited { until: None, message })
            }
            None if message.starts_with(API_ERROR) => {
                TranscriptEnd::ModelFailed(ModelFailure::Unavailable { message })
            }
            None => TranscriptEnd::Failed { error: message },
        }
    }
}

/// How messages about failed calls begin.
const API_ERROR: &str = "[API Error: ";

/// The HTTP status in a message such as `[API Error: {"error":{"code":401,...}}]`.
fn status_in(message: &str) -> Option<u16> {
    let body = message.strip_prefix(API_ERROR)?.strip_suffix(']')?;
    let body: Value = serde_json::from_str(body).ok()?;
    u16::try_from(body["error"]["code"].as_u64()?).ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::agent::AgentCredential;
    use crate::secret::Secret;

    macro_rules! recorded {
        ($name:literal) => {
            include_str!(concat!(
                "../../tests/fixtures/agents/gemini-",
                $name,
                ".jsonl"
            ))
        };
    }

    #[test]
    fn the_command_line_has_no_prompt_and_no_key() {
        let brief = AgentBrief {
            text: "Do it.".to_owned(),
            iteration: 1,
            home: "/box/agent".into(),
            cost_left: None,
        };
        let access = ModelAccess {
            base_url: Some("http://gateway:1".to_owned()),
            credential: Some(AgentCredential {
                auth: AuthMethod::ApiKey,
                value: Secret::new("phantom"),
            }),
            ..ModelAccess::default()
        };
        let gemini = Gemini {
            model: Some("gemini-3-pro".to_owned()),
        };
        let command = gemini.command(&brief, &access);
        assert_eq!(
            command.to_string(),
            "gemini --yolo --skip-trust --output-format stream-json --model gemini-3-pro"
        );
        assert_eq!(command.stdin.as_deref(), Some(&b"Do it."[..]));
        assert_eq!(command.env["GEMINI_API_KEY"], "phantom");
        assert_eq!(command.env["GOOGLE_GEMINI_BASE_URL"], "http://gateway:1");
        let settings = &gemini.files(&brief, &access)[0];
        assert_eq!(command.env["GEMINI_CLI_HOME"], "/box/agent");
        assert_eq!(
            settings.path.display().to_string(),
            "/box/agent/.gemini/settings.json"
        );
        assert!(!settings.text.contains("phantom"));
    }

    #[test]
    fn the_last_message_and_the_usage_are_read() {
        let summary = Gemini::default().parse_transcript(recorded!("ok"));
        assert_eq!(summary.end, TranscriptEnd::Finished);
        assert_eq!(summary.text, "Done: hi from the fake model.");
        let tokens = Tokens {
            input: 200,
            output: 50,
        };
        assert_eq!(summary.usage.tokens, Some(tokens));
    }

    #[rstest]
    #[case(recorded!("401"), "the credential was refused: ")]
    #[case(recorded!("429"), "the model is rate limited: ")]
    #[case(recorded!("500"), "the model does not answer: ")]
    fn a_failed_call_is_classified(#[case] printed: &str, #[case] expected: &str) {
        match Gemini::default().parse_transcript(printed).end {
            TranscriptEnd::ModelFailed(failure) => {
                assert!(failure.to_string().starts_with(expected), "{failure}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_spent_budget_is_recognized() {
        let end = Gemini::default().parse_transcript(recorded!("402")).end;
        assert!(matches!(end, TranscriptEnd::OverBudget { .. }), "{end:?}");
    }

    #[test]
    fn an_interrupted_transcript_has_no_result() {
        let whole = recorded!("ok");
        let cut = &whole[..whole.rfind("{\"type\":\"result\"").unwrap()];
        assert_eq!(
            Gemini::default().parse_transcript(cut).end,
            TranscriptEnd::Missing
        );
    }
}
