//! `ralph config show`: each value, the layer that set it and where.

use serde::Serialize;
use serde_json::Value as Json;

use super::Config;
use super::known::ANY_NAME;
use super::layer::{Layer, Place};
use super::schema;

/// One line of `ralph config show`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The key, or `env.NAME` for a credential.
    pub key: String,
    /// The value; null when nothing sets it, `***` when it is confidential.
    pub value: Json,
    /// The layer that set it.
    pub layer: Layer,
    /// Where exactly: a file with line and column, a variable, a flag.
    pub source: String,
}

/// The rows as aligned text.
#[must_use]
pub fn as_text(rows: &[Row]) -> String {
    let cells: Vec<[String; 4]> = rows.iter().map(cells).collect();
    let width = |column: usize| {
        let lengths = cells.iter().map(|row| row[column].chars().count());
        lengths.max().unwrap_or(0)
    };
    let (key, value, layer) = (width(0), width(1), width(2));
    cells
        .iter()
        .map(|row| {
            let line = format!(
                "{:key$}  {:value$}  {:layer$}  {}",
                row[0], row[1], row[2], row[3]
            );
            line.trim_end().to_owned() + "\n"
        })
        .collect()
}

impl Config {
    /// Every key and every credential that is set, in order.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let set = self.entries.iter().map(|(key, setting)| Row {
            key: key.to_string(),
            value: setting.value.to_json(),
            layer: setting.origin.layer,
            source: setting.origin.place.to_string(),
        });
        let known = schema::known().keys().into_iter();
        let unset = known
            .filter(|key| {
                !self.entries.contains_key(key) && !key.segments().iter().any(|name| name == ANY_NAME)
            })
            .map(|key| Row {
                key: key.to_string(),
                value: Json::Null,
                layer: Layer::Default,
                source: Place::BuiltIn.to_string(),
            });
        let mut rows: Vec<Row> = set.chain(unset).collect();
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        rows.extend(self.credential_rows());
        rows
    }

    fn credential_rows(&self) -> impl Iterator<Item = Row> {
        self.credential_names().filter_map(|name| {
            let value = self.variables.get(name)?;
            let shown = if self.is_secret(name) {
                value.to_string()
            } else {
                value.expose().to_owned()
            };
            Some(Row {
                key: format!("env.{name}"),
                value: shown.into(),
                layer: Layer::Env,
                source: self.variables.place(name)?.to_string(),
            })
        })
    }
}

fn cells(row: &Row) -> [String; 4] {
    [
        row.key.clone(),
        plain(&row.value),
        row.layer.to_string(),
        row.source.clone(),
    ]
}

fn plain(value: &Json) -> String {
    match value {
        Json::Null => "(not set)".to_owned(),
        Json::String(text) => text.clone(),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Bool(_) | Json::Number(_) | Json::Object(_) => value.to_string(),
    }
}
