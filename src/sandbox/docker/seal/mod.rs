//! The seal of a sandbox's network: nothing is within reach but the gateway, and that is shown from inside.
//!
//! A *holder* container has a network with loopback only, behind which every address is its own. It hands ralph the
//! listeners of that network, which are the gateway's doors. The sandbox joins the holder's network, without any
//! capability. When ralph ends, nobody listens; when the holder ends, ralph stops listening.

mod error;
pub(super) mod holder;
mod link;
mod plan;
mod proof;
mod step;

use std::os::fd::OwnedFd;

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;

pub use self::error::SealError;
use self::holder::Holder;
pub(super) use self::holder::Ready;
use self::link::Link;
pub use self::plan::SealPlan;
pub use self::step::SealStep;
use super::super::Egress;
use super::super::session::Session;
use crate::gateway::{Gateway, GatewaySetup, Inspection};
use crate::guest::holder_protocol::HolderRequest;
use crate::network::firewall::sealed_state;
use crate::network::probe::Beacon;

/// The seal of one sandbox's network.
#[derive(Debug)]
pub(super) struct Seal {
    holder: Holder,
    plan: SealPlan,
    egress: Egress,
    inspection: Option<Arc<Inspection>>,
    watch: Mutex<Option<Watch>>,
}

/// A gateway that works for as long as its holder does.
#[derive(Debug)]
struct Watch {
    beacon: Beacon,
    questions: mpsc::Sender<oneshot::Sender<Result<String, SealError>>>,
    task: JoinHandle<()>,
}

/// Whether a sandbox is behind its gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is.
    Holds,
    /// Nobody has sealed it, or somebody let go of it.
    NotYet,
    /// It was, and its holder has ended.
    Broken,
}

impl Seal {
    /// The seal that this holder is for. Nothing is sealed yet.
    pub(super) fn new(
        holder: Holder,
        plan: SealPlan,
        egress: &Egress,
        inspection: Option<Arc<Inspection>>,
    ) -> Self {
        Self {
            holder,
            plan,
            egress: egress.clone(),
            inspection,
            watch: Mutex::default(),
        }
    }

    /// The holder's container.
    pub(super) fn holder(&self) -> &str {
        &self.holder.container
    }

    /// Makes the network ready: starts the holder where it does not run, seals, and opens the gateway's doors.
    pub(super) async fn make_ready(&self) -> Result<Ready, SealError> {
        let mut watch = self.watch.lock().await;
        if watch.as_ref().is_some_and(Watch::is_on) {
            return Ok(Ready::Same);
        }
        *watch = None;
        let ready = self.holder.start().await?;
        SealStep::HolderStarted.done(self.holder());
        *watch = Some(self.take_over().await?);
        Ok(ready)
    }

    /// Whether the sandbox is behind its gateway.
    pub(super) async fn standing(&self) -> Standing {
        match &*self.watch.lock().await {
            None => Standing::NotYet,
            Some(watch) if watch.is_on() => Standing::Holds,
            Some(_) => Standing::Broken,
        }
    }

    /// Shows that the seal holds: by what the kernel says is in force, and by what is seen from inside.
    pub(super) async fn prove(&self, session: &Session) -> Result<(), SealError> {
        let watch = self.watch.lock().await;
        let watch = watch.as_ref().ok_or(SealError::HolderEnded)?;
        compare(&watch.ask().await?)?;
        SealStep::KernelAsked.done(self.holder());
        proof::carry_out(session, self.plan.policy(), &watch.beacon).await?;
        SealStep::Proved.done(self.holder());
        Ok(())
    }

    /// Closes the gateway. What the sandbox had open ends.
    pub(super) async fn let_go(&self) {
        if let Some(Watch { questions, task, .. }) = self.watch.lock().await.take() {
            drop(questions);
            let _ = task.await;
        }
    }

    /// Has the holder seal its network, and opens a gateway at the listeners it hands over.
    async fn take_over(&self) -> Result<Watch, SealError> {
        let mut link = self.holder.connect().await?;
        SealStep::HolderReached.done(self.holder());
        obeyed(&mut link, &SealPlan::walls()).await?;
        SealStep::WallsRaised.done(self.holder());
        let listeners = obeyed(&mut link, &self.plan.listeners()).await?;
        SealStep::ListenersHandedOver.done(self.holder());
        let beacon = Beacon::random();
        let gateway = Gateway::new(self.setup(beacon.clone()));
        self.plan.open(&gateway, listeners)?;
        SealStep::GatewayOpened.done(self.holder());
        let (questions, asked) = mpsc::channel(1);
        Ok(Watch {
            beacon,
            questions,
            task: tokio::spawn(keep(link, gateway, asked)),
        })
    }

    fn setup(&self, beacon: Beacon) -> GatewaySetup {
        GatewaySetup {
            inspection: self.inspection.clone(),
            ..self.egress.setup(self.plan.policy(), beacon)
        }
    }
}

impl Watch {
    fn is_on(&self) -> bool {
        !self.task.is_finished()
    }

    /// What the holder says is in force.
    async fn ask(&self) -> Result<String, SealError> {
        let (answer, answered) = oneshot::channel();
        let asked = self.questions.send(answer).await;
        asked.map_err(|_| SealError::HolderEnded)?;
        answered.await.map_err(|_| SealError::HolderEnded)?
    }
}

/// Keeps the gateway for as long as the holder is there and somebody may ask.
async fn keep(
    mut link: Link,
    gateway: Gateway,
    mut questions: mpsc::Receiver<oneshot::Sender<Result<String, SealError>>>,
) {
    loop {
        let question = tokio::select! {
            question = questions.recv() => question,
            () = link.is_over() => None,
        };
        let Some(question) = question else {
            break;
        };
        let answer = link
            .order(&HolderRequest::Describe)
            .await
            .map(|answer| answer.state);
        let broken = answer.is_err();
        // Whoever asked may not wait any more.
        let _ = question.send(answer);
        if broken {
            break;
        }
    }
    drop(gateway);
}

/// Gives an order, after which the kernel must have in force what it should; returns what was handed over.
async fn obeyed(link: &mut Link, order: &HolderRequest) -> Result<Vec<OwnedFd>, SealError> {
    let answer = link.order(order).await?;
    compare(&answer.state)?;
    Ok(answer.listeners)
}

/// Whether what is in force is what must be.
fn compare(state: &str) -> Result<(), SealError> {
    let expected = [true, false].map(sealed_state);
    if expected.iter().any(|expected| expected == state) {
        Ok(())
    } else {
        Err(SealError::Different(state.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_is_missing_or_one_too_many_is_seen() {
        let state = sealed_state(true);
        compare(&state).unwrap();
        for line in state.lines() {
            let without = state.replacen(&format!("{line}\n"), "", 1);
            assert!(compare(&without).is_err(), "without {line}");
        }
        assert!(compare(&format!("up eth0\n{state}")).is_err());
    }
}
