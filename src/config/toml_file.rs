//! Parses TOML into values with their positions.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::ConfigDocument;
use super::error::ConfigFinding;
use super::known;
use super::value::{ConfigValue, Setting, SettingMap, TableMember};

/// Reads a TOML file. All syntax errors are reported. A file with any has no settings, because keys below a broken table
/// header would get wrong names.
pub(super) fn read(document: ConfigDocument<'_>, findings: &mut Vec<ConfigFinding>) -> SettingMap {
    let (table, errors) = DeTable::parse_recoverable(document.text);
    if errors.is_empty() {
        return known::flatten(members(document, table.get_ref()), findings);
    }
    findings.extend(errors.iter().map(|error| {
        let offset = error.span().map_or(document.text.len(), |span| span.start);
        ConfigFinding::new(document.origin(offset).place, error.message())
    }));
    SettingMap::new()
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
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or(ConfigValue::TOO_LARGE, ConfigValue::Integer),
            DeValue::Float(number) => {
                let parsed = number.as_str().parse();
                parsed.map_or(ConfigValue::TOO_LARGE, ConfigValue::Float)
            }
            DeValue::Boolean(value) => ConfigValue::Bool(*value),
            DeValue::Datetime(_) => ConfigValue::Foreign("a date or time"),
            DeValue::Array(items) => {
                ConfigValue::List(items.iter().map(|item| setting(document, item)).collect())
            }
            DeValue::Table(table) => ConfigValue::Table(members(document, table)),
        },
    }
}
