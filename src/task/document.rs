//! The two parts of a task file: frontmatter and Markdown.

use std::collections::{BTreeMap, BTreeSet};

use super::checkbox::Criteria;
use super::error::{LintRule, TaskError};
use super::frontmatter::Frontmatter;
use super::markdown;
use super::yaml::{self, YamlEntry, YamlValue};

/// The Markdown of a task file, without its frontmatter.
#[must_use]
pub fn body(text: &str) -> &str {
    &text[TaskParts::split(text).body_start..]
}

/// Everything that a task file contains, and every mistake in it.
pub(super) struct TaskDocument {
    /// The frontmatter, if it is valid.
    pub(super) frontmatter: Option<Frontmatter>,
    /// The keys with a value, valid or not. `None` if the frontmatter cannot be read.
    pub(super) keys: Option<BTreeSet<String>>,
    pub(super) criteria: Criteria,
    /// The mistakes, by line.
    pub(super) errors: Vec<TaskError>,
}

impl TaskDocument {
    /// Parses a file. Never fails: mistakes are in `errors`.
    pub(super) fn parse(text: &str) -> Self {
        let parts = TaskParts::split(text);
        let mut errors = Vec::from_iter(parts.error.clone());
        let entries = parts.yaml.map(without_tabs_after_keys).and_then(|yaml| {
            yaml::parse_mapping(&yaml)
                .map_err(|error| errors.push(error))
                .ok()
        });
        let keys = entries.as_deref().map(keys);
        let frontmatter = entries.and_then(|entries| Frontmatter::read(entries, &mut errors));
        let mut criteria = parts.criteria(text);
        errors.append(&mut criteria.errors);
        errors.sort_by_key(|error| error.line);
        Self {
            frontmatter,
            keys,
            criteria,
            errors,
        }
    }
}

/// The line and the column of each value of the frontmatter, by its key; a value of a section has the key `section.key`. Empty if
/// the frontmatter cannot be read.
pub(super) fn value_positions(text: &str) -> BTreeMap<String, (usize, usize)> {
    let yaml = TaskParts::split(text).yaml.map(without_tabs_after_keys);
    let entries = yaml.and_then(|yaml| yaml::parse_mapping(&yaml).ok());
    let mut positions = BTreeMap::new();
    add_positions("", &entries.unwrap_or_default(), &mut positions);
    positions
}

fn add_positions(section: &str, entries: &[YamlEntry], positions: &mut BTreeMap<String, (usize, usize)>) {
    for YamlEntry { key, node, .. } in entries {
        let key = format!("{section}{key}");
        if let YamlValue::Mapping(entries) = &node.value {
            add_positions(&format!("{key}."), entries, positions);
        }
        positions.insert(key, (node.line, node.column));
    }
}

/// YAML allows tabs between a key and its value, its parser does not. Only lines without indentation are changed, because
/// others may be text.
fn without_tabs_after_keys(yaml: &str) -> String {
    let line = |line: &str| match line.split_once(":\t") {
        Some((key, value)) if key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => {
            format!("{key}: {value}", value = value.trim_start_matches('\t'))
        }
        _ => line.to_owned(),
    };
    yaml.split_inclusive('\n').map(line).collect()
}

/// Finds the criteria of a file, even if its frontmatter is not valid.
pub(super) fn criteria(text: &str) -> Criteria {
    TaskParts::split(text).criteria(text)
}

fn keys(entries: &[YamlEntry]) -> BTreeSet<String> {
    let is_set = |value: &YamlValue| *value != YamlValue::Null && *value != YamlValue::Sequence(Vec::new());
    let set = entries.iter().filter(|entry| is_set(&entry.node.value));
    set.map(|entry| entry.key.clone()).collect()
}

/// Where the parts of a text with frontmatter are.
pub(super) struct TaskParts<'a> {
    /// The YAML with its opening `---`, so that line numbers are those of the file. `None` if it is never closed.
    pub(super) yaml: Option<&'a str>,
    /// Why there is no frontmatter.
    pub(super) error: Option<TaskError>,
    /// Where the Markdown begins, in bytes.
    pub(super) body_start: usize,
}

impl<'a> TaskParts<'a> {
    pub(super) fn split(text: &'a str) -> Self {
        let head_start = text.len() - text.trim_start_matches(BYTE_ORDER_MARK).len();
        let mut lines = markdown::lines(text);
        let opening = lines
            .next()
            .is_some_and(|first| first.text.get(head_start..).is_some_and(opens));
        if !opening {
            return Self {
                yaml: Some(""),
                error: Some(TaskError::no_frontmatter()),
                body_start: 0,
            };
        }
        let second = lines.next();
        let after_opening = second.map_or(text.len(), |line| line.start);
        let Some(closing) = second
            .into_iter()
            .chain(lines.by_ref())
            .find(|line| closes(line.text))
        else {
            let reason = "the frontmatter is never closed";
            let fix = "end the settings with a line `---`";
            return Self {
                yaml: None,
                error: Some(TaskError::new(1, LintRule::Frontmatter, reason, fix)),
                body_start: after_opening,
            };
        };
        Self {
            yaml: Some(&text[head_start..closing.start]),
            error: None,
            body_start: lines.next().map_or(text.len(), |line| line.start),
        }
    }

    fn criteria(&self, text: &str) -> Criteria {
        Criteria::find(markdown::lines(text).skip_while(|line| line.start < self.body_start))
    }
}

const BYTE_ORDER_MARK: char = '\u{feff}';

fn opens(line: &str) -> bool {
    line.trim_end() == "---"
}

fn closes(line: &str) -> bool {
    matches!(line.trim_end(), "---" | "...")
}
