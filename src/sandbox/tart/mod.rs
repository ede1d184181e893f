//! The `tart` provider: each sandbox is a VM on a Mac, cloned from a template that is created once for an image and a
//! dependency script. Only the workspace on the host is kept: a stopped VM is removed and cloned again.

mod cli;
mod gateway_address;
mod softnet;
mod template;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;

use self::cli::{Tart, command};
use self::gateway_address::GatewayAddress;
use self::softnet::SoftnetMode;
use super::guest_file::GuestFile;
use super::host_policy::inspection_unsupported;
use super::image_records::ImageRecords;
use super::sandbox_dir::SandboxDir;
use super::vm::{self, VmDriver, VmGateway, VmNetwork, VmOptions, VmPlan, host_cli, limit_flags};
use super::{
    Capabilities, CredentialRoute, Enforced, Isolation, NetworkEnforcement, Provider, ProviderImage,
    SandboxActivity, SandboxError, SandboxErrorKind, SandboxSpec,
};
use crate::exec::Command;
use crate::network::Policy;

/// The directory in which macOS mounts shared directories.
const SHARED: &str = "/Volumes/My Shared Files";
/// The names of the workspace and the guest's directory there.
const WORKSPACE: &str = "ralph";
const GUEST: &str = "guest";

/// How many macOS VMs Apple's license allows to run at once.
const MAX_RUNNING_MACS: usize = 2;

/// The options of the provider.
#[derive(Clone, Debug)]
pub struct TartOptions {
    /// The options that all providers of VMs have.
    pub vm: VmOptions,
    /// The dependency script, which `bash -e` runs once in a template.
    pub dependencies: String,
    /// The main worktree of the project that templates are made for.
    pub project: PathBuf,
    /// How long a VM may take until commands can be run in it.
    pub boot_timeout: Duration,
}

impl TartOptions {
    /// The default boot timeout.
    pub const BOOT_TIMEOUT: Duration = Duration::from_secs(120);
}

/// Creates the provider.
#[must_use]
pub fn provider(options: TartOptions) -> impl Provider {
    let driver = TartDriver {
        tart: Tart::new(options.vm.host.clone()),
        gateway_address: GatewayAddress::stored_in(&options.vm.base),
        records: ImageRecords::of_templates(&options.vm.base, options.project),
        dependencies: options.dependencies,
        boot_timeout: options.boot_timeout,
    };
    vm::provider(driver, options.vm)
}

/// Creates VMs with `tart`.
#[derive(Clone, Debug)]
struct TartDriver {
    tart: Tart,
    gateway_address: GatewayAddress,
    records: ImageRecords,
    dependencies: String,
    boot_timeout: Duration,
}

impl TartDriver {
    /// Fails if one more macOS VM would exceed the limit of the license. Other systems do not count.
    async fn check_limit(&self, source: &str) -> Result<(), SandboxError> {
        if !self.tart.is_mac(source).await? {
            return Ok(());
        }
        let mut running = 0;
        for (vm, activity) in self.tart.list().await? {
            let counts = activity == SandboxActivity::Running && self.tart.is_mac(&vm).await?;
            running += usize::from(counts);
        }
        if running < MAX_RUNNING_MACS {
            Ok(())
        } else {
            Err(too_many_macs(running))
        }
    }

    /// Clones a VM and starts it, with a network that reaches a gateway at this address if the policy needs one.
    async fn boot(&self, plan: &VmPlan, template: &str, gateway: Ipv4Addr) -> Result<(), SandboxError> {
        let (name, run) = (plan.name(), run_command(plan, gateway)?);
        self.check_limit(template).await?;
        self.tart.clone_vm(template, &name).await?;
        let limits = limit_flags(&plan.spec.resources, "--cpu", "--memory", "");
        host_cli::run(&self.tart.host, command(["set", &name]).args(limits)).await?;
        self.run(&name, run, plan).await
    }

    /// Starts a VM, and waits until commands can be run in it.
    async fn run(&self, name: &str, run: Command, plan: &VmPlan) -> Result<(), SandboxError> {
        let log = plan.dir.log();
        self.tart.start(name, run, log, self.boot_timeout).await
    }
}

#[async_trait]
impl VmDriver for TartDriver {
    const NAME: &'static str = "tart";
    const IMAGE_KIND: Option<&'static str> = Some("template");

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            isolation: Isolation::Vm,
            network: NetworkEnforcement::Names,
            resources: Enforced::Yes,
            metering: Enforced::Yes,
            preview: false,
            credentials: CredentialRoute::Gateway,
        }
    }

    fn objection(&self, policy: &Policy) -> Option<String> {
        inspection_unsupported(policy)
    }

    async fn check(&self) -> Result<(), SandboxError> {
        if self.tart.host.has_program("tart") {
            return Ok(());
        }
        let hint = "install it with `brew install cirruslabs/cli/tart`, on a Mac with Apple silicon";
        Err(unavailable("`tart` is not installed").with_hint(Some(hint)))
    }

    async fn create(&self, plan: &VmPlan) -> Result<(), SandboxError> {
        let image = image_of(plan)?;
        if let Some(mount) = plan.spec.mounts.first() {
            let reason = format!("`{}` would be mounted in `{SHARED}`", mount.source.display());
            let operation = "mount a file at a path of your choice";
            return Err(SandboxError::unsupported(Self::NAME, operation, reason));
        }
        let mode = SoftnetMode::new(&plan.spec.network);
        if mode != SoftnetMode::Open {
            softnet::check(&self.tart.host).await?;
        }
        let template = self.ensure_template(image, plan).await?;
        let guess = self.gateway_address.guess();
        self.boot(plan, &template, guess).await?;
        if mode == SoftnetMode::Gateway {
            let found = self.gateway_address.find(&self.tart, &plan.name()).await?;
            if found != guess {
                self.remove(&plan.name()).await?;
                self.boot(plan, &template, found).await?;
            }
        }
        Ok(())
    }

    async fn network(&self, plan: &VmPlan) -> Result<VmNetwork, SandboxError> {
        Ok(match SoftnetMode::new(&plan.spec.network) {
            SoftnetMode::Open => VmNetwork::Open,
            SoftnetMode::Blocked => VmNetwork::Blocked,
            SoftnetMode::Gateway => {
                let address = self.gateway_address.find(&self.tart, &plan.name()).await?;
                let gateway = VmGateway::open(address.into(), &plan.spec);
                VmNetwork::Gateway(gateway.map_err(|error| plan.unsealed(error))?)
            }
        })
    }

    async fn start(&self, plan: &VmPlan) -> Result<(), SandboxError> {
        self.remove(&plan.name()).await?;
        self.create(plan).await
    }

    async fn stop(&self, vm: &str) -> Result<(), SandboxError> {
        self.tart.stop(vm).await
    }

    async fn remove(&self, vm: &str) -> Result<(), SandboxError> {
        self.tart.stop(vm).await?;
        self.tart.delete(vm).await
    }

    async fn list(&self) -> Result<BTreeMap<String, SandboxActivity>, SandboxError> {
        self.tart.list().await
    }

    fn image_of(&self, spec: &SandboxSpec) -> Option<String> {
        self.template_of(spec)
    }

    async fn images(
        &self,
        spec: &SandboxSpec,
        dirs: &[SandboxDir],
    ) -> Result<Vec<ProviderImage>, SandboxError> {
        self.templates(spec, dirs).await
    }

    async fn ensure_image(&self, plan: &VmPlan) -> Result<Option<String>, SandboxError> {
        self.ensure_template(image_of(plan)?, plan).await.map(Some)
    }

    async fn remove_image(&self, name: &str) -> Result<(), SandboxError> {
        self.remove_template(name).await
    }

    fn exec(&self, vm: &str) -> Command {
        command(["exec", "-i", vm])
    }

    fn root(&self, _dir: &SandboxDir) -> PathBuf {
        Path::new(SHARED).join(WORKSPACE)
    }

    async fn guest(&self, vm: &str, file: &Path) -> Result<GuestFile, SandboxError> {
        if self.tart.is_mac(vm).await? {
            return Ok(Err("macOS cannot run the guest, which is a program for Linux"));
        }
        let name = file.file_name().unwrap_or_default();
        Ok(Ok(Path::new(SHARED).join(GUEST).join(name)))
    }
}

/// The image that the template of a VM is made from.
fn image_of(plan: &VmPlan) -> Result<&str, SandboxError> {
    plan.spec.image.as_deref().ok_or_else(|| {
        let hint = "set `sandbox.image`, or `base_image` in .agent-loop/config.json";
        unavailable("no image is set").with_hint(Some(hint))
    })
}

/// The command that starts a VM, and lives as long as it.
fn run_command(plan: &VmPlan, gateway: Ipv4Addr) -> Result<Command, SandboxError> {
    let mut run = command(["run", &plan.name(), "--no-graphics"]);
    run = run.arg(shared_dir(WORKSPACE, &plan.dir.workspace(), "")?);
    if let Some(dir) = plan.guest_dir() {
        run = run.arg(shared_dir(GUEST, dir, ":ro")?);
    }
    Ok(run.args(SoftnetMode::new(&plan.spec.network).flags(gateway)))
}

/// The argument that shares a directory with a VM. Colons separate its parts, so the path must have none.
fn shared_dir(name: &str, dir: &Path, access: &str) -> Result<String, SandboxError> {
    let path = dir.to_string_lossy();
    if path.contains(':') {
        let reason = format!("`{path}` contains a colon, which `tart` takes for a separator");
        return Err(SandboxError::unsupported(
            TartDriver::NAME,
            "share a directory",
            reason,
        ));
    }
    Ok(format!("--dir={name}:{path}{access}"))
}

fn unavailable(reason: &str) -> SandboxError {
    SandboxError::unavailable(TartDriver::NAME, reason)
}

/// Apple allows a fixed number of running macOS VMs per host.
fn too_many_macs(running: usize) -> SandboxError {
    let message = format!(
        "cannot start VM — {running} macOS VMs already running (Apple SLA permits max 2). Stop an existing VM with: \
         tart stop <name>"
    );
    SandboxError::new(SandboxErrorKind::Failed, message)
}
