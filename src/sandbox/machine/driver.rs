//! What differs between the programs of this machine that make machines.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;

use async_trait::async_trait;

use super::super::docker::SealError;
use super::super::guest::Guest;
use super::super::place::Place;
use super::super::{Activity, Capabilities, SandboxError, SandboxSpec};
use super::border::Border;
use crate::exec::Command;
use crate::network::Policy;

/// A program that makes machines, each with a directory of this machine in it.
#[async_trait]
pub(in crate::sandbox) trait Driver: Clone + Debug + Send + Sync + 'static {
    /// The name used in `sandbox.type`.
    const NAME: &'static str;

    /// What its machines can enforce.
    fn capabilities(&self) -> Capabilities;

    /// Why it cannot enforce a policy; `None` when it can.
    fn objection(&self, policy: &Policy) -> Option<String>;

    /// Whether it is here, and can be used.
    async fn check(&self) -> Result<(), SandboxError>;

    /// Makes a machine that takes commands. What is left of one that came to nothing is removed by the caller.
    async fn make(&self, plan: &Plan) -> Result<(), SandboxError>;

    /// What keeps a machine that runs from the network. A gateway that belongs to it is open for as long as this is kept.
    async fn border(&self, plan: &Plan) -> Result<Border, SandboxError>;

    /// Starts a machine that was stopped.
    async fn start(&self, plan: &Plan) -> Result<(), SandboxError>;

    /// Stops a machine; harmless when it is stopped or gone.
    async fn stop(&self, machine: &str) -> Result<(), SandboxError>;

    /// Removes a machine; harmless when it is gone.
    async fn remove(&self, machine: &str) -> Result<(), SandboxError>;

    /// All machines there are, whoever made them.
    async fn all(&self) -> Result<BTreeMap<String, Activity>, SandboxError>;

    /// The command that runs another one in a machine: program and arguments go behind it.
    fn exec(&self, machine: &str) -> Command;

    /// Where the workspace is inside.
    fn root(&self, place: &Place) -> PathBuf;

    /// Where the guest's file is inside.
    fn guest(&self, file: &std::path::Path) -> PathBuf;
}

/// A machine to be made.
#[derive(Clone, Debug)]
pub(in crate::sandbox) struct Plan {
    /// Where it is on this machine.
    pub(in crate::sandbox) place: Place,
    /// What it is made from.
    pub(in crate::sandbox) spec: SandboxSpec,
    /// What runs its commands.
    pub(in crate::sandbox) guest: Guest,
}

impl Plan {
    /// What the machine is called.
    pub(in crate::sandbox) fn name(&self) -> String {
        self.place.name()
    }

    /// That its network is not closed as it should be, or cannot be shown to be.
    pub(in crate::sandbox) fn unsealed(&self, source: SealError) -> SandboxError {
        source.into_sandbox_error(&self.name())
    }
}
