//! What is written on a sandbox: whose it is, and what it was made from.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::engine::Digest;
use crate::id::RunId;
use crate::sandbox::owner::Owner;
use crate::sandbox::{Resources, SandboxSpec};

/// Every sandbox of ralph's has it.
const KIND: (&str, &str) = ("ralph.kind", "sandbox");
const RUN: &str = "ralph.run";
const OWNER: &str = "ralph.owner";
const FINGERPRINT: &str = "ralph.fingerprint";
const VERSION: &str = "ralph.version";

/// How many digits of a hash tell what two sandboxes were made from.
const FINGERPRINT_DIGITS: usize = 32;

/// What is written on a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Labels {
    /// The run that has it.
    pub(super) run: RunId,
    /// The process that has it now, or had it last.
    pub(super) owner: Owner,
    /// What it was made from.
    pub(super) fingerprint: String,
}

impl Labels {
    pub(super) fn to_map(&self) -> BTreeMap<String, String> {
        let labels = [
            (KIND.0, KIND.1.to_owned()),
            (RUN, self.run.to_string()),
            (OWNER, self.owner.as_json()),
            (FINGERPRINT, self.fingerprint.clone()),
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
        })
    }
}

/// What all of ralph's sandboxes have.
pub(super) fn of_all() -> BTreeMap<&'static str, String> {
    BTreeMap::from([(KIND.0, KIND.1.to_owned())])
}

/// What would have to be made anew if it were different.
pub(super) fn fingerprint(spec: &SandboxSpec) -> String {
    #[derive(Serialize)]
    struct Parts<'a> {
        image: Option<&'a str>,
        network: Vec<String>,
        resources: &'a Resources,
        env: &'a BTreeMap<String, String>,
    }
    let parts = Parts {
        image: spec.image.as_deref(),
        network: spec.network.lines(),
        resources: &spec.resources,
        env: &spec.env,
    };
    let json = serde_json::to_vec(&parts).unwrap_or_default();
    Digest::of(&json).hex()[..FINGERPRINT_DIGITS].to_owned()
}
