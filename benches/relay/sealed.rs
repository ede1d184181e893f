//! Sandboxes that may reach the origin alone.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use async_trait::async_trait;
use ralph::exec::{Command, Discard};
use ralph::gateway::{AddressGuard, Resolver};
use ralph::network::{HostName, Policy, PolicyRule};
use ralph::sandbox::{Egress, Sandbox, SandboxSpec};

use super::Fallible;
use super::client::{PROGRAM, ROLE};
use super::origin::{self, HOST};
use super::stage::Stage;

/// The server of the allowed name.
pub(crate) struct Origin {
    port: u16,
}

impl Origin {
    pub(crate) async fn start() -> Fallible<Self> {
        let port = origin::start().await?;
        Ok(Self { port })
    }

    /// A sandbox that may reach nothing else.
    pub(crate) fn spec(&self, stage: &Stage) -> Fallible<SandboxSpec> {
        let rule = PolicyRule::parse(&format!("{HOST}:{}", self.port))?;
        Ok(SandboxSpec {
            network: Policy::allowlist([rule]),
            egress: Egress {
                resolver: Arc::new(OnThisHost),
                guard: AddressGuard::dangerously_opening(["127.0.0.0/8".parse()?]),
                ..Egress::default()
            },
            ..stage.spec()
        })
    }

    /// What the client inside measured, in microseconds.
    pub(crate) async fn client(&self, sandbox: &dyn Sandbox, task: &str, count: usize) -> Fallible<Vec<f64>> {
        let args = [ROLE, task, &self.port.to_string(), &count.to_string()].map(str::to_owned);
        let exit = sandbox
            .exec(&Command::new(PROGRAM).args(args), &mut Discard)
            .await?;
        if !exit.success() {
            return Err(format!("the client failed: {}", exit.stderr.text()).into());
        }
        let times = exit.stdout.text();
        Ok(times.lines().map(str::parse).collect::<Result<_, _>>()?)
    }
}

/// Every name is an address of this host.
struct OnThisHost;

#[async_trait]
impl Resolver for OnThisHost {
    async fn resolve(&self, _name: &HostName) -> io::Result<Vec<IpAddr>> {
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }
}
