//! A loaded configuration.

use std::collections::{BTreeMap, BTreeSet};

use super::api_access::check_api;
use super::choice::SandboxType;
use super::dashboard::check_dashboard;
use super::env_vars::{EnvVar, EnvVarRole, env_vars};
use super::error::ConfigError;
use super::key::KeyPath;
use super::layer::{ConfigLayer, SettingOrigin};
use super::notify::{NotifySettings, check_notify};
use super::read::is_variable_name;
use super::settings::ConfigSettings;
use super::stack::LayerStack;
use super::value::SettingMap;
use super::variables::EnvVariables;
use crate::model::Profile;
use crate::network::is_trust_variable;
use crate::sandbox::{DefaultLimits, ReadOnlyMount, Resources};
use crate::secret::Secret;

/// A valid configuration. Every value knows where it came from.
#[derive(Clone, Debug)]
pub struct Config {
    /// The values.
    pub settings: ConfigSettings,
    /// The model profiles by name; the default, fallback and doctor profiles are among them.
    pub profiles: BTreeMap<String, Profile>,
    pub(super) entries: SettingMap,
    pub(super) variables: EnvVariables,
}

impl Config {
    /// Checks what was read and fails with all mistakes.
    pub(super) fn new(mut stack: LayerStack, mut variables: EnvVariables) -> Result<Self, ConfigError> {
        let mut profiles = BTreeMap::new();
        let settings = stack.settings.take();
        // Mistakes in files are reported alone: the checks would miss the values of those files.
        if let Some(settings) = settings.as_ref().filter(|_| stack.findings.is_empty()) {
            profiles = check_profiles(&mut stack, settings);
            check_passthrough(&mut stack, settings);
            check_image(&mut stack, settings);
            check_command_env(&mut stack, settings);
            check_notify(&mut stack, settings);
            check_api(&mut stack);
            check_dashboard(&mut stack, settings);
        }
        let Some(settings) = settings.filter(|_| stack.findings.is_empty()) else {
            return Err(ConfigError::Invalid {
                findings: stack.findings,
            });
        };
        variables.keep(|name| {
            EnvVar::named(name).is_some()
                || api_key_names(&settings).any(|key| key == name)
                || settings.sandbox.env_passthrough.contains(&name.to_owned())
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
    pub fn origin(&self, key: &str) -> Option<&SettingOrigin> {
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

    /// Which of these limits no file, variable or flag sets.
    #[must_use]
    pub fn default_limits(&self) -> DefaultLimits {
        let is_default = |key: &str| {
            let origin = self.origin(key);
            origin.is_none_or(|origin| origin.layer == ConfigLayer::Default)
        };
        DefaultLimits {
            memory: is_default("sandbox.resources.memory"),
            processors: is_default("sandbox.resources.cpus"),
        }
    }

    /// Host directories that a sandbox may read.
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

    /// Warnings to show before anything starts.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.settings.sandbox.enabled {
            warnings.push(
                "`sandbox.enabled` is false: the agent works on the host without isolation (provider `local`)"
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

    /// All secret values, for the redactor. The lines of a multi-line secret are included one by one, because output is
    /// redacted by line.
    #[must_use]
    pub fn secrets(&self) -> Vec<Secret> {
        let names = self
            .credential_names()
            .filter(|name| is_secret(&self.settings, name));
        let mut secrets: Vec<Secret> = names
            .filter_map(|name| self.variables.get(name))
            .cloned()
            .collect();
        let lines: Vec<Secret> = secrets.iter().flat_map(lines).collect();
        secrets.extend(lines);
        secrets
    }

    /// The variables that hold credentials or belong to one, each once.
    pub(super) fn credential_names(&self) -> impl Iterator<Item = &str> {
        let registered: Vec<&str> = env_vars()
            .filter(|var| matches!(var.role, EnvVarRole::Secret | EnvVarRole::Identifier))
            .map(|var| var.name)
            .collect();
        let others: BTreeSet<&str> = api_key_names(&self.settings)
            .filter(|key| !registered.contains(key))
            .collect();
        registered.into_iter().chain(others)
    }
}

/// Whether the variable of this name holds a secret.
pub(super) fn is_secret(settings: &ConfigSettings, name: &str) -> bool {
    api_key_names(settings).any(|key| key == name) || EnvVar::named(name).is_some_and(|var| var.is_secret())
}

/// Whether a variable is named as those of credentials are: `NPM_TOKEN`, `AWS_SECRET_ACCESS_KEY`, `PGPASSWORD`.
fn is_named_like_a_secret(name: &str) -> bool {
    const WORDS: [&str; 8] = [
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "PAT",
        "CREDENTIAL",
        "CREDENTIALS",
    ];
    let name = name.to_ascii_uppercase();
    let mut words = name.split('_');
    words.any(|word| WORDS.contains(&word))
        || name.ends_with("_KEY")
        || ["APIKEY", "PASSWORD", "TOKEN"]
            .iter()
            .any(|end| name.ends_with(end))
}

/// The variables that the configuration names as holding keys.
fn api_key_names(settings: &ConfigSettings) -> impl Iterator<Item = &str> {
    let of_profiles = settings
        .models
        .values()
        .filter_map(|model| model.api_key_env.as_deref());
    let secrets = settings.sandbox.secrets.iter();
    let of_commands = secrets.map(|(name, secret)| secret.from.as_deref().unwrap_or(name));
    std::iter::once(settings.model_endpoint.api_key_env.as_str())
        .chain(of_profiles)
        .chain(of_commands)
        .chain(settings.notify.iter().flat_map(NotifySettings::variables))
}

/// The lines of a multi-line secret. The first and last lines of a PEM key are not secret.
fn lines(secret: &Secret) -> Vec<Secret> {
    let lines: Vec<&str> = secret.expose().lines().map(str::trim).collect();
    if lines.len() < 2 {
        return Vec::new();
    }
    let inner = lines.into_iter().filter(|line| !line.starts_with("-----"));
    inner.map(Secret::new).collect()
}

/// The profiles that are complete.
fn check_profiles(stack: &mut LayerStack, settings: &ConfigSettings) -> BTreeMap<String, Profile> {
    let mut profiles = BTreeMap::new();
    for (name, model) in &settings.models {
        match model.profile(name) {
            Ok(profile) => {
                profiles.insert(name.clone(), profile);
            }
            Err(reason) => stack.contradiction(&KeyPath::from_segments(["models", name]), reason),
        }
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
            stack.contradiction(&KeyPath::parse(key), &reason);
        }
    }
    profiles
}

/// `tart` has no default image.
fn check_image(stack: &mut LayerStack, settings: &ConfigSettings) {
    let sandbox = &settings.sandbox;
    if sandbox.enabled && sandbox.kind == SandboxType::Tart && sandbox.image.is_none() {
        let reason = "`tart` needs an image: set `sandbox.image` (`base_image` in .agent-loop/config.json), for \
                      example to \"ghcr.io/cirruslabs/macos-tahoe-base:latest\"";
        stack.contradiction(&KeyPath::parse("sandbox.type"), reason);
    }
}

fn check_passthrough(stack: &mut LayerStack, settings: &ConfigSettings) {
    for name in &settings.sandbox.env_passthrough {
        if is_secret(settings, name) || is_named_like_a_secret(name) {
            let reason =
                format!("`{name}` is a credential, and no sandbox ever holds one; take it out of the list");
            stack.contradiction(&KeyPath::parse("sandbox.env_passthrough"), &reason);
        }
    }
}

/// Variables that ralph sets for commands itself, besides those for trusted certificates: directories and the proxy.
const RESERVED: [&str; 6] = [
    "HOME",
    "TMPDIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];

/// The variables of commands have valid names, and each secret says where it goes.
fn check_command_env(stack: &mut LayerStack, settings: &ConfigSettings) {
    let sandbox = &settings.sandbox;
    let plain = sandbox.env.keys().map(|name| ("env", name));
    let secret = sandbox.secrets.keys().map(|name| ("secrets", name));
    for (table, name) in plain.chain(secret) {
        if !is_variable_name(name) {
            let key = KeyPath::from_segments(["sandbox", table, name]);
            stack.contradiction(&key, "the name of a variable has only letters, digits and `_`");
        }
        let upper = name.to_ascii_uppercase();
        let is_reserved = RESERVED.contains(&upper.as_str()) || is_trust_variable(&upper);
        if is_reserved || name.starts_with("RALPH_") {
            let key = KeyPath::from_segments(["sandbox", table, name]);
            stack.contradiction(&key, "ralph sets this variable itself; choose another name");
        }
    }
    for (name, secret) in &sandbox.secrets {
        let key = KeyPath::from_segments(["sandbox", "secrets", name]);
        if sandbox.env.contains_key(name) {
            stack.contradiction(&key, "`sandbox.env` has the same variable; remove one of them");
        }
        if secret.hosts.is_empty() != secret.dangerously_pass {
            let reason = "a secret needs either `hosts`, the names of the hosts that it is sent to, or \
                          `dangerously_pass = true`";
            stack.contradiction(&key, reason);
        }
    }
}
