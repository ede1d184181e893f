//! Adds the real credential to requests of a sandbox to a model service or to one repository.
//!
//! A sandbox sends plain HTTP to the host name of the service, with its [`Phantom`]. The broker removes all credentials,
//! adds the stored one, and forwards the call over TLS to that service, for a few known paths. The most that the call can
//! cost is reserved first, and its usage is counted while the response passes ([`super::meter`]).
//!
//! A run registers with a [`Broker`] and gets a [`BrokerHandle`]. The handle is the [`CredentialInjector`] of the run's
//! gateway, or listens on loopback when there is no gateway. `ralph` creates a broker for each run; a program with many runs
//! can register them all with one.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use ralph::credential::CredentialSource;
//! use ralph::gateway::broker::{Broker, BrokerService, CallExceptions, ModelUpstream};
//! use ralph::gateway::meter::Meter;
//! use ralph::gateway::{GatewaySetup, Phantom};
//! use ralph::model::ANTHROPIC_KEY;
//! use ralph::secret::Secret;
//!
//! # fn add(setup: &mut GatewaySetup, meter: Meter) -> Result<(), Box<dyn std::error::Error>> {
//! let source = CredentialSource::Fixed(Secret::new("sk-ant-..."));
//! let upstream = ModelUpstream::new(ANTHROPIC_KEY, source, None)?;
//! let broker = Broker::new([BrokerService::Model(upstream)], Vec::new())?;
//! let phantom = Phantom::random()?; // what the sandbox gets instead of the credential
//! setup.injection = Some(Arc::new(broker.register(phantom, meter, CallExceptions::default())));
//! # Ok(())
//! # }
//! ```

mod body;
mod exceptions;
mod forward;
mod github;
mod headers;
mod health;
mod refusal;
mod serve;
mod upstream;
mod verify;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::injection::CredentialInjector;
use super::meter::Meter;
use super::phantom::Phantom;
use super::stream::ByteStream;
use crate::network::HostName;

pub use exceptions::CallExceptions;
pub use github::{GitHubAccess, GitHubSetup, GitHubUpstream};
pub use health::check_health;
pub use upstream::{ModelUpstream, UpstreamError};
pub use verify::VerifyError;

/// Timeout for connecting to a service.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout between two pieces of a response. Models can take minutes.
const READ_TIMEOUT: Duration = Duration::from_secs(600);
/// The memory limit for the request bodies of one run, in kilobytes.
const MEMORY_KB: usize = 128 * 1024;
/// Delay after a failed accept, for example because too many files are open.
const ACCEPT_RETRY: Duration = Duration::from_millis(20);
/// The buffer between the gateway and the broker in each direction, in bytes.
const PIPE_BYTES: usize = 16 * 1024;

/// A service that the broker has a credential for.
pub enum BrokerService {
    /// A model service.
    Model(ModelUpstream),
    /// A repository.
    Repository(GitHubUpstream),
}

impl BrokerService {
    /// The host name that sandboxes use.
    #[must_use]
    pub fn host(&self) -> &HostName {
        match self {
            Self::Model(upstream) => &upstream.host,
            Self::Repository(github) => &github.host,
        }
    }

    /// Whether requests to this host are for this service.
    fn answers(&self, host: &HostName) -> bool {
        self.host() == host || matches!(self, Self::Model(upstream) if &upstream.vendor_host == host)
    }
}

/// Holds credentials and forwards requests to their services.
pub struct Broker {
    services: Vec<Arc<BrokerService>>,
    http: reqwest::Client,
    runs: AtomicUsize,
}

impl Broker {
    /// A broker for these services. `roots` replace the trusted certificates of the host, unless empty.
    pub fn new(
        services: impl IntoIterator<Item = BrokerService>,
        roots: Vec<reqwest::Certificate>,
    ) -> Result<Arc<Self>, BrokerError> {
        Ok(Arc::new(Self {
            services: services.into_iter().map(Arc::new).collect(),
            http: client(roots)?,
            runs: AtomicUsize::new(0),
        }))
    }

    /// Registers a run: its requests contain this phantom, are counted by this meter, and may have these exceptions.
    #[must_use]
    pub fn register(
        self: &Arc<Self>,
        phantom: Phantom,
        meter: Meter,
        exceptions: CallExceptions,
    ) -> BrokerHandle {
        self.runs.fetch_add(1, Ordering::Relaxed);
        BrokerHandle(Arc::new(BrokerRun {
            broker: self.clone(),
            phantom,
            meter,
            exceptions,
            memory: Semaphore::new(MEMORY_KB),
        }))
    }

    fn service(&self, host: &HostName) -> Option<&Arc<BrokerService>> {
        self.services.iter().find(|service| service.answers(host))
    }
}

/// An HTTP client that sends a credential to the given address only: it follows no redirects and uses no proxy.
pub fn client(roots: Vec<reqwest::Certificate>) -> Result<reqwest::Client, BrokerError> {
    let builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .tcp_nodelay(true)
        .tls_built_in_root_certs(roots.is_empty());
    let builder = roots
        .into_iter()
        .fold(builder, reqwest::ClientBuilder::add_root_certificate);
    builder.build().map_err(BrokerError)
}

/// The HTTP client could not be created.
#[derive(Debug, Error)]
#[error("cannot create the HTTP client of the broker")]
pub struct BrokerError(#[source] reqwest::Error);

/// The access of one run to a broker. Dropping the last clone unregisters the run.
#[derive(Clone)]
pub struct BrokerHandle(Arc<BrokerRun>);

struct BrokerRun {
    broker: Arc<Broker>,
    phantom: Phantom,
    meter: Meter,
    exceptions: CallExceptions,
    /// Free memory for request bodies, in kilobytes.
    memory: Semaphore,
}

impl Drop for BrokerRun {
    fn drop(&mut self) {
        self.broker.runs.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BrokerHandle {
    /// Serves the connections of a listener as connections to this host, until the future is dropped.
    pub async fn serve(&self, listener: TcpListener, host: &HostName) -> io::Result<()> {
        let service = self.service(host)?;
        let mut connections = JoinSet::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            };
            // Without it small messages are delayed.
            let _ = stream.set_nodelay(true);
            while connections.try_join_next().is_some() {}
            connections.spawn(serve::connection(
                self.clone(),
                service.clone(),
                TokioIo::new(stream),
            ));
        }
    }

    /// Asks the service of this host name whether it accepts its credential.
    pub async fn verify(&self, host: &HostName) -> Result<(), VerifyError> {
        match self.0.broker.service(host).map(AsRef::as_ref) {
            Some(BrokerService::Model(upstream)) => upstream.verify(&self.0.broker.http).await,
            Some(BrokerService::Repository(_)) | None => Err(VerifyError::NoService {
                host: host.to_string(),
            }),
        }
    }

    fn service(&self, host: &HostName) -> io::Result<Arc<BrokerService>> {
        let found = self.0.broker.service(host).cloned();
        found.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("the broker has no credential for {host}"),
            )
        })
    }
}

#[async_trait]
impl CredentialInjector for BrokerHandle {
    fn injects(&self, host: &HostName) -> bool {
        self.0.broker.service(host).is_some()
    }

    async fn open(&self, host: &HostName) -> io::Result<Box<dyn ByteStream>> {
        let service = self.service(host)?;
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        // Ends when the returned stream is dropped.
        tokio::spawn(serve::connection(self.clone(), service, TokioIo::new(ours)));
        Ok(Box::new(theirs))
    }
}
