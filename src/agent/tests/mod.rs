//! Tests of the agent programs: what they are started with, and what is read out of what they print.

mod commands;
mod sessions;
mod transcripts;

use std::path::PathBuf;

use super::{Access, Brief, Claude, Codex, Credential, CredentialKind, Cursor, Custom};
use crate::secret::Secret;
use crate::usage::Usd;

const KEY: &str = "sk-0123456789";
const PROMPT: &str = "Do \"it\".";

fn access(base_url: Option<&str>, kind: CredentialKind) -> Access {
    Access {
        base_url: base_url.map(str::to_owned),
        credential: Some(Credential {
            kind,
            value: Secret::new(KEY),
        }),
        remedy: "another key".to_owned(),
    }
}

fn claude() -> Claude {
    Claude {
        model: Some("opus".to_owned()),
        effort: None,
        access: access(Some("http://gateway:1"), CredentialKind::ApiKey),
    }
}

fn codex() -> Codex {
    Codex {
        model: Some("gpt-5".to_owned()),
        effort: Some("high".to_owned()),
        access: access(Some("http://gateway:1/v1"), CredentialKind::ApiKey),
    }
}

fn cursor() -> Cursor {
    Cursor {
        model: Some("auto".to_owned()),
        access: access(None, CredentialKind::ApiKey),
    }
}

fn custom() -> Custom {
    Custom {
        program: "aider".to_owned(),
        args: vec!["--message-file".to_owned(), "{prompt_file}".to_owned()],
        key_variable: Some("MY_KEY".to_owned()),
        access: access(None, CredentialKind::ApiKey),
    }
}

fn brief() -> Brief {
    Brief {
        text: PROMPT.to_owned(),
        iteration: 3,
        home: PathBuf::from("/box/agent"),
        cost_left: Usd::from_dollars(1.5),
    }
}
