//! Seals the network of a sandbox: its only peer is the gateway, which is verified from inside.
//!
//! The *holder* container has a network with loopback only, in which every address is local. Its listening sockets are
//! handed to ralph, where the gateway serves them. Where ralph runs on another kernel, the connections are relayed to it
//! instead. The sandbox joins the network of the holder without any capability. When ralph ends, nothing listens any more;
//! when the holder ends, the gateway is closed.

mod error;
pub(super) mod holder;
mod holder_connection;
mod probes;
mod relay;
mod seal_plan;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;

pub use self::error::SealError;
use self::holder::Holder;
use self::holder_connection::HolderConnection;
use self::relay::RelayConnection;
pub use self::seal_plan::SealPlan;
use super::super::sandbox_dir::SandboxDir;
use super::super::session::WarmSession;
use super::super::{Egress, SandboxSpec};
use super::backend::EngineHost;
use crate::engine::Digest;
use crate::gateway::{Gateway, GatewaySetup, Inspection};
use crate::guest::holder_protocol::HolderRequest;
use crate::network::firewall::sealed_state;
use crate::network::probe::Beacon;

/// How the connections of a sealed network reach the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SealTransport {
    /// The holder hands its listening sockets to ralph, which must run on the same kernel.
    Handed,
    /// A relay beside the holder accepts the connections, and carries them over the streams of an exec.
    Relayed,
}

impl SealTransport {
    /// Its name in `sandbox.docker.seal`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Handed => "handed",
            Self::Relayed => "relayed",
        }
    }
}

/// The connection to a holder.
#[derive(Debug)]
enum HolderLink {
    Handed(HolderConnection),
    Relayed(RelayConnection),
}

/// The seal of the network of one sandbox.
#[derive(Debug)]
pub(super) struct Seal {
    holder: Holder,
    plan: SealPlan,
    egress: Egress,
    inspection: Option<Arc<Inspection>>,
    gateway: Mutex<Option<GatewayTask>>,
}

/// A gateway that runs as long as its holder.
#[derive(Debug)]
struct GatewayTask {
    beacon: Beacon,
    /// Asks the holder for the rules in its kernel.
    queries: mpsc::Sender<oneshot::Sender<Result<String, SealError>>>,
    task: JoinHandle<()>,
}

impl EngineHost {
    /// The holder of a sandbox, whose container has this id.
    pub(super) fn holder(&self, dir: &SandboxDir, container: String, transport: SealTransport) -> Holder {
        Holder {
            engine: self.engine.clone(),
            container,
            dir: dir.holder_dir(),
            transport,
        }
    }

    /// The seal of a sandbox with this holder. It is not set up yet.
    pub(super) async fn seal(
        &self,
        dir: &SandboxDir,
        spec: &SandboxSpec,
        image: &Digest,
        plan: SealPlan,
        holder: Holder,
    ) -> Result<Seal, SealError> {
        Ok(Seal {
            inspection: self.inspection(spec, image, dir, &holder.container).await?,
            holder,
            plan,
            egress: spec.egress.clone(),
            gateway: Mutex::default(),
        })
    }
}

impl Seal {
    /// The id of the container of its holder.
    pub(super) fn holder(&self) -> &str {
        &self.holder.container
    }

    pub(super) fn transport(&self) -> SealTransport {
        self.holder.transport
    }

    /// Seals the network: starts the holder unless it runs, sets up the firewall and opens the gateway. Returns since
    /// when the holder runs, or `None` if the network was sealed already.
    pub(super) async fn make_ready(&self) -> Result<Option<Timestamp>, SealError> {
        let mut gateway = self.gateway.lock().await;
        if gateway.as_ref().is_some_and(GatewayTask::is_running) {
            return Ok(None);
        }
        *gateway = None;
        let started = self.holder.start().await?;
        report_step("holder-started", self.holder());
        *gateway = Some(self.open_gateway().await?);
        Ok(started)
    }

    /// Whether the network is sealed, without asking the kernel. Fails if it was sealed and its holder has ended.
    pub(super) async fn is_intact(&self) -> Result<bool, SealError> {
        match &*self.gateway.lock().await {
            None => Ok(false),
            Some(gateway) if gateway.is_running() => Ok(true),
            Some(_) => Err(SealError::HolderEnded),
        }
    }

    /// Verifies the seal: by the rules in the kernel, and by probes from inside.
    pub(super) async fn prove(&self, session: &WarmSession) -> Result<(), SealError> {
        let gateway = self.gateway.lock().await;
        let gateway = gateway.as_ref().ok_or(SealError::HolderEnded)?;
        check_rules(&gateway.kernel_rules().await?)?;
        report_step("kernel-asked", self.holder());
        probes::run_probes(session, &self.plan.policy, &gateway.beacon).await?;
        report_step("proved", self.holder());
        Ok(())
    }

    /// Closes the gateway and all connections of the sandbox.
    pub(super) async fn close_gateway(&self) {
        if let Some(GatewayTask { queries, task, .. }) = self.gateway.lock().await.take() {
            drop(queries);
            let _ = task.await;
        }
    }

    /// Lets the holder set up its network, and opens a gateway for the connections of its sockets.
    async fn open_gateway(&self) -> Result<GatewayTask, SealError> {
        let mut holder = self.holder.connect().await?;
        report_step("holder-reached", self.holder());
        holder.request(&HolderRequest::Seal).await?;
        report_step("walls-raised", self.holder());
        let beacon = Beacon::random();
        let gateway = Arc::new(Gateway::new(GatewaySetup {
            inspection: self.inspection.clone(),
            ..self.egress.setup(&self.plan.policy, beacon.clone())
        }));
        if let HolderLink::Relayed(relay) = &mut holder {
            relay.serve(&gateway, self.plan.listeners());
        }
        let listeners = holder.request(&self.plan.listeners_request()).await?;
        report_step("listeners-handed-over", self.holder());
        if let HolderLink::Handed(_) = holder {
            self.plan.open(&gateway, listeners)?;
        }
        report_step("gateway-opened", self.holder());
        let (queries, received) = mpsc::channel(1);
        Ok(GatewayTask {
            beacon,
            queries,
            task: tokio::spawn(run_gateway(holder, gateway, received)),
        })
    }
}

impl HolderLink {
    /// Sends a request, checks the rules in the kernel afterwards, and returns the sockets that the holder handed over.
    async fn request(&mut self, request: &HolderRequest) -> Result<Vec<OwnedFd>, SealError> {
        let (rules, listeners) = match self {
            Self::Handed(connection) => {
                let reply = connection.request(request).await?;
                (reply.rules, reply.listeners)
            }
            Self::Relayed(relay) => (relay.request(request).await?, Vec::new()),
        };
        check_rules(&rules)?;
        Ok(listeners)
    }

    /// The rules in the kernel, whatever they are.
    async fn kernel_rules(&mut self) -> Result<String, SealError> {
        let request = HolderRequest::Describe;
        match self {
            Self::Handed(connection) => connection.request(&request).await.map(|reply| reply.rules),
            Self::Relayed(relay) => relay.request(&request).await,
        }
    }

    /// Returns when the holder, or its relay, has ended.
    async fn closed(&self) {
        match self {
            Self::Handed(connection) => connection.closed().await,
            Self::Relayed(relay) => relay.closed().await,
        }
    }
}

impl GatewayTask {
    fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    /// The rules in the kernel, according to the holder.
    async fn kernel_rules(&self) -> Result<String, SealError> {
        let (reply, rules) = oneshot::channel();
        let sent = self.queries.send(reply).await;
        sent.map_err(|_| SealError::HolderEnded)?;
        rules.await.map_err(|_| SealError::HolderEnded)?
    }
}

/// Emits a `tracing` event after a step that starts a sandbox on a sealed network, in whose field `step` is its name. No
/// command of the agent runs before the last step, `proved`.
pub(super) fn report_step(step: &str, holder: &str) {
    tracing::debug!(step = %step, holder, "completed a step towards a sealed network");
}

/// Keeps the gateway open until the holder ends or the seal is dropped.
async fn run_gateway(
    mut holder: HolderLink,
    gateway: Arc<Gateway>,
    mut queries: mpsc::Receiver<oneshot::Sender<Result<String, SealError>>>,
) {
    loop {
        let query = tokio::select! {
            query = queries.recv() => query,
            () = holder.closed() => None,
        };
        let Some(reply) = query else {
            break;
        };
        let rules = holder.kernel_rules().await;
        let is_broken = rules.is_err();
        // The receiver may have stopped waiting.
        let _ = reply.send(rules);
        if is_broken {
            break;
        }
    }
    drop(gateway);
}

/// Whether the rules in the kernel are exactly those of the seal.
fn check_rules(rules: &str) -> Result<(), SealError> {
    let expected = [true, false].map(sealed_state);
    if expected.iter().any(|expected| expected == rules) {
        Ok(())
    } else {
        Err(SealError::Different(rules.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_an_additional_rule_is_an_error() {
        let state = sealed_state(true);
        check_rules(&state).unwrap();
        for line in state.lines() {
            let without = state.replacen(&format!("{line}\n"), "", 1);
            assert!(check_rules(&without).is_err(), "without {line}");
        }
        assert!(check_rules(&format!("up eth0\n{state}")).is_err());
    }
}
