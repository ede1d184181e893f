//! The `tart` provider: each sandbox is a virtual machine on a Mac, cloned from a template that is made once for an
//! image and a script of dependencies. The machine is worth nothing, its workspace on this machine everything: one
//! that was stopped is removed and cloned anew.

mod agent;
mod cli;
mod route;
mod softnet;
mod template;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;

use self::cli::{Tart, Vm, command};
use self::route::Routes;
use self::softnet::{Closing, Reach};
use super::guest::Guest;
use super::machine::{Border, Driver, MachineOptions, MachineProvider, Outlet, Plan};
use super::place::Place;
use super::reach::opens_no_tls;
use super::{
    Activity, Capabilities, CredentialRoute, Enforced, Isolation, NetworkEnforcement, Provider, SandboxError,
    SandboxErrorKind,
};
use crate::exec::Command;
use crate::network::Policy;

/// Where a Mac shows the directories it was given.
const SHARED: &str = "/Volumes/My Shared Files";
/// What the workspace and the guest's directory are called there.
const WORKSPACE: &str = "ralph";
const GUEST: &str = "guest";

/// How many virtual Macs Apple's licence lets run at once.
const MOST_MACS: usize = 2;

const MEGABYTE: u64 = 1 << 20;

/// What the provider needs to know.
#[derive(Clone, Debug)]
pub struct TartOptions {
    /// Where sandboxes are kept on this machine.
    pub machines: MachineOptions,
    /// What `bash -e` runs in a template, once: the project's dependencies.
    pub dependencies: String,
    /// How long a machine may take until commands can be run in it.
    pub boot_patience: Duration,
}

impl TartOptions {
    /// How long a machine may take to boot, unless somebody says otherwise.
    pub const BOOT_PATIENCE: Duration = Duration::from_secs(120);
}

/// A provider that keeps its workspaces where the options say.
#[must_use]
pub fn provider(options: TartOptions) -> impl Provider {
    let driver = Macs {
        tart: Tart::new(options.machines.host.clone()),
        routes: Routes::kept_in(&options.machines.base),
        dependencies: options.dependencies,
        boot_patience: options.boot_patience,
    };
    MachineProvider::new(driver, options.machines)
}

/// Virtual machines by `tart`.
#[derive(Clone, Debug)]
struct Macs {
    tart: Tart,
    routes: Routes,
    dependencies: String,
    boot_patience: Duration,
}

impl Macs {
    /// Refuses to start one Mac more than the licence allows. Other systems do not count.
    async fn check_limit(&self, source: &str) -> Result<(), SandboxError> {
        if !self.tart.is_mac(source).await? {
            return Ok(());
        }
        let mut running = 0;
        for vm in self.tart.list().await?.iter().filter(|vm| vm.is_running()) {
            running += usize::from(self.tart.is_mac(&vm.name).await?);
        }
        if running < MOST_MACS {
            Ok(())
        } else {
            Err(too_many_macs(running))
        }
    }

    /// Clones a machine and starts it, with nothing of the network but this.
    async fn boot(&self, plan: &Plan, template: &str, reach: Reach) -> Result<(), SandboxError> {
        let (name, run) = (plan.name(), run_command(plan, reach)?);
        self.check_limit(template).await?;
        self.tart.clone_vm(template, &name).await?;
        self.tart.run(command(["set", &name]).args(limits(plan))).await?;
        self.run(&name, run, plan).await
    }

    /// Starts a machine, and waits until commands can be run in it.
    async fn run(&self, name: &str, run: Command, plan: &Plan) -> Result<(), SandboxError> {
        let child = self.tart.start(run, &plan.place.log()).await?;
        agent::answers(&self.tart, name, &child, self.boot_patience).await
    }
}

#[async_trait]
impl Driver for Macs {
    const NAME: &'static str = "tart";

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            isolation: Isolation::Machine,
            network: NetworkEnforcement::Names,
            resources: Enforced::Yes,
            metering: Enforced::Yes,
            preview: false,
            credentials: CredentialRoute::Gateway,
        }
    }

    fn objection(&self, policy: &Policy) -> Option<String> {
        opens_no_tls(policy)
    }

    async fn check(&self) -> Result<(), SandboxError> {
        if self.tart.is_here() {
            Ok(())
        } else {
            Err(unavailable(
                "`tart` is not installed: `brew install cirruslabs/cli/tart`, on a Mac with Apple silicon",
            ))
        }
    }

    async fn make(&self, plan: &Plan) -> Result<(), SandboxError> {
        let image = plan.spec.image.as_deref();
        let image = image.ok_or_else(|| {
            unavailable("no image is named: set sandbox.image, or base_image in .agent-loop/config.json")
        })?;
        if let Some(mount) = plan.spec.mounts.first() {
            let reason = format!("`{}` would be below `{SHARED}`", mount.source.display());
            let operation = "show a file under a name of your own";
            return Err(SandboxError::unsupported(Self::NAME, operation, reason));
        }
        let closing = Closing::of(&plan.spec.network);
        if closing != Closing::Open {
            softnet::check(&self.tart.host).await?;
        }
        let template = self.template(image, plan).await?;
        match closing {
            Closing::Open => self.boot(plan, &template, Reach::Everything).await,
            Closing::Shut => self.boot(plan, &template, Reach::Nothing).await,
            Closing::Gateway => {
                let guessed = self.routes.remembered();
                self.boot(plan, &template, Reach::Only(guessed)).await?;
                let found = self.routes.ask(&self.tart, &plan.name()).await?;
                if found == guessed {
                    return Ok(());
                }
                self.remove(&plan.name()).await?;
                self.boot(plan, &template, Reach::Only(found)).await
            }
        }
    }

    async fn border(&self, plan: &Plan) -> Result<Border, SandboxError> {
        Ok(match Closing::of(&plan.spec.network) {
            Closing::Open => Border::Open,
            Closing::Shut => Border::Shut,
            Closing::Gateway => {
                let address = self.routes.ask(&self.tart, &plan.name()).await?;
                let outlet = Outlet::open(address.into(), &plan.spec);
                Border::Gateway(outlet.map_err(|error| plan.unsealed(error))?)
            }
        })
    }

    async fn start(&self, plan: &Plan) -> Result<(), SandboxError> {
        self.remove(&plan.name()).await?;
        self.make(plan).await
    }

    async fn stop(&self, machine: &str) -> Result<(), SandboxError> {
        self.tart.stop(machine).await
    }

    async fn remove(&self, machine: &str) -> Result<(), SandboxError> {
        self.tart.stop(machine).await?;
        self.tart.delete(machine).await
    }

    async fn all(&self) -> Result<BTreeMap<String, Activity>, SandboxError> {
        let activity = |vm: &Vm| {
            if vm.is_running() {
                Activity::Running
            } else {
                Activity::Stopped
            }
        };
        let all = self.tart.list().await?;
        Ok(all.iter().map(|vm| (vm.name.clone(), activity(vm))).collect())
    }

    fn exec(&self, machine: &str) -> Command {
        command(["exec", "-i", machine])
    }

    fn root(&self, _place: &Place) -> PathBuf {
        Path::new(SHARED).join(WORKSPACE)
    }

    fn guest(&self, file: &Path) -> PathBuf {
        let name = file.file_name().unwrap_or_default();
        Path::new(SHARED).join(GUEST).join(name)
    }
}

/// The command that starts a machine, and lives as long as it.
fn run_command(plan: &Plan, reach: Reach) -> Result<Command, SandboxError> {
    let mut run = command(["run", &plan.name(), "--no-graphics"]);
    run = run.arg(shared(WORKSPACE, &plan.place.workspace(), "")?);
    if let Guest::Here(file) = &plan.guest
        && let Some(dir) = file.parent()
    {
        run = run.arg(shared(GUEST, dir, ":ro")?);
    }
    Ok(run.args(reach.flags()))
}

/// A directory that a machine sees. Its name ends at the first colon, and so would a path that has one.
fn shared(name: &str, dir: &Path, access: &str) -> Result<String, SandboxError> {
    let path = dir.to_string_lossy();
    if path.contains(':') {
        let reason = format!("`{path}` has a colon in its name, and tart takes that for the end of it");
        return Err(SandboxError::unsupported(Macs::NAME, "share a directory", reason));
    }
    Ok(format!("--dir={name}:{path}{access}"))
}

fn limits(plan: &Plan) -> Vec<String> {
    let resources = &plan.spec.resources;
    let cpus = resources
        .cpu_millis
        .map(|millis| millis.div_ceil(1000).to_string());
    let memory = resources.memory_bytes.map(|bytes| (bytes / MEGABYTE).to_string());
    let flags = [("--cpu", cpus), ("--memory", memory)];
    let given = flags
        .into_iter()
        .filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
    given.flatten().collect()
}

fn unavailable(reason: &str) -> SandboxError {
    SandboxError::unavailable(Macs::NAME, reason)
}

/// Apple allows a fixed number of running macOS VMs per host.
fn too_many_macs(running: usize) -> SandboxError {
    let message = format!(
        "cannot start VM — {running} macOS VMs already running (Apple SLA permits max 2). Stop an existing VM with: \
         tart stop <name>"
    );
    SandboxError::new(SandboxErrorKind::Failed, message)
}
