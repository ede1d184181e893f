//! Which keys there are, taken from the types in `settings`, and which one was probably meant.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::error::{Finding, Problem};
use super::key::KeyPath;
use super::layer::Origin;
use super::value::{Entry, Member, Setting, Value};

/// What may stand under a key.
#[derive(Clone, Debug)]
pub(super) enum Known {
    /// A value.
    Value(Kind),
    /// A table with these keys.
    Section(BTreeMap<String, Known>),
    /// A table whose keys the user chooses, each with the same content.
    Named(Box<Known>),
}

/// How a value given as plain text is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Whole,
    Number,
    Text,
    List,
}

/// What stands for a name that the user chooses.
pub(super) const ANY_NAME: &str = "NAME";

impl Known {
    /// Reads the keys from a JSON schema without references.
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
            Self::Value(Kind::from_schema(&schema["type"]))
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

    /// What stands under a name here.
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Value(_) => None,
            Self::Section(inner) => inner.get(name),
            Self::Named(known) => Some(known),
        }
    }

    /// How the value of a key is written, when there is such a key.
    pub(super) fn kind(&self, key: &KeyPath) -> Option<Kind> {
        let found = key
            .segments()
            .iter()
            .try_fold(self, |known, name| known.child(name))?;
        match found {
            Self::Value(kind) => Some(*kind),
            Self::Section(_) | Self::Named(_) => None,
        }
    }

    /// That there is no such key, and which one was probably meant: a neighbour, one of the same name elsewhere,
    /// or one that is written alike.
    pub(super) fn unknown(&self, key: KeyPath) -> Problem {
        let suggestion = self
            .neighbour(&key)
            .or_else(|| {
                let keys = self.keys().into_iter();
                let mut namesakes = keys.filter(|known| known.segments().last() == key.segments().last());
                namesakes.next().map(|known| known.to_string())
            })
            .or_else(|| closest(&key.to_string(), self.keys().iter().map(ToString::to_string)));
        Problem::UnknownKey { key, suggestion }
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

impl Kind {
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

    /// The value that a plain text stands for. One that does not read as this kind stays a text, and is refused
    /// with what was expected when it gets its type.
    pub(super) fn of_text(self, text: &str, origin: &Origin) -> Value {
        let as_text = || Value::Text(text.to_owned());
        match self {
            Self::Bool => text.parse().map_or_else(|_| as_text(), Value::Bool),
            Self::Whole => text.parse().map_or_else(|_| as_text(), Value::Integer),
            Self::Number => text.parse().map_or_else(|_| as_text(), Value::Float),
            Self::Text => as_text(),
            Self::List => Value::List(
                text.split(',')
                    .map(str::trim)
                    .filter(|item| !item.is_empty())
                    .map(|item| Setting {
                        value: Value::Text(item.to_owned()),
                        origin: origin.clone(),
                    })
                    .collect(),
            ),
        }
    }
}

/// Flattens a file's tables into entries. What is no key is reported once, at its outermost name.
pub(super) fn flatten(root: &Known, members: Vec<Member>) -> (Vec<Entry>, Vec<Finding>) {
    let mut flattener = Flattener {
        root,
        entries: Vec::new(),
        findings: Vec::new(),
    };
    flattener.walk(root, &[], members);
    (flattener.entries, flattener.findings)
}

struct Flattener<'a> {
    root: &'a Known,
    entries: Vec<Entry>,
    findings: Vec<Finding>,
}

impl Flattener<'_> {
    fn walk(&mut self, known: &Known, path: &[String], members: Vec<Member>) {
        for member in members {
            let below = [path, std::slice::from_ref(&member.key)].concat();
            let key = KeyPath::from_segments(&below);
            let place = member.setting.origin.place.clone();
            match (known.child(&member.key), member.setting) {
                (None, _) => self.findings.push(Finding {
                    place: member.key_origin.place,
                    problem: self.root.unknown(key),
                }),
                (Some(Known::Value(_)), setting) => self.entries.push(Entry { key, setting }),
                (Some(section), setting) => match setting.value {
                    Value::Table(inner) => self.walk(section, &below, inner),
                    other => self.findings.push(Finding {
                        place,
                        problem: Problem::Unfit {
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

/// The candidate that a mistyped name probably means.
pub(super) fn closest(name: &str, candidates: impl IntoIterator<Item = String>) -> Option<String> {
    candidates
        .into_iter()
        .filter(|candidate| candidate != name)
        .map(|candidate| (strsim::jaro_winkler(name, &candidate), candidate))
        .filter(|(likeness, _)| *likeness >= LIKE_ENOUGH)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

/// High enough that a suggestion is never a riddle, low enough for `memory` to find `memory_gb`.
const LIKE_ENOUGH: f64 = 0.85;
