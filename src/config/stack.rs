//! Merges the layers. Each source is checked when it is added, so a mistake is found even where a higher layer overrides
//! it.

use std::collections::BTreeMap;

use super::document::ConfigDocument;
use super::error::{ConfigFinding, ConfigProblem};
use super::key::KeyPath;
use super::known::{self, KnownKeys};
use super::layer::{ConfigLayer, SettingOrigin, SettingPlace};
use super::settings::ConfigSettings;
use super::value::{Setting, SettingEntry, TableMember};
use super::{ConfigOverride, DEFAULTS, agent_loop, de, models_yaml, schema, toml_file};

/// The merged settings of the sources so far, and their mistakes.
#[derive(Debug)]
pub(super) struct LayerStack {
    pub(super) entries: BTreeMap<KeyPath, Setting>,
    pub(super) findings: Vec<ConfigFinding>,
    pub(super) known: &'static KnownKeys,
}

/// The format of a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum FileFormat {
    /// `ralph.toml` and the user file.
    Toml,
    /// `config/models.yaml`.
    ModelsYaml,
    /// `.agent-loop/config.json`.
    AgentLoop,
}

impl LayerStack {
    /// The lowest layer: `templates/default.toml`.
    pub(super) fn with_defaults() -> Self {
        let mut stack = Self {
            entries: BTreeMap::new(),
            findings: Vec::new(),
            known: schema::known(),
        };
        let defaults = ConfigDocument {
            layer: ConfigLayer::Default,
            path: None,
            text: DEFAULTS,
        };
        stack.add_file(FileFormat::Toml, defaults);
        stack
    }

    /// Adds a file. Its mistakes are reported in the order in which they stand there.
    pub(super) fn add_file(&mut self, format: FileFormat, document: ConfigDocument<'_>) {
        let reported = self.findings.len();
        let (entries, findings) = match format {
            FileFormat::Toml => self.flattened(toml_file::read(document)),
            FileFormat::ModelsYaml => self.flattened(models_yaml::read(document)),
            FileFormat::AgentLoop => agent_loop::read(document),
        };
        self.findings.extend(findings);
        self.add(entries);
        self.findings[reported..].sort_by_key(|finding| match &finding.place {
            SettingPlace::File(place) => (place.line, place.column),
            SettingPlace::BuiltIn | SettingPlace::Variable { .. } | SettingPlace::Flag(_) => (0, 0),
        });
    }

    /// Adds values that were given as plain text.
    pub(super) fn add_overrides(&mut self, layer: ConfigLayer, overrides: &[ConfigOverride]) {
        let mut entries = Vec::new();
        for given in overrides {
            let key = KeyPath::parse(&given.key);
            let origin = SettingOrigin {
                layer,
                place: given.place.clone(),
            };
            match self.known.kind(&key) {
                Some(kind) => {
                    let value = kind.parse(&given.value, &origin);
                    let setting = Setting { value, origin };
                    entries.push(SettingEntry { key, setting });
                }
                None => self.findings.push(ConfigFinding {
                    place: origin.place,
                    problem: self.known.unknown(key),
                }),
            }
        }
        self.add(entries);
    }

    /// Adds what one source says. A value that does not fit is reported and left out.
    pub(super) fn add(&mut self, entries: Vec<SettingEntry>) {
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
            self.findings.push(invalid_value(key, refusal));
            if refused.is_none() {
                return;
            }
        }
        self.entries = merged;
    }

    /// The typed settings of all layers.
    pub(super) fn typed(&mut self) -> Option<ConfigSettings> {
        match de::typed(&self.entries) {
            Ok(settings) => Some(settings),
            Err(refusal) => {
                self.findings.push(invalid_value(refusal.key(), refusal));
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
        self.findings.push(ConfigFinding {
            place: setting.map_or(SettingPlace::BuiltIn, |(_, setting)| setting.origin.place.clone()),
            problem: ConfigProblem::Contradiction { key, reason },
        });
    }

    fn flattened(
        &self,
        read: (Vec<TableMember>, Vec<ConfigFinding>),
    ) -> (Vec<SettingEntry>, Vec<ConfigFinding>) {
        let (members, mut findings) = read;
        let (entries, unknown) = known::flatten(self.known, members);
        findings.extend(unknown);
        (entries, findings)
    }
}

fn invalid_value(key: KeyPath, refusal: de::TypeMismatch) -> ConfigFinding {
    let (place, found) = match refusal.found {
        Some(setting) => (setting.origin.place, setting.value.describe()),
        None => (SettingPlace::BuiltIn, "nothing".to_owned()),
    };
    ConfigFinding {
        place,
        problem: ConfigProblem::InvalidValue {
            key,
            found,
            expected: refusal.expected,
        },
    }
}
