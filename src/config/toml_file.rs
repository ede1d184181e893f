//! Parses TOML into values with their positions.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::ConfigDocument;
use super::error::ConfigFinding;
use super::known;
use super::layer::SettingOrigin;
use super::value::{ConfigValue, Setting, SettingMap, TableMember};

/// Reads a TOML file. All syntax errors are reported. A file with any has no settings, because keys below a broken table
/// header would get wrong names.
pub(super) fn read(document: ConfigDocument<'_>, findings: &mut Vec<ConfigFinding>) -> SettingMap {
    let (table, errors) = DeTable::parse_recoverable(document.text);
    if errors.is_empty() {
        let origin = |offset| document.origin(offset);
        return known::flatten(members(&origin, table.get_ref()), findings);
    }
    findings.extend(errors.iter().map(|error| {
        let offset = error.span().map_or(document.text.len(), |span| span.start);
        ConfigFinding::new(document.origin(offset).place, error.message())
    }));
    SettingMap::new()
}

/// The items of a list such as `["a", "b"]`, all with one origin; `None` if the text is not a list.
pub(super) fn list(text: &str, origin: &SettingOrigin) -> Option<Vec<Setting>> {
    let value = DeValue::parse(text).ok()?;
    match setting(&|_| origin.clone(), &value).value {
        ConfigValue::List(items) => Some(items),
        _ => None,
    }
}

/// The origin of a byte offset.
type OriginAt<'a> = &'a dyn Fn(usize) -> SettingOrigin;

fn members(origin: OriginAt<'_>, table: &DeTable<'_>) -> Vec<TableMember> {
    table
        .iter()
        .map(|(key, value)| TableMember {
            key: key.get_ref().to_string(),
            key_origin: origin(key.span().start),
            setting: setting(origin, value),
        })
        .collect()
}

fn setting(origin: OriginAt<'_>, value: &Spanned<DeValue<'_>>) -> Setting {
    Setting {
        origin: origin(value.span().start),
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
                ConfigValue::List(items.iter().map(|item| setting(origin, item)).collect())
            }
            DeValue::Table(table) => ConfigValue::Table(members(origin, table)),
        },
    }
}
