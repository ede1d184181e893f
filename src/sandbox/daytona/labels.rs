//! The labels of a sandbox: its run, its owner and what it was created from.

use std::collections::BTreeMap;

use super::DaytonaOptions;
use crate::id::RunId;
use crate::sandbox::owner::Owner;
use crate::sandbox::{SandboxSpec, fingerprint};

const KIND: &str = "ralph.kind";
const RUN: &str = "ralph.run";
const OWNER: &str = "ralph.owner";
const FINGERPRINT: &str = "ralph.fingerprint";
const SECRETS: &str = "ralph.secrets";
const VERSION: &str = "ralph.version";

/// The label that all sandboxes of ralph have, as a filter.
pub(super) const COMMON_LABEL: &str = r#"{"ralph.kind":"sandbox"}"#;

/// Separates the names of credentials.
const SEPARATOR: &str = ",";

/// The labels that ralph sets on a sandbox.
pub(super) struct DaytonaLabels {
    /// The run that uses the sandbox.
    pub(super) run: RunId,
    /// The process that uses it now, or used it last.
    pub(super) owner: Owner,
    /// A hash of what it was created from.
    pub(super) fingerprint: String,
    /// The names of its credentials in Daytona's vault.
    pub(super) secrets: Vec<String>,
}

impl DaytonaLabels {
    pub(super) fn to_map(&self) -> BTreeMap<String, String> {
        let labels = [
            (KIND, "sandbox".to_owned()),
            (RUN, self.run.to_string()),
            (OWNER, self.owner.to_json()),
            (FINGERPRINT, self.fingerprint.clone()),
            (SECRETS, self.secrets.join(SEPARATOR)),
            (VERSION, env!("CARGO_PKG_VERSION").to_owned()),
        ];
        labels.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// `None` if the sandbox does not belong to ralph.
    pub(super) fn parse(labels: &BTreeMap<String, String>) -> Option<Self> {
        let secrets = labels.get(SECRETS).map_or("", String::as_str).split(SEPARATOR);
        Some(Self {
            run: RunId::parse(labels.get(RUN)?).ok()?,
            owner: serde_json::from_str(labels.get(OWNER)?).ok()?,
            fingerprint: labels.get(FINGERPRINT)?.clone(),
            secrets: secrets
                .filter(|name| !name.is_empty())
                .map(ToOwned::to_owned)
                .collect(),
        })
    }
}

/// A hash of what a sandbox is created from. A sandbox with another hash is not reused.
pub(super) fn fingerprint(spec: &SandboxSpec, options: &DaytonaOptions) -> String {
    // The values may change: they are not part of the sandbox.
    let secrets: Vec<&str> = options.secrets.iter().map(|one| one.variable.as_str()).collect();
    fingerprint::fingerprint(&(
        &spec.image,
        &spec.dockerfile,
        &spec.build_files,
        spec.network.lines(),
        &spec.resources,
        &spec.env,
        &options.dockerfile,
        secrets,
    ))
}
