//! The sealed network: what an allowed name does, what nothing else does, and what happens when a part of it is lost.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ralph::exec::{Command, Discard};
use ralph::gateway::audit::{Outcome, Record};
use ralph::gateway::{AddressGuard, Resolver};
use ralph::network::firewall::SEALED;
use ralph::network::{HostName, Policy, Rule};
use ralph::sandbox::docker::SealError;
use ralph::sandbox::{Egress, Provider, Sandbox, SandboxError, SandboxSpec};
use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::life::{disown, elsewhere};
use crate::need;
use crate::room::{Room, places, prints, shell};
use crate::site::LEFT_BEHIND;
use crate::support::engine::docker;

/// A server that an allowed name leads to, and a sandbox that may reach that name alone.
struct Sealed {
    room: Room,
    stand_in: StandIn,
    audit: Arc<Mutex<Vec<Record>>>,
}

impl Sealed {
    async fn new() -> Result<Self, String> {
        let mut room = Room::new().await?;
        let stand_in = StandIn::start().await;
        let audit = Arc::new(Mutex::new(Vec::new()));
        let rule = format!("allowed.test:{}", stand_in.port);
        room.spec.network = Policy::allowlist([Rule::parse(&rule).unwrap()]);
        room.spec.egress = Egress {
            resolver: Arc::new(Loopback),
            guard: AddressGuard::dangerously_opening(["127.0.0.0/8".parse().unwrap()]),
            audit: audit.clone(),
            ..Egress::default()
        };
        Ok(Self {
            room,
            stand_in,
            audit,
        })
    }

    /// Asks the allowed name from inside.
    async fn ask(&self, sandbox: &dyn Sandbox) -> String {
        let url = format!("http://allowed.test:{}/", self.stand_in.port);
        prints(
            sandbox,
            &format!("curl --silent --show-error --max-time 10 {url}"),
        )
        .await
    }

    /// Whether the allowed name cannot be reached from inside, which is seen at once.
    async fn is_closed(&self, sandbox: &dyn Sandbox) -> bool {
        let url = format!("http://allowed.test:{}/", self.stand_in.port);
        // The session is not asked: it may be gone with the rest.
        let line = format!("curl --silent --max-time 10 {url}");
        let args = ["exec", sandbox.id(), "sh", "-c", &line];
        let asked = std::process::Command::new("docker").args(args).output().unwrap();
        !asked.status.success()
    }

    fn holder(&self, sandbox: &dyn Sandbox) -> String {
        format!("{}-net", sandbox.id())
    }
}

/// Every name is on loopback.
struct Loopback;

#[async_trait]
impl Resolver for Loopback {
    async fn resolve(&self, _name: &HostName) -> io::Result<Vec<IpAddr>> {
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }
}

/// Answers every request with `hello`, and counts them.
struct StandIn {
    port: u16,
    asked: Arc<Mutex<usize>>,
}

impl StandIn {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(0));
        let counted = asked.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                *counted.lock().unwrap() += 1;
                let _ = stream.read(&mut [0; 4096]).await;
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n";
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { port, asked }
    }

    fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }
}

#[tokio::test]
async fn an_allowed_name_is_reached_and_written_down() {
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    assert!(sealed.stand_in.asked() >= 1);
    sandbox.close().await.unwrap();
    let audit = sealed.audit.lock().unwrap();
    let reached = audit
        .iter()
        .find(|record| record.port == Some(sealed.stand_in.port));
    assert_eq!(reached.unwrap().verdict, Outcome::Allowed);
    assert!(
        !audit
            .iter()
            .any(|record| record.host.as_deref() == Some("gateway.ralph.invalid"))
    );
}
