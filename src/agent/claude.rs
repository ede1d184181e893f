//! `claude`: Claude Code, by its `--print` mode.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use crate::exec::Command;
use crate::usage::{Tokens, Usd};

use super::transcript::events;
use super::trouble::{OVER_BUDGET, Trouble};
use super::{Access, Brief, CredentialKind, End, KeyVariable, Program, Report, Spent};

/// How hard it thinks where nobody says otherwise.
const EFFORT: &str = "high";

/// The agent `claude`.
#[derive(Clone, Debug)]
pub struct Claude {
    /// The model, as its `--model` takes it; `None` leaves it to the program.
    pub model: Option<String>,
    /// How hard it thinks, as its `--effort` takes it; `high` when `None`.
    pub effort: Option<String>,
    /// How it reaches its model.
    pub access: Access,
}

impl Claude {
    /// The hosts it talks to.
    pub const HOSTS: [&str; 1] = ["api.anthropic.com"];
    /// The variables that hold its credential, the most telling first: where a key and a token are set, the key counts.
    pub const KEYS: [KeyVariable; 3] = [
        KeyVariable {
            name: "ANTHROPIC_API_KEY",
            kind: CredentialKind::ApiKey,
        },
        KeyVariable {
            name: "ANTHROPIC_AUTH_TOKEN",
            kind: CredentialKind::Bearer,
        },
        KeyVariable {
            name: "CLAUDE_CODE_OAUTH_TOKEN",
            kind: CredentialKind::OAuth,
        },
    ];

    /// The variable in which it looks for a credential of this kind.
    #[must_use]
    pub fn variable(kind: CredentialKind) -> &'static str {
        match kind {
            CredentialKind::ApiKey => "ANTHROPIC_API_KEY",
            CredentialKind::Bearer => "ANTHROPIC_AUTH_TOKEN",
            CredentialKind::OAuth => "CLAUDE_CODE_OAUTH_TOKEN",
        }
    }
}

impl Program for Claude {
    fn name(&self) -> &'static str {
        "claude"
    }

    fn access(&self) -> &Access {
        &self.access
    }

    fn probe(&self) -> Command {
        Command::new("claude").arg("--version")
    }

    fn command(&self, brief: &Brief) -> Command {
        let mut command = Command::new("claude")
            .args(["--print", "--dangerously-skip-permissions"])
            // As it goes, and not at the end: silence must mean that nothing happens.
            .args(["--output-format", "stream-json", "--verbose"])
            .args(["--effort", self.effort.as_deref().unwrap_or(EFFORT)])
            .stdin(brief.text.clone())
            .env("CLAUDE_CONFIG_DIR", brief.home.display().to_string())
            // Without it, it does not skip permissions for root.
            .env("IS_SANDBOX", "1")
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            // A refused credential or a rate limit is ours to handle, and to be seen.
            .env("CLAUDE_CODE_MAX_RETRIES", "0");
        if let Some(model) = &self.model {
            command = command.args(["--model", model]);
        }
        if let Some(left) = brief.cost_left {
            command = command.args(["--max-budget-usd".to_owned(), format!("{:.6}", left.dollars())]);
        }
        if let Some(base_url) = &self.access.base_url {
            command = command.env("ANTHROPIC_BASE_URL", base_url);
            if let Some(model) = &self.model {
                // Behind an address of one's own there may be models that it has never heard of.
                command = command.env("ANTHROPIC_CUSTOM_MODEL_OPTION", model);
            }
        }
        self.access.credential_into(command, Self::variable)
    }

    fn read(&self, printed: &str) -> Report {
        let mut reading = Reading::default();
        events(printed).for_each(|event| reading.take(event));
        reading.report()
    }
}

/// A line of the transcript, as far as it matters.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    Assistant {
        message: Message,
        error: Option<String>,
    },
    #[serde(rename = "rate_limit_event")]
    RateLimited {
        rate_limit_info: RateLimit,
    },
    Result(Box<Finished>),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Message {
    id: String,
    #[serde(default)]
    usage: Usage,
}

/// What a message used; the same in two spellings.
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
struct Finished {
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

/// What is known so far.
#[derive(Default)]
struct Reading {
    /// By message: each is told several times.
    seen: BTreeMap<String, Usage>,
    /// The last error of a call, in the program's own word for its kind.
    error: Option<String>,
    resets_at: Option<Timestamp>,
    finished: Option<Box<Finished>>,
}

impl Reading {
    fn take(&mut self, event: Event) {
        match event {
            Event::Assistant { message, error } => {
                self.seen.insert(message.id, message.usage);
                self.error = error;
            }
            Event::RateLimited { rate_limit_info } if rate_limit_info.status == "rejected" => {
                let at = rate_limit_info.resets_at;
                self.resets_at = at.and_then(|second| Timestamp::from_second(second).ok());
            }
            Event::Result(finished) => self.finished = Some(finished),
            Event::RateLimited { .. } | Event::Other => {}
        }
    }

    fn report(self) -> Report {
        match &self.finished {
            None => Report {
                spent: Spent {
                    tokens: self.seen.values().copied().map(Tokens::from).reduce(|a, b| a + b),
                    cost: None,
                },
                ..Report::default()
            },
            Some(finished) => Report {
                text: finished.result.clone(),
                spent: finished.spent(),
                end: self.end(finished),
            },
        }
    }

    fn end(&self, finished: &Finished) -> End {
        if !finished.is_error {
            return End::Well;
        }
        let said = finished.said();
        if finished.subtype == "error_max_budget_usd" || finished.api_error_status == Some(OVER_BUDGET) {
            return End::OverBudget { reason: said };
        }
        let trouble = match finished.api_error_status {
            Some(status) => Trouble::of_status(status, &said, self.resets_at),
            // It did not come as far as a status: there is no credential, or no connection.
            None => match self.error.as_deref() {
                Some("authentication_failed") => Some(Trouble::Unauthorized { said: said.clone() }),
                _ if finished.terminal_reason.as_deref() == Some("api_error") => {
                    Some(Trouble::Unavailable { said: said.clone() })
                }
                _ => None,
            },
        };
        trouble.map_or(End::Badly { error: said }, End::Trouble)
    }
}

impl Finished {
    /// What it said of its end: the text, or for some errors a list.
    fn said(&self) -> String {
        match (self.result.is_empty(), self.errors.is_empty()) {
            (false, _) => self.result.clone(),
            (true, false) => self.errors.join("; "),
            (true, true) => self.subtype.clone(),
        }
    }

    fn spent(&self) -> Spent {
        let tokens = self.model_usage.values().copied().map(Tokens::from);
        Spent {
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
