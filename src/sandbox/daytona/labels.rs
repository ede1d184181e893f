//! What is written on a sandbox: whose it is, and what it was made from.

use std::collections::BTreeMap;

use super::DaytonaOptions;
use crate::id::RunId;
use crate::sandbox::owner::Owner;
use crate::sandbox::{SandboxSpec, fingerprint};

/// Every sandbox of ralph's has it.
const KIND: (&str, &str) = ("ralph.kind", "sandbox");
const RUN: &str = "ralph.run";
const OWNER: &str = "ralph.owner";
const FINGERPRINT: &str = "ralph.fingerprint";
const SECRETS: &str = "ralph.secrets";
const VERSION: &str = "ralph.version";

/// What stands between two names.
const BETWEEN: char = ',';

/// What is written on a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Labels {
    /// The run that has it.
    pub(super) run: RunId,
    /// The process that has it now, or had it last.
    pub(super) owner: Owner,
    /// What it was made from.
    pub(super) fingerprint: String,
    /// What Daytona's vault keeps for it.
    pub(super) secrets: Vec<String>,
}

impl Labels {
    pub(super) fn to_map(&self) -> BTreeMap<String, String> {
        let labels = [
            (KIND.0, KIND.1.to_owned()),
            (RUN, self.run.to_string()),
            (OWNER, self.owner.as_json()),
            (FINGERPRINT, self.fingerprint.clone()),
            (SECRETS, self.secrets.join(&BETWEEN.to_string())),
            (VERSION, env!("CARGO_PKG_VERSION").to_owned()),
        ];
        labels.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// Those of a sandbox; `None` when it is not ralph's.
    pub(super) fn read(labels: &BTreeMap<String, String>) -> Option<Self> {
        Some(Self {
            run: RunId::parse(labels.get(RUN)?).ok()?,
            owner: serde_json::from_str(labels.get(OWNER)?).ok()?,
            fingerprint: labels.get(FINGERPRINT)?.clone(),
            secrets: labels.get(SECRETS).map(|names| list(names)).unwrap_or_default(),
        })
    }
}

fn list(names: &str) -> Vec<String> {
    let names = names.split(BETWEEN).filter(|name| !name.is_empty());
    names.map(ToOwned::to_owned).collect()
}

/// What all of ralph's sandboxes have.
pub(super) fn of_all() -> BTreeMap<&'static str, String> {
    BTreeMap::from([(KIND.0, KIND.1.to_owned())])
}

/// What would have to be made anew if it were different.
pub(super) fn fingerprint(spec: &SandboxSpec, options: &DaytonaOptions) -> String {
    // Another value under the same name is no other sandbox.
    let secrets: Vec<&str> = options.secrets.iter().map(|one| one.variable.as_str()).collect();
    fingerprint::of(&(
        &spec.image,
        spec.network.lines(),
        &spec.resources,
        &spec.env,
        &options.dockerfile,
        secrets,
    ))
}
