//! Before the first iteration: whether all that a run needs is there.
//!
//! Whatever does not hang on something else is looked at, so that a person can mend all of it in one go.

use crate::text::error_chain;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use thiserror::Error;

use crate::agent::Agent;
use crate::event::{EventKind, PreflightResult};
use crate::exec::{Command, Discard};
use crate::network::PolicyMode;
use crate::sandbox::{NetworkEnforcement, Sandbox, SandboxSpec};
use crate::state::RunDir;

use super::perform::output_of;
use super::report::Reporter;
use super::sandboxes::sandbox_for;
use super::{RunError, RunParts, RunSettings};
use crate::text::one_line;

/// How long a sandbox may take for something that takes no time.
const ANSWER: Duration = Duration::from_secs(10);
/// How long an agent may take to tell its version.
const VERSION: Duration = Duration::from_secs(60);
/// The least room for anything to begin: less is used up by the first clone and the first build.
const LEAST_ROOM: u64 = 64 << 20;

/// What to do about a sandbox that is not there, or that nothing can be done in.
const TRY_IT: &str = "`ralph selftest` tries out such a sandbox; one from an image needs a shell in that";

/// Something that must hold before a run begins, which only whoever puts it together can look at.
#[async_trait]
pub trait Precondition: Send + Sync {
    /// What is looked at, in a few words.
    fn name(&self) -> String;

    /// Looks at it.
    async fn look(&self) -> PreflightResult;
}

/// Something that a run needs and that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{check}: {why}")]
pub struct PreflightFailure {
    /// What was looked at.
    pub check: String,
    /// Why it is not as it must be.
    pub why: String,
    /// What a person can do about it.
    pub next_step: String,
}

/// The checks of one run.
pub(super) struct Preflight<'a> {
    pub(super) parts: &'a RunParts,
    pub(super) settings: &'a RunSettings,
    pub(super) spec: &'a SandboxSpec,
    pub(super) dir: &'a RunDir,
    pub(super) reporter: Reporter,
}

impl Preflight<'_> {
    /// The sandbox of the run, once everything that the run needs is there.
    pub(super) async fn sandbox(&self) -> Result<Box<dyn Sandbox>, RunError> {
        self.here().await?;
        let sandbox = match sandbox_for(self.parts, self.spec).await {
            Ok(sandbox) => sandbox,
            Err(error) => {
                self.tell(&Check::Answer.to_string(), lacking(error_chain(&error), TRY_IT));
                return Err(error);
            }
        };
        if let Err(error) = self.inside(sandbox.as_ref()).await {
            // What a person mends may be what it was made from.
            if let Err(error) = sandbox.close().await {
                self.reporter
                    .warn(format!("the sandbox was not removed: {}", error_chain(&error)));
            }
            return Err(error);
        }
        Ok(sandbox)
    }

    /// What must hold on this machine, before there is a sandbox.
    async fn here(&self) -> Result<(), RunError> {
        let mut lacks = Vec::from_iter(self.tell("disk space", room_here(self.dir.path())));
        for condition in &self.parts.preconditions {
            lacks.extend(self.tell(&condition.name(), condition.look().await));
        }
        concluded(lacks)
    }

    /// What must hold in the sandbox. Nothing of its image is started before the policy is shown to hold.
    async fn inside(&self, sandbox: &dyn Sandbox) -> Result<(), RunError> {
        let inside = Inside {
            sandbox,
            preflight: self,
        };
        for check in [Check::Policy, Check::Answer] {
            let found = inside.look(&check).await;
            concluded(Vec::from_iter(self.tell(&check.to_string(), found)))?;
        }
        let mut checks = vec![Check::Git, Check::Room];
        checks.extend(self.agents().into_iter().map(Check::Agent));
        let found = join_all(checks.iter().map(|check| inside.look(check))).await;
        let told = checks.iter().zip(found);
        concluded(
            told.filter_map(|(check, found)| self.tell(&check.to_string(), found))
                .collect(),
        )
    }

    /// Each agent that the run may use, once.
    fn agents(&self) -> Vec<&dyn Agent> {
        let profiles = &self.settings.profiles;
        let mut agents: Vec<&dyn Agent> = Vec::new();
        for profile in std::iter::once(&profiles.default).chain(&profiles.fallback) {
            let agent = self.parts.agents.for_profile(profile).as_ref();
            if agents.iter().all(|other| other.name() != agent.name()) {
                agents.push(agent);
            }
        }
        agents.retain(|agent| agent.check_command().is_some());
        agents
    }

    fn tell(&self, check: &str, found: PreflightResult) -> Option<PreflightFailure> {
        self.reporter.emit(EventKind::Preflight {
            check: check.to_owned(),
            found: found.clone(),
        });
        match found {
            PreflightResult::Ready { .. } => None,
            PreflightResult::NotReady { why, next_step } => Some(PreflightFailure {
                check: check.to_owned(),
                why,
                next_step,
            }),
        }
    }
}

/// What is looked at in a sandbox.
enum Check<'a> {
    Policy,
    Answer,
    Git,
    Room,
    Agent(&'a dyn Agent),
}

impl std::fmt::Display for Check<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Policy => f.write_str("network policy"),
            Self::Answer => f.write_str("sandbox"),
            Self::Git => f.write_str("git in the sandbox"),
            Self::Room => f.write_str("disk space in the sandbox"),
            Self::Agent(agent) => write!(f, "agent {}", agent.name()),
        }
    }
}

/// A sandbox that is looked at.
struct Inside<'a> {
    sandbox: &'a dyn Sandbox,
    preflight: &'a Preflight<'a>,
}

impl Inside<'_> {
    async fn look(&self, check: &Check<'_>) -> PreflightResult {
        match check {
            Check::Policy => self.policy().await,
            Check::Answer => self.answer().await,
            Check::Git => self.git().await,
            Check::Room => self.room().await,
            Check::Agent(agent) => self.agent(*agent).await,
        }
    }

    async fn policy(&self) -> PreflightResult {
        if let Err(error) = self.sandbox.verify().await {
            let hint = error.hint();
            return lacking(
                error_chain(&error),
                hint.unwrap_or("`ralph selftest --escapes` tells what holds and what does not"),
            );
        }
        let provider = &self.preflight.parts.provider;
        let mode = self.preflight.spec.network.mode();
        ready(match (mode, provider.capabilities().network) {
            (PolicyMode::AllowAll, _) => format!("`{}` restricts nothing", mode.name()),
            (_, NetworkEnforcement::Nothing) => format!("`{}` does not enforce it", provider.name()),
            (_, _) => format!("`{}` holds", mode.name()),
        })
    }

    async fn answer(&self) -> PreflightResult {
        let command = Command::shell("echo ready").timeout(ANSWER);
        match self.ask(&command).await {
            Ok(_) => ready(format!("{} answers", self.sandbox.id())),
            Err(why) => lacking(format!("it does not answer: {why}"), TRY_IT),
        }
    }

    async fn git(&self) -> PreflightResult {
        let command = Command::new("git").arg("--version").timeout(ANSWER);
        match self.ask(&command).await {
            Ok(version) => ready(version),
            Err(why) => lacking(
                why,
                "put `git` into the image: `ralph image build` makes one that has it; for `--type local`, mend it on \
                 this machine",
            ),
        }
    }

    /// Where nothing tells, nothing is known, and a run goes on.
    async fn room(&self) -> PreflightResult {
        let root = self.sandbox.root().display().to_string();
        let command = Command::new("df").args(["-Pk", &root]).timeout(ANSWER);
        let told = self.ask(&command).await;
        match told.as_deref().ok().and_then(free_of_df) {
            Some(free) => enough(free, "in the sandbox"),
            None => ready("nothing there tells how much is left"),
        }
    }

    async fn agent(&self, agent: &dyn Agent) -> PreflightResult {
        let Some(probe) = agent.check_command() else {
            return ready("it needs no program");
        };
        match self.ask(&probe.timeout(VERSION)).await {
            Ok(version) => ready(version),
            Err(why) => lacking(
                format!("it does not run in the sandbox: {why}"),
                "`ralph image build` makes an image that has it; for `--type local`, install it on this machine",
            ),
        }
    }

    /// What a command prints, in one line; or why it failed.
    async fn ask(&self, command: &Command) -> Result<String, String> {
        let exit = self.sandbox.exec(command, &mut Discard).await;
        let exit = exit.map_err(|error| error_chain(&error))?;
        let said = one_line(&output_of(&exit, &self.preflight.parts.redactor));
        if exit.success() {
            Ok(said)
        } else {
            Err(format!("`{command}`: {}: {said}", exit.status))
        }
    }
}

fn ready(detail: impl Into<String>) -> PreflightResult {
    PreflightResult::Ready {
        detail: detail.into(),
    }
}

fn lacking(why: impl Into<String>, next_step: impl Into<String>) -> PreflightResult {
    PreflightResult::NotReady {
        why: why.into(),
        next_step: next_step.into(),
    }
}

fn concluded(lacks: Vec<PreflightFailure>) -> Result<(), RunError> {
    if lacks.is_empty() {
        Ok(())
    } else {
        Err(RunError::NotReady(lacks))
    }
}

fn room_here(dir: &Path) -> PreflightResult {
    let place = format!("at `{}`", dir.display());
    match rustix::fs::statvfs(dir) {
        Ok(disk) => enough(disk.f_bavail.saturating_mul(disk.f_frsize), &place),
        Err(error) => lacking(
            format!("nothing can be learned of the disk {place}: {error}"),
            "set RALPH_HOME to a directory of yours",
        ),
    }
}

fn enough(free: u64, place: &str) -> PreflightResult {
    let megabytes = |bytes: u64| bytes >> 20;
    if free >= LEAST_ROOM {
        return ready(format!("{} MB are free", megabytes(free)));
    }
    lacking(
        format!(
            "{} MB are free {place}, {} are needed to begin",
            megabytes(free),
            megabytes(LEAST_ROOM)
        ),
        "make room, then `ralph resume`",
    )
}

/// The free bytes that `df -Pk` tells, whose output stands in one line: the fourth word of what follows its headings.
fn free_of_df(printed: &str) -> Option<u64> {
    let (_, row) = printed.split_once("Mounted on ")?;
    let kilobytes: u64 = row.split(' ').nth(3)?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::coreutils(
        "Filesystem 1024-blocks Used Available Capacity Mounted on overlay 100 60 40 60% /workspace",
        Some(40 * 1024)
    )]
    #[case::busybox(
        "Filesystem 1024-blocks Used Available Capacity Mounted on tmpfs 16 16 0 100% /",
        Some(0)
    )]
    #[case::something_else("df: no such file", None)]
    #[case::nothing("", None)]
    fn what_df_prints_is_read(#[case] printed: &str, #[case] free: Option<u64>) {
        assert_eq!(free_of_df(printed), free);
    }
}
