//! The fields that the body of a call may have: a list for each API, kept as data, and checked at every depth.
//!
//! Model services, and gateways before them, act on fields: they load addresses, choose other services and pay for tools.
//! So a call may only have the fields that agents are known to send.
//!
//! A list has one field per line: its path, and what is special about it. `[]` stands for the elements of an array.
//!
//! ```text
//! system[].text
//! tools[].input_schema                **                 anything may be in it
//! tools[].tools                       = tools            has the fields of another path; `.` is the whole body
//! messages[].content[].source.url     @url               content, or an address from which the service loads it
//! input[].id                          +type              only together with this field
//! service_tier                        auto priority=300  one of these texts, and what it costs in percent of the price
//! tools[].type                        custom web_*=alone one of these texts; the last has no bound on what it costs
//! ```

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::metered_call::CallError;

/// The fields of one API.
#[derive(Debug)]
pub(crate) struct FieldList(HashMap<&'static str, FieldRule>);

#[derive(Debug)]
enum FieldRule {
    /// The fields in it have lines of their own.
    Listed,
    /// Anything may be in it.
    Anything,
    /// Anything may be in it, and it has no bound on what it costs.
    Alone,
    /// It has the fields of another path.
    SameAs(&'static str),
    /// An address, or inline content. Its size says little about its tokens.
    Address,
    /// Only together with this field of the same object.
    Beside(&'static str),
    /// One of these texts.
    OneOf(Vec<(&'static str, ValueEffect)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueEffect {
    None,
    Alone,
    Percent(u64),
}

impl FieldList {
    /// Parses a list.
    pub(super) fn parse(text: &'static str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let fields = lines.filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, FieldRule::parse(&words.collect::<Vec<_>>())))
        });
        Self(fields.collect())
    }
}

impl FieldRule {
    fn parse(words: &[&'static str]) -> Self {
        match words {
            [] => Self::Listed,
            ["**"] => Self::Anything,
            ["alone"] => Self::Alone,
            ["@url"] => Self::Address,
            [word] if word.starts_with('+') => Self::Beside(&word[1..]),
            ["=", "."] => Self::SameAs(""),
            ["=", path] => Self::SameAs(path),
            _ => Self::OneOf(words.iter().map(|word| value(word)).collect()),
        }
    }
}

fn value(word: &'static str) -> (&'static str, ValueEffect) {
    match word.split_once('=') {
        None => (word, ValueEffect::None),
        Some((text, effect)) => match effect.parse() {
            Ok(percent) => (text, ValueEffect::Percent(percent)),
            Err(_) => (text, ValueEffect::Alone),
        },
    }
}

/// What the configuration allows besides the lists.
#[derive(Clone, Copy)]
pub(crate) struct CallRules<'a> {
    /// Paths of further fields, with anything in them.
    pub(crate) fields: &'a [String],
    /// Whether the service may load content from this address.
    pub(crate) allows_address: &'a dyn Fn(&str) -> bool,
}

/// What the fields of a call say about its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallTraits {
    /// Whether it has a tool that the service runs, or content other than text, so that its cost has no bound.
    pub(super) is_unbounded: bool,
    /// What tokens cost, in percent of their price.
    pub(super) price_percent: u64,
}

/// Checks every field of a call. A field that is not listed, or is there twice, is an error.
pub(super) fn check(list: &FieldList, rules: CallRules<'_>, body: &[u8]) -> Result<CallTraits, CallError> {
    let mut scan = FieldScan {
        list,
        rules,
        path: String::new(),
        expected: None,
        traits: CallTraits {
            is_unbounded: false,
            price_percent: 100,
        },
        refused: None,
    };
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = scan.deserialize(&mut json).and_then(|()| json.end());
    match (read, scan.refused) {
        (_, Some(refused)) => Err(refused),
        (Err(error), None) => Err(error.into()),
        (Ok(()), None) => Ok(scan.traits),
    }
}

struct FieldScan<'a> {
    list: &'a FieldList,
    rules: CallRules<'a>,
    /// Where the scan is.
    path: String,
    /// What a text at this place has to be.
    expected: Option<&'a FieldRule>,
    traits: CallTraits,
    refused: Option<CallError>,
}

impl<'a> FieldScan<'a> {
    fn refuse<E: Error>(&mut self, error: CallError) -> E {
        let text = error.to_string();
        self.refused = Some(error);
        E::custom(text)
    }

    /// Checks the value of a field, whose path is the current one.
    fn check_field<'de, A: MapAccess<'de>>(&mut self, map: &mut A) -> Result<(), A::Error> {
        let allowed = |path: &String| *path == self.path;
        if self.rules.fields.iter().any(allowed) {
            return map.next_value::<IgnoredAny>().map(drop);
        }
        let list: &'a FieldList = self.list;
        let Some(rule) = list.0.get(self.path.as_str()) else {
            let field = self.path.clone();
            return Err(self.refuse(CallError::Field { field }));
        };
        match rule {
            FieldRule::Anything => return map.next_value::<IgnoredAny>().map(drop),
            FieldRule::Alone => {
                self.traits.is_unbounded = true;
                return map.next_value::<IgnoredAny>().map(drop);
            }
            FieldRule::SameAs(other) => (*other).clone_into(&mut self.path),
            FieldRule::Listed | FieldRule::Beside(_) => {}
            FieldRule::Address | FieldRule::OneOf(_) => self.expected = Some(rule),
        }
        map.next_value_seed(&mut *self)?;
        self.expected = None;
        Ok(())
    }

    fn check_text(&mut self, text: &str) -> Result<(), CallError> {
        let field = || self.path.clone();
        match self.expected {
            Some(FieldRule::Address) if !is_inline(text) && !(self.rules.allows_address)(text) => {
                let address = text.chars().take(MAX_SHOWN).collect();
                let field = field();
                Err(CallError::Address { field, address })
            }
            Some(FieldRule::Address) => {
                self.traits.is_unbounded = true;
                Ok(())
            }
            Some(FieldRule::OneOf(values)) => {
                let matches = |listed: &str| match listed.strip_suffix('*') {
                    Some(start) => text.starts_with(start),
                    None => text == listed,
                };
                match values.iter().find(|(listed, _)| matches(listed)) {
                    None => {
                        let value = text.chars().take(MAX_SHOWN).collect();
                        let field = field();
                        return Err(CallError::Value { field, value });
                    }
                    Some((_, ValueEffect::None)) => {}
                    Some((_, ValueEffect::Alone)) => self.traits.is_unbounded = true,
                    Some((_, ValueEffect::Percent(percent))) => {
                        self.traits.price_percent = self.traits.price_percent.max(*percent);
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The longest part of a value that a message shows.
const MAX_SHOWN: usize = 200;

/// Whether the content is in the call itself.
fn is_inline(text: &str) -> bool {
    text.get(..5)
        .is_some_and(|start| start.eq_ignore_ascii_case("data:"))
}

impl<'de> DeserializeSeed<'de> for &mut FieldScan<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut FieldScan<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.check_text(text).map_err(|error| self.refuse(error))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let (length, expected) = (self.path.len(), self.expected);
        self.path.push_str("[]");
        loop {
            self.expected = expected;
            if elements.next_element_seed(&mut *self)?.is_none() {
                break;
            }
        }
        self.path.truncate(length);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.expected = None;
        let parent = self.path.clone();
        let (mut seen, mut needed) = (HashSet::new(), None);
        while let Some(FieldName(name)) = map.next_key()? {
            self.path.clone_from(&parent);
            if !parent.is_empty() {
                self.path.push('.');
            }
            self.path.push_str(&name);
            // Such a name could look like the path of another field.
            let is_plain = !name.contains(['.', '[', ']']);
            if !is_plain || !seen.insert(name.into_owned()) {
                let field = self.path.clone();
                return Err(self.refuse(CallError::Ambiguous { field }));
            }
            if let Some(FieldRule::Beside(other)) = self.list.0.get(self.path.as_str()) {
                needed = Some((self.path.clone(), *other));
            }
            self.check_field(&mut map)?;
        }
        if let Some((field, _)) = needed.filter(|(_, other)| !seen.contains(*other)) {
            return Err(self.refuse(CallError::Field { field }));
        }
        self.path = parent;
        Ok(())
    }
}

/// A name, which is copied only if it has escapes.
#[derive(serde::Deserialize)]
struct FieldName<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests;
