//! Checks before the first iteration: whether everything that a run needs is there.
//!
//! Checks that do not depend on each other all run, so that a person can fix every problem in one go.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use thiserror::Error;

use crate::agent::Agent;
use crate::event::{EventKind, PreflightResult};
use crate::exec::{Command, Discard};
use crate::network::PolicyMode;
use crate::sandbox::{NetworkEnforcement, Sandbox};
use crate::scm::{PlannedPullRequest, Repository};
use crate::text::{error_chain, one_line};

use super::actions::output_text;
use super::workplace::open_sandbox;
use super::{RunError, RunInputs};

/// Timeout of a trivial command in a sandbox.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of an agent that prints its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(60);
/// The least free disk space in bytes. The first clone and the first build would use up less than that.
const MIN_FREE: u64 = 64 << 20;

/// What to do about a sandbox that cannot be created or does not answer.
const TRY_IT: &str = "try it out with `ralph selftest`; an image must contain a shell";

/// What to do about a sandbox without git, and without an agent program.
const GET_GIT: &str =
    "use an image that contains `git` (`ralph image build` makes one); for `local`, install it on the host";
const GET_AGENT: &str =
    "use an image that contains it (`ralph image build` makes one); for `local`, install it on the host";

/// A check on the host that must pass before a run starts, provided by the caller.
#[async_trait]
pub trait Precondition: Send + Sync {
    /// The name of the check, in a few words.
    fn name(&self) -> String;

    /// Runs the check.
    async fn check(&self) -> PreflightResult;
}

/// A check that failed before the run started.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{check}: {why}")]
pub struct PreflightFailure {
    /// The name of the check.
    pub check: String,
    /// Why it failed.
    pub why: String,
    /// What a person can do about it.
    pub next_step: String,
}

impl RunInputs<'_> {
    /// Runs the checks on the host, opens the sandbox, and runs the checks in it.
    pub(super) async fn open_checked_sandbox(&self, repo: &Repository) -> Result<Box<dyn Sandbox>, RunError> {
        self.check_host(repo).await?;
        let sandbox = match open_sandbox(self.parts, self.spec).await {
            Ok(sandbox) => sandbox,
            Err(error) => {
                self.report("sandbox", not_ready(error_chain(&error), TRY_IT));
                return Err(error);
            }
        };
        if let Err(error) = self.check_sandbox(sandbox.as_ref()).await {
            // The fix may be in what the sandbox was created from.
            if let Err(error) = sandbox.close().await {
                self.reporter
                    .warn(format!("cannot remove the sandbox: {}", error_chain(&error)));
            }
            return Err(error);
        }
        Ok(sandbox)
    }

    /// The checks on the host, before there is a sandbox.
    async fn check_host(&self, repo: &Repository) -> Result<(), RunError> {
        let free = host_disk_space(self.dir.path());
        let mut failures = Vec::from_iter(self.report("disk space", free));
        if ignores_case(&self.dir.lock_file()) {
            failures.extend(self.report("file names", self.file_names(repo).await?));
        }
        if let Some(found) = self.forge().await {
            failures.extend(self.report("pull request", found));
        }
        for condition in &self.parts.preconditions {
            failures.extend(self.report(&condition.name(), condition.check().await));
        }
        none_failed(failures)
    }

    /// Whether the forge will accept the pull request in the end. `None` if it has nothing to check.
    async fn forge(&self) -> Option<PreflightResult> {
        let facts = self.dir.facts();
        let planned = PlannedPullRequest {
            branch: facts.branch.clone(),
            base_branch: facts.base_branch.clone(),
            base: facts.base.clone(),
            waits_for_ci: self.settings.done.ci.is_some(),
        };
        match self.parts.forge.check(&planned).await {
            Ok(found) => found.map(ready),
            Err(error) => {
                let hint = error.hint().unwrap_or("try again with `ralph resume`".into());
                Some(not_ready(error_chain(&error), hint))
            }
        }
    }

    /// On a file system that ignores case, a clone loses one of two files whose names differ by case alone.
    async fn file_names(&self, repo: &Repository) -> Result<PreflightResult, RunError> {
        let base = &self.dir.facts().base;
        Ok(match repo.colliding_names(base).await? {
            None => ready("no two differ by case alone"),
            Some((one, other)) => not_ready(
                format!("`{one}` and `{other}` are one file here: the file system ignores case"),
                "rename one of them, or set RALPH_HOME to a directory on a case-sensitive file system",
            ),
        })
    }

    /// The checks in the sandbox. Nothing of its image runs before the network policy was verified.
    async fn check_sandbox(&self, sandbox: &dyn Sandbox) -> Result<(), RunError> {
        let policy = self.network_policy(sandbox).await;
        none_failed(Vec::from_iter(self.report("network policy", policy)))?;
        let answer = match self
            .output(sandbox, Command::shell("echo ready"), PROBE_TIMEOUT)
            .await
        {
            Ok(_) => ready(format!("{} answers", sandbox.id())),
            Err(failure) => not_ready(
                format!("it does not answer: {}", failure.why),
                failure.hint.unwrap_or(TRY_IT.into()),
            ),
        };
        none_failed(Vec::from_iter(self.report("sandbox", answer)))?;
        let agents = self.agents();
        let versions = agents
            .iter()
            .map(|(_, command)| self.output(sandbox, command.clone(), VERSION_TIMEOUT));
        let (git, space, versions) = tokio::join!(
            self.output(sandbox, Command::new("git").arg("--version"), PROBE_TIMEOUT),
            self.disk_space(sandbox),
            join_all(versions)
        );
        let git = git.map_or_else(|failure| not_ready(failure.why, GET_GIT), ready);
        let mut failures = Vec::from_iter(self.report("git in the sandbox", git));
        failures.extend(self.report("disk space in the sandbox", space));
        for ((agent, _), version) in agents.iter().zip(versions) {
            let lacking = |failure: ProbeFailure| {
                not_ready(
                    format!("it does not run in the sandbox: {}", failure.why),
                    GET_AGENT,
                )
            };
            let version = version.map_or_else(lacking, ready);
            failures.extend(self.report(&format!("agent {}", agent.name()), version));
        }
        none_failed(failures)
    }

    /// Each agent program that the run may use, once, with the command that prints its version.
    fn agents(&self) -> Vec<(&dyn Agent, Command)> {
        let profiles = &self.settings.profiles;
        let mut agents: Vec<(&dyn Agent, Command)> = Vec::new();
        for profile in std::iter::once(&profiles.default).chain(&profiles.fallback) {
            let agent = self.parts.agents.for_profile(profile).as_ref();
            let is_new = agents.iter().all(|(other, _)| other.name() != agent.name());
            if let Some(command) = agent.check_command().filter(|_| is_new) {
                agents.push((agent, command));
            }
        }
        agents
    }

    fn report(&self, check: &str, result: PreflightResult) -> Option<PreflightFailure> {
        self.reporter.emit(EventKind::Preflight {
            check: check.to_owned(),
            found: result.clone(),
        });
        match result {
            PreflightResult::Ready { .. } => None,
            PreflightResult::NotReady { why, next_step } => Some(PreflightFailure {
                check: check.to_owned(),
                why,
                next_step,
            }),
        }
    }

    async fn network_policy(&self, sandbox: &dyn Sandbox) -> PreflightResult {
        if let Err(error) = sandbox.verify().await {
            let hint = error.hint();
            return not_ready(
                error_chain(&error),
                hint.unwrap_or("run `ralph selftest --escapes` to see what is enforced"),
            );
        }
        let provider = &self.parts.provider;
        let mode = self.spec.network.mode;
        ready(match (mode, provider.capabilities().network) {
            (PolicyMode::AllowAll, _) => format!("`{}` restricts nothing", mode.name()),
            (_, NetworkEnforcement::Nothing) => format!("`{}` does not enforce it", provider.name()),
            // Nothing may be connected at all.
            (PolicyMode::Deny, _) => format!("`{}` holds", mode.name()),
            (_, _) => {
                // The network holds already, however it is connected.
                let seal = provider.seal().await.ok().flatten();
                let seal = seal.map_or(String::new(), |seal| format!("; its seal is {seal}"));
                format!("`{}` holds{seal}", mode.name())
            }
        })
    }

    /// A sandbox without a usable `df` passes: the free space is unknown, not too small.
    async fn disk_space(&self, sandbox: &dyn Sandbox) -> PreflightResult {
        let root = sandbox.root().display().to_string();
        let command = Command::new("df").args(["-Pk", &root]);
        let printed = self.output(sandbox, command, PROBE_TIMEOUT).await;
        match printed.as_deref().ok().and_then(parse_df) {
            Some(free) => enough_space(free, "in the sandbox"),
            None => ready("unknown"),
        }
    }

    /// The output of a command in one line, or why it failed.
    async fn output(
        &self,
        sandbox: &dyn Sandbox,
        command: Command,
        timeout: Duration,
    ) -> Result<String, ProbeFailure> {
        let command = command.timeout(timeout);
        let exit = sandbox.exec(&command, &mut Discard).await;
        let exit = exit.map_err(|error| ProbeFailure {
            why: error_chain(&error),
            hint: error.hint().map(str::to_owned),
        })?;
        let output = one_line(&output_text(&exit, &self.parts.redactor));
        if exit.success() {
            Ok(output)
        } else {
            Err(ProbeFailure {
                why: format!("`{command}`: {}: {output}", exit.status),
                hint: None,
            })
        }
    }
}

/// Why a command of a check failed, and what to do about it if the sandbox knows.
struct ProbeFailure {
    why: String,
    hint: Option<String>,
}

fn ready(detail: impl Into<String>) -> PreflightResult {
    PreflightResult::Ready {
        detail: detail.into(),
    }
}

fn not_ready(why: impl Into<String>, next_step: impl Into<String>) -> PreflightResult {
    PreflightResult::NotReady {
        why: why.into(),
        next_step: next_step.into(),
    }
}

fn none_failed(failures: Vec<PreflightFailure>) -> Result<(), RunError> {
    if failures.is_empty() {
        Ok(())
    } else {
        Err(RunError::NotReady(failures))
    }
}

/// Whether the file system of this file ignores case: the upper-case name is then the same file.
fn ignores_case(file: &Path) -> bool {
    let upper = file
        .file_name()
        .map(|name| file.with_file_name(name.to_ascii_uppercase()));
    let id = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    upper.is_some_and(|upper| id(file).is_some() && id(file) == id(&upper))
}

fn host_disk_space(dir: &Path) -> PreflightResult {
    let place = format!("at `{}`", dir.display());
    match rustix::fs::statvfs(dir) {
        Ok(disk) => enough_space(disk.f_bavail.saturating_mul(disk.f_frsize), &place),
        Err(error) => not_ready(
            format!("cannot read the free disk space {place}: {error}"),
            "set RALPH_HOME to a directory you own",
        ),
    }
}

fn enough_space(free: u64, place: &str) -> PreflightResult {
    let megabytes = |bytes: u64| bytes >> 20;
    if free >= MIN_FREE {
        return ready(format!("{} MB are free", megabytes(free)));
    }
    not_ready(
        format!(
            "{} MB are free {place}, at least {} MB are needed",
            megabytes(free),
            megabytes(MIN_FREE)
        ),
        "free some disk space, then run `ralph resume`",
    )
}

/// The free bytes in the output of `df -Pk`, joined to one line: the fourth word after the headings.
fn parse_df(printed: &str) -> Option<u64> {
    let (_, row) = printed.split_once("Mounted on ")?;
    let kilobytes: u64 = row.split(' ').nth(3)?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_file_system_that_ignores_case_is_recognised() {
        let dir = tempfile::tempdir().unwrap();
        let (file, upper) = (dir.path().join("journal.jsonl"), dir.path().join("JOURNAL.JSONL"));
        assert!(!ignores_case(&file), "there is no such file");
        fs::write(&file, "").unwrap();
        if !upper.exists() {
            assert!(!ignores_case(&file));
            fs::write(&upper, "").unwrap();
            assert!(!ignores_case(&file), "two files");
            fs::remove_file(&upper).unwrap();
            fs::hard_link(&file, &upper).unwrap();
        }
        assert!(ignores_case(&file), "one file with two names");
    }

    #[cfg(target_os = "linux")] // The repository cannot be created where case is ignored.
    #[rstest]
    #[case::none(&["Makefile", "src/a", "doc/A"], None)]
    #[case::files(&["Makefile", "doc/Readme", "doc/README"], Some("`doc/README` and `doc/Readme` are one file here"))]
    #[case::directories(&["Makefile", "Doc/a", "doc/b"], Some("`Doc` and `doc` are one file here"))]
    #[tokio::test]
    async fn names_that_differ_by_case_are_refused_where_case_is_ignored(
        #[case] files: &[&str],
        #[case] expected: Option<&str>,
    ) {
        let run = super::super::tests::TestRun::with_files(files).await;
        run.inputs().check_host(&run.repo).await.unwrap();
        // As it looks on a file system that ignores case.
        let lock = run.dir.lock_file();
        fs::write(&lock, "").unwrap();
        fs::hard_link(&lock, lock.with_file_name("LOCK")).unwrap();
        let checked = run.inputs().check_host(&run.repo).await;
        let refused = checked.map_err(|error| match error {
            RunError::NotReady(failures) => failures.into_iter().map(|failure| failure.to_string()).collect(),
            other => panic!("{other}"),
        });
        match (refused, expected) {
            (Ok(()), None) => {}
            (Err::<_, String>(message), Some(expected)) => assert!(message.contains(expected), "{message}"),
            other => panic!("{other:?}"),
        }
    }

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
    fn df_output_is_parsed(#[case] printed: &str, #[case] free: Option<u64>) {
        assert_eq!(parse_df(printed), free);
    }
}
