//! `.agent-loop/config.json`: `{type, base_image, cpu, memory_gb, allowed_hosts}`, all optional. They become settings of
//! the project layer.

use std::collections::btree_map::Entry;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::document::ConfigDocument;
use super::error::ConfigFinding;
use super::key::KeyPath;
use super::known::closest;
use super::value::{ConfigValue, Setting, SettingMap};

/// Its keys, and the settings that they set.
const KEYS: [(&str, &str); 5] = [
    ("type", "sandbox.type"),
    ("base_image", "sandbox.image"),
    ("cpu", "sandbox.resources.cpus"),
    ("memory_gb", MEMORY),
    ("allowed_hosts", "sandbox.network.allowed"),
];

const MEMORY: &str = "sandbox.resources.memory";

/// Reads the file.
pub(super) fn read(document: ConfigDocument<'_>, findings: &mut Vec<ConfigFinding>) -> SettingMap {
    let mut entries = SettingMap::new();
    let object: Object<'_> = match serde_json::from_str(document.text) {
        Ok(object) => object,
        Err(error) => {
            findings.push(not_an_object(document, &error));
            return entries;
        }
    };
    for (name, raw) in object.0 {
        let origin = document.origin(offset_in(document.text, raw.get()));
        let own_key = KeyPath::ROOT.child(&name);
        let Some((_, key)) = KEYS.iter().find(|(known, _)| *known == name) else {
            let meant = closest(&name, KEYS.map(|(known, _)| known.to_owned()));
            findings.push(ConfigFinding::unknown_key(origin.place, &own_key, meant));
            continue;
        };
        let value = match (*key, value(document, raw)) {
            (MEMORY, ConfigValue::Integer(gigabytes)) => ConfigValue::Text(format!("{gigabytes}g")),
            (MEMORY, ConfigValue::Float(gigabytes)) => ConfigValue::Text(format!("{gigabytes}g")),
            (MEMORY, other) => {
                let expected = "a number of gigabytes";
                findings.push(ConfigFinding::invalid_value(
                    origin.place,
                    &own_key,
                    &other,
                    expected,
                ));
                continue;
            }
            (_, value) => value,
        };
        match entries.entry(KeyPath::parse(key)) {
            Entry::Vacant(entry) => {
                entry.insert(Setting { value, origin });
            }
            Entry::Occupied(_) => {
                findings.push(ConfigFinding::new(
                    origin.place,
                    format!("duplicate key `{name}`"),
                ));
            }
        }
    }
    entries
}

fn not_an_object(document: ConfigDocument<'_>, error: &serde_json::Error) -> ConfigFinding {
    // The message of serde_json ends with the position.
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text);
    let origin = document.origin_of_line(error.line(), error.column());
    ConfigFinding::new(origin.place, message)
}

fn value(document: ConfigDocument<'_>, raw: &RawValue) -> ConfigValue {
    match raw.get().bytes().next() {
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
            let setting = |item: &&RawValue| Setting {
                value: scalar(item),
                origin: document.origin(offset_in(document.text, item.get())),
            };
            ConfigValue::List(items.iter().map(setting).collect())
        }
        _ => scalar(raw),
    }
}

fn scalar(raw: &RawValue) -> ConfigValue {
    match serde_json::from_str(raw.get()) {
        Ok(serde_json::Value::Bool(value)) => ConfigValue::Bool(value),
        Ok(serde_json::Value::String(text)) => ConfigValue::Text(text),
        Ok(serde_json::Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => ConfigValue::Integer(whole),
            (None, number) => number.map_or(ConfigValue::TOO_LARGE, ConfigValue::Float),
        },
        Ok(serde_json::Value::Null) => ConfigValue::Foreign("null"),
        Ok(serde_json::Value::Array(_)) => ConfigValue::Foreign("a list"),
        Ok(serde_json::Value::Object(_)) => ConfigValue::Foreign("an object"),
        Err(_) => ConfigValue::Foreign("a value that cannot be read"),
    }
}

/// The byte offset of `part` in `text`.
fn offset_in(text: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize)
}

/// The members of an object in order, duplicates included.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct MemberAccess;
        impl<'de> Visitor<'de> for MemberAccess {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Object(members))
            }
        }
        from.deserialize_map(MemberAccess)
    }
}
