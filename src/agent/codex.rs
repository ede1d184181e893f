//! `codex`: OpenAI's Codex, by `codex exec`.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::exec::Command;
use crate::usage::Tokens;

use super::transcript::events;
use super::trouble::{OVER_BUDGET, Trouble};
use super::{Access, Brief, CredentialKind, End, KeyVariable, NewFile, Program, Report, Spent};

/// Its maker's address.
const BASE_URL: &str = "https://api.openai.com/v1";
/// The variable that its configuration names for the key.
const KEY: &str = "OPENAI_API_KEY";
/// How much of the end of a session's own file tells how it ended.
const LAST_LINES: &str = "20";

/// The agent `codex`.
#[derive(Clone, Debug)]
pub struct Codex {
    /// The model, as its `--model` takes it; `None` leaves it to the program.
    pub model: Option<String>,
    /// How hard it thinks, as its `model_reasoning_effort` takes it; `None` leaves it to the program.
    pub effort: Option<String>,
    /// How it reaches its model.
    pub access: Access,
}

impl Codex {
    /// The hosts it talks to.
    pub const HOSTS: [&str; 1] = ["api.openai.com"];
    /// The variables that hold its credential.
    pub const KEYS: [KeyVariable; 1] = [KeyVariable {
        name: KEY,
        kind: CredentialKind::ApiKey,
    }];

    /// The variable in which it looks for its credential.
    pub const VARIABLE: &str = KEY;

    /// Its configuration. `OPENAI_BASE_URL` would be ignored, so the address stands here, as a provider of its own.
    fn config(&self) -> String {
        let base_url = self.access.base_url.as_deref().unwrap_or(BASE_URL);
        let provider = toml_table([
            ("name", "ralph".into()),
            ("base_url", base_url.into()),
            ("env_key", KEY.into()),
            ("wire_api", "responses".into()),
            // A refused credential or a rate limit is ours to handle, and to be seen.
            ("request_max_retries", 0.into()),
            ("stream_max_retries", 0.into()),
        ]);
        let analytics = toml_table([("enabled", false.into())]);
        let mut config = toml_table([
            ("model_provider", "ralph".into()),
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

impl Program for Codex {
    fn name(&self) -> &'static str {
        "codex"
    }

    fn access(&self) -> &Access {
        &self.access
    }

    fn probe(&self) -> Command {
        Command::new("codex").arg("--version")
    }

    fn files(&self, brief: &Brief) -> Vec<NewFile> {
        vec![NewFile {
            path: brief.home.join("config.toml"),
            text: self.config(),
        }]
    }

    fn command(&self, brief: &Brief) -> Command {
        let mut command = Command::new("codex")
            .args(["exec", "--json", "--skip-git-repo-check"])
            // The sandbox is ours; its own cannot be nested in it.
            .arg("--dangerously-bypass-approvals-and-sandbox")
            .stdin(brief.text.clone())
            .env("CODEX_HOME", brief.home.display().to_string());
        if let Some(model) = &self.model {
            command = command.args(["--model", model]);
        }
        // `-`: the prompt comes by standard input.
        self.access.credential_into(command.arg("-"), |_| KEY)
    }

    /// Its transcript tells of a failure in words alone. The file it keeps of the session tells the kind.
    fn look_up(&self, brief: &Brief, printed: &str) -> Option<Command> {
        let thread = events(printed).find_map(|event| match event {
            Event::ThreadStarted { thread_id } => Some(thread_id),
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

    fn read(&self, printed: &str) -> Report {
        let mut reading = Reading::default();
        events(printed).for_each(|event| reading.take(event));
        reading.report()
    }
}

fn toml_table<const N: usize>(entries: [(&str, toml::Value); N]) -> toml::Table {
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// A line of the transcript or of the session's file, as far as it matters.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum Event {
    #[serde(rename = "thread.started")]
    ThreadStarted { thread_id: String },
    #[serde(rename = "item.completed")]
    ItemCompleted { item: Item },
    #[serde(rename = "turn.completed")]
    TurnCompleted { usage: Usage },
    #[serde(rename = "turn.failed")]
    TurnFailed { error: Failure },
    /// A line of the session's file.
    #[serde(rename = "event_msg")]
    Noted { payload: Note },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item {
    AgentMessage {
        text: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Usage {
    input_tokens: u64,
    output_tokens: u64,
}

#[derive(Deserialize)]
struct Failure {
    message: String,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Note {
    TokenCount {
        info: Option<TokenCount>,
        rate_limits: Option<RateLimits>,
    },
    TaskComplete {
        error: Option<Explained>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct TokenCount {
    total_token_usage: Usage,
}

#[derive(Deserialize)]
struct RateLimits {
    primary: Option<Window>,
    secondary: Option<Window>,
}

#[derive(Deserialize)]
struct Window {
    used_percent: f64,
    resets_at: Option<i64>,
}

#[derive(Deserialize)]
struct Explained {
    /// A word, or an object whose one key is the word and whose value may hold the HTTP status.
    codex_error_info: Option<Value>,
}

/// What is known so far.
#[derive(Default)]
struct Reading {
    text: String,
    usage: Option<Usage>,
    end: End,
    cause: Option<Value>,
    resets_at: Option<Timestamp>,
}

impl Reading {
    fn take(&mut self, event: Event) {
        match event {
            Event::ItemCompleted {
                item: Item::AgentMessage { text },
            } => self.text = text,
            Event::TurnCompleted { usage } => {
                self.usage = Some(usage);
                self.end = End::Well;
            }
            Event::TurnFailed { error } => self.end = End::Badly { error: error.message },
            Event::Noted { payload } => self.take_note(payload),
            Event::ThreadStarted { .. } | Event::ItemCompleted { .. } | Event::Other => {}
        }
    }

    fn take_note(&mut self, note: Note) {
        match note {
            Note::TokenCount { info, rate_limits } => {
                self.usage = info.map(|info| info.total_token_usage).or(self.usage);
                self.resets_at = rate_limits.and_then(|limits| limits.reset()).or(self.resets_at);
            }
            Note::TaskComplete { error } => {
                self.cause = error.and_then(|error| error.codex_error_info);
                // The file tells of every call that was answered: no word of one means that there was none.
                self.usage.get_or_insert_default();
            }
            Note::Other => {}
        }
    }

    fn report(self) -> Report {
        let end = match (self.end, self.cause) {
            (End::Badly { error }, Some(cause)) => explained(error, &cause, self.resets_at),
            (end, _) => end,
        };
        Report {
            text: self.text,
            spent: Spent {
                tokens: self.usage.map(|usage| Tokens {
                    input: usage.input_tokens,
                    output: usage.output_tokens,
                }),
                cost: None,
            },
            end,
        }
    }
}

impl RateLimits {
    /// When the last window that is used up opens again.
    fn reset(&self) -> Option<Timestamp> {
        let windows = [&self.primary, &self.secondary].into_iter().flatten();
        windows
            .filter(|window| window.used_percent >= 100.0)
            .filter_map(|window| Timestamp::from_second(window.resets_at?).ok())
            .max()
    }
}

/// What a failure is, by the session's own file.
fn explained(error: String, cause: &Value, until: Option<Timestamp>) -> End {
    let status = cause
        .as_object()
        .and_then(|kinds| kinds.values().next()?["http_status_code"].as_u64())
        .and_then(|status| u16::try_from(status).ok());
    let trouble = match (cause.as_str(), status) {
        (_, Some(OVER_BUDGET)) => return End::OverBudget { reason: error },
        (_, Some(status)) => Trouble::of_status(status, &error, until),
        (Some("usage_limit_exceeded"), None) => Some(Trouble::RateLimited {
            until,
            said: error.clone(),
        }),
        (Some("unauthorized"), None) => Some(Trouble::Unauthorized { said: error.clone() }),
        (Some("internal_server_error" | "server_overloaded"), None) => {
            Some(Trouble::Unavailable { said: error.clone() })
        }
        // A connection that never came as far as a status.
        (None, None) if cause.is_object() => Some(Trouble::Unavailable { said: error.clone() }),
        _ => None,
    };
    trouble.map_or(End::Badly { error }, End::Trouble)
}
