//! Seals the network of a sandbox: its only peer is the gateway, which is verified from inside.
//!
//! The *holder* container has a network with loopback only, in which every address is local. It passes its listening
//! sockets to ralph, where the gateway serves them. The sandbox joins the network of the holder without any capability.
//! When ralph ends, nothing listens any more; when the holder ends, the gateway is closed.

mod error;
pub(super) mod holder;
mod holder_connection;
mod probes;
mod seal_plan;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;

pub use self::error::SealError;
use self::holder::Holder;
use self::holder_connection::HolderConnection;
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
    /// The seal of a sandbox whose holder has this container id. It is not set up yet.
    pub(super) async fn seal(
        &self,
        dir: &SandboxDir,
        spec: &SandboxSpec,
        image: &Digest,
        plan: SealPlan,
        holder: String,
    ) -> Result<Seal, SealError> {
        Ok(Seal {
            holder: Holder {
                engine: self.engine.clone(),
                container: holder,
                dir: dir.holder_dir(),
            },
            plan,
            egress: spec.egress.clone(),
            inspection: self.inspection(spec, image, dir).await?,
            gateway: Mutex::default(),
        })
    }
}

impl Seal {
    /// The id of the container of its holder.
    pub(super) fn holder(&self) -> &str {
        &self.holder.container
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

    /// Lets the holder set up its network, and opens a gateway at the sockets it passes on.
    async fn open_gateway(&self) -> Result<GatewayTask, SealError> {
        let mut holder = self.holder.connect().await?;
        report_step("holder-reached", self.holder());
        request(&mut holder, &HolderRequest::Seal).await?;
        report_step("walls-raised", self.holder());
        let listeners = request(&mut holder, &self.plan.listeners_request()).await?;
        report_step("listeners-handed-over", self.holder());
        let beacon = Beacon::random();
        let gateway = Gateway::new(GatewaySetup {
            inspection: self.inspection.clone(),
            ..self.egress.setup(&self.plan.policy, beacon.clone())
        });
        self.plan.open(&gateway, listeners)?;
        report_step("gateway-opened", self.holder());
        let (queries, received) = mpsc::channel(1);
        Ok(GatewayTask {
            beacon,
            queries,
            task: tokio::spawn(run_gateway(holder, gateway, received)),
        })
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
    mut holder: HolderConnection,
    gateway: Gateway,
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
        let reply_of_holder = holder.request(&HolderRequest::Describe).await;
        let is_broken = reply_of_holder.is_err();
        // The receiver may have stopped waiting.
        let _ = reply.send(reply_of_holder.map(|reply| reply.rules));
        if is_broken {
            break;
        }
    }
    drop(gateway);
}

/// Sends a request to the holder, checks the rules in the kernel afterwards, and returns the sockets it passed on.
async fn request(holder: &mut HolderConnection, request: &HolderRequest) -> Result<Vec<OwnedFd>, SealError> {
    let reply = holder.request(request).await?;
    check_rules(&reply.rules)?;
    Ok(reply.listeners)
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
