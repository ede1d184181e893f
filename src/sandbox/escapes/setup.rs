//! The host's side of the attacks: the server of an allowed name, the resolver of the gateway, and canaries on the host's
//! addresses. All of them record whether an attack reached them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tempfile::NamedTempFile;

use super::super::canary::Canaries;
use super::super::{Egress, Isolation};
use super::AttackClass;
use super::server::{Server, response};
use crate::gateway::{AddressGuard, Phantom, Resolver};
use crate::network::probe::Canary;
use crate::network::{AddressRange, HostName, Policy, PolicyRule};

/// `invalid` is a reserved top-level domain: these names cannot exist.
const SUFFIX: &str = "escapes.ralph.invalid";
/// The path at which the server of the allowed name redirects to a denied name.
pub(super) const REDIRECT: &str = "/redirect";
const METADATA: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));

/// Everything on the host that an attack could reach.
pub(super) struct AttackSetup {
    pub(super) server: Server,
    body: String,
    resolver: Arc<RecordingResolver>,
    canaries: Canaries,
    /// Canaries whose ports the policy allows: the allowed name `own` resolves to one.
    rebound: Canaries,
    pub(super) phantom: Phantom,
    marker: NamedTempFile,
}

impl AttackSetup {
    /// Opens all listeners. Each canary is checked from the host first.
    pub(super) async fn open() -> io::Result<Self> {
        let canaries = Canaries::open(None).await.map_err(io::Error::other)?;
        let rebound = Canaries::open(None).await.map_err(io::Error::other)?;
        let mut names = BTreeMap::from([
            (name("allowed"), Ipv4Addr::LOCALHOST.into()),
            (name("metadata"), METADATA),
            (name("private"), Ipv4Addr::new(10, 0, 0, 1).into()),
        ]);
        if let Some(address) = tcp_address(&rebound) {
            names.insert(name("own"), address.ip());
        }
        let body = format!("{:016x}", fastrand::u64(..));
        let page = body.clone();
        let server = Server::start(Duration::ZERO, move |request| {
            if request.starts_with(&format!("GET {REDIRECT} ")) {
                let location = format!("location: http://{}/\r\n", name("denied"));
                response("302 Found", &location, "")
            } else {
                response("200 OK", "", &page)
            }
        });
        Ok(Self {
            server: server.await?,
            body,
            resolver: Arc::new(RecordingResolver {
                known: names,
                unknown: Mutex::default(),
            }),
            canaries,
            rebound,
            phantom: Phantom::random().map_err(io::Error::other)?,
            marker: NamedTempFile::new()?,
        })
    }

    /// The policy of the attacked sandbox. It has no wildcard for VMs: the programs that create them do not all match
    /// wildcards alike.
    pub(super) fn policy(&self, isolation: Isolation) -> io::Result<Policy> {
        let mut rules = vec![
            name("allowed"),
            self.allowed_host(),
            name("metadata"),
            name("private"),
        ];
        rules.extend(self.rebound_host());
        if isolation != Isolation::Vm {
            rules.push(format!("*.{}", name("wild")));
        }
        let rules: Result<Vec<PolicyRule>, _> = rules.iter().map(|line| PolicyRule::parse(line)).collect();
        Ok(Policy::allowlist(rules.map_err(io::Error::other)?))
    }

    /// What the gateway works with. Of the addresses that it would refuse, only the server's is allowed.
    pub(super) fn egress(&self) -> Egress {
        let server = AddressRange::from(self.server.address.ip());
        Egress {
            resolver: self.resolver.clone(),
            guard: AddressGuard::dangerously_opening([server]),
            phantom: Some(self.phantom.clone()),
            ..Egress::default()
        }
    }

    /// The allowed name with the port of the server that it resolves to.
    pub(super) fn allowed_host(&self) -> String {
        format!("{}:{}", name("allowed"), self.server.address.port())
    }

    /// The body of the server's response.
    pub(super) fn body(&self) -> &str {
        &self.body
    }

    /// Whether the server had a request since the last call.
    pub(super) fn take_server_hit(&self) -> bool {
        self.server.take_connections() > 0
    }

    /// What reached the host since the last call.
    pub(super) fn take_hits(&self) -> Vec<String> {
        let canaries = std::iter::from_fn(|| self.canaries.reached().or_else(|| self.rebound.reached()));
        let mut hits: Vec<String> = canaries.map(|address| format!("received at {address}")).collect();
        let unknown = std::mem::take(&mut *self.resolver.unknown());
        hits.extend(unknown.iter().map(|name| format!("asked for {name}")));
        if self.take_server_hit() {
            hits.push("the server of the allowed name was reached".to_owned());
        }
        hits
    }

    /// What reached the host since the last call, except for what an attack of this class may reach.
    pub(super) fn take_hits_of(&self, class: AttackClass) -> Vec<String> {
        if class == AttackClass::Redirects {
            self.take_server_hit();
        }
        self.take_hits()
    }

    /// The addresses of the canaries that were reached since the last call.
    pub(super) fn take_reached_canaries(&self) -> BTreeSet<SocketAddr> {
        self.canaries.all_reached()
    }

    pub(super) fn canaries(&self) -> Vec<Canary> {
        self.canaries.all()
    }

    /// An allowed name and port that resolve to a canary on an address of the host.
    pub(super) fn rebound_host(&self) -> Option<String> {
        tcp_address(&self.rebound).map(|address| format!("{}:{}", name("own"), address.port()))
    }

    /// The path of a file on the host that no sandbox has.
    pub(super) fn marker(&self) -> String {
        self.marker.path().to_string_lossy().into_owned()
    }
}

/// A host name of the attacks.
pub(super) fn name(label: &str) -> String {
    format!("{label}.{SUFFIX}")
}

fn tcp_address(canaries: &Canaries) -> Option<SocketAddr> {
    canaries.all().into_iter().find_map(|canary| match canary {
        Canary::Tcp(address) if address.is_ipv4() => Some(address),
        Canary::Tcp(_) | Canary::Udp(_) | Canary::Dns(_) => None,
    })
}

/// Resolves the allowed names, and records all others that it is asked for.
struct RecordingResolver {
    known: BTreeMap<String, IpAddr>,
    unknown: Mutex<Vec<String>>,
}

impl RecordingResolver {
    fn unknown(&self) -> MutexGuard<'_, Vec<String>> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Resolver for RecordingResolver {
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        let found = self.known.get(name.as_str());
        if found.is_none() {
            self.unknown().push(name.to_string());
        }
        Ok(found.copied().into_iter().collect())
    }
}
