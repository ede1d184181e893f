//! The only network peer of a sandbox. It forwards what the policy allows, and records every request.
//!
//! A [`Gateway`] serves one run. Its caller opens the sockets, where only the sandbox can reach them, and passes them in with
//! their [`ListenerProtocol`]. So the gateway is the same for a container network, a VM and a test. Every connection and
//! every request is judged by [`Policy::judge`].
//!
//! - DNS answers for allowed names only, with synthetic addresses, and asks no other server.
//! - TLS is judged by the server name in the client hello. It is forwarded without decryption, except for hosts that the
//!   policy inspects: there an [`Inspection`] decrypts it, and each request is judged.
//! - HTTP/1 is judged by the host of each request, and parsed strictly.
//! - Other ports are judged by the name that the synthetic address stands for.
//! - The explicit proxy does the same for clients with the [`Phantom`] of the run. Traffic in a CONNECT tunnel must be for
//!   the host of the tunnel.
//!
//! A name is resolved when a connection is made, each address is checked, and a checked address is connected to.
//!
//! ```no_run
//! use std::net::TcpListener;
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use ralph::gateway::audit::AuditLog;
//! use ralph::gateway::{Gateway, GatewaySetup, ListenerProtocol};
//! use ralph::network::{Policy, PolicyRule};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = Policy::allowlist([PolicyRule::parse("crates.io")?]);
//! let audit = AuditLog::open(Path::new("network.jsonl"), ralph::clock::system())?;
//! let gateway = Gateway::new(GatewaySetup::new(policy, Arc::new(audit)));
//! gateway.open(ListenerProtocol::Tls { port: 443 }, TcpListener::bind("172.20.0.2:443")?)?;
//! # Ok(())
//! # }
//! ```

mod added;
pub mod audit;
pub mod broker;
mod dial;
mod dns;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod guard;
mod header_secret;
mod http;
mod injection;
mod inspect;
mod limits;
mod listener;
pub mod meter;
mod open_files;
mod permit;
mod phantom;
mod proxy;
mod relay;
mod resolve;
mod shared;
mod slots;
mod stream;
mod tcp;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::network::Policy;
use crate::network::probe::Beacon;
use crate::text::error_chain;
use audit::AuditSink;
use shared::GatewayCore;
use slots::ConnectionSlots;

pub use added::AddedRules;
pub use guard::AddressGuard;
pub use header_secret::{HeaderSecret, NotAFieldValue};
pub use injection::CredentialInjector;
pub use inspect::{Inspection, InspectionError, InspectionTrust, TrustedRoots};
pub use limits::GatewayLimits;
pub use listener::ListenerProtocol;
pub use phantom::{NoRandomness, Phantom};
pub use resolve::{Resolver, SystemResolver};
pub use stream::{ByteStream, ClientStream};

/// The parts of a gateway.
pub struct GatewaySetup {
    /// Which names may be reached.
    pub policy: Policy,
    /// Rules that people add to it.
    pub added: AddedRules,
    /// Resolves allowed names.
    pub resolver: Arc<dyn Resolver>,
    /// Which addresses may be connected to.
    pub guard: AddressGuard,
    /// The credential of the explicit proxy. Without one it refuses every request.
    pub phantom: Option<Phantom>,
    /// Adds credentials to requests.
    pub injection: Option<Arc<dyn CredentialInjector>>,
    /// Secrets that it puts in place of placeholders.
    pub secrets: Vec<HeaderSecret>,
    /// A name and a response of the gateway itself, independent of the policy. A probe in the sandbox asks for it.
    pub beacon: Option<Beacon>,
    /// Decrypts TLS to hosts that the policy inspects. Without one these hosts cannot be reached over TLS.
    pub inspection: Option<Arc<Inspection>>,
    /// Receives audit records.
    pub audit: Arc<dyn AuditSink>,
    /// Limits of the resources that the sandbox can use.
    pub limits: GatewayLimits,
}

impl GatewaySetup {
    /// A gateway for this policy that uses the resolver of the host and forbids special addresses.
    #[must_use]
    pub fn new(policy: Policy, audit: Arc<dyn AuditSink>) -> Self {
        Self {
            policy,
            added: AddedRules::default(),
            resolver: Arc::new(SystemResolver),
            guard: AddressGuard::default(),
            phantom: None,
            injection: None,
            secrets: Vec::new(),
            beacon: None,
            inspection: None,
            audit,
            limits: GatewayLimits::default(),
        }
    }
}

/// The gateway of one run. Dropping it closes every connection.
pub struct Gateway {
    core: Arc<GatewayCore>,
    policies: Arc<watch::Sender<Policy>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Gateway {
    /// A gateway without listeners. Its other methods need a tokio runtime.
    #[must_use]
    pub fn new(setup: GatewaySetup) -> Self {
        open_files::raise_open_files_limit();
        let policies = Arc::new(watch::Sender::new(setup.policy.clone()));
        setup.added.follow(&policies);
        let core = GatewayCore {
            policies: policies.subscribe(),
            names: Mutex::default(),
            slots: ConnectionSlots::new(setup.limits.max_connections),
            setup,
        };
        Self {
            core: Arc::new(core),
            policies,
            tasks: Mutex::default(),
        }
    }

    /// Serves the connections of a listener.
    pub fn open(
        &self,
        protocol: ListenerProtocol,
        listener: std::net::TcpListener,
    ) -> Result<(), GatewayError> {
        let error = |source| GatewayError { protocol, source };
        listener.set_nonblocking(true).map_err(error)?;
        let listener = TcpListener::from_std(listener).map_err(error)?;
        self.spawn(listener::accept(self.core.clone(), protocol, listener));
        Ok(())
    }

    /// Answers DNS queries over UDP.
    pub fn open_dns(&self, socket: std::net::UdpSocket) -> Result<(), GatewayError> {
        let error = |source| GatewayError {
            protocol: ListenerProtocol::Dns,
            source,
        };
        socket.set_nonblocking(true).map_err(error)?;
        let socket = tokio::net::UdpSocket::from_std(socket).map_err(error)?;
        let core = self.core.clone();
        self.spawn(async move {
            if let Err(error) = dns::serve_udp(core, socket).await {
                tracing::warn!(error = %error_chain(&error), "the DNS server of the gateway stopped");
            }
        });
        Ok(())
    }

    /// Serves one connection that the caller accepted. `destination` is the address that the sandbox connected to.
    pub fn serve(
        &self,
        protocol: ListenerProtocol,
        client: impl ClientStream + 'static,
        destination: SocketAddr,
    ) {
        let (core, client) = (self.core.clone(), Box::new(client));
        self.spawn(listener::serve(core, protocol, client, destination));
    }

    /// Answers one DNS query that the caller received in a datagram. `None` if it deserves no answer.
    #[must_use]
    pub fn answer_dns(&self, query: &[u8]) -> Option<Vec<u8>> {
        dns::respond(query, |name| self.core.look_up(name))
    }

    /// Replaces the policy; rules that people added stay. Open connections that the new one denies are closed at once.
    ///
    /// Only tests call this: the policy of a live run is widened by [`AddedRules`].
    pub fn set_policy(&self, policy: Policy) {
        self.policies.send_replace(self.core.setup.added.widen(policy));
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Frees finished tasks.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

/// A socket of a gateway cannot be used.
#[derive(Debug, Error)]
#[error("the gateway cannot use the socket for {protocol}")]
pub struct GatewayError {
    /// What the socket is for.
    pub protocol: ListenerProtocol,
    /// The cause.
    pub source: io::Error,
}
