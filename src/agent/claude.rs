//! `claude`: Claude Code, by its `--print` mode.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;

use crate::exec::Command;
use crate::model::{ANTHROPIC, AuthMethod};
use crate::usage::{Tokens, Usd};

use super::model_failure::OVER_BUDGET;
use super::transcript::events;
use super::{
    AgentBrief, AgentImage, AgentProgram, AgentRecord, KeyVariable, ModelAccess, ModelFailure, ProgramAgent,
    ReportedUsage, TranscriptEnd, TranscriptSummary,
};

const DEFAULT_EFFORT: &str = "high";

/// The record of `claude`.
pub static CLAUDE: AgentRecord = AgentRecord {
    name: "claude",
    summary: "The `claude` program.",
    program: Some("claude"),
    image: AgentImage {
        name: "claude",
        base: "docker/sandbox-templates:claude-code",
        dockerfile: include_str!("../../templates/claude/Dockerfile.j2"),
    },
    service: Some(&ANTHROPIC),
    base_path: "",
    accepts_base_url: true,
    key_variables: &[
        KeyVariable {
            name: "ANTHROPIC_API_KEY",
            auth: AuthMethod::ApiKey,
        },
        KeyVariable {
            name: "ANTHROPIC_AUTH_TOKEN",
            auth: AuthMethod::Gateway,
        },
        KeyVariable {
            name: "CLAUDE_CODE_OAUTH_TOKEN",
            auth: AuthMethod::OAuth,
        },
    ],
    settings_files: &[".claude", ".mcp.json", "CLAUDE.local.md", "CLAUDE.md"],
    reports_cost: true,
    is_built_in: false,
    create: |options, access| {
        let claude = Claude {
            model: options.model,
            effort: options.effort,
        };
        Ok(Arc::new(ProgramAgent::new(claude, access)))
    },
};

/// The agent `claude`.
#[derive(Clone, Debug, Default)]
pub struct Claude {
    /// The value of `--model`; `None` uses the program's default.
    pub model: Option<String>,
    /// The value of `--effort`; `None` means `high`.
    pub effort: Option<String>,
}

impl Claude {
    /// Claude Code with its default model and high effort.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl AgentProgram for Claude {
    fn record(&self) -> &'static AgentRecord {
        &CLAUDE
    }

    fn command(&self, brief: &AgentBrief, access: &ModelAccess) -> Command {
        let mut command = Command::new("claude")
            .args(["--print", "--dangerously-skip-permissions"])
            // Events as they happen: the runner takes silence for a hang.
            .args(["--output-format", "stream-json", "--verbose"])
            .args(["--effort", self.effort.as_deref().unwrap_or(DEFAULT_EFFORT)])
            .stdin(brief.text.clone())
            .env("CLAUDE_CONFIG_DIR", brief.home.display().to_string())
            // Without it, `--dangerously-skip-permissions` is refused for root.
            .env("IS_SANDBOX", "1")
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            // The runner handles refused credentials and rate limits.
            .env("CLAUDE_CODE_MAX_RETRIES", "0");
        if let Some(model) = &self.model {
            command = command.args(["--model", model]);
        }
        if let Some(left) = brief.cost_left {
            command = command.args(["--max-budget-usd".to_owned(), format!("{:.6}", left.dollars())]);
        }
        if let Some(base_url) = &access.base_url {
            command = command.env("ANTHROPIC_BASE_URL", base_url);
            if let Some(model) = &self.model {
                // Another endpoint may serve models that the program does not know.
                command = command.env("ANTHROPIC_CUSTOM_MODEL_OPTION", model);
            }
        }
        access.add_credential(command, &CLAUDE)
    }

    fn parse_transcript(&self, printed: &str) -> TranscriptSummary {
        let mut transcript = ClaudeTranscript::default();
        events(printed).for_each(|event| transcript.add(event));
        transcript.summary()
    }
}

/// A line of the transcript. Only the fields that are used.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    Assistant {
        message: ModelMessage,
        error: Option<String>,
    },
    #[serde(rename = "rate_limit_event")]
    RateLimited {
        rate_limit_info: RateLimit,
    },
    Result(Box<ClaudeResult>),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct ModelMessage {
    id: String,
    #[serde(default)]
    usage: Usage,
}

/// The usage of a message. Messages and the result spell it differently.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Usage {
    #[serde(rename = "input_tokens", alias = "inputTokens")]
    input: u64,
    #[serde(rename = "cache_creation_input_tokens", alias = "cacheCreationInputTokens")]
    cache_creation: u64,
    #[serde(rename = "cache_read_input_tokens", alias = "cacheReadInputTokens")]
    cache_read: u64,
    #[serde(rename = "output_tokens", alias = "outputTokens")]
    output: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RateLimit {
    status: String,
    resets_at: Option<i64>,
}

#[derive(Deserialize)]
struct ClaudeResult {
    is_error: bool,
    subtype: String,
    #[serde(default)]
    result: String,
    #[serde(default)]
    errors: Vec<String>,
    total_cost_usd: Option<f64>,
    api_error_status: Option<u16>,
    terminal_reason: Option<String>,
    #[serde(default, rename = "modelUsage")]
    model_usage: BTreeMap<String, Usage>,
}

/// The transcript read so far.
#[derive(Default)]
struct ClaudeTranscript {
    /// By message id: the program repeats messages.
    usage: BTreeMap<String, Usage>,
    /// The kind of the last failed call, as the program names it.
    error: Option<String>,
    resets_at: Option<Timestamp>,
    result: Option<Box<ClaudeResult>>,
}

impl ClaudeTranscript {
    fn add(&mut self, event: Event) {
        match event {
            Event::Assistant { message, error } => {
                self.usage.insert(message.id, message.usage);
                self.error = error;
            }
            Event::RateLimited { rate_limit_info } if rate_limit_info.status == "rejected" => {
                let at = rate_limit_info.resets_at;
                self.resets_at = at.and_then(|second| Timestamp::from_second(second).ok());
            }
            Event::Result(result) => self.result = Some(result),
            Event::RateLimited { .. } | Event::Other => {}
        }
    }

    fn summary(self) -> TranscriptSummary {
        match &self.result {
            None => TranscriptSummary {
                usage: ReportedUsage {
                    tokens: self
                        .usage
                        .values()
                        .copied()
                        .map(Tokens::from)
                        .reduce(|a, b| a + b),
                    cost: None,
                },
                ..TranscriptSummary::default()
            },
            Some(result) => TranscriptSummary {
                text: result.result.clone(),
                usage: result.usage(),
                end: self.end(result),
            },
        }
    }

    fn end(&self, result: &ClaudeResult) -> TranscriptEnd {
        if !result.is_error {
            return TranscriptEnd::Finished;
        }
        let message = result.message();
        if result.subtype == "error_max_budget_usd" || result.api_error_status == Some(OVER_BUDGET) {
            return TranscriptEnd::OverBudget { reason: message };
        }
        let failure = match result.api_error_status {
            Some(status) => ModelFailure::from_status(status, &message, self.resets_at),
            // Without a status there was no credential, or no connection.
            None => match self.error.as_deref() {
                Some("authentication_failed") => Some(ModelFailure::Unauthorized {
                    message: message.clone(),
                }),
                _ if result.terminal_reason.as_deref() == Some("api_error") => {
                    Some(ModelFailure::Unavailable {
                        message: message.clone(),
                    })
                }
                _ => None,
            },
        };
        failure.map_or(
            TranscriptEnd::Failed { error: message },
            TranscriptEnd::ModelFailed,
        )
    }
}

impl ClaudeResult {
    /// The result text or, for some errors, a list of messages.
    fn message(&self) -> String {
        match (self.result.is_empty(), self.errors.is_empty()) {
            (false, _) => self.result.clone(),
            (true, false) => self.errors.join("; "),
            (true, true) => self.subtype.clone(),
        }
    }

    fn usage(&self) -> ReportedUsage {
        let tokens = self.model_usage.values().copied().map(Tokens::from);
        ReportedUsage {
            tokens: Some(tokens.fold(Tokens::default(), |a, b| a + b)),
            cost: self.total_cost_usd.and_then(Usd::from_dollars),
        }
    }
}

impl From<Usage> for Tokens {
    fn from(usage: Usage) -> Self {
        Self {
            input: usage
                .input
                .saturating_add(usage.cache_creation)
                .saturating_add(usage.cache_read),
            output: usage.output,
        }
    }
}
