//! `cursor`: Cursor's agent, by `cursor-agent --print`.

use serde::Deserialize;

use crate::exec::Command;
use crate::usage::Tokens;

use super::transcript::events;
use super::{Access, Brief, CredentialKind, End, KeyVariable, Program, Report, Spent};

/// What stands in front of the standard input, which it takes as a supplement.
const PREFACE: &str = "Do what the following text asks for.";
const KEY: &str = "CURSOR_API_KEY";

/// The agent `cursor`.
#[derive(Clone, Debug)]
pub struct Cursor {
    /// The model, as its `--model` takes it; `None` leaves it to the program.
    pub model: Option<String>,
    /// How it reaches its model: always at its maker's, whatever the address says.
    pub access: Access,
}

impl Cursor {
    /// The hosts it talks to.
    pub const HOSTS: [&str; 1] = ["**.cursor.sh"];
    /// The variables that hold its credential.
    pub const KEYS: [KeyVariable; 1] = [KeyVariable {
        name: KEY,
        kind: CredentialKind::ApiKey,
    }];
}

impl Program for Cursor {
    fn name(&self) -> &'static str {
        "cursor"
    }

    fn access(&self) -> &Access {
        &self.access
    }

    fn probe(&self) -> Command {
        Command::new("cursor-agent").arg("--version")
    }

    fn command(&self, brief: &Brief) -> Command {
        let mut command = Command::new("cursor-agent")
            .args(["--print", "--force", "--trust"])
            .args(["--output-format", "stream-json"])
            .stdin(brief.text.clone())
            .env("CURSOR_CONFIG_DIR", brief.home.display().to_string());
        if let Some(model) = &self.model {
            command = command.args(["--model", model]);
        }
        self.access.credential_into(command.arg(PREFACE), |_| KEY)
    }

    fn read(&self, printed: &str) -> Report {
        let last = events(printed)
            .filter_map(|event| match event {
                Event::Result(finished) => Some(finished),
                Event::Other => None,
            })
            .last();
        last.map(Finished::report).unwrap_or_default()
    }
}

/// A line of the transcript, as far as it matters.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    Result(Finished),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Finished {
    is_error: bool,
    #[serde(default)]
    result: String,
    usage: Option<Usage>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    #[serde(rename = "inputTokens")]
    input: u64,
    #[serde(rename = "outputTokens")]
    output: u64,
    #[serde(rename = "cacheReadTokens")]
    cache_read: u64,
    #[serde(rename = "cacheWriteTokens")]
    cache_write: u64,
}

impl Finished {
    fn report(self) -> Report {
        let tokens = self.usage.map(|usage| Tokens {
            input: usage
                .input
                .saturating_add(usage.cache_read)
                .saturating_add(usage.cache_write),
            output: usage.output,
        });
        Report {
            spent: Spent { tokens, cost: None },
            end: if self.is_error {
                End::Badly {
                    error: self.result.clone(),
                }
            } else {
                End::Well
            },
            text: self.result,
        }
    }
}
