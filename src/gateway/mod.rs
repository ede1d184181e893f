//! The only peer of a sandbox: it answers for allowed names, passes on what the policy allows, and writes down the rest.
//!
//! A [`Gateway`] serves one run. Somebody else opens its sockets, where the sandbox alone can see them, and hands them
//! over as [`Door`]s; that keeps the gateway the same over a container's own network, a bridge or a test. There is no
//! other way out of it than [`Policy::judge`] for each connection and each request.
//!
//! - DNS knows allowed names only, gives each a made-up address, and asks nobody.
//! - TLS goes by the name in its hello. It is read and passed on, not decrypted, but for hosts that the policy inspects:
//!   there an [`Inspection`] opens it, and each request is judged.
//! - HTTP/1 goes by the host of each request, and is read strictly.
//! - Any other port goes by the made-up address.
//! - The explicit proxy does the same for whoever has the run's [`Phantom`]; what goes through a CONNECT must be for the
//!   host that it asked for.
//!
//! Names are resolved when a connection is made, each address is checked, and it is that address which is connected to.

pub mod audit;
pub mod broker;
mod core;
mod dial;
mod dns;
mod door;
mod guard;
mod http;
mod injection;
mod inspect;
mod limits;
pub mod meter;
mod permit;
mod phantom;
mod proxy;
mod relay;
mod resolve;
mod seats;
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

use crate::clock::Clock;
use crate::network::probe::Beacon;
use crate::network::{Policy, SyntheticAddresses};
use audit::AuditSink;
use core::Core;
use permit::{Generation, Notary};
use seats::Seats;

pub use door::Door;
pub use guard::AddressGuard;
pub use injection::CredentialInjector;
pub use inspect::{Inspection, InspectionError, Roots, Trust};
pub use limits::Limits;
pub use phantom::{NoRandomness, Phantom};
pub use resolve::{Resolver, SystemResolver};
pub use stream::{ByteStream, Client};

/// What a gateway is made from.
pub struct Setup {
    /// Which names may be reached.
    pub policy: Policy,
    /// Who resolves them.
    pub resolver: Arc<dyn Resolver>,
    /// Which addresses they may lead to.
    pub guard: AddressGuard,
    /// The credential of the explicit proxy; without one it serves nobody.
    pub phantom: Option<Phantom>,
    /// Who adds credentials, where somebody does.
    pub injection: Option<Arc<dyn CredentialInjector>>,
    /// What the gateway says of itself, whatever the policy is, so that a sandbox can be shown to lead here.
    pub beacon: Option<Beacon>,
    /// Who opens the TLS of hosts that the policy inspects. Without one nobody reaches them by TLS.
    pub inspection: Option<Arc<Inspection>>,
    /// Where everything is written down.
    pub audit: Arc<dyn AuditSink>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// How much the sandbox may take.
    pub limits: Limits,
}

impl Setup {
    /// A gateway for this policy that asks the host's resolver and opens no address.
    #[must_use]
    pub fn new(policy: Policy, audit: Arc<dyn AuditSink>) -> Self {
        Self {
            policy,
            resolver: Arc::new(SystemResolver),
            guard: AddressGuard::default(),
            phantom: None,
            injection: None,
            beacon: None,
            inspection: None,
            audit,
            clock: crate::clock::system(),
            limits: Limits::default(),
        }
    }
}

/// The gateway of one run. When it is dropped, every connection ends.
pub struct Gateway {
    core: Arc<Core>,
    policies: watch::Sender<Arc<Generation>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Gateway {
    /// A gateway without doors. Opening one needs a tokio runtime, on which it is served.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let first = Generation {
            number: 0,
            policy: setup.policy,
        };
        let (policies, current) = watch::channel(Arc::new(first));
        let core = Core {
            policies: current,
            names: Mutex::new(SyntheticAddresses::default()),
            resolver: setup.resolver,
            guard: setup.guard,
            phantom: setup.phantom,
            injection: setup.injection,
            beacon: setup.beacon,
            inspection: setup.inspection,
            notary: Notary {
                sink: setup.audit,
                clock: setup.clock,
            },
            limits: setup.limits,
            seats: Seats::new(setup.limits.connections),
        };
        Self {
            core: Arc::new(core),
            policies,
            tasks: Mutex::default(),
        }
    }

    /// Serves every connection that comes in through a listener.
    pub fn open(&self, door: Door, listener: std::net::TcpListener) -> Result<(), GatewayError> {
        let error = |source| GatewayError::Socket { door, source };
        listener.set_nonblocking(true).map_err(error)?;
        let listener = TcpListener::from_std(listener).map_err(error)?;
        self.spawn(door::accept(self.core.clone(), door, listener));
        Ok(())
    }

    /// Answers DNS queries that come in as datagrams.
    pub fn open_dns(&self, socket: std::net::UdpSocket) -> Result<(), GatewayError> {
        let error = |source| GatewayError::Socket {
            door: Door::Dns,
            source,
        };
        socket.set_nonblocking(true).map_err(error)?;
        let socket = tokio::net::UdpSocket::from_std(socket).map_err(error)?;
        let core = self.core.clone();
        self.spawn(async move {
            if let Err(error) = dns::serve_udp(core, socket).await {
                tracing::warn!(%error, "DNS is not answered any more");
            }
        });
        Ok(())
    }

    /// Serves one connection that somebody else accepted. `destination` is where the sandbox meant it to go.
    pub fn serve<C: Client + 'static>(&self, door: Door, client: C, destination: SocketAddr) {
        self.spawn(door::serve(self.core.clone(), door, client, destination));
    }

    /// Puts another policy in force. What it does not allow ends at once, however old.
    pub fn set_policy(&self, policy: Policy) {
        self.policies.send_modify(|current| {
            let number = current.number + 1;
            *current = Arc::new(Generation { number, policy });
        });
    }

    /// The number of the policy that is in force, counted from 0.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.policies.borrow().number
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that ended are let go of, so that they do not pile up.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

/// What can go wrong with a gateway.
#[derive(Debug, Error)]
pub enum GatewayError {
    /// A socket that was handed over cannot be used.
    #[error("the gateway cannot use the socket of {door}")]
    Socket {
        /// What the socket is for.
        door: Door,
        /// Why.
        source: io::Error,
    },
}
