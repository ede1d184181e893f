//! Merges the layers. Each source is checked when it is added, so a mistake is found even where a higher layer overrides
//! it.

use super::document::ConfigDocument;
use super::error::ConfigFinding;
use super::key::KeyPath;
use super::known;
use super::layer::{ConfigLayer, SettingOrigin, SettingPlace};
use super::settings::ConfigSettings;
use super::value::SettingMap;
use super::{ConfigOverride, DEFAULTS, de, toml_file};

/// The merged settings of the sources so far, and their mistakes.
#[derive(Debug, Default)]
pub(super) struct LayerStack {
    pub(super) entries: SettingMap,
    /// The entries with their types.
    pub(super) settings: Option<ConfigSettings>,
    pub(super) findings: Vec<ConfigFinding>,
}

/// Reads one format of files: returns its settings, and adds its mistakes to the findings.
pub(super) type FileReader = fn(ConfigDocument<'_>, &mut Vec<ConfigFinding>) -> SettingMap;

impl LayerStack {
    /// The lowest layer: `templates/default.toml`.
    pub(super) fn with_defaults() -> Self {
        let mut stack = Self::default();
        let defaults = ConfigDocument {
            layer: ConfigLayer::Default,
            path: None,
            text: DEFAULTS,
        };
        stack.add_file(toml_file::read, defaults);
        stack
    }

    /// Adds a file. Its mistakes are reported in the order of their positions.
    pub(super) fn add_file(&mut self, read: FileReader, document: ConfigDocument<'_>) {
        let reported = self.findings.len();
        let entries = read(document, &mut self.findings);
        self.add(entries);
        self.findings[reported..].sort_by_key(|finding| match &finding.place {
            SettingPlace::File(place) => (place.line, place.column),
            _ => (0, 0),
        });
    }

    /// Adds values that were given as plain text.
    pub(super) fn add_overrides(&mut self, layer: ConfigLayer, overrides: &[ConfigOverride]) {
        let mut entries = SettingMap::new();
        for given in overrides {
            let key = KeyPath::parse(&given.key);
            let place = given.place.clone();
            match known::parse(&key, &given.value, SettingOrigin { layer, place }) {
                Some(setting) => {
                    entries.insert(key, setting);
                }
                None => self.findings.push(known::unknown(given.place.clone(), &key)),
            }
        }
        self.add(entries);
    }

    /// Adds what one source says. A value that does not fit is reported and left out.
    pub(super) fn add(&mut self, entries: SettingMap) {
        let mut merged = self.entries.clone();
        merged.extend(entries);
        loop {
            let mismatch = match de::typed(&merged) {
                Ok(settings) => {
                    self.entries = merged;
                    self.settings = Some(settings);
                    return;
                }
                Err(mismatch) => mismatch,
            };
            let expected = mismatch.expected;
            let Some((key, found)) = mismatch.found.map(|found| *found) else {
                let message = format!("expected {expected}");
                self.findings
                    .push(ConfigFinding::new(SettingPlace::BuiltIn, message));
                return;
            };
            let place = found.origin.place;
            self.findings
                .push(ConfigFinding::invalid_value(place, &key, &found.value, &expected));
            if merged.remove(&key).is_none() {
                return;
            }
            if let Some(below) = self.entries.get(&key) {
                merged.insert(key, below.clone());
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

    /// Reports a value that contradicts another one, and how to resolve it.
    pub(super) fn contradiction(&mut self, key: &KeyPath, reason: &str) {
        let setting = self.entries.iter().find(|(known, _)| known.starts_with(key));
        let place = setting.map_or(SettingPlace::BuiltIn, |(_, setting)| setting.origin.place.clone());
        self.findings
            .push(ConfigFinding::new(place, format!("`{key}`: {reason}")));
    }
}
