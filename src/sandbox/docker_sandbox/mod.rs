//! The `docker-sandbox` provider: each sandbox is a Docker Sandbox, a small VM. Two programs create them, `sbx` and the
//! older `docker sandbox`; `sbx` is preferred if both are installed.

mod cli;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use self::cli::{SandboxCli, SandboxList, TemplateList};
use super::guest_file::GuestFile;
use super::host_policy::{HostPolicy, wildcard};
use super::sandbox_dir::SandboxDir;
use super::vm::{self, VmDriver, VmNetwork, VmOptions, VmPlan, host_cli};
use super::{
    Capabilities, CredentialRoute, Enforced, Isolation, NetworkEnforcement, Provider, ReadOnlyMount,
    SandboxActivity, SandboxError,
};
use crate::exec::{Command, Host};
use crate::network::{HostPattern, Policy};

const INSTALL: &str =
    "install it with `brew install docker/tap/sbx`, or with winget or apt as in Docker's documentation";

/// Creates the provider.
#[must_use]
pub fn provider(options: VmOptions) -> impl Provider {
    let driver = DockerSandboxDriver {
        host: options.host.clone(),
        base: options.base.clone(),
    };
    vm::provider(driver, options)
}

/// Creates VMs with either of the two programs.
#[derive(Clone, Debug)]
struct DockerSandboxDriver {
    host: Host,
    base: PathBuf,
}

impl DockerSandboxDriver {
    fn cli(&self) -> SandboxCli {
        SandboxCli::find(&self.host)
    }

    async fn run(&self, command: Command) -> Result<String, SandboxError> {
        host_cli::run(&self.host, command).await
    }

    /// Copies an image from the engine to `sbx`, which has its own images.
    async fn load(&self, image: &str) -> Result<(), SandboxError> {
        let list = SandboxCli::Sbx.command(["template", "ls", "--json"]);
        let templates: TemplateList = host_cli::run_json(&self.host, list).await?;
        let mut names = templates
            .images
            .iter()
            .map(|one| format!("{}:{}", one.repository, one.tag));
        if names.any(|name| name == image) {
            return Ok(());
        }
        let archive = self.base.join(format!("template-{:016x}.tar", fastrand::u64(..)));
        let file = archive.to_string_lossy().into_owned();
        let saved = async {
            self.run(Command::new("docker").args(["image", "save", image, "-o", &file]))
                .await?;
            self.run(SandboxCli::Sbx.command(["template", "load", &file]))
                .await
        };
        let saved = saved.await.map(drop);
        let _ = std::fs::remove_file(&archive);
        saved
    }

    /// The host paths that are shared with a VM: workspace, guest and configured mounts.
    fn shared_paths(plan: &VmPlan) -> Result<Vec<String>, SandboxError> {
        let mut paths = vec![plan.dir.workspace().to_string_lossy().into_owned()];
        if let Some(dir) = plan.guest_dir() {
            paths.push(format!("{}:ro", dir.display()));
        }
        for ReadOnlyMount { source, target } in &plan.spec.mounts {
            if source != target {
                let reason = format!(
                    "`{}` must have the same path on the host and inside",
                    source.display()
                );
                let operation = "mount a file at another path";
                return Err(SandboxError::unsupported(Self::NAME, operation, reason));
            }
            paths.push(format!("{}:ro", source.display()));
        }
        Ok(paths)
    }
}

#[async_trait]
impl VmDriver for DockerSandboxDriver {
    const NAME: &'static str = "docker-sandbox";

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            isolation: Isolation::Vm,
            network: NetworkEnforcement::Names,
            resources: match self.cli() {
                SandboxCli::Sbx => Enforced::Yes,
                SandboxCli::Plugin => Enforced::No,
            },
            metering: Enforced::Yes,
            preview: false,
            credentials: CredentialRoute::ProxiedLoopback,
        }
    }

    fn objection(&self, policy: &Policy) -> Option<String> {
        HostPolicy::new(policy, host).err()
    }

    async fn check(&self) -> Result<(), SandboxError> {
        let cli = self.cli();
        if !self.host.has_program(cli.name()) {
            return Err(unavailable("neither `sbx` nor `docker` is installed").with_hint(Some(INSTALL)));
        }
        let exit = host_cli::try_run(&self.host, cli.command(["version"])).await?;
        match (exit.success(), cli) {
            (true, _) => Ok(()),
            (false, SandboxCli::Sbx) => Err(unavailable(&format!(
                "`sbx version` failed: {}",
                exit.stderr.text().trim()
            ))),
            (false, SandboxCli::Plugin) => {
                let hint = "install `sbx`, or a Docker Desktop with Docker Sandboxes";
                Err(unavailable("this `docker` has no `sandbox` command").with_hint(Some(hint)))
            }
        }
    }

    async fn create(&self, plan: &VmPlan) -> Result<(), SandboxError> {
        let rules = rules(plan)?;
        let image = plan
            .spec
            .image
            .as_deref()
            .ok_or_else(|| unavailable("no image is set").with_hint(Some("set `sandbox.image`")))?;
        let cli = self.cli();
        if cli == SandboxCli::Sbx {
            self.load(image).await?;
            self.run(SandboxCli::Sbx.command(["policy", "init", "deny-all"]))
                .await?;
        }
        let create = cli.create(&plan.name(), image, &plan.spec.resources);
        self.run(create.args(Self::shared_paths(plan)?)).await?;
        for command in cli.restrict(&plan.name(), &rules) {
            self.run(command).await?;
        }
        Ok(())
    }

    /// A network with denied names only is not probed: probes would send requests to those names.
    async fn network(&self, plan: &VmPlan) -> Result<VmNetwork, SandboxError> {
        Ok(match rules(plan)? {
            HostPolicy::Nothing => VmNetwork::Blocked,
            HostPolicy::Only { .. } => VmNetwork::Filtered,
            HostPolicy::Everything { .. } => VmNetwork::Open,
        })
    }

    /// A stopped sandbox starts with the next command in it.
    async fn start(&self, plan: &VmPlan) -> Result<(), SandboxError> {
        self.run(self.exec(&plan.name()).arg("true")).await.map(drop)
    }

    async fn stop(&self, vm: &str) -> Result<(), SandboxError> {
        if self.list().await?.get(vm) != Some(&SandboxActivity::Running) {
            return Ok(());
        }
        self.run(self.cli().command(["stop", vm])).await.map(drop)
    }

    async fn remove(&self, vm: &str) -> Result<(), SandboxError> {
        if !self.list().await?.contains_key(vm) {
            return Ok(());
        }
        self.run(self.cli().remove(vm)).await.map(drop)
    }

    async fn list(&self) -> Result<BTreeMap<String, SandboxActivity>, SandboxError> {
        let list = self.cli().command(["ls", "--json"]);
        let sandboxes: SandboxList = host_cli::run_json(&self.host, list).await?;
        Ok(sandboxes.into_map())
    }

    fn exec(&self, vm: &str) -> Command {
        self.cli().command(["exec", "-i", vm])
    }

    fn root(&self, dir: &SandboxDir) -> PathBuf {
        dir.workspace()
    }

    async fn guest(&self, _vm: &str, file: &Path) -> Result<GuestFile, SandboxError> {
        Ok(Ok(file.to_owned()))
    }
}

/// The network rules of a VM. Fails if the policy cannot be enforced.
fn rules(plan: &VmPlan) -> Result<HostPolicy, SandboxError> {
    HostPolicy::new(&plan.spec.network, host).map_err(|reason| {
        SandboxError::unsupported(DockerSandboxDriver::NAME, "enforce the network policy", reason)
    })
}

/// A pattern in the syntax of Docker Sandboxes: names, with or without a port.
fn host(pattern: &HostPattern) -> Result<String, String> {
    let names = wildcard(pattern)?;
    Ok(match pattern.port {
        Some(port) => format!("{names}:{port}"),
        None => names,
    })
}

fn unavailable(reason: &str) -> SandboxError {
    SandboxError::unavailable(DockerSandboxDriver::NAME, reason)
}
