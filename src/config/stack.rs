//! The layers on top of each other. Each source is checked when it is added, so a mistake is found even where a
//! higher layer hides it, and what is below stays whole.

use std::collections::BTreeMap;

use super::document::Document;
use super::error::{Finding, Problem};
use super::key::KeyPath;
use super::known::{self, Known};
use super::layer::{Layer, Origin, Place};
use super::settings::Settings;
use super::value::{Entry, Member, Setting};
use super::{DEFAULTS, Override, agent_loop, de, models_yaml, schema, toml_file};

/// What the sources so far say, and what was wrong with them.
#[derive(Debug)]
pub(super) struct Stack {
    pub(super) entries: BTreeMap<KeyPath, Setting>,
    pub(super) findings: Vec<Finding>,
    pub(super) known: &'static Known,
}

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Format {
    /// `ralph.toml`, and every file like it.
    Toml,
    /// `config/models.yaml`.
    ModelsYaml,
    /// `.agent-loop/config.json`.
    AgentLoop,
}

impl Stack {
    /// The lowest layer: `templates/default.toml`.
    pub(super) fn with_defaults() -> Self {
        let mut stack = Self {
            entries: BTreeMap::new(),
            findings: Vec::new(),
            known: schema::known(),
        };
        let defaults = Document {
            layer: Layer::Default,
            path: None,
            text: DEFAULTS,
        };
        stack.add_file(Format::Toml, defaults);
        stack
    }

    /// Adds a file. Its mistakes are reported in the order in which they stand there.
    pub(super) fn add_file(&mut self, format: Format, document: Document<'_>) {
        let reported = self.findings.len();
        let (entries, findings) = match format {
            Format::Toml => self.flattened(toml_file::read(document)),
            Format::ModelsYaml => self.flattened(models_yaml::read(document)),
            Format::AgentLoop => agent_loop::read(document),
        };
        self.findings.extend(findings);
        self.add(entries);
        self.findings[reported..].sort_by_key(|finding| match &finding.place {
            Place::File(place) => (place.line, place.column),
            Place::BuiltIn | Place::Variable { .. } | Place::Flag(_) => (0, 0),
        });
    }

    /// Adds values that were given as plain text.
    pub(super) fn add_overrides(&mut self, layer: Layer, overrides: &[Override]) {
        let mut entries = Vec::new();
        for given in overrides {
            let key = KeyPath::parse(&given.key);
            let origin = Origin {
                layer,
                place: given.place.clone(),
            };
            match self.known.kind(&key) {
                Some(kind) => {
                    let value = kind.of_text(&given.value, &origin);
                    let setting = Setting { value, origin };
                    entries.push(Entry { key, setting });
                }
                None => self.findings.push(Finding {
                    place: origin.place,
                    problem: self.known.unknown(key),
                }),
            }
        }
        self.add(entries);
    }

    /// Adds what one source says. A value that does not fit is reported and left out.
    pub(super) fn add(&mut self, entries: Vec<Entry>) {
        if entries.is_empty() {
            return;
        }
        let mut merged = self.entries.clone();
        merged.extend(entries.into_iter().map(|entry| (entry.key, entry.setting)));
        while let Err(refusal) = de::typed(&merged) {
            let key = refusal.key();
            let refused = merged.remove(&key);
            if let Some(below) = self.entries.get(&key) {
                merged.insert(key.clone(), below.clone());
            }
            self.findings.push(unfit(key, refusal));
            if refused.is_none() {
                return;
            }
        }
        self.entries = merged;
    }

    /// The typed settings of all layers.
    pub(super) fn typed(&mut self) -> Option<Settings> {
        match de::typed(&self.entries) {
            Ok(settings) => Some(settings),
            Err(refusal) => {
                self.findings.push(unfit(refusal.key(), refusal));
                None
            }
        }
    }

    /// The names of the model profiles so far.
    pub(super) fn profiles(&self) -> Vec<String> {
        let keys = self.entries.keys().filter(|key| key.is_profile());
        let mut names: Vec<String> = keys.filter_map(|key| key.segments().get(1).cloned()).collect();
        names.dedup();
        names
    }

    /// Reports a value that contradicts another one.
    pub(super) fn contradiction(&mut self, key: KeyPath, reason: String) {
        let setting = self.entries.iter().find(|(known, _)| known.starts_with(&key));
        self.findings.push(Finding {
            place: setting.map_or(Place::BuiltIn, |(_, setting)| setting.origin.place.clone()),
            problem: Problem::Contradiction { key, reason },
        });
    }

    fn flattened(&self, read: (Vec<Member>, Vec<Finding>)) -> (Vec<Entry>, Vec<Finding>) {
        let (members, mut findings) = read;
        let (entries, unknown) = known::flatten(self.known, members);
        findings.extend(unknown);
        (entries, findings)
    }
}

fn unfit(key: KeyPath, refusal: de::Refusal) -> Finding {
    let (place, found) = match refusal.found {
        Some(setting) => (setting.origin.place, setting.value.describe()),
        None => (Place::BuiltIn, "nothing".to_owned()),
    };
    Finding {
        place,
        problem: Problem::Unfit {
            key,
            found,
            expected: refusal.expected,
        },
    }
}
