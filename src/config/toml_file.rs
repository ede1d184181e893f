//! Parses TOML into values with their positions.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::ConfigDocument;
use super::error::ConfigFinding;
use super::value::{ConfigValue, Setting, TableMember};

/// Reads a TOML file. All syntax errors are reported. A file with any has no members, because keys below a broken table
/// header would get wrong names.
pub(super) fn read(document: ConfigDocument<'_>) -> (Vec<TableMember>, Vec<ConfigFinding>) {
    let (table, errors) = DeTable::parse_recoverable(document.text);
    let finding = |error: &toml::de::Error| {
        let offset = error.span().map_or(document.text.len(), |span| span.start);
        ConfigFinding::syntax(document.origin(offset).place, error.message())
    };
    if errors.is_empty() {
        (members(document, table.get_ref()), Vec::new())
    } else {
        (Vec::new(), errors.iter().map(finding).collect())
    }
}

fn members(document: ConfigDocument<'_>, table: &DeTable<'_>) -> Vec<TableMember> {
    table
        .iter()
        .map(|(key, value)| TableMember {
            key: key.get_ref().to_string(),
            key_origin: document.origin(key.span().start),
            setting: setting(document, value),
        })
        .collect()
}

fn setting(document: ConfigDocument<'_>, value: &Spanned<DeValue<'_>>) -> Setting {
    Setting {
        origin: document.origin(value.span().start),
        value: match value.get_ref() {
            DeValue::String(text) => ConfigValue::Text(text.to_string()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).map_or(
                ConfigValue::Foreign("a number beyond 64 bits"),
                ConfigValue::Integer,
            ),
            DeValue::Float(number) => number.as_str().parse().map_or(
                ConfigValue::Foreign("a number beyond 64 bits"),
                ConfigValue::Float,
            ),
            DeValue::Boolean(value) => ConfigValue::Bool(*value),
            DeValue::Datetime(_) => ConfigValue::Foreign("a date or time"),
            DeValue::Array(items) => {
                ConfigValue::List(items.iter().map(|item| setting(document, item)).collect())
            }
            DeValue::Table(table) => ConfigValue::Table(members(document, table)),
        },
    }
}
