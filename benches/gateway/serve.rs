//! The gateway, in a process of its own as it is in use.

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use ralph::gateway::audit::AuditLog;
use ralph::gateway::{AddressGuard, Gateway, GatewaySetup, ListenerProtocol, Phantom, Resolver};
use ralph::network::{HostName, Policy, PolicyRule};

use super::Fallible;

/// The argument that makes a process this.
pub(crate) const ROLE: &str = "serve";
/// The name by which gateways know the origin.
pub(crate) const ORIGIN: &str = "origin.example";

/// Serves so many sandboxes, and writes down its process and the URL of each one's proxy, one a line.
pub(crate) async fn serve(count: usize, file: &Path) -> Fallible<()> {
    let mut gateways = Vec::new();
    let mut lines = vec![std::process::id().to_string()];
    for number in 0..count {
        let audit = file.with_extension(format!("audit-{number}"));
        let (gateway, url) = open(&audit)?;
        gateways.push(gateway);
        lines.push(url);
    }
    let written = file.with_extension("part");
    std::fs::write(&written, lines.join("\n"))?;
    std::fs::rename(written, file)?;
    std::future::pending().await
}

/// A gateway with all its listeners, and the URL of its proxy.
fn open(audit: &Path) -> Fallible<(Gateway, String)> {
    let phantom = Phantom::random()?;
    let policy = Policy::allow_all().denying([PolicyRule::parse("evil.example")?]);
    let mut setup = GatewaySetup::new(policy, Arc::new(AuditLog::open(audit, ralph::clock::system())?));
    setup.resolver = Arc::new(Loopback);
    setup.guard = AddressGuard::dangerously_opening(["127.0.0.0/8".parse()?]);
    setup.phantom = Some(phantom.clone());
    let gateway = Gateway::new(setup);
    let bind = || TcpListener::bind("127.0.0.1:0");
    gateway.open_dns(UdpSocket::bind("127.0.0.1:0")?)?;
    let doors = [
        ListenerProtocol::Dns,
        ListenerProtocol::Http { port: 80 },
        ListenerProtocol::Tls { port: 443 },
        ListenerProtocol::Tcp { port: 22 },
    ];
    for door in doors {
        gateway.open(door, bind()?)?;
    }
    let proxy = bind()?;
    let url = phantom.proxy_url(proxy.local_addr()?);
    gateway.open(ListenerProtocol::Proxy, proxy)?;
    Ok((gateway, url))
}

/// Every name is here.
struct Loopback;

#[async_trait]
impl Resolver for Loopback {
    async fn resolve(&self, _: &HostName) -> io::Result<Vec<IpAddr>> {
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }
}
