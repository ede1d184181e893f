//! A provider of VMs with its fake program, and the spec of a sandbox.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ralph::gateway::audit::AuditRecord;
use ralph::gateway::{AddressGuard, Resolver};
use ralph::id::RunId;
use ralph::network::{HostName, Policy, PolicyRule};
use ralph::sandbox::docker_sandbox;
use ralph::sandbox::tart::{self, TartOptions};
use ralph::sandbox::{Egress, Provider, Purpose, SandboxSpec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::ralph::Place;
use crate::support::vms::Site;
use crate::support::{base, engine};

/// The programs that have fakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Tart,
    Sbx,
    DockerSandbox,
}

/// A host with one of the programs.
pub struct Ground {
    pub site: Site,
    pub program: Program,
    pub spec: SandboxSpec,
    pub audit: Arc<Mutex<Vec<AuditRecord>>>,
}

impl Ground {
    /// A host whose VMs have no network.
    pub async fn new(program: Program) -> Result<Self, String> {
        let image = base::image(&engine::engine().await?).await?;
        let name = match program {
            Program::Tart => "tart",
            Program::Sbx => "sbx",
            Program::DockerSandbox => "docker",
        };
        let site = Site::with(&[name], &image);
        site.install("softnet", 0o4755);
        let (run, audit) = (RunId::random(), Arc::new(Mutex::new(Vec::new())));
        let spec = SandboxSpec {
            purpose: Purpose {
                agent: "test".to_owned(),
                branch: format!("ralph/{run}"),
                task: "the task".to_owned(),
            },
            image: Some(image),
            network: Policy::deny(),
            egress: Egress {
                resolver: Arc::new(AllHere),
                guard: AddressGuard::dangerously_opening(["127.0.0.0/8".parse().unwrap()]),
                audit: audit.clone(),
                ..Egress::default()
            },
            completion_grace: Duration::from_millis(300),
            ..SandboxSpec::unrestricted(run)
        };
        Ok(Self {
            site,
            program,
            spec,
            audit,
        })
    }

    /// A host whose VMs may reach these names. Returns the address of the host on their network as well.
    pub async fn allowing(program: Program, lines: &[&str]) -> Result<(Self, Ipv4Addr), String> {
        let mut ground = Self::new(program).await?;
        let gateway = ground.site.connect()?;
        ground.spec.network = Policy::allowlist(lines.iter().map(|line| PolicyRule::parse(line).unwrap()));
        Ok((ground, gateway))
    }

    /// A new provider, as in a new process.
    pub fn provider(&self) -> Arc<dyn Provider> {
        let vm = self.site.options();
        match self.program {
            Program::Tart => Arc::new(tart::provider(TartOptions {
                vm,
                dependencies: String::new(),
                project: "/project".into(),
                boot_timeout: TartOptions::BOOT_TIMEOUT,
            })),
            Program::Sbx | Program::DockerSandbox => Arc::new(docker_sandbox::provider(vm)),
        }
    }

    /// The same task in another run.
    pub fn another_run(&self) -> SandboxSpec {
        SandboxSpec {
            run: RunId::random(),
            ..self.spec.clone()
        }
    }

    /// The names of all VMs.
    pub fn vms(&self) -> Vec<String> {
        let dir = match self.program {
            Program::Tart => "bin/state/vms",
            Program::Sbx | Program::DockerSandbox => "bin/state/boxes",
        };
        let entries = std::fs::read_dir(self.site.path(dir)).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| !name.starts_with("agent-loop-template-"))
            .collect()
    }

    /// The directories of sandboxes. Their `sandbox.json` names the owner.
    pub fn places(&self) -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(self.site.path("sandboxes"))
            .into_iter()
            .flatten();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.is_dir()).collect()
    }

    /// Changes the records as if the owner process had exited.
    pub fn disown(&self) {
        for place in self.places() {
            let file = place.join("sandbox.json");
            let text = std::fs::read_to_string(&file).unwrap();
            let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
            record["owner"]["pid"] = serde_json::json!(u32::MAX / 2);
            std::fs::write(&file, record.to_string()).unwrap();
        }
    }

    /// `ralph` with these programs and the `actions` agent.
    pub fn ralph(&self, place: &Place, args: &[&str]) -> std::process::Command {
        place.write(
            "ralph.toml",
            &format!("[agent]\nname = \"actions\"\n{}", self.settings()),
        );
        self.configured(place, args)
    }

    /// `ralph` with these programs, as it is configured there.
    pub fn configured(&self, place: &Place, args: &[&str]) -> std::process::Command {
        let mut command = place.ralph(args);
        command.env("PATH", self.site.search_path());
        command
    }

    /// A configuration with the policy `deny`.
    pub fn settings(&self) -> String {
        let kind = match self.program {
            Program::Tart => "tart",
            Program::Sbx | Program::DockerSandbox => "docker-sandbox",
        };
        let image = self.spec.image.as_deref().unwrap();
        format!("[sandbox]\ntype = \"{kind}\"\nimage = \"{image}\"\n[sandbox.network]\npolicy = \"deny\"\n")
    }
}

/// Resolves every name to the host.
struct AllHere;

#[async_trait]
impl Resolver for AllHere {
    async fn resolve(&self, _name: &HostName) -> io::Result<Vec<IpAddr>> {
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }
}

/// A server at this address that responds with `hello`.
pub async fn greeter(address: IpAddr) -> u16 {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n";
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    port
}
