//! The keys that exist, from the types in `settings`, and suggestions for unknown ones.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::error::{ConfigFinding, ConfigProblem};
use super::key::KeyPath;
use super::layer::SettingOrigin;
use super::value::{ConfigValue, Setting, SettingEntry, TableMember};

/// The content of a key.
#[derive(Clone, Debug)]
pub(super) enum KnownKeys {
    /// A value.
    Value(ValueKind),
    /// A table with these keys.
    Section(BTreeMap<String, KnownKeys>),
    /// A table with arbitrary keys that all have the same content.
    Named(Box<KnownKeys>),
}

/// How a value that is plain text is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Bool,
    Whole,
    Number,
    Text,
    List,
}

/// The placeholder of a name that the user chooses.
pub(super) const ANY_NAME: &str = "NAME";

impl KnownKeys {
    /// The keys of a JSON schema without references.
    pub(super) fn from_schema(schema: &Json) -> Self {
        if let Some(properties) = schema["properties"].as_object() {
            let inner = properties.iter();
            Self::Section(
                inner
                    .map(|(name, schema)| (name.clone(), Self::from_schema(schema)))
                    .collect(),
            )
        } else if schema["additionalProperties"].is_object() {
            Self::Named(Box::new(Self::from_schema(&schema["additionalProperties"])))
        } else {
            Self::Value(ValueKind::from_schema(&schema["type"]))
        }
    }

    /// Every key, in order.
    pub(super) fn keys(&self) -> Vec<KeyPath> {
        let mut keys = Vec::new();
        self.collect_keys(&[], &mut keys);
        keys
    }

    fn collect_keys(&self, path: &[String], keys: &mut Vec<KeyPath>) {
        let below = |name: &str| [path, &[name.to_owned()]].concat();
        match self {
            Self::Value(_) => keys.push(KeyPath::from_segments(path)),
            Self::Section(inner) => {
                for (name, known) in inner {
                    known.collect_keys(&below(name), keys);
                }
            }
            Self::Named(known) => known.collect_keys(&below(ANY_NAME), keys),
        }
    }

    /// The content of a name.
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Value(_) => None,
            Self::Section(inner) => inner.get(name),
            Self::Named(known) => Some(known),
        }
    }

    /// How the value of a key is parsed, if the key exists.
    pub(super) fn kind(&self, key: &KeyPath) -> Option<ValueKind> {
        let found = key
            .segments()
            .iter()
            .try_fold(self, |known, name| known.child(name))?;
        match found {
            Self::Value(kind) => Some(*kind),
            Self::Section(_) | Self::Named(_) => None,
        }
    }

    /// The problem of an unknown key, with a suggestion: a similar key in the same section, the same name elsewhere, or a
    /// similar path.
    pub(super) fn unknown(&self, key: KeyPath) -> ConfigProblem {
        let suggestion = self
            .neighbour(&key)
            .or_else(|| {
                let keys = self.keys().into_iter();
                let mut namesakes = keys.filter(|known| known.segments().last() == key.segments().last());
                namesakes.next().map(|known| known.to_string())
            })
            .or_else(|| closest(&key.to_string(), self.keys().iter().map(ToString::to_string)));
        ConfigProblem::UnknownKey { key, suggestion }
    }

    fn neighbour(&self, key: &KeyPath) -> Option<String> {
        let (name, parents) = key.segments().split_last()?;
        match parents.iter().try_fold(self, |known, name| known.child(name))? {
            Self::Section(inner) => {
                let name = closest(name, inner.keys().cloned())?;
                Some(KeyPath::from_segments(parents.iter().chain([&name])).to_string())
            }
            Self::Value(_) | Self::Named(_) => None,
        }
    }
}

impl ValueKind {
    fn from_schema(kind: &Json) -> Self {
        let names = kind.as_array().map_or(std::slice::from_ref(kind), Vec::as_slice);
        let is = |name: &str| names.iter().any(|kind| kind == name);
        if is("boolean") {
            Self::Bool
        } else if is("integer") {
            Self::Whole
        } else if is("array") {
            Self::List
        } else if is("number") && !is("string") {
            Self::Number
        } else {
            Self::Text
        }
    }

    /// Parses plain text. Text that is not of this kind stays text, and is refused when it gets its type.
    pub(super) fn parse(self, text: &str, origin: &SettingOrigin) -> ConfigValue {
        let as_text = || ConfigValue::Text(text.to_owned());
        match self {
            Self::Bool => text.parse().map_or_else(|_| as_text(), ConfigValue::Bool),
            Self::Whole => text.parse().map_or_else(|_| as_text(), ConfigValue::Integer),
            Self::Number => text.parse().map_or_else(|_| as_text(), ConfigValue::Float),
            Self::Text => as_text(),
            Self::List => ConfigValue::List(
                text.split(',')
                    .map(str::trim)
                    .filter(|item| !item.is_empty())
                    .map(|item| Setting {
                        value: ConfigValue::Text(item.to_owned()),
                        origin: origin.clone(),
                    })
                    .collect(),
            ),
        }
    }
}

/// Flattens the tables of a file into entries. An unknown table is reported once.
pub(super) fn flatten(
    root: &KnownKeys,
    members: Vec<TableMember>,
) -> (Vec<SettingEntry>, Vec<ConfigFinding>) {
    let mut flattener = Flattener {
        root,
        entries: Vec::new(),
        findings: Vec::new(),
    };
    flattener.walk(root, &[], members);
    (flattener.entries, flattener.findings)
}

struct Flattener<'a> {
    root: &'a KnownKeys,
    entries: Vec<SettingEntry>,
    findings: Vec<ConfigFinding>,
}

impl Flattener<'_> {
    fn walk(&mut self, known: &KnownKeys, path: &[String], members: Vec<TableMember>) {
        for member in members {
            let below = [path, std::slice::from_ref(&member.key)].concat();
            let key = KeyPath::from_segments(&below);
            let place = member.setting.origin.place.clone();
            match (known.child(&member.key), member.setting) {
                (None, _) => self.findings.push(ConfigFinding {
                    place: member.key_origin.place,
                    problem: self.root.unknown(key),
                }),
                (Some(KnownKeys::Value(_)), setting) => self.entries.push(SettingEntry { key, setting }),
                (Some(section), setting) => match setting.value {
                    ConfigValue::Table(inner) => self.walk(section, &below, inner),
                    other => self.findings.push(ConfigFinding {
                        place,
                        problem: ConfigProblem::InvalidValue {
                            key,
                            found: other.describe(),
                            expected: "a table".to_owned(),
                        },
                    }),
                },
            }
        }
    }
}

/// The candidate most similar to a mistyped name.
pub(super) fn closest(name: &str, candidates: impl IntoIterator<Item = String>) -> Option<String> {
    candidates
        .into_iter()
        .filter(|candidate| candidate != name)
        .map(|candidate| (strsim::jaro_winkler(name, &candidate), candidate))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

/// Low enough for `memory` to find `memory_gb`.
const MIN_SIMILARITY: f64 = 0.85;
