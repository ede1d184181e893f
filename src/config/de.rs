//! A serde deserializer over keys and values that remembers which value failed.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{self, Deserializer, IntoDeserializer, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::key::KeyPath;
use super::settings::ConfigSettings;
use super::value::{ConfigValue, Setting, SettingMap};

/// The typed settings, or the first invalid value.
pub(super) fn typed(entries: &SettingMap) -> Result<ConfigSettings, TypeMismatch> {
    let mut root = Branch::new();
    for (key, setting) in entries {
        insert(&mut root, key.segments(), Leaf(key.clone(), setting));
    }
    ConfigSettings::deserialize(Tree::Branch(root))
}

/// An invalid value.
#[derive(Debug, thiserror::Error)]
#[error("expected {expected}")]
pub(super) struct TypeMismatch {
    /// What is allowed.
    pub(super) expected: String,
    /// The key and its value, unless a key is missing.
    pub(super) found: Option<Box<(KeyPath, Setting)>>,
}

impl de::Error for TypeMismatch {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self {
            expected: message.to_string(),
            found: None,
        }
    }

    fn invalid_type(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        // The words of the file formats.
        Self::custom(match expected.to_string().as_str() {
            "a sequence" => "a list such as [\"a\", \"b\"]",
            "a string" => "a text",
            "a boolean" => "`true` or `false`",
            "a nonzero u32" => "a whole number of at least 1",
            expected => expected,
        })
    }

    fn invalid_value(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(format!("one of `{}`", expected.join("`, `")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom(format!("the key `{field}`"))
    }
}

type Branch<'a> = BTreeMap<&'a str, Tree<'a>>;

enum Tree<'a> {
    Leaf(Leaf<'a>),
    Branch(Branch<'a>),
}

/// A key and its value.
struct Leaf<'a>(KeyPath, &'a Setting);

fn insert<'a>(branch: &mut Branch<'a>, path: &'a [String], leaf: Leaf<'a>) {
    match path {
        [] => {}
        [name] => {
            branch.insert(name, Tree::Leaf(leaf));
        }
        [name, rest @ ..] => {
            let inner = branch.entry(name).or_insert_with(|| Tree::Branch(Branch::new()));
            if let Tree::Branch(inner) = inner {
                insert(inner, rest, leaf);
            }
        }
    }
}

impl Leaf<'_> {
    fn refused(&self, mut mismatch: TypeMismatch) -> TypeMismatch {
        let found = || Box::new((self.0.clone(), self.1.clone()));
        mismatch.found.get_or_insert_with(found);
        mismatch
    }
}

impl<'de> Deserializer<'de> for Tree<'de> {
    type Error = TypeMismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
        let leaf = match self {
            Self::Branch(branch) => return visitor.visit_map(MapDeserializer::new(branch.into_iter())),
            Self::Leaf(leaf) => leaf,
        };
        let Leaf(key, setting) = &leaf;
        let read = match &setting.value {
            ConfigValue::Bool(value) => visitor.visit_bool(*value),
            ConfigValue::Integer(value) => visitor.visit_i64(*value),
            ConfigValue::Float(value) => visitor.visit_f64(*value),
            ConfigValue::Text(text) => visitor.visit_borrowed_str(text),
            ConfigValue::List(items) => {
                let items = items.iter().map(|item| Self::Leaf(Leaf(key.clone(), item)));
                visitor.visit_seq(SeqDeserializer::new(items))
            }
            // A table in a list. All other tables are branches.
            ConfigValue::Table(members) => {
                let members = members.iter().map(|member| {
                    let leaf = Leaf(key.child(&member.key), &member.setting);
                    (member.key.as_str(), Self::Leaf(leaf))
                });
                visitor.visit_map(MapDeserializer::new(members))
            }
            ConfigValue::Foreign(_) => Err(de::Error::invalid_type(de::Unexpected::Map, &visitor)),
        };
        read.map_err(|mismatch| leaf.refused(mismatch))
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
        let Self::Leaf(leaf) = self else {
            return Err(de::Error::unknown_variant("", names));
        };
        let read = match &leaf.1.value {
            ConfigValue::Text(text) => visitor.visit_enum(StrDeserializer::new(text)),
            _ => Err(de::Error::unknown_variant("", names)),
        };
        read.map_err(|mismatch| leaf.refused(mismatch))
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
