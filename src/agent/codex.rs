//! `codex`: OpenAI's Codex, by `codex exec`.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::exec::Command;
use crate::model::{AuthMethod, OPENAI};

use super::transcript::{ReportedAction, TokenCounts, events, tool_call, transcript_line};
use super::{
    AgentBrief, AgentFile, AgentImage, AgentProgram, AgentRecord, KeyVariable, ModelAccess, ModelFailure,
    ProgramAgent, TranscriptEnd, TranscriptSummary,
};

const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";
/// The variable for the key. Its configuration names it too.
const KEY: &str = "OPENAI_API_KEY";
/// How many lines at the end of a session file describe how the session ended.
const LAST_LINES: &str = "20";

/// The record of `codex`.
pub static CODEX: AgentRecord = AgentRecord {
    name: "codex",
    summary: "The `codex` program.",
    program: Some("codex"),
    install: Some("npm install --global @openai/codex"),
    image: AgentImage {
        name: "codex",
        dockerfile: include_str!("../../templates/codex/Dockerfile.j2"),
    },
    service: Some(&OPENAI),
    base_path: "/v1",
    accepts_base_url: true,
    key_variables: &[KeyVariable {
        name: KEY,
        auth: AuthMethod::ApiKey,
    }],
    settings_files: &[".codex", "AGENTS.md"],
    reports_cost: false,
    is_built_in: false,
    create: |options, access| {
        let codex = Codex {
            model: options.model,
            effort: options.effort,
        };
        Ok(Arc::new(ProgramAgent::new(codex, access)))
    },
};

/// The agent `codex`.
#[derive(Clone, Debug, Default)]
pub struct Codex {
    /// The value of `--model`; `None` uses the program's default.
    pub model: Option<String>,
    /// The value of `model_reasoning_effort`; `None` uses the program's default.
    pub effort: Option<String>,
}

impl Codex {
    /// Codex with its default model and effort.
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

    /// Its configuration file. Codex ignores `OPENAI_BASE_URL`, so the file defines a provider with the base URL.
    fn config(&self, access: &ModelAccess) -> String {
        let base_url = access.base_url.as_deref().unwrap_or(DEFAULT_BASE_URL);
        let provider = toml_table([
            ("name", "ralph".into()),
            ("base_url", base_url.into()),
            ("env_key", KEY.into()),
            ("wire_api", "responses".into()),
            // The runner handles refused credentials and rate limits.
            ("request_max_retries", 0.into()),
            ("stream_max_retries", 0.into()),
        ]);
        let analytics = toml_table([("enabled", false.into())]);
        let mut config = toml_table([
            ("model_provider", "ralph".into()),
            // The service would run it, past the network policy and without a bound on its cost.
            ("web_search", "disabled".into()),
            ("check_for_update_on_startup", false.into()),
            ("analytics", analytics.into()),
            ("model_providers", toml_table([("ralph", provider.into())]).into()),
        ]);
        if let Some(effort) = &self.effort {
            config.insert("model_reasoning_effort".to_owned(), effort.as_str().into());
        }
        config.to_string()
    }
}

impl AgentProgram for Codex {
    fn name(&self) -> &'static str {
        CODEX.name
    }

    fn model_name(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn files(&self, brief: &AgentBrief, access: &ModelAccess) -> Vec<AgentFile> {
        vec![AgentFile {
            path: brief.home.join("config.toml"),
            text: self.config(access),
        }]
    }

    fn command(&self, brief: &AgentBrief, access: &ModelAccess) -> Command {
        let mut command = Command::new("codex")
            .args(["exec", "--json", "--skip-git-repo-check"])
            // Codex's own sandbox cannot run inside ralph's.
            .arg("--dangerously-bypass-approvals-and-sandbox")
            .stdin(brief.text.clone())
            .env("CODEX_HOME", brief.home.display().to_string());
        if let Some(model) = &self.model {
            command = command.args(["--model", model]);
        }
        // `-` reads the prompt from standard input.
        access.add_credential(command.arg("-"), &CODEX)
    }

    /// The transcript has only the text of an error. The session file has its kind.
    fn failure_details(&self, brief: &AgentBrief, printed: &str) -> Option<Command> {
        let thread = events(printed).find_map(|event| match event {
            CodexEvent::ThreadStarted { thread_id } => Some(thread_id),
            _ => None,
        })?;
        let is_id = thread.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let sessions: PathBuf = brief.home.join("sessions");
        is_id.then(|| {
            Command::new("find")
                .arg(sessions.display().to_string())
                .args(["-type", "f", "-name", &format!("*{thread}.jsonl")])
                .args(["-exec", "tail", "-n", LAST_LINES, "{}", ";"])
        })
    }

    fn parse_transcript(&self, printed: &str) -> TranscriptSummary {
        let mut summary = TranscriptSummary::default();
        let (mut cause, mut resets_at) = (None, None);
        for event in events(printed) {
            match event {
                CodexEvent::ItemCompleted {
                    item: CodexItem::AgentMessage { text },
                } => summary.text = text,
                CodexEvent::TurnCompleted { usage } => {
                    summary.usage.tokens = Some(usage.into());
                    summary.end = TranscriptEnd::Finished;
                }
                CodexEvent::TurnFailed { error } => {
                    summary.end = TranscriptEnd::Failed { error: error.message }
                }
                CodexEvent::SessionFile {
                    payload: CodexSessionEvent::TokenCount { info, rate_limits },
                } => {
                    let total = info.map(|info| info.total_token_usage.into());
                    summary.usage.tokens = total.or(summary.usage.tokens);
                    resets_at = rate_limits.and_then(|limits| limits.reset()).or(resets_at);
                }
                CodexEvent::SessionFile {
                    payload: CodexSessionEvent::TaskComplete { error },
                } => {
                    cause = error.and_then(|error| error.codex_error_info);
                    // The file lists every call that was answered. If it lists none, nothing was used.
                    summary.usage.tokens.get_or_insert_default();
                }
                CodexEvent::ThreadStarted { .. }
                | CodexEvent::ItemCompleted { .. }
                | CodexEvent::SessionFile { .. }
                | CodexEvent::Other => {}
            }
        }
        if let (TranscriptEnd::Failed { error }, Some(cause)) = (&summary.end, cause) {
            summary.end = classify(error.clone(), &cause, resets_at);
        }
        summary
    }

    fn reported_actions(&self, line: &str) -> Option<Vec<ReportedAction>> {
        let event = transcript_line(line)?;
        let item = &event["item"];
        // What items other than commands are about is known at their end.
        let what = match (event["type"].as_str(), item["type"].as_str()) {
            (Some("item.started"), Some("command_execution")) => {
                let what = tool_call(&"run".into(), item);
                return Some(vec![ReportedAction::started(&item["id"], what)]);
            }
            (Some("item.completed"), Some("command_execution")) => {
                let failed = match item["exit_code"].as_i64() {
                    Some(0) => None,
                    Some(code) => Some(format!("exit {code}")),
                    None => Some("no exit code".to_owned()),
                };
                return Some(ReportedAction::ended(&item["id"], failed).into_iter().collect());
            }
            (Some("item.completed"), Some("file_change")) => {
                let changes = item["changes"].as_array().into_iter().flatten();
                let paths: Vec<&str> = changes.filter_map(|change| change["path"].as_str()).collect();
                format!("edit: {}", paths.join(", "))
            }
            (Some("item.completed"), Some("mcp_tool_call")) => tool_call(&item["tool"], &item["arguments"]),
            (Some("item.completed"), Some("web_search")) => tool_call(&"web search".into(), item),
            _ => return Some(Vec::new()),
        };
        Some(vec![ReportedAction::Performed { what }])
    }
}

fn toml_table<const N: usize>(entries: [(&str, toml::Value); N]) -> toml::Table {
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// A line of the transcript or of the session file. Only the fields that are used.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum CodexEvent {
    #[serde(rename = "thread.started")]
    ThreadStarted { thread_id: String },
    #[serde(rename = "item.completed")]
    ItemCompleted { item: CodexItem },
    #[serde(rename = "turn.completed")]
    TurnCompleted { usage: TokenCounts },
    #[serde(rename = "turn.failed")]
    TurnFailed { error: CodexFailure },
    /// A line of the session file.
    #[serde(rename = "event_msg")]
    SessionFile { payload: CodexSessionEvent },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CodexItem {
    AgentMessage {
        text: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct CodexFailure {
    message: String,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CodexSessionEvent {
    TokenCount {
        info: Option<CodexTokenCount>,
        rate_limits: Option<CodexRateLimits>,
    },
    TaskComplete {
        error: Option<CodexErrorInfo>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct CodexTokenCount {
    total_token_usage: TokenCounts,
}

#[derive(Deserialize)]
struct CodexRateLimits {
    primary: Option<CodexRateWindow>,
    secondary: Option<CodexRateWindow>,
}

#[derive(Deserialize)]
struct CodexRateWindow {
    used_percent: f64,
    resets_at: Option<i64>,
}

#[derive(Deserialize)]
struct CodexErrorInfo {
    /// The kind as a string, or an object with the kind as its only key. The value may hold the HTTP status.
    codex_error_info: Option<Value>,
}

impl CodexRateLimits {
    /// When the last exhausted window resets.
    fn reset(&self) -> Option<Timestamp> {
        let windows = [&self.primary, &self.secondary].into_iter().flatten();
        windows
            .filter(|window| window.used_percent >= 100.0)
            .filter_map(|window| Timestamp::from_second(window.resets_at?).ok())
            .max()
    }
}

/// Classifies a failure by the kind in the session file.
fn classify(message: String, cause: &Value, until: Option<Timestamp>) -> TranscriptEnd {
    let status = cause
        .as_object()
        .and_then(|kinds| kinds.values().next()?["http_status_code"].as_u64())
        .and_then(|status| u16::try_from(status).ok());
    if let Some(status) = status {
        return TranscriptEnd::from_status(status, message, until);
    }
    let failure = match cause.as_str() {
        Some("usage_limit_exceeded") => ModelFailure::RateLimited { until, message },
        Some("unauthorized") => ModelFailure::Unauthorized { message },
        Some("internal_server_error" | "server_overloaded") => ModelFailure::Unavailable { message },
        // The connection failed before there was a status.
        None if cause.is_object() => ModelFailure::Unavailable { message },
        _ => return TranscriptEnd::Failed { error: message },
    };
    TranscriptEnd::ModelFailed(failure)
}
