//! Providers whose sandboxes are VMs that a host CLI creates: `docker-sandbox` and `tart`. They differ in their driver;
//! ownership, workspace and commands are the same.

mod driver;
mod exec;
mod gateway;
pub(super) mod host_cli;
mod network;
mod sandbox;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

pub(super) use self::driver::{VmDriver, VmPlan, limit_flags};
pub(super) use self::gateway::VmGateway;
pub(super) use self::network::VmNetwork;

use self::exec::VmExec;
use self::sandbox::VmSandbox;
use super::error::warn_not_removed;
use super::files::WorkspaceFiles;
use super::guest_file::{self, host_arch};
use super::lifecycle::Lifecycle;
use super::sandbox_dir::{SandboxDir, SandboxRecord};
use super::session::SessionContext;
use super::session_slot::SessionSlot;
use super::workspace_provider::{FoundSandbox, Instance, WorkspaceBackend, WorkspaceProvider};
use super::{Capabilities, Provider, ProviderImage, SandboxActivity, SandboxError, SandboxSpec, fingerprint};
use crate::exec::Host;
use crate::network::Policy;

/// A shell script that prints the variables of the VM that commands inherit, as far as they are set: program path, user,
/// proxy and certificates.
const PRINT_INHERITED: &str = "for name in PATH USER LOGNAME http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY \
     NO_PROXY SSL_CERT_FILE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE GIT_SSL_CAINFO; \
     do eval \"value=\\${$name-}\"; [ -z \"$value\" ] || echo \"$name=$value\"; done";

/// The options that the providers of VMs share.
#[derive(Clone, Debug)]
pub struct VmOptions {
    /// The host directory in which each sandbox gets a directory of its own.
    pub base: PathBuf,
    /// The host directory for the guest, which is shared with every VM.
    pub guest_dir: PathBuf,
    /// Starts the host CLI.
    pub host: Host,
    /// The name of this host, as part of the owner of sandboxes.
    pub host_name: String,
}

/// A provider whose sandboxes are VMs of one host CLI.
pub(super) fn provider<D: VmDriver>(driver: D, options: VmOptions) -> impl Provider {
    let (base, host_name) = (options.base.clone(), options.host_name.clone());
    WorkspaceProvider::new(VmBackend { driver, options }, base, &host_name)
}

/// Creates VMs with one host CLI.
#[derive(Debug)]
struct VmBackend<D> {
    driver: D,
    options: VmOptions,
}

impl<D: VmDriver> VmBackend<D> {
    fn plan(&self, dir: &SandboxDir, spec: SandboxSpec) -> Result<VmPlan, SandboxError> {
        Ok(VmPlan {
            dir: dir.clone(),
            spec,
            guest: guest_file::install(&self.options.guest_dir, host_arch())?,
        })
    }

    /// The sandbox of a running VM, after its network was verified.
    async fn open_running(&self, plan: VmPlan) -> Result<VmSandbox<D>, SandboxError> {
        let network = self.driver.network(&plan).await?;
        let sandbox = self.sandbox(plan, network).await?;
        sandbox.verify_network().await?;
        Ok(sandbox)
    }

    /// The sandbox of a running VM.
    async fn sandbox(&self, plan: VmPlan, network: VmNetwork) -> Result<VmSandbox<D>, SandboxError> {
        let name = plan.name();
        let root = self.driver.root(&plan.dir);
        let exec = self.driver.exec(&name);
        let print = exec.clone().args(["/bin/sh", "-c", PRINT_INHERITED]);
        let printed = host_cli::run(&self.options.host, print).await?;
        let guest = match &plan.guest {
            Ok(file) => self.driver.guest(&name, file).await?,
            Err(reason) => Err(*reason),
        };
        let slot = SessionSlot::new(guest.as_ref().err().copied());
        let exec = VmExec {
            host: self.options.host.clone(),
            exec,
            guest: guest.unwrap_or_default(),
            context: SessionContext {
                sandbox: name.clone(),
                env: variables(&printed, &network, &root, &plan.spec),
                dir: root.clone(),
                grace: plan.spec.completion_grace,
            },
        };
        Ok(VmSandbox {
            driver: self.driver.clone(),
            files: WorkspaceFiles::new(&name, root, plan.dir.workspace(), plan.dir.staging()),
            slot,
            exec,
            lifecycle: Lifecycle::running(),
            network,
            plan,
            name,
        })
    }
}

#[async_trait]
impl<D: VmDriver> WorkspaceBackend for VmBackend<D> {
    const NAME: &'static str = D::NAME;
    const EVIDENCE_APART: bool = false;
    const IMAGE_KIND: Option<&'static str> = D::IMAGE_KIND;

    type Sandbox = VmSandbox<D>;

    fn capabilities(&self) -> Capabilities {
        self.driver.capabilities()
    }

    fn objection(&self, policy: &Policy) -> Option<String> {
        self.driver.objection(policy)
    }

    async fn check(&self) -> Result<(), SandboxError> {
        self.driver.check().await
    }

    async fn fingerprint(&self, spec: &SandboxSpec) -> Result<Option<String>, SandboxError> {
        Ok(Some(fingerprint::fingerprint(&(
            crate::guest::VERSION,
            &spec.image,
            self.driver.image_of(spec),
            spec.network.lines(),
            &spec.mounts,
            &spec.resources,
        ))))
    }

    async fn create(
        &self,
        dir: &SandboxDir,
        spec: &SandboxSpec,
        _record: &SandboxRecord,
    ) -> Result<Option<VmSandbox<D>>, SandboxError> {
        let listed = self.driver.list().await;
        if listed.is_err() {
            warn_not_removed(&dir.name(), dir.remove().await);
        }
        if listed?.contains_key(&dir.name()) {
            return Ok(None);
        }
        let created = async {
            let plan = self.plan(dir, spec.clone())?;
            self.driver.create(&plan).await?;
            let sandbox = self.open_running(plan).await?;
            dir.finish()?;
            Ok(Some(sandbox))
        };
        let created = created.await;
        if created.is_err() {
            // A VM without a directory would never be found again.
            let removed = async {
                self.remove_at(dir).await?;
                dir.remove().await
            };
            warn_not_removed(&dir.name(), removed.await);
        }
        created
    }

    async fn open(&self, dir: &SandboxDir, spec: &SandboxSpec) -> Result<Option<VmSandbox<D>>, SandboxError> {
        let vms = self.driver.list().await?;
        let Some(activity) = vms.get(&dir.name()).filter(|_| dir.is_finished()) else {
            return Ok(None);
        };
        let plan = self.plan(dir, spec.clone())?;
        if *activity != SandboxActivity::Running {
            self.driver.start(&plan).await?;
        }
        self.open_running(plan).await.map(Some)
    }

    async fn attach(&self, found: &FoundSandbox) -> Result<Option<VmSandbox<D>>, SandboxError> {
        match &found.record {
            Some(record) if found.listing.activity == SandboxActivity::Running => {
                let plan = self.plan(&found.dir, SandboxSpec::unrestricted(record.run.clone()))?;
                self.sandbox(plan, VmNetwork::Attached).await.map(Some)
            }
            Some(_) | None => Ok(None),
        }
    }

    /// VMs without a directory do not belong to ralph.
    async fn instances(&self, dirs: &[SandboxDir]) -> Result<Vec<Instance>, SandboxError> {
        let vms = self.driver.list().await?;
        let instances = dirs.iter().map(|dir| {
            let activity = vms.get(&dir.name()).copied();
            let activity = activity.unwrap_or(SandboxActivity::Removed);
            Instance {
                name: dir.name(),
                dir: dir.clone(),
                ids: vec![dir.name()],
                activity,
                needs_sweep: activity == SandboxActivity::Running || !dir.is_finished(),
                image: None,
                created: dir.modified(),
                creator: (None, None),
            }
        });
        Ok(instances.collect())
    }

    async fn remove_at(&self, dir: &SandboxDir) -> Result<(), SandboxError> {
        self.driver.remove(&dir.name()).await
    }

    async fn images(
        &self,
        spec: &SandboxSpec,
        dirs: &[SandboxDir],
    ) -> Result<Vec<ProviderImage>, SandboxError> {
        self.driver.images(spec, dirs).await
    }

    async fn ensure_image(
        &self,
        dir: &SandboxDir,
        spec: &SandboxSpec,
    ) -> Result<Option<String>, SandboxError> {
        self.driver.ensure_image(&self.plan(dir, spec.clone())?).await
    }

    async fn remove_image(&self, name: &str) -> Result<(), SandboxError> {
        self.driver.remove_image(name).await
    }
}

/// The environment of commands: variables that the VM printed, ralph's own, and those of the spec.
fn variables(
    printed: &str,
    network: &VmNetwork,
    root: &Path,
    spec: &SandboxSpec,
) -> BTreeMap<String, String> {
    let own = [
        ("HOME", root.join("home").to_string_lossy().into_owned()),
        ("TMPDIR", "/tmp".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
    ];
    let inherited = printed.lines().filter_map(|line| line.split_once('='));
    let mut env: BTreeMap<String, String> = inherited
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    env.extend(own.map(|(name, value)| (name.to_owned(), value)));
    env.extend(network.variables());
    env.extend(spec.env.clone());
    env
}
