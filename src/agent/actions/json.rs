//! JSON that knows where in the text each of its values stands.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Where in a text something is, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in it.
    pub column: usize,
}

impl Position {
    /// The position of a byte, or of the character it belongs to.
    pub(super) fn of_byte(text: &str, byte: usize) -> Self {
        let before = &text[..char_start(text, byte)];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// The start of the character that this byte belongs to; the text's end for one beyond it.
pub(super) fn char_start(text: &str, byte: usize) -> usize {
    (0..=byte.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

/// One value of a text that is JSON.
pub(super) struct Node<'a> {
    document: &'a str,
    raw: &'a RawValue,
    path: String,
}

/// What kind of value a node is, in the words of JSON schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{...}`.
    Object,
    /// `[...]`.
    Array,
    /// `"..."`.
    String,
    /// `1`.
    Number,
    /// `true` or `false`.
    Boolean,
    /// `null`.
    Null,
}

impl<'a> Node<'a> {
    /// Reads the JSON value a text begins with, and says at which byte it ends; `None` when there is only space.
    pub(super) fn parse(document: &'a str) -> Result<Option<(Self, usize)>, serde_json::Error> {
        let mut values = serde_json::Deserializer::from_str(document).into_iter();
        let raw: Option<&'a RawValue> = values.next().transpose()?;
        let root = |raw| Self {
            document,
            raw,
            path: String::new(),
        };
        Ok(raw.map(|raw| (root(raw), values.byte_offset())))
    }

    pub(super) fn kind(&self) -> Kind {
        match self.raw.get().as_bytes().first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Boolean,
            Some(b'n') => Kind::Null,
            _ => Kind::Number,
        }
    }

    pub(super) fn position(&self) -> Position {
        let start = self.raw.get().as_ptr().addr() - self.document.as_ptr().addr();
        Position::of_byte(self.document, start)
    }

    /// Reads the value as a Rust one.
    pub(super) fn read<T: Deserialize<'a>>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.raw.get())
    }

    /// The way to it from the root, for example `actions[1].command`; empty for the root.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The fields of an object, in order, also those that come twice; none for another value.
    pub(super) fn fields(&self) -> Vec<(String, Node<'a>)> {
        let fields: Fields<'a> = self.read().unwrap_or_default();
        let dot = if self.path.is_empty() { "" } else { "." };
        let named = |(key, raw): (&RawValue, &'a RawValue)| {
            let name = serde_json::from_str(key.get()).unwrap_or_else(|_| key.get().to_owned());
            let path = format!("{}{dot}{name}", self.path);
            (name, self.at(raw, path))
        };
        fields.0.into_iter().map(named).collect()
    }

    /// The items of an array; none for another value.
    pub(super) fn items(&self) -> Vec<Node<'a>> {
        let items: Vec<&'a RawValue> = self.read().unwrap_or_default();
        let numbered = |(index, raw)| self.at(raw, format!("{}[{index}]", self.path));
        items.into_iter().enumerate().map(numbered).collect()
    }

    fn at(&self, raw: &'a RawValue, path: String) -> Self {
        Self {
            document: self.document,
            raw,
            path,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Null => "null",
        })
    }
}

/// An object's fields as they are written.
#[derive(Default)]
struct Fields<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_knows_where_it_stands() {
        let text = "{\n \"ä\": \"ö\", \"x\": [1,\n  true]}";
        let (root, end) = Node::parse(text).unwrap().unwrap();
        assert_eq!(end, text.len());
        let fields = root.fields();
        let items = fields[1].1.items();
        let found: Vec<_> = [&root, &fields[0].1, &fields[1].1, &items[1]]
            .iter()
            .map(|node| format!("{} {} {}", node.path(), node.kind(), node.position()))
            .collect();
        let expected = [
            " object line 1, column 1",
            "ä string line 2, column 7",
            "x array line 2, column 17",
            "x[1] boolean line 3, column 3",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_field_that_comes_twice_is_seen_twice() {
        let (root, _) = Node::parse(r#"{"a": 1, "a": 2}"#).unwrap().unwrap();
        assert_eq!(root.fields().len(), 2);
    }
}
