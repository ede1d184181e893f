//! Variables of the process and of `.env`, and the settings that they contain.

use std::collections::BTreeMap;
use std::path::Path;

use super::dotenv;
use super::env_vars::{EnvVar, EnvVarRole, env_vars};
use super::error::{ConfigFinding, ConfigProblem};
use super::key::KeyPath;
use super::known::{KnownKeys, closest};
use super::layer::{ConfigLayer, FilePosition, SettingOrigin, SettingPlace};
use super::value::{Setting, SettingEntry};
use crate::secret::Secret;

/// Variables that are not empty. Every value is treated as a secret.
#[derive(Clone, Debug, Default)]
pub(super) struct EnvVariables(BTreeMap<String, Variable>);

#[derive(Clone, Debug)]
struct Variable {
    value: Secret,
    file: Option<FilePosition>,
}

impl EnvVariables {
    /// The environment of the process, which wins over `.env`. Empty variables are dropped.
    pub(super) fn new(
        env: &BTreeMap<String, String>,
        dotenv: Option<(&Path, &str)>,
    ) -> (Self, Vec<ConfigFinding>) {
        let (assignments, findings) =
            dotenv.map_or_else(Default::default, |(path, text)| dotenv::read(path, text));
        let from_file = assignments.into_iter().map(|assignment| {
            let variable = Variable {
                value: Secret::new(assignment.value),
                file: Some(assignment.place),
            };
            (assignment.name, variable)
        });
        let from_process = env.iter().map(|(name, value)| {
            let variable = Variable {
                value: Secret::new(value.as_str()),
                file: None,
            };
            (name.clone(), variable)
        });
        let mut variables: BTreeMap<String, Variable> = from_file.chain(from_process).collect();
        variables.retain(|_, variable| !variable.value.expose().is_empty());
        (Self(variables), findings)
    }

    /// The value of a variable.
    pub(super) fn get(&self, name: &str) -> Option<&Secret> {
        self.0.get(name).map(|variable| &variable.value)
    }

    /// Where a variable is set.
    pub(super) fn place(&self, name: &str) -> Option<SettingPlace> {
        self.0.get(name).map(|variable| SettingPlace::Variable {
            name: name.to_owned(),
            file: variable.file.clone(),
        })
    }

    /// Drops every variable that is not wanted.
    pub(super) fn keep(&mut self, wanted: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| wanted(name));
    }

    /// The settings of variables with names of their own, such as `RALPH_DEFAULT_PROVIDER`.
    pub(super) fn named_settings(&self, known: &KnownKeys) -> Vec<SettingEntry> {
        let entry = |var: EnvVar| match var.role {
            EnvVarRole::Key(key) => self.entry(var.name, KeyPath::parse(key), known),
            EnvVarRole::Secret
            | EnvVarRole::Identifier
            | EnvVarRole::Program
            | EnvVarRole::Build
            | EnvVarRole::Tests => None,
        };
        env_vars().filter_map(entry).collect()
    }

    /// The settings of `RALPH_<SECTION>__<KEY>`. `profiles` are the names that a `_` in a variable may stand for.
    pub(super) fn generic_settings(
        &self,
        known: &KnownKeys,
        profiles: &[String],
    ) -> (Vec<SettingEntry>, Vec<ConfigFinding>) {
        let mut entries = Vec::new();
        let mut findings = Vec::new();
        let others = self.0.keys().filter(|name| EnvVar::named(name).is_none());
        for (name, spelled) in others.filter_map(|name| Some((name, name.strip_prefix(PREFIX)?))) {
            match self.entry(name, parse_key(spelled, profiles), known) {
                Some(entry) => entries.push(entry),
                None => findings.push(self.unknown(name, spelled, known)),
            }
        }
        (entries, findings)
    }

    fn entry(&self, name: &str, key: KeyPath, known: &KnownKeys) -> Option<SettingEntry> {
        let kind = known.kind(&key)?;
        let origin = SettingOrigin {
            layer: ConfigLayer::Env,
            place: self.place(name)?,
        };
        let value = kind.parse(self.get(name)?.expose(), &origin);
        let setting = Setting { value, origin };
        Some(SettingEntry { key, setting })
    }

    fn unknown(&self, name: &str, spelled: &str, known: &KnownKeys) -> ConfigFinding {
        let registered = env_vars().map(|var| var.name.to_owned());
        let generic = known.keys().into_iter().map(|key| key.variable());
        let without_prefix = |name: String| name.strip_prefix(PREFIX).map(str::to_owned);
        let candidates = registered.chain(generic).filter_map(without_prefix);
        let meant = closest(spelled, candidates);
        ConfigFinding {
            place: SettingPlace::Variable {
                name: name.to_owned(),
                file: self.0.get(name).and_then(|variable| variable.file.clone()),
            },
            problem: ConfigProblem::UnknownVariable {
                suggestion: meant.map(|meant| format!("{PREFIX}{meant}")),
            },
        }
    }
}

const PREFIX: &str = "RALPH_";

/// The key of a variable name without its prefix. Variable names have no `-` and no case, so profiles are compared
/// without them.
fn parse_key(spelled: &str, profiles: &[String]) -> KeyPath {
    let spelled = spelled.to_ascii_lowercase();
    let mut segments: Vec<String> = spelled.split("__").map(str::to_owned).collect();
    if let [first, name, ..] = segments.as_mut_slice()
        && first == "models"
        && let Some(profile) = profiles.iter().find(|profile| is_same_name(profile, name))
    {
        name.clone_from(profile);
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
