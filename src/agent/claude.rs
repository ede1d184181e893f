//! `claude`: Claude Code, by its `--print` mode.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::exec::Command;
use crate::model::{ANTHROPIC, AuthMethod};
use crate::usage::{Tokens, Usd};

use super::transcript::{ReportedAction, TokenCounts, events, tool_call, transcript_line};
use super::{
    AgentBrief, AgentImage, AgentProgram, AgentRecord, KeyVariable, ModelAccess, ModelFailure, ProgramAgent,
    TranscriptEnd, TranscriptSummary,
};

const DEFAULT_EFFORT: &str = "high";

/// The record of `claude`.
pub static CLAUDE: AgentRecord = AgentRecord {
    name: "claude",
    summary: "The `claude` program.",
    program: Some("claude"),
    install: Some("npm install --global @anthropic-ai/claude-code"),
    image: AgentImage {
        name: "claude",
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

    /// Sets the model.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.model = Some(name.into());
        self
    }

    /// Sets the reasoning effort.
    #[must_use]
    pub fn effort(mut self, effort: impl Into<String>) -> Self {
        self.effort = Some(effort.into());
        self
    }
}

impl AgentProgram for Claude {
    fn name(&self) -> &'static str {
        CLAUDE.name
    }

    fn model_name(&self) -> Option<&str> {
        self.model.as_deref()
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
        // By message id: the program repeats messages.
        let mut usage = BTreeMap::new();
        let (mut call_error, mut resets_at, mut last) = (None, None, None);
        for event in events(printed) {
            match event {
                ClaudeEvent::Assistant { message, error } => {
                    usage.insert(message.id, message.usage);
                    call_error = error;
                }
                ClaudeEvent::RateLimited { rate_limit_info } if rate_limit_info.status == "rejected" => {
                    let at = rate_limit_info.resets_at;
                    resets_at = at.and_then(|second| Timestamp::from_second(second).ok());
                }
                ClaudeEvent::Result(result) => last = Some(result),
                ClaudeEvent::RateLimited { .. } | ClaudeEvent::Other => {}
            }
        }
        let mut summary = TranscriptSummary::default();
        summary.usage.tokens = sum(usage);
        if let Some(result) = last {
            summary.text.clone_from(&result.result);
            summary.end = result.end(call_error.as_deref(), resets_at);
            summary.usage.cost = result.total_cost_usd.and_then(Usd::from_dollars);
            // If the result lists no model, nothing was used.
            summary.usage.tokens = Some(sum(result.model_usage).unwrap_or_default());
        }
        summary
    }

    fn reported_actions(&self, line: &str) -> Option<Vec<ReportedAction>> {
        let event = transcript_line(line)?;
        let parts = event["message"]["content"].as_array().into_iter().flatten();
        let action = |part: &Value| match (event["type"].as_str(), part["type"].as_str()) {
            (Some("assistant"), Some("tool_use")) => {
                let what = tool_call(&part["name"], &part["input"]);
                Some(ReportedAction::started(&part["id"], what))
            }
            (Some("user"), Some("tool_result")) => {
                // A text, or a list of parts.
                let text = [&part["content"], &part["content"][0]["text"]];
                let reason = || text.into_iter().find_map(Value::as_str).unwrap_or("failed");
                let failed = (part["is_error"] == true).then(|| reason().to_owned());
                ReportedAction::ended(&part["tool_use_id"], failed)
            }
            _ => None,
        };
        Some(parts.filter_map(action).collect())
    }
}

fn sum(usage: BTreeMap<String, TokenCounts>) -> Option<Tokens> {
    usage.into_values().map(Tokens::from).reduce(|a, b| a + b)
}

/// A line of the transcript. Only the fields that are used.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ClaudeEvent {
    Assistant {
        message: ClaudeMessage,
        error: Option<String>,
    },
    #[serde(rename = "rate_limit_event")]
    RateLimited {
        rate_limit_info: ClaudeRateLimit,
    },
    Result(Box<ClaudeResult>),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct ClaudeMessage {
    id: String,
    #[serde(default)]
    usage: TokenCounts,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaudeRateLimit {
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
    model_usage: BTreeMap<String, TokenCounts>,
}

impl ClaudeResult {
    /// How the session ended. `call_error` is the kind of the last failed call, as the program names it.
    fn end(&self, call_error: Option<&str>, resets_at: Option<Timestamp>) -> TranscriptEnd {
        if !self.is_error {
            return TranscriptEnd::Finished;
        }
        // The result text or, for some errors, a list of messages.
        let message = match (self.result.is_empty(), self.errors.is_empty()) {
            (false, _) => self.result.clone(),
            (true, false) => self.errors.join("; "),
            (true, true) => self.subtype.clone(),
        };
        if self.subtype == "error_max_budget_usd" {
            return TranscriptEnd::OverBudget { reason: message };
        }
        match self.api_error_status {
            Some(status) => TranscriptEnd::from_status(status, message, resets_at),
            // Without a status there was no credential, or no connection.
            None if call_error == Some("authentication_failed") => {
                TranscriptEnd::ModelFailed(ModelFailure::Unauthorized { message })
            }
            None if self.terminal_reason.as_deref() == Some("api_error") => {
                TranscriptEnd::ModelFailed(ModelFailure::Unavailable { message })
            }
            None => TranscriptEnd::Failed { error: message },
        }
    }
}
