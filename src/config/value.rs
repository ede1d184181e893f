//! A value as it was written, before it has a type of its own, and the place it was written at.

use super::key::KeyPath;
use super::layer::Origin;

/// A key and what one source says it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: KeyPath,
    pub(super) setting: Setting,
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) value: Value,
    pub(super) origin: Origin,
}

/// What TOML, JSON, YAML and plain text have in common.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Setting>),
    Table(Vec<Member>),
    /// Something no setting takes; the text says what.
    Foreign(&'static str),
}

/// One key of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Member {
    pub(super) key: String,
    /// Where the key stands; the value has a place of its own.
    pub(super) key_origin: Origin,
    pub(super) setting: Setting,
}

/// Longer texts are cut in messages.
const SHOWN: usize = 60;

impl Value {
    /// What was found, for a message.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Bool(value) => format!("`{value}`"),
            Self::Integer(value) => format!("the number `{value}`"),
            Self::Float(value) => format!("the number `{value:?}`"),
            Self::Text(text) if may_hold_a_password(text) => "an address with a user name".to_owned(),
            Self::Text(text) => format!("the text `{}`", shortened(text)),
            Self::List(_) => "a list".to_owned(),
            Self::Table(_) => "a table".to_owned(),
            Self::Foreign(what) => (*what).to_owned(),
        }
    }

    /// The value as JSON, for `config show`.
    pub(super) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Bool(value) => (*value).into(),
            Self::Integer(value) => (*value).into(),
            Self::Float(value) => (*value).into(),
            Self::Text(text) => text.as_str().into(),
            Self::List(items) => items.iter().map(|item| item.value.to_json()).collect(),
            Self::Table(_) | Self::Foreign(_) => serde_json::Value::Null,
        }
    }
}

/// Messages end up in logs, and `https://user:password@host` is a common slip.
fn may_hold_a_password(text: &str) -> bool {
    text.split_once("://").is_some_and(|(_, rest)| rest.contains('@'))
}

fn shortened(text: &str) -> String {
    let shown: String = text.chars().take(SHOWN).collect();
    let dots = if shown.len() < text.len() { "..." } else { "" };
    format!("{}{dots}", shown.escape_debug())
}
