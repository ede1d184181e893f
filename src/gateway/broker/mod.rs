//! Adds the real credential to what a sandbox asks of a model or of one repository, and to nothing else.
//!
//! A sandbox speaks plain HTTP to the name of the service and shows its [`Phantom`]. The broker takes away everything
//! that could authenticate, adds the stored credential, and forwards the call by TLS to that service alone, for a few
//! known paths. What the call can cost is set aside before, and counted while the answer passes ([`super::meter`]).
//!
//! A [`Broker`] is shared by all runs of a process; an [`Entrance`] is what one run has of it. It plugs into the run's
//! gateway as its [`Injection`], or listens on loopback where there is no gateway.

mod answer;
mod forward;
mod github;
mod health;
mod refusal;
mod route;
mod serve;
mod service;
mod strip;
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

use super::injection::Injection;
use super::meter::Meter;
use super::phantom::Phantom;
use super::stream::Stream;
use crate::network::HostName;

pub use github::{GitHub, GitHubAccess, GitHubSetup};
pub use health::{Health, ask_health};
pub use service::Service;
pub use upstream::{Upstream, UpstreamError};
pub use verify::VerifyError;

/// How long a service may take to be reached.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a service may be silent amid an answer. Models think for minutes.
const IDLE: Duration = Duration::from_secs(600);
/// What the calls of one run may hold in memory while they are sent, in kilobytes.
const ROOM_KB: usize = 128 * 1024;
/// How long to wait when no connection can be accepted, for example because too many files are open.
const PAUSE: Duration = Duration::from_millis(20);
/// What lies between the gateway and the broker, each way.
const PIPE: usize = 16 * 1024;

/// Has the credentials, and speaks to the services that they are for.
pub struct Broker {
    services: Vec<Arc<Service>>,
    http: reqwest::Client,
    runs: AtomicUsize,
}

impl Broker {
    /// A broker for these services. Where roots are given, these alone are trusted, in place of the system's.
    pub fn new(
        services: impl IntoIterator<Item = impl Into<Service>>,
        roots: Vec<reqwest::Certificate>,
    ) -> Result<Arc<Self>, BrokerError> {
        let services = services.into_iter().map(|service| Arc::new(service.into()));
        Ok(Arc::new(Self {
            services: services.collect(),
            http: client(roots)?,
            runs: AtomicUsize::new(0),
        }))
    }

    /// Lets a run in: whoever shows this phantom, at the cost of this meter.
    #[must_use]
    pub fn admit(self: &Arc<Self>, phantom: Phantom, meter: Meter) -> Entrance {
        self.runs.fetch_add(1, Ordering::Relaxed);
        Entrance(Arc::new(Guest {
            broker: self.clone(),
            phantom,
            meter,
            room: Semaphore::new(ROOM_KB),
        }))
    }

    fn service(&self, host: &HostName) -> Option<&Arc<Service>> {
        self.services.iter().find(|service| service.host() == host)
    }
}

/// A client that sends a credential where it is told to and nowhere else: it follows no redirect and reads no proxy
/// variable.
pub fn client(roots: Vec<reqwest::Certificate>) -> Result<reqwest::Client, BrokerError> {
    let builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT)
        .read_timeout(IDLE)
        .tcp_nodelay(true)
        .tls_built_in_root_certs(roots.is_empty());
    let builder = roots
        .into_iter()
        .fold(builder, reqwest::ClientBuilder::add_root_certificate);
    builder.build().map_err(BrokerError)
}

/// The HTTP client could not be set up.
#[derive(Debug, Error)]
#[error("cannot set up the HTTP client of the broker")]
pub struct BrokerError(#[source] reqwest::Error);

/// What one run has of a broker. Cheap to clone; when the last clone is gone, so is the run.
#[derive(Clone)]
pub struct Entrance(Arc<Guest>);

struct Guest {
    broker: Arc<Broker>,
    phantom: Phantom,
    meter: Meter,
    /// Kilobytes that calls may still take.
    room: Semaphore,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.broker.runs.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Entrance {
    /// The names that the sandbox uses, which its policy must allow.
    pub fn hosts(&self) -> impl Iterator<Item = &HostName> {
        self.0.broker.services.iter().map(|service| service.host())
    }

    /// Serves every connection of a listener as if it were made to this host, until the future is dropped.
    pub async fn serve(&self, listener: TcpListener, host: &HostName) -> io::Result<()> {
        let service = self.service(host)?;
        let mut connections = JoinSet::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            // Small messages are not held back; where that cannot be had, they come a little later.
            let _ = stream.set_nodelay(true);
            while connections.try_join_next().is_some() {}
            connections.spawn(serve::connection(
                self.clone(),
                service.clone(),
                TokioIo::new(stream),
            ));
        }
    }

    /// Asks the service of this name whether it takes its credential.
    pub async fn verify(&self, host: &HostName) -> Result<(), VerifyError> {
        match self.0.broker.service(host).map(AsRef::as_ref) {
            Some(Service::Model(upstream)) => upstream.verify(&self.0.broker.http).await,
            Some(Service::Repository(_)) | None => Err(VerifyError::NoService {
                host: host.to_string(),
            }),
        }
    }

    fn service(&self, host: &HostName) -> io::Result<Arc<Service>> {
        let found = self.0.broker.service(host).cloned();
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no credential is for {host}")))
    }
}

#[async_trait]
impl Injection for Entrance {
    fn injects(&self, host: &HostName) -> bool {
        self.0.broker.service(host).is_some()
    }

    async fn open(&self, host: &HostName) -> io::Result<Box<dyn Stream>> {
        let service = self.service(host)?;
        let (ours, theirs) = tokio::io::duplex(PIPE);
        // It ends with the stream that is returned.
        tokio::spawn(serve::connection(self.clone(), service, TokioIo::new(ours)));
        Ok(Box::new(theirs))
    }
}
