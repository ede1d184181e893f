//! A serde deserializer over keys and values that remembers which key failed.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::key::KeyPath;
use super::settings::ConfigSettings;
use super::value::{ConfigValue, Setting};

/// The typed settings, or the first invalid value.
pub(super) fn typed(entries: &BTreeMap<KeyPath, Setting>) -> Result<ConfigSettings, TypeMismatch> {
    let mut root = Branch::new();
    for (key, setting) in entries {
        insert(&mut root, key.segments(), setting);
    }
    ConfigSettings::deserialize(Tree::Branch(root))
}

/// An invalid value.
#[derive(Debug)]
pub(super) struct TypeMismatch {
    /// What is allowed.
    pub(super) expected: String,
    /// The value, unless a key is missing.
    pub(super) found: Option<Box<Setting>>,
    /// The segments of the key, innermost first.
    path: Vec<String>,
}

impl TypeMismatch {
    /// The key.
    pub(super) fn key(&self) -> KeyPath {
        KeyPath::from_segments(self.path.iter().rev().cloned())
    }

    fn new(expected: String) -> Self {
        Self {
            expected,
            found: None,
            path: Vec::new(),
        }
    }

    fn at(mut self, setting: &Setting) -> Self {
        self.found.get_or_insert_with(|| Box::new(setting.clone()));
        self
    }

    fn under(mut self, key: &str) -> Self {
        self.path.push(key.to_owned());
        self
    }
}

impl fmt::Display for TypeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: expected {}", self.key(), self.expected)
    }
}

impl std::error::Error for TypeMismatch {}

impl de::Error for TypeMismatch {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(in_file_words(expected.to_string()))
    }

    fn invalid_value(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(in_file_words(expected.to_string()))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        let names: Vec<String> = expected.iter().map(|name| format!("`{name}`")).collect();
        Self::new(format!("one of {}", names.join(", ")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("the key `{field}`"))
    }
}

/// Replaces serde's words by those of the file formats.
fn in_file_words(expected: String) -> String {
    match expected.as_str() {
        "a sequence" => "a list".to_owned(),
        "a string" => "a text".to_owned(),
        _ => expected,
    }
}

type Branch<'a> = BTreeMap<&'a str, Tree<'a>>;

enum Tree<'a> {
    Leaf(&'a Setting),
    Branch(Branch<'a>),
}

fn insert<'a>(branch: &mut Branch<'a>, path: &'a [String], setting: &'a Setting) {
    match path {
        [] => {}
        [name] => {
            branch.insert(name, Tree::Leaf(setting));
        }
        [name, rest @ ..] => {
            let inner = branch.entry(name).or_insert_with(|| Tree::Branch(Branch::new()));
            if let Tree::Branch(inner) = inner {
                insert(inner, rest, setting);
            }
        }
    }
}

impl<'de> Deserializer<'de> for Tree<'de> {
    type Error = TypeMismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
        let setting = match self {
            Self::Branch(branch) => return visitor.visit_map(MemberAccess::new(branch)),
            Self::Leaf(setting) => setting,
        };
        let read = match &setting.value {
            ConfigValue::Bool(value) => visitor.visit_bool(*value),
            ConfigValue::Integer(value) => visitor.visit_i64(*value),
            ConfigValue::Float(value) => visitor.visit_f64(*value),
            ConfigValue::Text(text) => visitor.visit_borrowed_str(text),
            ConfigValue::List(items) => {
                visitor.visit_seq(de::value::SeqDeserializer::new(items.iter().map(Tree::Leaf)))
            }
            // A table in a list. All other tables are branches.
            ConfigValue::Table(members) => {
                let inner = members
                    .iter()
                    .map(|one| (one.key.as_str(), Tree::Leaf(&one.setting)));
                visitor.visit_map(MemberAccess::new(inner.collect()))
            }
            ConfigValue::Foreign(_) => Err(de::Error::invalid_type(de::Unexpected::Map, &visitor)),
        };
        read.map_err(|refusal| refusal.at(setting))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TypeMismatch> {
        match self {
            Self::Leaf(setting) => match &setting.value {
                ConfigValue::Text(text) => {
                    visitor.visit_enum(IntoDeserializer::<TypeMismatch>::into_deserializer(text.as_str()))
                }
                _ => Err(de::Error::unknown_variant("", names)),
            }
            .map_err(|refusal: TypeMismatch| refusal.at(setting)),
            Self::Branch(_) => Err(de::Error::unknown_variant("", names)),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, TypeMismatch> for Tree<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

struct MemberAccess<'a> {
    rest: std::collections::btree_map::IntoIter<&'a str, Tree<'a>>,
    next: Option<(&'a str, Tree<'a>)>,
}

impl<'a> MemberAccess<'a> {
    fn new(branch: Branch<'a>) -> Self {
        Self {
            rest: branch.into_iter(),
            next: None,
        }
    }
}

impl<'de> de::MapAccess<'de> for MemberAccess<'de> {
    type Error = TypeMismatch;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, TypeMismatch> {
        self.next = self.rest.next();
        match &self.next {
            Some((key, _)) => seed.deserialize(StrDeserializer::new(key)).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, TypeMismatch> {
        match self.next.take() {
            Some((key, tree)) => seed.deserialize(tree).map_err(|refusal| refusal.under(key)),
            None => Err(de::Error::custom("a value")),
        }
    }
}
