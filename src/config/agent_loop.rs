//! `.agent-loop/config.json`: `{type, base_image, cpu, memory_gb, allowed_hosts}`, all optional. What it says
//! becomes settings of the project layer.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::document::Document;
use super::error::{Finding, Problem};
use super::key::KeyPath;
use super::known::closest;
use super::layer::Origin;
use super::value::{Entry, Setting, Value};

/// Its keys, and the settings they stand for.
const KEYS: [(&str, &str); 5] = [
    ("type", "sandbox.type"),
    ("base_image", "sandbox.image"),
    ("cpu", "sandbox.resources.cpus"),
    ("memory_gb", MEMORY),
    ("allowed_hosts", "sandbox.network.allowed"),
];

const MEMORY: &str = "sandbox.resources.memory";

/// Reads the file.
pub(super) fn read(document: Document<'_>) -> (Vec<Entry>, Vec<Finding>) {
    let object: Object<'_> = match serde_json::from_str(document.text) {
        Ok(object) => object,
        Err(error) => return (Vec::new(), vec![not_an_object(document, &error)]),
    };
    let mut entries: Vec<Entry> = Vec::new();
    let mut findings = Vec::new();
    for (name, raw) in object.0 {
        let origin = document.origin(offset_in(document.text, raw.get()));
        match entry(document, &name, raw, &origin) {
            Ok(entry) if entries.iter().any(|earlier| earlier.key == entry.key) => {
                findings.push(Finding::syntax(
                    origin.place,
                    format!("the key `{name}` stands here twice"),
                ));
            }
            Ok(entry) => entries.push(entry),
            Err(problem) => findings.push(Finding {
                place: origin.place,
                problem,
            }),
        }
    }
    (entries, findings)
}

fn not_an_object(document: Document<'_>, error: &serde_json::Error) -> Finding {
    // serde_json repeats the position in its text.
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text).to_owned();
    Finding::syntax(
        document.origin_of_line(error.line(), error.column()).place,
        message,
    )
}

fn entry(document: Document<'_>, name: &str, raw: &RawValue, origin: &Origin) -> Result<Entry, Problem> {
    let Some((_, key)) = KEYS.iter().find(|(known, _)| *known == name) else {
        return Err(Problem::UnknownKey {
            key: KeyPath::top(name),
            suggestion: closest(name, KEYS.map(|(known, _)| known.to_owned())),
        });
    };
    let value = value(document, raw);
    let value = match (*key, value) {
        (MEMORY, Value::Integer(gigabytes)) => Value::Text(format!("{gigabytes}g")),
        (MEMORY, Value::Float(gigabytes)) => Value::Text(format!("{gigabytes}g")),
        (MEMORY, other) => {
            return Err(Problem::Unfit {
                key: KeyPath::top(name),
                found: other.describe(),
                expected: "a number of gigabytes".to_owned(),
            });
        }
        (_, value) => value,
    };
    Ok(Entry {
        key: KeyPath::parse(key),
        setting: Setting {
            value,
            origin: origin.clone(),
        },
    })
}

fn value(document: Document<'_>, raw: &RawValue) -> Value {
    match raw.get().bytes().next() {
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
            let setting = |item: &&RawValue| Setting {
                value: scalar(item),
                origin: document.origin(offset_in(document.text, item.get())),
            };
            Value::List(items.iter().map(setting).collect())
        }
        _ => scalar(raw),
    }
}

fn scalar(raw: &RawValue) -> Value {
    match serde_json::from_str(raw.get()) {
        Ok(serde_json::Value::Bool(value)) => Value::Bool(value),
        Ok(serde_json::Value::String(text)) => Value::Text(text),
        Ok(serde_json::Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Value::Integer(whole),
            (None, Some(number)) => Value::Float(number),
            (None, None) => Value::Foreign("a number beyond 64 bits"),
        },
        Ok(serde_json::Value::Null) => Value::Foreign("null"),
        Ok(serde_json::Value::Array(_)) => Value::Foreign("a list"),
        Ok(serde_json::Value::Object(_)) => Value::Foreign("an object"),
        Err(_) => Value::Foreign("a value that cannot be read"),
    }
}

/// How far into `text` a part of it begins.
fn offset_in(text: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize)
}

/// The members as they are written, repeated ones too.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
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
        from.deserialize_map(Members)
    }
}
