//! Variables of the process and of `.env`, and the settings that they contain.

use std::collections::BTreeMap;

use super::dotenv::Assignment;
use super::env_vars::{EnvVar, EnvVarRole, env_vars};
use super::error::ConfigFinding;
use super::key::KeyPath;
use super::known::{self, closest};
use super::layer::{ConfigLayer, SettingOrigin, SettingPlace};
use super::value::{Setting, SettingMap};
use crate::secret::Secret;

/// Variables that are not empty. Every value is treated as a secret.
#[derive(Clone, Debug, Default)]
pub(super) struct EnvVariables(BTreeMap<String, Variable>);

#[derive(Clone, Debug)]
struct Variable {
    value: Secret,
    place: SettingPlace,
}

impl EnvVariables {
    /// The environment of the process, which wins over `.env`. Empty variables are dropped.
    pub(super) fn new(env: &BTreeMap<String, String>, dotenv: Vec<Assignment>) -> Self {
        let from_file = dotenv
            .into_iter()
            .map(|one| (one.name, one.value, Some(one.place)));
        let from_process = env
            .iter()
            .map(|(name, value)| (name.clone(), value.clone(), None));
        let mut variables = BTreeMap::new();
        for (name, value, file) in from_file.chain(from_process) {
            let variable = Variable {
                value: Secret::new(value),
                place: SettingPlace::Variable {
                    name: name.clone(),
                    file,
                },
            };
            variables.insert(name, variable);
        }
        variables.retain(|_, variable| !variable.value.expose().is_empty());
        Self(variables)
    }

    /// The value of a variable.
    pub(super) fn get(&self, name: &str) -> Option<&Secret> {
        self.0.get(name).map(|variable| &variable.value)
    }

    /// Where a variable is set.
    pub(super) fn place(&self, name: &str) -> Option<&SettingPlace> {
        self.0.get(name).map(|variable| &variable.place)
    }

    /// Drops every variable that is not wanted.
    pub(super) fn keep(&mut self, wanted: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| wanted(name));
    }

    /// The settings of variables with names of their own, such as `RALPH_DEFAULT_PROVIDER`.
    pub(super) fn named_settings(&self) -> SettingMap {
        let mut entries = SettingMap::new();
        for var in env_vars() {
            if let (EnvVarRole::Key(key), Some(variable)) = (var.role, self.0.get(var.name)) {
                let key = KeyPath::parse(key);
                entries.extend(variable.setting(&key).map(|setting| (key, setting)));
            }
        }
        entries
    }

    /// The settings of `RALPH_<SECTION>__<KEY>`. `profiles` are the names that a `_` in a variable may stand for.
    pub(super) fn generic_settings(
        &self,
        profiles: &[String],
        findings: &mut Vec<ConfigFinding>,
    ) -> SettingMap {
        let mut entries = SettingMap::new();
        for (name, variable) in &self.0 {
            let Some(spelled) = name
                .strip_prefix(PREFIX)
                .filter(|_| EnvVar::named(name).is_none())
            else {
                continue;
            };
            let key = parse_key(spelled, profiles);
            match variable.setting(&key) {
                Some(setting) => {
                    entries.insert(key, setting);
                }
                None => findings.push(unknown(variable.place.clone(), spelled)),
            }
        }
        entries
    }
}

impl Variable {
    /// The value for a key; `None` if the key does not exist.
    fn setting(&self, key: &KeyPath) -> Option<Setting> {
        let origin = SettingOrigin {
            layer: ConfigLayer::Env,
            place: self.place.clone(),
        };
        known::parse(key, self.value.expose(), origin)
    }
}

fn unknown(place: SettingPlace, spelled: &str) -> ConfigFinding {
    let registered = env_vars().map(|var| var.name.to_owned());
    let generic = known::keys().into_iter().map(|key| key.variable());
    let without_prefix = |name: String| name.strip_prefix(PREFIX).map(str::to_owned);
    let candidates = registered.chain(generic).filter_map(without_prefix);
    let meant = closest(spelled, candidates).map(|meant| format!("{PREFIX}{meant}"));
    ConfigFinding::unknown_variable(place, meant)
}

const PREFIX: &str = "RALPH_";

/// The key of a variable name without its prefix. Variable names have no `-` and no case, so profiles are compared
/// without them.
fn parse_key(spelled: &str, profiles: &[String]) -> KeyPath {
    let mut segments: Vec<String> = spelled.split("__").map(str::to_ascii_lowercase).collect();
    if let [first, name, ..] = segments.as_mut_slice()
        && first == "models"
        && let Some(profile) = profiles.iter().find(|profile| is_same_name(profile, name))
    {
        name.clone_from(profile);
    }
    // The names of variables keep their case.
    if let [first, second, name, ..] = segments.as_mut_slice()
        && first == "sandbox"
        && ["env", "secrets"].contains(&second.as_str())
        && let Some(written) = spelled.split("__").nth(2)
    {
        written.clone_into(name);
    }
    KeyPath::from_segments(segments)
}

fn is_same_name(profile: &str, spelled: &str) -> bool {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    profile.chars().map(plain).eq(spelled.chars())
}
