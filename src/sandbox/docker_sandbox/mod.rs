//! The `docker-sandbox` provider: each sandbox is one of Docker's own, a small virtual machine. Two programs make them,
//! `sbx` and the older `docker sandbox`; the first is preferred where both are here.

mod dialect;
mod policy;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use self::dialect::Dialect;
use self::policy::Rules;
use super::guest::Guest;
use super::machine::{Border, Driver, MachineOptions, MachineProvider, Plan, tool};
use super::place::Place;
use super::{
    Activity, Capabilities, CredentialRoute, Enforced, Isolation, NetworkEnforcement, Provider,
    ReadOnlyMount, SandboxError,
};
use crate::exec::{Command, Host};
use crate::network::Policy;

/// What the provider needs to know.
#[derive(Clone, Debug)]
pub struct DockerSandboxOptions {
    /// Where sandboxes are kept on this machine.
    pub machines: MachineOptions,
}

/// A provider that keeps its workspaces where the options say.
#[must_use]
pub fn provider(options: DockerSandboxOptions) -> impl Provider {
    let driver = DockerSandboxes {
        host: options.machines.host.clone(),
        base: options.machines.base.clone(),
    };
    MachineProvider::new(driver, options.machines)
}

/// Either of the two programs.
#[derive(Clone, Debug)]
struct DockerSandboxes {
    host: Host,
    base: PathBuf,
}

impl DockerSandboxes {
    fn dialect(&self) -> Dialect {
        Dialect::here(&self.host)
    }

    async fn run(&self, command: Command) -> Result<String, SandboxError> {
        tool::run(&self.host, command).await
    }

    /// Gives `sbx` the image, unless it has it: it does not see those of the engine.
    async fn load(&self, image: &str) -> Result<(), SandboxError> {
        let list = Dialect::Sbx.program(["template", "ls", "--json"]);
        let line = list.to_string();
        let templates = dialect::templates(&self.run(list).await?);
        let templates = templates.map_err(|error| tool::nonsense(&line, &error))?;
        if templates.iter().any(|template| template == image) {
            return Ok(());
        }
        let archive = self.base.join(format!("template-{:016x}.tar", fastrand::u64(..)));
        let file = archive.to_string_lossy().into_owned();
        let saved = async {
            self.run(Command::new("docker").args(["image", "save", image, "-o", &file]))
                .await?;
            self.run(Dialect::Sbx.program(["template", "load", &file])).await
        };
        let saved = saved.await.map(drop);
        let _ = std::fs::remove_file(&archive);
        saved
    }

    /// What a machine sees of this one: its workspace, the guest, and what the configuration names.
    fn paths(plan: &Plan) -> Result<Vec<String>, SandboxError> {
        let mut paths = vec![plan.place.workspace().to_string_lossy().into_owned()];
        if let Guest::Here(file) = &plan.guest
            && let Some(dir) = file.parent()
        {
            paths.push(format!("{}:ro", dir.display()));
        }
        for ReadOnlyMount { source, target } in &plan.spec.mounts {
            if source != target {
                let reason = format!(
                    "`{}` is `{}` inside, too: give both the same name",
                    source.display(),
                    source.display()
                );
                let operation = "show a file under another name";
                return Err(SandboxError::unsupported(
                    DockerSandboxes::NAME,
                    operation,
                    reason,
                ));
            }
            paths.push(format!("{}:ro", source.display()));
        }
        Ok(paths)
    }
}

#[async_trait]
impl Driver for DockerSandboxes {
    const NAME: &'static str = "docker-sandbox";

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            isolation: Isolation::Machine,
            network: NetworkEnforcement::Names,
            resources: match self.dialect() {
                Dialect::Sbx => Enforced::Yes,
                Dialect::Plugin => Enforced::No,
            },
            metering: Enforced::Yes,
            preview: false,
            credentials: CredentialRoute::ProxiedLoopback,
        }
    }

    fn objection(&self, policy: &Policy) -> Option<String> {
        policy::rules(policy).err()
    }

    async fn check(&self) -> Result<(), SandboxError> {
        let dialect = self.dialect();
        if !self.host.has_program(dialect.name()) {
            return Err(unavailable(
                "neither `sbx` nor `docker` is installed: `brew install docker/tap/sbx`, or winget and apt as Docker's documentation has it",
            ));
        }
        let (_, exit) = tool::try_run(&self.host, dialect.program(["version"])).await?;
        match (exit.success(), dialect) {
            (true, _) => Ok(()),
            (false, Dialect::Sbx) => Err(unavailable(&format!(
                "`sbx version` failed: {}",
                exit.stderr.text().trim()
            ))),
            (false, Dialect::Plugin) => Err(unavailable(
                "this `docker` has no sandboxes: install `sbx`, or a Docker Desktop with Docker Sandboxes",
            )),
        }
    }

    async fn make(&self, plan: &Plan) -> Result<(), SandboxError> {
        let rules = rules_of(plan)?;
        let image = plan
            .spec
            .image
            .as_deref()
            .ok_or_else(|| unavailable("no image is named: set sandbox.image"))?;
        let dialect = self.dialect();
        if dialect == Dialect::Sbx {
            self.load(image).await?;
            self.run(Dialect::Sbx.program(["policy", "init", "deny-all"]))
                .await?;
        }
        let create = dialect.create(&plan.name(), image, &plan.spec.resources);
        self.run(create.args(Self::paths(plan)?)).await?;
        for command in dialect.restrict(&plan.name(), &rules) {
            self.run(command).await?;
        }
        Ok(())
    }

    /// What is open but for some names is told to the program, and not tried: that would mean to speak to them.
    async fn border(&self, plan: &Plan) -> Result<Border, SandboxError> {
        Ok(match rules_of(plan)? {
            Rules::Nothing => Border::Shut,
            Rules::Only { .. } => Border::Names,
            Rules::Everything { .. } => Border::Open,
        })
    }

    /// A sandbox that is stopped starts with the next command in it.
    async fn start(&self, plan: &Plan) -> Result<(), SandboxError> {
        self.run(self.exec(&plan.name()).arg("true")).await.map(drop)
    }

    async fn stop(&self, machine: &str) -> Result<(), SandboxError> {
        if self.all().await?.get(machine) != Some(&Activity::Running) {
            return Ok(());
        }
        self.run(self.dialect().program(["stop", machine]))
            .await
            .map(drop)
    }

    async fn remove(&self, machine: &str) -> Result<(), SandboxError> {
        if !self.all().await?.contains_key(machine) {
            return Ok(());
        }
        self.run(self.dialect().remove(machine)).await.map(drop)
    }

    async fn all(&self) -> Result<BTreeMap<String, Activity>, SandboxError> {
        let list = self.dialect().program(["ls", "--json"]);
        let line = list.to_string();
        dialect::machines(&self.run(list).await?).map_err(|error| tool::nonsense(&line, &error))
    }

    fn exec(&self, machine: &str) -> Command {
        self.dialect().program(["exec", "-i", machine])
    }

    fn root(&self, place: &Place) -> PathBuf {
        place.workspace()
    }

    fn guest(&self, file: &Path) -> PathBuf {
        file.to_owned()
    }
}

/// What a machine may reach. Whoever wants one whose policy cannot be enforced asks for one without a policy.
fn rules_of(plan: &Plan) -> Result<Rules, SandboxError> {
    policy::rules(&plan.spec.network).map_err(|reason| {
        SandboxError::unsupported(DockerSandboxes::NAME, "enforce the network policy", reason)
    })
}

fn unavailable(reason: &str) -> SandboxError {
    SandboxError::unavailable(DockerSandboxes::NAME, reason)
}
