//! JSON values with their position in the text.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::text::cut_middle;

/// The longest name of a field in a path, in characters.
const SHOWN_NAME: usize = 100;
/// The longest fault in a problem, in characters. It may quote a text of the answer.
const SHOWN_FAULT: usize = 500;

/// The line and column of the character that contains this byte. Both count from 1; columns count characters.
pub(super) fn position(text: &str, byte: usize) -> String {
    let before = &text[..char_start(text, byte)];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.matches('\n').count() + 1;
    let column = before[line_start..].chars().count() + 1;
    format!("line {line}, column {column}")
}

/// The first byte of the character that contains this byte, or the end of the text.
pub(super) fn char_start(text: &str, byte: usize) -> usize {
    (0..=byte.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

/// One value of a JSON document.
pub(super) struct JsonNode<'a> {
    document: &'a str,
    raw: &'a RawValue,
    path: String,
    has_positions: bool,
}

impl<'a> JsonNode<'a> {
    /// Parses the JSON value at the start of a text and returns it with its end. `None` if there is only white space.
    pub(super) fn parse(document: &'a str) -> Result<Option<(Self, usize)>, serde_json::Error> {
        let mut values = serde_json::Deserializer::from_str(document).into_iter();
        let raw: Option<&'a RawValue> = values.next().transpose()?;
        let root = |raw| Self {
            document,
            raw,
            path: String::new(),
            has_positions: true,
        };
        Ok(raw.map(|raw| (root(raw), values.byte_offset())))
    }

    /// The same value, whose problems are reported without a position.
    pub(super) fn without_positions(self) -> Self {
        Self {
            has_positions: false,
            ..self
        }
    }

    /// The name of its JSON type.
    pub(super) fn kind(&self) -> &'static str {
        match self.raw.get().as_bytes().first() {
            Some(b'{') => "object",
            Some(b'[') => "array",
            Some(b'"') => "string",
            Some(b't' | b'f') => "boolean",
            Some(b'n') => "null",
            _ => "number",
        }
    }

    /// Says what is wrong with the value, with its path (for example `actions[1].command`) and position.
    pub(super) fn problem(&self, fault: impl fmt::Display) -> String {
        let path = if self.path.is_empty() {
            "the answer"
        } else {
            &self.path
        };
        let fault = fault.to_string();
        let fault = cut_middle(&fault, SHOWN_FAULT);
        if !self.has_positions {
            return format!("{path}: {fault}");
        }
        // `raw` borrows from `document`, so the addresses give the offset.
        let start = self.raw.get().as_ptr().addr() - self.document.as_ptr().addr();
        format!("{path} ({}): {fault}", position(self.document, start))
    }

    /// Deserializes the value.
    pub(super) fn read<T: Deserialize<'a>>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.raw.get())
    }

    /// The fields of an object in order, including repeated ones; empty for another type.
    pub(super) fn fields(&self) -> Vec<(String, JsonNode<'a>)> {
        let fields: Fields<'a> = self.read().unwrap_or_default();
        let dot = if self.path.is_empty() { "" } else { "." };
        let named = |(key, raw): (&RawValue, &'a RawValue)| {
            let name = serde_json::from_str(key.get()).unwrap_or_else(|_| key.get().to_owned());
            let path = format!("{}{dot}{}", self.path, cut_middle(&name, SHOWN_NAME));
            (name, self.at(raw, path))
        };
        fields.0.into_iter().map(named).collect()
    }

    /// The items of an array; empty for another type.
    pub(super) fn items(&self) -> Vec<JsonNode<'a>> {
        let items: Vec<&'a RawValue> = self.read().unwrap_or_default();
        let numbered = |(index, raw)| self.at(raw, format!("{}[{index}]", self.path));
        items.into_iter().enumerate().map(numbered).collect()
    }

    fn at(&self, raw: &'a RawValue, path: String) -> Self {
        Self {
            document: self.document,
            raw,
            path,
            has_positions: self.has_positions,
        }
    }
}

/// The fields of an object, repeated ones included.
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
    fn values_have_positions() {
        let text = "{\n \"ä\": \"ö\", \"x\": [1,\n  true]}";
        let (root, end) = JsonNode::parse(text).unwrap().unwrap();
        assert_eq!(end, text.len());
        let fields = root.fields();
        let items = fields[1].1.items();
        let found: Vec<_> = [&root, &fields[0].1, &fields[1].1, &items[1]]
            .iter()
            .map(|node| node.problem(node.kind()))
            .collect();
        let expected = [
            "the answer (line 1, column 1): object",
            "ä (line 2, column 7): string",
            "x (line 2, column 17): array",
            "x[1] (line 3, column 3): boolean",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn repeated_fields_are_kept() {
        let (root, _) = JsonNode::parse(r#"{"a": 1, "a": 2}"#).unwrap().unwrap();
        assert_eq!(root.fields().len(), 2);
    }
}
