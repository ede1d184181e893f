//! Who listens outside: a server that an allowed name leads to, whoever resolves names, and canaries on this machine.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::super::Egress;
use super::super::canary::{Canaries, CanaryError};
use crate::gateway::{AddressGuard, Phantom, Resolver};
use crate::network::probe::{Canary, Probe, Seen};
use crate::network::{AddressRange, HostName, Policy, Rule};

/// Nobody can have a name that ends so.
const SUFFIX: &str = "escapes.ralph.invalid";
const METADATA: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));

/// Everything outside that an attack could be heard by.
pub(super) struct Stage {
    server: Server,
    names: Arc<Names>,
    canaries: Canaries,
    /// Others, whose ports the policy opens: an allowed name leads to one.
    rebound: Canaries,
    phantom: Phantom,
    marker: NamedTempFile,
}

impl Stage {
    /// Opens every listener, each of which has been heard by this machine itself.
    pub(super) async fn set() -> io::Result<Self> {
        let opened = tokio::task::spawn_blocking(|| Ok((Canaries::open()?, Canaries::open()?)));
        let opened: Result<_, CanaryError> = opened.await.map_err(io::Error::other)?;
        let (canaries, rebound) = opened.map_err(io::Error::other)?;
        let mut names = BTreeMap::from([
            (name("allowed"), Ipv4Addr::LOCALHOST.into()),
            (name("metadata"), METADATA),
            (name("private"), Ipv4Addr::new(10, 0, 0, 1).into()),
        ]);
        if let Some(address) = own_tcp(&rebound) {
            names.insert(name("own"), address.ip());
        }
        Ok(Self {
            server: Server::start().await?,
            names: Arc::new(Names::new(names)),
            canaries,
            rebound,
            phantom: Phantom::random().map_err(io::Error::other)?,
            marker: NamedTempFile::new()?,
        })
    }

    /// What the attacked sandbox may reach.
    pub(super) fn policy(&self) -> io::Result<Policy> {
        let wildcard = Rule::parse(&format!("*.{}", name("wild"))).map_err(io::Error::other)?;
        Ok(self.names_alone()?.allowing([wildcard]))
    }

    /// The same without a wildcard, which not everybody reads alike.
    pub(super) fn names_alone(&self) -> io::Result<Policy> {
        let mut rules = vec![
            name("allowed"),
            self.allowed_host(),
            name("metadata"),
            name("private"),
        ];
        rules.extend(self.own().map(|own| format!("{}:{}", name("own"), own.port())));
        let rules: Result<Vec<Rule>, _> = rules.iter().map(|line| Rule::parse(line)).collect();
        Ok(Policy::allowlist(rules.map_err(io::Error::other)?))
    }

    /// What its gateway works with: of all that it would refuse, the one server is let through.
    pub(super) fn egress(&self) -> Egress {
        let server = AddressRange::from(self.server.address.ip());
        Egress {
            resolver: self.names.clone(),
            guard: AddressGuard::dangerously_opening([server]),
            phantom: Some(self.phantom.clone()),
            ..Egress::default()
        }
    }

    /// A request that must be answered.
    pub(super) fn allowed(&self) -> Probe {
        Probe::Get {
            host: self.allowed_host(),
            at: None,
        }
    }

    /// The allowed name and the port of the server that it leads to.
    pub(super) fn allowed_host(&self) -> String {
        format!("{}:{}", name("allowed"), self.server.address.port())
    }

    /// What the server answers.
    pub(super) fn says(&self) -> &str {
        &self.server.says
    }

    /// Whether this is what the server answers.
    pub(super) fn is_answer(&self, seen: &Seen) -> bool {
        matches!(seen, Seen::Http { status: 200, text } if *text == self.server.says)
    }

    /// Whether the server was asked since; it is forgotten.
    pub(super) fn answered(&self) -> bool {
        std::mem::take(&mut *lock(&self.server.asked)) > 0
    }

    /// Who heard something since; it is forgotten.
    pub(super) fn heard(&self) -> Vec<String> {
        let canaries = std::iter::from_fn(|| self.canaries.heard().or_else(|| self.rebound.heard()));
        let mut heard: Vec<String> = canaries.map(|address| format!("heard at {address}")).collect();
        heard.extend(
            self.names
                .strangers()
                .iter()
                .map(|name| format!("asked for {name}")),
        );
        if self.answered() {
            heard.push("the server of the allowed name was reached".to_owned());
        }
        heard
    }

    pub(super) fn canaries(&self) -> Vec<Canary> {
        self.canaries.all()
    }

    /// An address of this machine that is listened at, and that an allowed name leads to.
    pub(super) fn own(&self) -> Option<SocketAddr> {
        own_tcp(&self.rebound)
    }

    pub(super) fn phantom(&self) -> &Phantom {
        &self.phantom
    }

    /// A file of this machine's that no sandbox has.
    pub(super) fn marker(&self) -> String {
        self.marker.path().to_string_lossy().into_owned()
    }
}

/// A name of the attacks, below a suffix that nobody can have.
pub(super) fn name(label: &str) -> String {
    format!("{label}.{SUFFIX}")
}

fn own_tcp(canaries: &Canaries) -> Option<SocketAddr> {
    canaries.all().into_iter().find_map(|canary| match canary {
        Canary::Tcp(address) if address.is_ipv4() => Some(address),
        Canary::Tcp(_) | Canary::Udp(_) | Canary::Dns(_) => None,
    })
}

/// A server on loopback that says one thing, and counts how often.
struct Server {
    address: SocketAddr,
    says: String,
    asked: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let says = format!("{:016x}", fastrand::u64(..));
        let asked = Arc::new(Mutex::new(0));
        let (length, counted) = (says.len(), asked.clone());
        let answer =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{says}");
        Ok(Self {
            address: listener.local_addr()?,
            says,
            asked,
            task: tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    *lock(&counted) += 1;
                    // Whoever goes away early was heard all the same.
                    let _ = stream.read(&mut [0; 1024]).await;
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
            }),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Where the allowed names are, and which others were asked for.
struct Names {
    known: BTreeMap<String, IpAddr>,
    strangers: Mutex<Vec<String>>,
}

impl Names {
    fn new(known: BTreeMap<String, IpAddr>) -> Self {
        Self {
            known,
            strangers: Mutex::default(),
        }
    }

    fn strangers(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.strangers))
    }
}

#[async_trait]
impl Resolver for Names {
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        let found = self.known.get(name.as_str());
        if found.is_none() {
            lock(&self.strangers).push(name.to_string());
        }
        Ok(found.copied().into_iter().collect())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
