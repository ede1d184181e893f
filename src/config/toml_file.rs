//! TOML text as values with their places.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::Document;
use super::error::Finding;
use super::value::{Member, Setting, Value};

/// Reads a TOML file. Every syntax error is reported; what stands around one is then not looked at, because a broken
/// table header puts the keys below it elsewhere.
pub(super) fn read(document: Document<'_>) -> (Vec<Member>, Vec<Finding>) {
    let (table, errors) = DeTable::parse_recoverable(document.text);
    let finding = |error: &toml::de::Error| {
        let offset = error.span().map_or(document.text.len(), |span| span.start);
        Finding::syntax(document.origin(offset).place, error.message())
    };
    if errors.is_empty() {
        (members(document, table.get_ref()), Vec::new())
    } else {
        (Vec::new(), errors.iter().map(finding).collect())
    }
}

fn members(document: Document<'_>, table: &DeTable<'_>) -> Vec<Member> {
    table
        .iter()
        .map(|(key, value)| Member {
            key: key.get_ref().to_string(),
            key_origin: document.origin(key.span().start),
            setting: setting(document, value),
        })
        .collect()
}

fn setting(document: Document<'_>, value: &Spanned<DeValue<'_>>) -> Setting {
    Setting {
        origin: document.origin(value.span().start),
        value: match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or(Value::Foreign("a number beyond 64 bits"), Value::Integer),
            DeValue::Float(number) => number
                .as_str()
                .parse()
                .map_or(Value::Foreign("a number beyond 64 bits"), Value::Float),
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Datetime(_) => Value::Foreign("a date or time"),
            DeValue::Array(items) => Value::List(items.iter().map(|item| setting(document, item)).collect()),
            DeValue::Table(table) => Value::Table(members(document, table)),
        },
    }
}
