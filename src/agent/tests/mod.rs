//! Tests of the agent programs: their command lines, sessions and transcripts.

mod commands;
mod sessions;
mod transcripts;

use std::path::PathBuf;

use super::{AgentBrief, AgentCredential, Claude, Codex, Cursor, Custom, ModelAccess};
use crate::model::AuthMethod;
use crate::secret::Secret;
use crate::usage::Usd;

const KEY: &str = "sk-0123456789";
const PROMPT: &str = "Do \"it\".";

fn access(base_url: Option<&str>, auth: AuthMethod) -> ModelAccess {
    ModelAccess {
        base_url: base_url.map(str::to_owned),
        credential: Some(AgentCredential {
            auth,
            value: Secret::new(KEY),
        }),
        credential_hint: Some("another key".to_owned()),
    }
}

fn claude() -> Claude {
    Claude {
        model: Some("opus".to_owned()),
        effort: None,
    }
}

fn codex() -> Codex {
    Codex {
        model: Some("gpt-5".to_owned()),
        effort: Some("high".to_owned()),
    }
}

fn cursor() -> Cursor {
    Cursor {
        model: Some("auto".to_owned()),
    }
}

fn custom() -> Custom {
    Custom {
        program: "aider".to_owned(),
        args: vec!["--message-file".to_owned(), "{prompt_file}".to_owned()],
        key_variable: Some("MY_KEY".to_owned()),
    }
}

fn brief() -> AgentBrief {
    AgentBrief {
        text: PROMPT.to_owned(),
        iteration: 3,
        home: PathBuf::from("/box/agent"),
        cost_left: Usd::from_dollars(1.5),
    }
}
