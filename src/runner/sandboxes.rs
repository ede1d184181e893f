//! The sandbox of a run: had, lost and made anew, put to rest.

use crate::text::error_chain;
use std::time::{Duration, Instant};

use crate::sandbox::{Reuse, Sandbox, SandboxErrorKind, SandboxSpec};
use crate::scm::ScmError;
use crate::state::RunOutcomeKind;

use super::error::Halt;
use super::run::Run;
use super::{RunError, RunParts, watch};

/// How many sandboxes one iteration may lose before a person should have a look.
const MOST_LOSSES: u32 = 1;
/// How long a provider may take to make a new one, or to come back when it went away, and how often it is asked.
const AWAY_PATIENCE: Duration = Duration::from_secs(60);
const AWAY_PAUSE: Duration = Duration::from_millis(500);

impl Run<'_> {
    /// What is done when something broke. A lost sandbox is made anew from the checkpoint, and the iteration begun
    /// again; any other fault of the provider pauses the run. `losses` counts those of this iteration.
    pub(super) async fn mend(&mut self, error: RunError, losses: u32) -> Result<(), Halt> {
        match sandbox_error_kind(&error) {
            Some(SandboxErrorKind::Lost | SandboxErrorKind::Unreachable) if losses <= MOST_LOSSES => {
                self.reporter.warn(format!(
                    "{}; making a new one from the checkpoint",
                    error_chain(&error)
                ));
                self.renew_in_time().await
            }
            Some(kind) if needs_a_person(kind) => Err(Halt::paused(error_chain(&error))),
            _ => Err(Halt::Broken(error)),
        }
    }

    /// Tells what went differently in the sandbox than it should have.
    pub(super) fn tell_notices(&self) {
        for notice in self.sandbox.notices() {
            self.reporter.warn(notice);
        }
    }

    /// A sandbox that may not be used again gives way to a new one before the next iteration.
    pub(super) async fn change_sandbox(&mut self) -> Result<(), Halt> {
        match self.spec.reuse {
            Reuse::Never if self.worn => {
                self.sandbox.close().await?;
                self.renew_sandbox().await
            }
            Reuse::Never | Reuse::Allowed => {
                self.worn = true;
                Ok(())
            }
        }
    }

    /// What becomes of the sandbox when the run ends: kept, without a process in it, for as long as somebody may go on.
    pub(super) async fn put_to_rest(&self, kind: RunOutcomeKind) -> Result<(), RunError> {
        let resting = match (kind, self.spec.reuse) {
            (RunOutcomeKind::Done | RunOutcomeKind::Failed, _) => return Ok(self.sandbox.close().await?),
            (RunOutcomeKind::Paused | RunOutcomeKind::Stopped, Reuse::Allowed) => self.sandbox.stop().await,
            (RunOutcomeKind::Paused | RunOutcomeKind::Stopped, Reuse::Never) => self.sandbox.close().await,
        };
        if let Err(error) = resting {
            self.reporter.warn(format!(
                "the sandbox was not put to rest: {}",
                error_chain(&error)
            ));
        }
        Ok(())
    }

    async fn renew_in_time(&mut self) -> Result<(), Halt> {
        let (inbox, give_up) = (self.dir.inbox(), Instant::now() + AWAY_PATIENCE);
        loop {
            match self.renew_sandbox().await {
                Err(Halt::Broken(error)) => match sandbox_error_kind(&error) {
                    // A container that is being removed is there, and cannot be started.
                    Some(SandboxErrorKind::Lost | SandboxErrorKind::Unreachable)
                        if Instant::now() < give_up => {}
                    Some(kind) if needs_a_person(kind) => return Err(Halt::paused(error_chain(&error))),
                    _ => return Err(Halt::Broken(error)),
                },
                other => return other,
            }
            tokio::select! {
                () = tokio::time::sleep(AWAY_PAUSE) => {}
                stopped = watch::stopped(&inbox) => {
                    return Err(stopped.map_or_else(Halt::from, |()| Halt::stopped("stopped by a person")));
                }
            }
        }
    }

    async fn renew_sandbox(&mut self) -> Result<(), Halt> {
        self.sandbox = sandbox_for(self.parts, self.spec).await?;
        self.lay_out().await
    }
}

/// The sandbox of a run: the one it has, or a new one.
pub(super) async fn sandbox_for(parts: &RunParts, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, RunError> {
    match (parts.provider.reopen(spec).await?, spec.reuse) {
        (Some(sandbox), Reuse::Allowed) => {
            sandbox.start().await?;
            return Ok(sandbox);
        }
        (Some(sandbox), Reuse::Never) => sandbox.close().await?,
        (None, _) => {}
    }
    Ok(parts.provider.create(spec).await?)
}

/// The kind of an error that comes from the sandbox.
fn sandbox_error_kind(error: &RunError) -> Option<SandboxErrorKind> {
    match error {
        RunError::Sandbox(error) | RunError::Scm(ScmError::Sandbox(error)) => Some(error.kind()),
        _ => None,
    }
}

/// Whether the run pauses on an error that another attempt did not mend.
fn needs_a_person(kind: SandboxErrorKind) -> bool {
    match kind {
        SandboxErrorKind::Lost
        | SandboxErrorKind::Unreachable
        | SandboxErrorKind::Unavailable
        | SandboxErrorKind::Failed => true,
        SandboxErrorKind::Unsupported
        | SandboxErrorKind::NotStarted
        | SandboxErrorKind::File
        | SandboxErrorKind::TooLong
        | SandboxErrorKind::Host => false,
    }
}
