//! Reads the keys of a YAML mapping one by one and collects their mistakes.

use super::error::{LintRule, TaskError, example};
use super::pull_request;
use super::yaml::{YamlEntry, YamlNode, YamlValue};

/// The keys of one mapping. Each known key is read once; those left at the end are unknown.
pub(super) struct FrontmatterFields<'a> {
    /// The name of the section with a dot. Empty at the top level.
    section: String,
    entries: Vec<YamlEntry>,
    known: Vec<&'static str>,
    errors: &'a mut Vec<TaskError>,
}

impl<'a> FrontmatterFields<'a> {
    /// Starts reading. Of a duplicate key, the first value is used.
    pub(super) fn new(section: String, entries: Vec<YamlEntry>, errors: &'a mut Vec<TaskError>) -> Self {
        let mut once: Vec<YamlEntry> = Vec::new();
        for entry in entries {
            match once.iter().find(|seen| seen.key == entry.key) {
                None => once.push(entry),
                Some(seen) => errors.push(TaskError::new(
                    entry.line,
                    LintRule::KnownKeys,
                    format!(
                        "duplicate key `{section}{}` (first set on line {})",
                        entry.key, seen.line
                    ),
                    "keep one of the two",
                )),
            }
        }
        Self {
            section,
            entries: once,
            known: Vec::new(),
            errors,
        }
    }

    /// Non-blank text.
    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        self.value(key, "text", |node| into_text(node).ok_or(()))
    }

    /// Text in a format that `parse` checks.
    pub(super) fn parsed<T, E>(
        &mut self,
        key: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        self.value(key, expected, |node| {
            parse(&into_text(node).ok_or(())?).map_err(drop)
        })
    }

    /// Like [`Self::parsed`] for a key with two names. Both at once are an error.
    pub(super) fn parsed_as<T, E>(
        &mut self,
        names: [&'static str; 2],
        expected: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let [first, second] = names.map(|name| self.entries.iter().find(|entry| entry.key == name));
        if let (Some(first), Some(second)) = (first, second) {
            let later = if first.line > second.line { first } else { second };
            self.errors.push(TaskError::new(
                later.line,
                LintRule::KnownKeys,
                format!("`{}` and `{}` are the same key", first.key, second.key),
                "keep one of the two",
            ));
        }
        let [first, second] = names.map(|name| self.parsed(name, expected, &parse));
        first.or(second)
    }

    /// A number or boolean: an unquoted value.
    pub(super) fn plain<T, E>(
        &mut self,
        key: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        self.value(key, expected, |node| match node.value {
            YamlValue::Plain(text) => parse(&text).map_err(drop),
            _ => Err(()),
        })
    }

    /// A list of non-blank texts. Empty if the key is missing.
    pub(super) fn texts(&mut self, key: &'static str, expected: &'static str) -> Vec<String> {
        let list = self.value(key, expected, |node| match node.value {
            YamlValue::Sequence(items) => items.into_iter().map(|item| into_text(item).ok_or(())).collect(),
            _ => Err(()),
        });
        list.unwrap_or_default()
    }

    /// A number or a list of them, each perhaps with a `#` before it. Empty if the key is missing.
    pub(super) fn numbers(&mut self, key: &'static str, expected: &'static str) -> Vec<u64> {
        let number = |node| -> Result<u64, ()> {
            let text = into_text(node).ok_or(())?;
            text.trim_start_matches('#').parse().map_err(drop)
        };
        let list = self.value(key, expected, |node| match node.value {
            YamlValue::Sequence(items) => items.into_iter().map(number).collect(),
            _ => Ok(vec![number(node)?]),
        });
        list.unwrap_or_default()
    }

    /// A template that can be rendered.
    pub(super) fn template(&mut self, key: &'static str) -> Option<String> {
        let mut entries = self.entries.iter();
        let line = entries.find(|entry| entry.key == key)?.line;
        let text = self.text(key)?;
        let key = format!("{}{key}", self.section);
        match pull_request::check_template(&key, &text) {
            Ok(()) => Some(text),
            Err(error) => {
                self.errors.push(TaskError::new(
                    line,
                    LintRule::Templates,
                    format!("`{key}` cannot be rendered: {}", error.source),
                    format!("use only the documented variables, like {}", example(&key)),
                ));
                None
            }
        }
    }

    /// A nested mapping.
    pub(super) fn section<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut FrontmatterFields<'_>) -> T,
    ) -> Option<T> {
        let entries = self.value(key, "a section of its own keys", |node| match node.value {
            YamlValue::Mapping(entries) => Ok(entries),
            _ => Err(()),
        })?;
        let mut fields = FrontmatterFields::new(format!("{key}."), entries, self.errors);
        let value = read(&mut fields);
        fields.finish();
        Some(value)
    }

    /// Adds an error if the key is missing.
    pub(super) fn require(&mut self, key: &'static str) {
        if !self.has(key) {
            self.errors.push(TaskError::missing_key(key));
        }
    }

    /// Whether a key that was not read yet has a value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.key == key && entry.node.value != YamlValue::Null)
    }

    /// Adds an error for every unknown key.
    pub(super) fn finish(self) {
        for entry in self.entries {
            let section = &self.section;
            let unknown = format!("`{section}{}`", entry.key);
            let (reason, fix) = match closest(&entry.key, &self.known) {
                Some(known) => (
                    format!("unknown key {unknown}; did you mean `{section}{known}`?"),
                    format!("write `{section}{known}`, or remove the key"),
                ),
                None => (format!("unknown key {unknown}"), format!("remove {unknown}")),
            };
            self.errors
                .push(TaskError::new(entry.line, LintRule::KnownKeys, reason, fix));
        }
    }

    /// Takes the value of a key, or adds an error if it is not valid. An empty value counts as missing.
    fn value<T>(
        &mut self,
        key: &'static str,
        expected: &'static str,
        read: impl FnOnce(YamlNode) -> Result<T, ()>,
    ) -> Option<T> {
        self.known.push(key);
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        let node = self.entries.remove(at).node;
        if node.value == YamlValue::Null {
            return None;
        }
        let (line, found) = (node.line, describe(&node.value));
        let value = read(node).ok();
        if value.is_none() {
            let key = format!("{}{key}", self.section);
            self.errors.push(TaskError::new(
                line,
                LintRule::Values,
                format!("`{key}` is {found}; expected {expected}"),
                format!("write it like {}", example(&key)),
            ));
        }
        value
    }
}

fn into_text(node: YamlNode) -> Option<String> {
    match node.value {
        YamlValue::Plain(text) | YamlValue::Quoted(text)
            if !text.trim().is_empty() && !text.contains('\0') =>
        {
            Some(text)
        }
        _ => None,
    }
}

fn describe(value: &YamlValue) -> String {
    match value {
        YamlValue::Null => "empty".to_owned(),
        YamlValue::Plain(text) => format!("`{text}`"),
        YamlValue::Quoted(text) => format!("the text {text:?}"),
        YamlValue::Sequence(_) => "a list".to_owned(),
        YamlValue::Mapping(_) => "a section".to_owned(),
    }
}

/// The known key that is most similar to a misspelt one.
fn closest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    const ALIKE: f64 = 0.8;
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(key, candidate), *candidate))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}
