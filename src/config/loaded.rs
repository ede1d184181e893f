//! The configuration as the rest of the command line sees it.

use std::collections::{BTreeMap, BTreeSet};

use super::choice::SandboxType;
use super::env_vars::{ENV_VARS, EnvVar, Role};
use super::error::ConfigError;
use super::key::KeyPath;
use super::layer::Origin;
use super::models;
use super::settings::Settings;
use super::stack::Stack;
use super::value::Setting;
use super::variables::Variables;
use crate::model::Profile;
use crate::sandbox::{ReadOnlyMount, Resources};
use crate::secret::Secret;

/// A configuration that is right in itself. Every value knows where it came from.
#[derive(Clone, Debug)]
pub struct Config {
    /// The values.
    pub settings: Settings,
    /// The model profiles by name; the default, fallback and doctor profiles are among them.
    pub profiles: BTreeMap<String, Profile>,
    pub(super) entries: BTreeMap<KeyPath, Setting>,
    pub(super) variables: Variables,
}

impl Config {
    /// Makes a configuration of what was read, or says everything that is wrong with it.
    pub(super) fn new(mut stack: Stack, mut variables: Variables) -> Result<Self, ConfigError> {
        let checked = match stack.typed() {
            // What is wrong in a file is reported alone: the values it would have set are missing from the checks.
            Some(settings) if stack.findings.is_empty() => {
                let profiles = check_profiles(&mut stack, &settings);
                check_passthrough(&mut stack, &settings);
                check_image(&mut stack, &settings);
                stack.findings.is_empty().then_some((settings, profiles))
            }
            _ => None,
        };
        let Some((settings, profiles)) = checked else {
            return Err(ConfigError::Invalid {
                findings: stack.findings,
            });
        };
        variables.keep(|name| {
            EnvVar::named(name).is_some()
                || api_key_names(&settings).any(|key| key == name)
                || settings
                    .sandbox
                    .env_passthrough
                    .iter()
                    .any(|wanted| wanted == name)
        });
        Ok(Self {
            settings,
            profiles,
            entries: stack.entries,
            variables,
        })
    }

    /// Where the value of a key came from; `None` when nothing sets it.
    #[must_use]
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        let setting = self.entries.get(&KeyPath::parse(key));
        setting.map(|setting| &setting.origin)
    }

    /// The provider to use: without a sandbox it is `local`.
    #[must_use]
    pub fn provider(&self) -> SandboxType {
        if self.settings.sandbox.enabled {
            self.settings.sandbox.kind
        } else {
            SandboxType::Local
        }
    }

    /// The limits of the sandbox.
    #[must_use]
    pub fn resources(&self) -> Resources {
        let resources = &self.settings.sandbox.resources;
        Resources {
            memory_bytes: Some(resources.memory_bytes),
            cpu_millis: Some(resources.cpu_millis),
            disk_bytes: resources.disk_bytes,
        }
    }

    /// What of this machine a sandbox may read.
    #[must_use]
    pub fn mounts(&self) -> Vec<ReadOnlyMount> {
        let mounts = self.settings.sandbox.mounts.iter();
        mounts
            .map(|mount| ReadOnlyMount {
                source: mount.source.clone(),
                target: mount.target.clone(),
            })
            .collect()
    }

    /// What the user should be told before anything starts.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.settings.sandbox.enabled {
            warnings.push(
                "`sandbox.enabled` is false: the agent works unconfined on this machine (provider `local`)"
                    .to_owned(),
            );
        }
        warnings
    }

    /// The variables of the environment that `sandbox.env_passthrough` names, where they are set.
    #[must_use]
    pub fn passthrough(&self) -> BTreeMap<String, String> {
        let names = self.settings.sandbox.env_passthrough.iter();
        names
            .filter_map(|name| Some((name.clone(), self.variables.get(name)?.expose().to_owned())))
            .collect()
    }

    /// A credential or an identifier by the name of its variable, where it is set.
    #[must_use]
    pub fn credential(&self, name: &str) -> Option<Secret> {
        let is_one = self.credential_names().any(|known| known == name);
        self.variables.get(name).filter(|_| is_one).cloned()
    }

    /// The key of the model endpoint, where it is set.
    #[must_use]
    pub fn model_api_key(&self) -> Option<Secret> {
        self.credential(&self.settings.model_endpoint.api_key_env)
    }

    /// Every secret value there is, for the redactor. One of several lines is also given line by line, because
    /// output is seen by the line.
    #[must_use]
    pub fn secrets(&self) -> Vec<Secret> {
        let names = self.credential_names().filter(|name| self.is_secret(name));
        let mut secrets: Vec<Secret> = names
            .filter_map(|name| self.variables.get(name))
            .cloned()
            .collect();
        let lines: Vec<Secret> = secrets.iter().flat_map(lines).collect();
        secrets.extend(lines);
        secrets
    }

    /// Whether the variable of this name holds a secret.
    pub(super) fn is_secret(&self, name: &str) -> bool {
        api_key_names(&self.settings).any(|key| key == name)
            || EnvVar::named(name).is_some_and(EnvVar::is_secret)
    }

    /// The variables that hold credentials or belong to one, each once.
    pub(super) fn credential_names(&self) -> impl Iterator<Item = &str> {
        let registered = ENV_VARS
            .iter()
            .filter(|var| matches!(var.role, Role::Secret | Role::Identifier))
            .map(|var| var.name);
        let others: BTreeSet<&str> = api_key_names(&self.settings)
            .filter(|key| registered.clone().all(|name| name != *key))
            .collect();
        registered.chain(others)
    }
}

/// The variables that hold keys by the choice of the configuration.
fn api_key_names(settings: &Settings) -> impl Iterator<Item = &str> {
    let of_profiles = settings
        .models
        .values()
        .filter_map(|model| model.api_key_env.as_deref());
    std::iter::once(settings.model_endpoint.api_key_env.as_str()).chain(of_profiles)
}

/// The lines of a secret that has several. The frame of a key is the same for everyone and no secret.
fn lines(secret: &Secret) -> Vec<Secret> {
    let lines: Vec<&str> = secret.expose().lines().map(str::trim).collect();
    if lines.len() < 2 {
        return Vec::new();
    }
    let inner = lines.into_iter().filter(|line| !line.starts_with("-----"));
    inner.map(Secret::new).collect()
}

fn check_profiles(stack: &mut Stack, settings: &Settings) -> BTreeMap<String, Profile> {
    let (profiles, incomplete) = models::profiles(&settings.models);
    for profile in incomplete {
        let key = KeyPath::from_segments(["models", &profile.name]);
        stack.contradiction(key, profile.reason.to_owned());
    }
    let chosen = [
        ("default_profile", &settings.default_profile),
        ("fallback_profile", &settings.fallback_profile),
        ("doctor_profile", &settings.doctor_profile),
    ];
    let names: Vec<String> = settings.models.keys().map(|name| format!("`{name}`")).collect();
    for (key, name) in chosen {
        if !settings.models.contains_key(name) {
            let reason = format!(
                "there is no profile `{name}`; expected one of {}",
                names.join(", ")
            );
            stack.contradiction(KeyPath::top(key), reason);
        }
    }
    profiles
}

/// A virtual Mac starts from an image that nobody can guess.
fn check_image(stack: &mut Stack, settings: &Settings) {
    let sandbox = &settings.sandbox;
    if sandbox.enabled && sandbox.kind == SandboxType::Tart && sandbox.image.is_none() {
        let reason = "`tart` needs an image: set `sandbox.image` (`base_image` in .agent-loop/config.json), for \
                      example to \"ghcr.io/cirruslabs/macos-tahoe-base:latest\"";
        stack.contradiction(KeyPath::parse("sandbox.type"), reason.to_owned());
    }
}

fn check_passthrough(stack: &mut Stack, settings: &Settings) {
    for name in &settings.sandbox.env_passthrough {
        let secret = EnvVar::named(name).is_some_and(EnvVar::is_secret);
        if secret || api_key_names(settings).any(|key| key == name) {
            let reason =
                format!("`{name}` is a credential, and no sandbox ever holds one; take it out of the list");
            stack.contradiction(KeyPath::parse("sandbox.env_passthrough"), reason);
        }
    }
}
