//! The environment of one load: the process's own variables over those of `.env`, and the settings they make.

use std::collections::BTreeMap;
use std::path::Path;

use super::dotenv;
use super::env_vars::{ENV_VARS, EnvVar, Role};
use super::error::{Finding, Problem};
use super::key::KeyPath;
use super::known::{Known, closest};
use super::layer::{FilePlace, Layer, Origin, Place};
use super::value::{Entry, Setting};
use crate::secret::Secret;

/// Variables that are set to something. Values stay secrets until one is known not to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Variables(BTreeMap<String, Variable>);

#[derive(Clone, Debug)]
struct Variable {
    value: Secret,
    file: Option<FilePlace>,
}

impl Variables {
    /// The process's environment, which beats `.env`. A variable set to nothing is not set.
    pub(super) fn new(env: &BTreeMap<String, String>, dotenv: Option<(&Path, &str)>) -> (Self, Vec<Finding>) {
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
    pub(super) fn place(&self, name: &str) -> Option<Place> {
        self.0.get(name).map(|variable| Place::Variable {
            name: name.to_owned(),
            file: variable.file.clone(),
        })
    }

    /// Forgets every variable that is not wanted.
    pub(super) fn keep(&mut self, wanted: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| wanted(name));
    }

    /// The settings made by variables with names of their own, such as `RALPH_DEFAULT_PROVIDER`.
    pub(super) fn named_settings(&self, known: &Known) -> Vec<Entry> {
        let entry = |var: &EnvVar| match var.role {
            Role::Key(key) => self.entry(var.name, KeyPath::parse(key), known),
            Role::Secret | Role::Identifier | Role::Program | Role::Build | Role::Tests => None,
        };
        ENV_VARS.iter().filter_map(entry).collect()
    }

    /// The settings made by `RALPH_<SECTION>__<KEY>`. `profiles` are the names a variable's `_` may stand for.
    pub(super) fn generic_settings(&self, known: &Known, profiles: &[String]) -> (Vec<Entry>, Vec<Finding>) {
        let mut entries = Vec::new();
        let mut findings = Vec::new();
        let others = self.0.keys().filter(|name| EnvVar::named(name).is_none());
        for (name, spelled) in others.filter_map(|name| Some((name, name.strip_prefix(PREFIX)?))) {
            match self.entry(name, key_of(spelled, profiles), known) {
                Some(entry) => entries.push(entry),
                None => findings.push(self.unknown(name, spelled, known)),
            }
        }
        (entries, findings)
    }

    fn entry(&self, name: &str, key: KeyPath, known: &Known) -> Option<Entry> {
        let kind = known.kind(&key)?;
        let origin = Origin {
            layer: Layer::Env,
            place: self.place(name)?,
        };
        let value = kind.of_text(self.get(name)?.expose(), &origin);
        let setting = Setting { value, origin };
        Some(Entry { key, setting })
    }

    fn unknown(&self, name: &str, spelled: &str, known: &Known) -> Finding {
        let registered = ENV_VARS.iter().map(|var| var.name.to_owned());
        let generic = known.keys().into_iter().map(|key| key.variable());
        let without_prefix = |name: String| name.strip_prefix(PREFIX).map(str::to_owned);
        let candidates = registered.chain(generic).filter_map(without_prefix);
        let meant = closest(spelled, candidates);
        Finding {
            place: Place::Variable {
                name: name.to_owned(),
                file: self.0.get(name).and_then(|variable| variable.file.clone()),
            },
            problem: Problem::UnknownVariable {
                suggestion: meant.map(|meant| format!("{PREFIX}{meant}")),
            },
        }
    }
}

const PREFIX: &str = "RALPH_";

/// The key that a variable's name spells after its prefix. Variables have no `-` and no case, so a profile is found by
/// likeness.
fn key_of(spelled: &str, profiles: &[String]) -> KeyPath {
    let spelled = spelled.to_ascii_lowercase();
    let mut segments: Vec<String> = spelled.split("__").map(str::to_owned).collect();
    if let [first, name, ..] = segments.as_mut_slice()
        && first == "models"
        && let Some(profile) = profiles.iter().find(|profile| alike(profile, name))
    {
        name.clone_from(profile);
    }
    KeyPath::from_segments(segments)
}

fn alike(profile: &str, spelled: &str) -> bool {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    profile.chars().map(plain).eq(spelled.chars())
}
