//! Values before they have the type of their setting, with their positions.

use std::collections::BTreeMap;

use super::key::KeyPath;
use super::layer::SettingOrigin;

/// Keys and their values.
pub(super) type SettingMap = BTreeMap<KeyPath, Setting>;

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) value: ConfigValue,
    pub(super) origin: SettingOrigin,
}

/// A value of TOML, JSON, YAML or plain text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ConfigValue {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Setting>),
    Table(Vec<TableMember>),
    /// Something that no setting accepts, described by the text.
    Foreign(&'static str),
}

/// One key of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableMember {
    pub(super) key: String,
    /// The position of the key. The value has its own.
    pub(super) key_origin: SettingOrigin,
    pub(super) setting: Setting,
}

/// The maximum number of characters of a text in a message.
const SHOWN: usize = 60;

impl ConfigValue {
    /// A number that no type of setting can hold.
    pub(super) const TOO_LARGE: Self = Self::Foreign("a number beyond 64 bits");

    /// The text, if it is one.
    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value in a message.
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

/// Messages end up in logs, and `https://user:password@host` is a common mistake.
fn may_hold_a_password(text: &str) -> bool {
    text.split_once("://").is_some_and(|(_, rest)| rest.contains('@'))
}

fn shortened(text: &str) -> String {
    let shown: String = text.chars().take(SHOWN).collect();
    let dots = if shown.len() < text.len() { "..." } else { "" };
    format!("{}{dots}", shown.escape_debug())
}
