//! Reads the keys of a mapping one by one and notes everything that is wrong with them.

use super::error::TaskError;
use super::pull_request;
use super::yaml::{Entry, Node, Value};

/// The keys of one mapping. Each key is asked for once; what is left at the end is unknown.
pub(super) struct Fields<'a> {
    /// The name of the section with its dot; empty at the top.
    section: &'static str,
    entries: Vec<Entry>,
    asked: Vec<&'static str>,
    errors: &'a mut Vec<TaskError>,
}

impl<'a> Fields<'a> {
    /// Begins to read; of a key that is there twice the first counts.
    pub(super) fn new(section: &'static str, entries: Vec<Entry>, errors: &'a mut Vec<TaskError>) -> Self {
        let mut once: Vec<Entry> = Vec::new();
        for entry in entries {
            match once.iter().find(|seen| seen.key == entry.key) {
                None => once.push(entry),
                Some(seen) => errors.push(TaskError::DuplicateKey {
                    line: entry.line,
                    key: format!("{section}{}", entry.key),
                    first: seen.line,
                }),
            }
        }
        Self {
            section,
            entries: once,
            asked: Vec::new(),
            errors,
        }
    }

    /// Some text that is not blank.
    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        self.value(key, "text", |node| into_text(node).ok_or(()))
    }

    /// Text in a shape of its own.
    pub(super) fn shaped<T, E>(
        &mut self,
        key: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        self.value(key, expected, |node| {
            parse(&into_text(node).ok_or(())?).map_err(drop)
        })
    }

    /// A number, or a truth value: anything that is written without quotes.
    pub(super) fn plain<T, E>(
        &mut self,
        key: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        self.value(key, expected, |node| match node.value {
            Value::Plain(text) => parse(&text).map_err(drop),
            _ => Err(()),
        })
    }

    /// A list of texts, none of them blank; empty when the key is not there.
    pub(super) fn texts(&mut self, key: &'static str, expected: &'static str) -> Vec<String> {
        let list = self.value(key, expected, |node| match node.value {
            Value::Sequence(items) => items.into_iter().map(|item| into_text(item).ok_or(())).collect(),
            _ => Err(()),
        });
        list.unwrap_or_default()
    }

    /// The text of a template that can be rendered.
    pub(super) fn template(&mut self, key: &'static str) -> Option<String> {
        let line = self
            .entries
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| entry.line);
        let (line, text) = (line?, self.text(key)?);
        let key = format!("{}{key}", self.section);
        match pull_request::check_template(&key, &text) {
            Ok(()) => Some(text),
            Err(error) => {
                self.errors.push(TaskError::Template {
                    line,
                    key,
                    problem: error.source.to_string(),
                });
                None
            }
        }
    }

    /// A mapping in the mapping, read by `read`.
    pub(super) fn section<T>(
        &mut self,
        key: &'static str,
        section: &'static str,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> Option<T> {
        let entries = self.value(key, "a section of its own keys", |node| match node.value {
            Value::Mapping(entries) => Ok(entries),
            _ => Err(()),
        })?;
        let mut fields = Fields::new(section, entries, self.errors);
        let value = read(&mut fields);
        fields.finish();
        Some(value)
    }

    /// Notes that a key must be there.
    pub(super) fn require(&mut self, key: &'static str) {
        if !self.has(key) {
            self.errors.push(TaskError::MissingKey { key });
        }
    }

    /// Whether a key that was not asked for yet has a value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.key == key && entry.node.value != Value::Null)
    }

    /// Notes every key that nobody asked for.
    pub(super) fn finish(self) {
        for entry in self.entries {
            let suggestion = closest(&entry.key, &self.asked).map(|key| format!("{}{key}", self.section));
            let key = format!("{}{}", self.section, entry.key);
            self.errors.push(TaskError::UnknownKey {
                line: entry.line,
                key,
                suggestion,
            });
        }
    }

    /// Takes a key's value as what it should be, or notes that it is not. A value left out is no value.
    fn value<T>(
        &mut self,
        key: &'static str,
        expected: &'static str,
        read: impl FnOnce(Node) -> Result<T, ()>,
    ) -> Option<T> {
        self.asked.push(key);
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        let node = self.entries.remove(at).node;
        if node.value == Value::Null {
            return None;
        }
        let (line, found) = (node.line, describe(&node.value));
        let value = read(node).ok();
        if value.is_none() {
            let key = format!("{}{key}", self.section);
            self.errors.push(TaskError::BadValue {
                line,
                key,
                found,
                expected,
            });
        }
        value
    }
}

fn into_text(node: Node) -> Option<String> {
    match node.value {
        Value::Plain(text) | Value::Quoted(text) if !text.trim().is_empty() => Some(text),
        _ => None,
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "empty".to_owned(),
        Value::Plain(text) => format!("`{text}`"),
        Value::Quoted(text) => format!("the text {text:?}"),
        Value::Sequence(_) => "a list".to_owned(),
        Value::Mapping(_) => "a section".to_owned(),
    }
}

/// The known key that a misspelt one is probably meant to be.
fn closest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    const ALIKE: f64 = 0.8;
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(key, candidate), *candidate))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}
