//! The rows of `ralph config show`: each value with its layer and position.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value as Json;

use super::Config;
use super::known::{self, ANY_NAME};
use super::layer::{ConfigLayer, SettingPlace};
use super::loaded::is_secret;

/// One line of `ralph config show`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ConfigRow {
    /// The key, or `env.NAME` for a credential.
    pub key: String,
    /// The value; null when it is not set, `***` when it is secret.
    pub value: Json,
    /// The layer that set it.
    pub layer: ConfigLayer,
    /// The position: a file with line and column, a variable or a flag.
    pub source: String,
}

impl ConfigRow {
    /// The row as text: key, value, layer and position.
    #[must_use]
    pub fn cells(&self) -> [String; 4] {
        [
            self.key.clone(),
            plain(&self.value),
            self.layer.to_string(),
            self.source.clone(),
        ]
    }
}

impl Config {
    /// Every key and every credential that is set, in order.
    #[must_use]
    pub fn rows(&self) -> Vec<ConfigRow> {
        let set = self.entries.iter().map(|(key, setting)| ConfigRow {
            key: key.to_string(),
            value: setting.value.to_json(),
            layer: setting.origin.layer,
            source: setting.origin.place.to_string(),
        });
        let known = known::keys().into_iter();
        let unset = known
            .filter(|key| {
                !self.entries.contains_key(key) && !key.segments().iter().any(|name| name == ANY_NAME)
            })
            .map(|key| ConfigRow {
                key: key.to_string(),
                value: Json::Null,
                layer: ConfigLayer::Default,
                source: SettingPlace::BuiltIn.to_string(),
            });
        let mut rows: Vec<ConfigRow> = set.chain(unset).collect();
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        rows.extend(self.credential_rows());
        rows
    }

    fn credential_rows(&self) -> impl Iterator<Item = ConfigRow> {
        self.credential_names().filter_map(|name| {
            let value = self.variables.get(name)?;
            let shown = if is_secret(&self.settings, name) {
                value.to_string()
            } else {
                value.expose().to_owned()
            };
            Some(ConfigRow {
                key: format!("env.{name}"),
                value: shown.into(),
                layer: ConfigLayer::Env,
                source: self.variables.place(name)?.to_string(),
            })
        })
    }
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
