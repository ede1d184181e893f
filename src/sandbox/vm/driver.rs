//! What differs between the host CLIs that create VMs.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::super::docker::SealError;
use super::super::guest_file::GuestFile;
use super::super::sandbox_dir::SandboxDir;
use super::super::{Capabilities, ProviderImage, Resources, SandboxActivity, SandboxError, SandboxSpec};
use super::network::VmNetwork;
use crate::exec::Command;
use crate::network::Policy;

/// A host CLI that creates VMs with a shared host directory.
#[async_trait]
pub(in crate::sandbox) trait VmDriver: Clone + Debug + Send + Sync + 'static {
    /// The name used in `sandbox.type`.
    const NAME: &'static str;

    /// The word for what its VMs are cloned from, if the CLI keeps that; the methods about images are for these.
    const IMAGE_KIND: Option<&'static str> = None;

    /// What its VMs can enforce.
    fn capabilities(&self) -> Capabilities;

    /// Why it cannot enforce a policy; `None` if it can.
    fn objection(&self, policy: &Policy) -> Option<String>;

    /// Fails if the CLI is not installed or not usable.
    async fn check(&self) -> Result<(), SandboxError>;

    /// Creates a VM and waits until it runs commands. The caller removes what is left after an error.
    async fn create(&self, plan: &VmPlan) -> Result<(), SandboxError>;

    /// What restricts the network of a running VM. A gateway is open until the result is dropped.
    async fn network(&self, plan: &VmPlan) -> Result<VmNetwork, SandboxError>;

    /// Starts a stopped VM.
    async fn start(&self, plan: &VmPlan) -> Result<(), SandboxError>;

    /// Stops a VM. It is fine if it is stopped or does not exist.
    async fn stop(&self, vm: &str) -> Result<(), SandboxError>;

    /// Removes a VM. It is fine if it does not exist.
    async fn remove(&self, vm: &str) -> Result<(), SandboxError>;

    /// All VMs by name, also those that ralph did not create.
    async fn list(&self) -> Result<BTreeMap<String, SandboxActivity>, SandboxError>;

    /// The name of what a VM of this spec is cloned from.
    fn image_of(&self, _spec: &SandboxSpec) -> Option<String> {
        None
    }

    /// What VMs are cloned from, `dirs` being the directories of all sandboxes.
    async fn images(
        &self,
        _spec: &SandboxSpec,
        _dirs: &[SandboxDir],
    ) -> Result<Vec<ProviderImage>, SandboxError> {
        Ok(Vec::new())
    }

    /// Makes what a VM is cloned from, unless it exists. The caller removes what is left after an error.
    async fn ensure_image(&self, _plan: &VmPlan) -> Result<Option<String>, SandboxError> {
        Ok(None)
    }

    /// Removes what VMs were cloned from.
    async fn remove_image(&self, _name: &str) -> Result<(), SandboxError> {
        Ok(())
    }

    /// The host command that runs another command in a VM. Program and arguments are appended to it.
    fn exec(&self, vm: &str) -> Command;

    /// The path of the workspace in the VM.
    fn root(&self, dir: &SandboxDir) -> PathBuf;

    /// The path in a running VM of this file with the guest. The inner error says why the VM cannot run it: it is a Linux
    /// program.
    async fn guest(&self, vm: &str, file: &Path) -> Result<GuestFile, SandboxError>;
}

/// A VM to be created.
#[derive(Clone, Debug)]
pub(in crate::sandbox) struct VmPlan {
    /// Its directory on the host.
    pub(in crate::sandbox) dir: SandboxDir,
    pub(in crate::sandbox) spec: SandboxSpec,
    pub(in crate::sandbox) guest: GuestFile,
}

impl VmPlan {
    /// The name of the VM.
    pub(in crate::sandbox) fn name(&self) -> String {
        self.dir.name()
    }

    /// The directory of the guest on the host, if there is a guest.
    pub(in crate::sandbox) fn guest_dir(&self) -> Option<&Path> {
        self.guest.as_ref().ok()?.parent()
    }

    /// The error for a network that is not sealed, or cannot be shown to be.
    pub(in crate::sandbox) fn unsealed(&self, error: SealError) -> SandboxError {
        error.into_sandbox_error(&self.name())
    }
}

/// The flags that limit the processors (rounded up) and the memory of a VM. The memory is in MiB, followed by `unit`.
pub(in crate::sandbox) fn limit_flags(
    resources: &Resources,
    cpu_flag: &str,
    memory_flag: &str,
    unit: &str,
) -> Vec<String> {
    const MEBIBYTE: u64 = 1 << 20;
    let cpus = resources
        .cpu_millis
        .map(|millis| millis.div_ceil(1000).to_string());
    let memory = resources
        .memory_bytes
        .map(|bytes| format!("{}{unit}", bytes / MEBIBYTE));
    [(cpu_flag, cpus), (memory_flag, memory)]
        .into_iter()
        .filter_map(|(flag, value)| Some([flag.to_owned(), value?]))
        .flatten()
        .collect()
}
