//! Where the agent works: the sandbox of the run, and the private clone in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::exec::Command;
use crate::id::ObjectId;
use crate::sandbox::{Reuse, Sandbox, SandboxError, SandboxErrorKind, SandboxSpec, clone_dir};
use crate::scm::{CloneStart, PrivateClone, RepoPath, Repository, ScmError, SeedPack};
use crate::state::{RunOutcomeKind, StateError, if_exists, write_atomically};
use crate::text::error_chain;

use super::actions::output_text;
use super::error::{Halt, is_sandbox_fault};
use super::evidence_sandbox::EvidenceSandboxes;
use super::interventions;
use super::progress::RunProgress;
use super::setup::{self, SetupLayer};
use super::{RunError, RunInputs, RunParts};

/// How many sandboxes one iteration may lose before the run pauses for a person.
const MAX_LOSSES: u32 = 1;
/// How long to retry when the provider cannot create a sandbox, or does not answer.
const RECREATE_TIMEOUT: Duration = Duration::from_secs(60);
const RECREATE_PAUSE: Duration = Duration::from_millis(500);

/// The sandbox of a run and the private clone in it.
pub(super) struct Workplace<'a> {
    pub(super) inputs: RunInputs<'a>,
    sandbox: Box<dyn Sandbox>,
    evidence: EvidenceSandboxes,
    /// Whether an iteration started in this sandbox.
    used: bool,
    /// Whether the sandbox is over its disk limit, and so of no use to a resume.
    is_over_disk_limit: bool,
    /// The user's repository.
    pub(super) repo: Repository,
    /// The pack with everything that the base commit reaches.
    seed: SeedPack,
    /// The command that gets what the others need: the `setup_command` of the task or the project.
    pub(super) setup: Option<String>,
    /// Commits that the user's repository has, so that a hand-back need not transfer them.
    pub(super) known: Vec<ObjectId>,
}

impl<'a> Workplace<'a> {
    /// The workplace in this sandbox. There is no clone in it until [`Self::reset_clone`].
    pub(super) async fn new(
        inputs: RunInputs<'a>,
        sandbox: Box<dyn Sandbox>,
        repo: Repository,
        setup: Option<String>,
    ) -> Result<Self, RunError> {
        let facts = inputs.dir.facts();
        repo.pin_base(&facts.id, &facts.base).await?;
        Ok(Self {
            seed: SeedPack::create(&repo, &[&facts.base], &[], &inputs.dir.seed_dir()).await?,
            known: vec![facts.base.clone()],
            setup: setup.or_else(|| inputs.settings.setup_command.clone()),
            evidence: EvidenceSandboxes::new(inputs.parts.provider.clone(), inputs.spec.clone()),
            inputs,
            sandbox,
            used: false,
            is_over_disk_limit: false,
            repo,
        })
    }

    /// The sandbox.
    pub(super) fn sandbox(&self) -> &dyn Sandbox {
        self.sandbox.as_ref()
    }

    /// A sandbox for one evidence run alone, from the image of the agent's. `None` if the provider has no such sandboxes.
    pub(super) async fn open_evidence(&self) -> Result<Option<Arc<dyn Sandbox>>, RunError> {
        Ok(self.evidence.open(self.sandbox.image_digest()).await?)
    }

    /// Removes the sandbox of the evidence run, in the background.
    pub(super) async fn end_evidence(&self) {
        self.evidence.retire().await;
    }

    /// Removes every sandbox for evidence that this run has.
    pub(super) async fn close_evidence(&self) {
        self.evidence.close().await;
    }

    /// The directory of the clone inside the sandbox.
    pub(super) fn clone_dir(&self) -> PathBuf {
        clone_dir(self.sandbox())
    }

    /// The clone, whose branch started this iteration at `tip`.
    pub(super) fn private_clone(&self, tip: &ObjectId) -> PrivateClone<'_> {
        PrivateClone::existing(self.sandbox(), self.clone_dir(), self.start_at(tip))
    }

    /// Creates the clone again from what the host has. Whatever a crash or an agent left in it is gone.
    pub(super) async fn reset_clone(&self, progress: &mut RunProgress<'_>) -> Result<(), RunError> {
        let clone = self.clone_dir();
        self.sandbox.end_processes().await?;
        self.sandbox.files().remove(&clone).await?;
        self.plant(self.sandbox(), &clone, &progress.tip, progress)
            .await?;
        if progress.is_saved() {
            let private = self.private_clone(&progress.tip);
            private.restore(&progress.tree).await?;
        }
        self.set_up(progress).await?;
        progress.files.copy_all(self.sandbox(), &clone).await?;
        self.show_task(progress).await
    }

    /// Does what the `setup_command` does, in a new clone, before the agent.
    async fn set_up(&self, progress: &RunProgress<'_>) -> Result<(), RunError> {
        let Some(line) = &self.setup else {
            return Ok(());
        };
        if let Some(layer) = self.setup_layer(&progress.tip).await? {
            if !layer.exists() {
                self.make_layer(&layer, line, progress).await?;
            }
            if layer.exists()
                && layer
                    .restore(self.sandbox(), self.inputs.parts.clock.now())
                    .await?
            {
                return Ok(());
            }
        }
        self.run_setup(self.sandbox(), line, progress).await
    }

    /// Does what the `setup_command` does in the checkout of `commit` in a sandbox for evidence. Returns false if the
    /// command has to run there.
    pub(super) async fn restore_setup(
        &self,
        sandbox: &dyn Sandbox,
        commit: &ObjectId,
    ) -> Result<bool, RunError> {
        match self.setup_layer(commit).await? {
            Some(layer) if layer.exists() => {
                Ok(layer.restore(sandbox, self.inputs.parts.clock.now()).await?)
            }
            _ => Ok(false),
        }
    }

    /// The result of the `setup_command` on the base commit, where it holds for this commit: the files that the command
    /// reads are the same. `None` if the result depends on the host, or on nothing that is known.
    async fn setup_layer(&self, commit: &ObjectId) -> Result<Option<SetupLayer>, RunError> {
        let (Some(cache), Some(command), Some(image)) = (
            &self.inputs.settings.setup_cache,
            &self.setup,
            self.sandbox.image_digest(),
        ) else {
            return Ok(None);
        };
        let base = &self.inputs.dir.facts().base;
        let is_input = |path: &RepoPath| setup::is_input(command, path);
        let inputs = self.repo.entries(commit, is_input).await?;
        let is_base = inputs == self.repo.entries(base, is_input).await?;
        Ok((is_base && !inputs.is_empty()).then(|| SetupLayer::new(cache, &image, command, &inputs)))
    }

    /// Runs the `setup_command` on the base commit, in a sandbox that no agent was in, and keeps the result. Does nothing
    /// if the provider has no such sandboxes.
    async fn make_layer(
        &self,
        layer: &SetupLayer,
        line: &str,
        progress: &RunProgress<'_>,
    ) -> Result<(), RunError> {
        let Some(own) = self.open_evidence().await? else {
            return Ok(());
        };
        let made = async {
            let base = &self.inputs.dir.facts().base;
            let dir = clone_dir(own.as_ref());
            let packs = std::slice::from_ref(&self.seed);
            PrivateClone::create(own.as_ref(), dir, packs, self.start_at(base)).await?;
            self.run_setup(own.as_ref(), line, progress).await?;
            Ok(layer.save(own.as_ref(), self.inputs.parts.clock.now()).await?)
        };
        let made = made.await;
        self.close_evidence().await;
        made.map(|_| ())
    }

    async fn run_setup(
        &self,
        sandbox: &dyn Sandbox,
        line: &str,
        progress: &RunProgress<'_>,
    ) -> Result<(), RunError> {
        let timeout = progress.time_limit().max(Duration::from_secs(1));
        let command = Command::shell(line).cwd(clone_dir(sandbox)).timeout(timeout);
        let mut lines = self.inputs.reporter.lines();
        let exit = sandbox.exec(&command, &mut lines).await?;
        sandbox.end_processes().await?;
        if exit.success() {
            return Ok(());
        }
        let output = output_text(&exit, &self.inputs.parts.redactor);
        let failed = format!(
            "the `setup_command` failed before the agent started: `{line}`: {}\n{output}",
            exit.status
        );
        if progress.iterations() > 0 {
            // The agent broke it, and can mend it.
            self.inputs.reporter.warn(failed);
            return Ok(());
        }
        Err(RunError::Refused(failed))
    }

    /// Creates a clone at `commit` in `dir` of a sandbox, from packs of the host.
    pub(super) async fn plant(
        &self,
        sandbox: &dyn Sandbox,
        dir: &Path,
        commit: &ObjectId,
        progress: &RunProgress<'_>,
    ) -> Result<(), RunError> {
        let mut packs = vec![self.seed.clone()];
        if progress.is_saved() {
            packs.push(self.pack_since_base(commit, &progress.tree).await?);
        }
        PrivateClone::create(sandbox, dir.to_owned(), &packs, self.start_at(commit)).await?;
        Ok(())
    }

    /// Writes the task with its ticks where a person and the agent see it.
    pub(super) async fn show_task(&self, progress: &RunProgress<'_>) -> Result<(), RunError> {
        let text = progress.task_text();
        write_atomically(&self.inputs.dir.task_file(), text.as_bytes())?;
        let file = self.clone_dir().join("ralph_task.md");
        // The agent may have put a directory or a link in its place.
        self.sandbox.files().remove(&file).await?;
        self.sandbox.files().write(&file, text.as_bytes(), 0o644).await?;
        Ok(())
    }

    /// Reports what the sandbox has to say, as warnings.
    pub(super) fn report_notices(&self) {
        for notice in self.sandbox.notices() {
            self.inputs.reporter.warn(notice);
        }
    }

    /// Prepares the sandbox for an iteration: one that may not be used again is replaced.
    pub(super) async fn prepare(&mut self, progress: &mut RunProgress<'_>) -> Result<(), RunError> {
        if self.used && self.inputs.spec.reuse == Reuse::Never {
            self.sandbox.close().await?;
            self.recreate(progress).await?;
        }
        self.used = true;
        self.sandbox.verify().await?;
        self.evidence.prepare(self.sandbox.image_digest()).await;
        Ok(())
    }

    /// Recovers from an error. A lost sandbox is created again from the checkpoint, so that the iteration can start
    /// over; any other fault of the provider pauses the run. `losses` counts those of this iteration.
    pub(super) async fn recover(
        &mut self,
        error: RunError,
        losses: u32,
        progress: &mut RunProgress<'_>,
    ) -> Result<(), Halt> {
        match sandbox_error_kind(&error) {
            Some(SandboxErrorKind::Lost | SandboxErrorKind::Unreachable) if losses <= MAX_LOSSES => {
                self.inputs.reporter.warn(format!(
                    "{}; creating a new sandbox from the checkpoint",
                    error_chain(&error)
                ));
                self.recreate_with_retries(progress).await
            }
            Some(SandboxErrorKind::DiskFull) => {
                self.is_over_disk_limit = true;
                Err(Halt::paused(with_hint(&error)))
            }
            Some(kind) if is_sandbox_fault(kind) => Err(Halt::paused(error_chain(&error))),
            _ => Err(Halt::Broken(error)),
        }
    }

    /// Removes the sandbox when the run is over; stops it when the run may go on and the sandbox may be used again.
    pub(super) async fn release(&self, kind: RunOutcomeKind) -> Result<(), RunError> {
        self.evidence.close().await;
        let released = match (kind, self.inputs.spec.reuse) {
            (RunOutcomeKind::Done | RunOutcomeKind::Failed, _) => return self.remove().await,
            (RunOutcomeKind::Paused | RunOutcomeKind::Stopped, Reuse::Allowed)
                if !self.is_over_disk_limit =>
            {
                self.sandbox.stop().await
            }
            (RunOutcomeKind::Paused | RunOutcomeKind::Stopped, _) => self.sandbox.close().await,
        };
        if let Err(error) = released {
            self.inputs
                .reporter
                .warn(format!("cannot stop the sandbox: {}", error_chain(&error)));
        }
        Ok(())
    }

    /// Removes the sandbox, and that for evidence.
    pub(super) async fn remove(&self) -> Result<(), RunError> {
        self.evidence.close().await;
        Ok(self.sandbox.close().await?)
    }

    async fn recreate_with_retries(&mut self, progress: &mut RunProgress<'_>) -> Result<(), Halt> {
        let (inputs, deadline) = (self.inputs, Instant::now() + RECREATE_TIMEOUT);
        loop {
            let Err(error) = self.recreate(progress).await else {
                return Ok(());
            };
            match sandbox_error_kind(&error) {
                // A container that is being removed still exists, and cannot be started.
                Some(SandboxErrorKind::Lost | SandboxErrorKind::Unreachable) if Instant::now() < deadline => {
                }
                Some(kind) if is_sandbox_fault(kind) => return Err(Halt::paused(error_chain(&error))),
                _ => return Err(Halt::Broken(error)),
            }
            tokio::select! {
                () = tokio::time::sleep(RECREATE_PAUSE) => {}
                halt = interventions::until_stopped(inputs) => return Err(halt),
            }
        }
    }

    async fn recreate(&mut self, progress: &mut RunProgress<'_>) -> Result<(), RunError> {
        self.evidence.close().await;
        self.sandbox = open_sandbox(self.inputs.parts, self.inputs.spec).await?;
        self.reset_clone(progress).await
    }

    /// A pack with what `commit` and `tree` reach beyond the base commit.
    async fn pack_since_base(&self, commit: &ObjectId, tree: &ObjectId) -> Result<SeedPack, RunError> {
        let dir = self.inputs.dir;
        let scratch = dir.seed_dir().join("since");
        if_exists(std::fs::remove_dir_all(&scratch)).map_err(StateError::io("remove", &scratch))?;
        let base = &dir.facts().base;
        Ok(SeedPack::create(&self.repo, &[commit, tree], &[base], &scratch).await?)
    }

    fn start_at(&self, commit: &ObjectId) -> CloneStart {
        CloneStart {
            branch: self.inputs.dir.facts().branch.clone(),
            commit: commit.clone(),
            identity: self.inputs.settings.identity.clone(),
            format: self.repo.object_format(),
        }
    }
}

/// Opens the sandbox of a run: the one it has, where it may be used again, or a new one.
pub(super) async fn open_sandbox(parts: &RunParts, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, RunError> {
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

/// The error that comes from the sandbox.
fn sandbox_error(error: &RunError) -> Option<&SandboxError> {
    match error {
        RunError::Sandbox(error) | RunError::Scm(ScmError::Sandbox(error)) => Some(error),
        _ => None,
    }
}

fn sandbox_error_kind(error: &RunError) -> Option<SandboxErrorKind> {
    sandbox_error(error).map(SandboxError::kind)
}

/// Whether a sandbox is gone, or does not answer.
pub(super) fn is_lost(error: &RunError) -> bool {
    let kind = sandbox_error_kind(error);
    matches!(kind, Some(SandboxErrorKind::Lost | SandboxErrorKind::Unreachable))
}

/// An error with what the user can do next.
fn with_hint(error: &RunError) -> String {
    let hint = sandbox_error(error).and_then(SandboxError::hint);
    let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{}{hint}", error_chain(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::tests::TestRun;

    async fn text(workplace: &Workplace<'_>, name: &str) -> Option<String> {
        let path = workplace.clone_dir().join(name);
        let bytes = workplace.sandbox().files().read(&path, 1 << 20).await.ok()?;
        Some(String::from_utf8(bytes).unwrap())
    }

    async fn write(workplace: &Workplace<'_>, name: &str) {
        let path = workplace.clone_dir().join(name);
        workplace
            .sandbox()
            .files()
            .write(&path, b"changed", 0o644)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_reset_clone_has_the_base_the_task_and_the_run_files() {
        let run = TestRun::new().await;
        let (mut progress, workplace) = (run.progress().await, run.workplace().await);
        progress.files.write("notes.md", "a note").unwrap();
        for _ in 0..2 {
            workplace.reset_clone(&mut progress).await.unwrap();
            assert_eq!(text(&workplace, "left.txt").await, None);
            assert_eq!(
                text(&workplace, "ralph_task.md").await,
                Some(progress.task_text())
            );
            assert_eq!(text(&workplace, ".ralph/notes.md").await.unwrap(), "a note");
            assert!(text(&workplace, "Makefile").await.unwrap().contains("true"));
            for name in ["left.txt", "Makefile", "ralph_task.md", ".ralph/notes.md"] {
                write(&workplace, name).await;
            }
        }
    }

    #[tokio::test]
    async fn a_sandbox_that_may_not_be_reused_is_replaced_before_the_next_iteration() {
        let mut run = TestRun::new().await;
        run.spec.reuse = Reuse::Never;
        let (mut progress, mut workplace) = (run.progress().await, run.workplace().await);
        workplace.reset_clone(&mut progress).await.unwrap();
        workplace.prepare(&mut progress).await.unwrap();
        write(&workplace, "left.txt").await;
        workplace.prepare(&mut progress).await.unwrap();
        assert_eq!(text(&workplace, "left.txt").await, None);
        assert!(text(&workplace, "Makefile").await.is_some());
    }

    #[tokio::test]
    async fn only_a_lost_sandbox_is_created_again_and_only_once_an_iteration() {
        let run = TestRun::new().await;
        let (mut progress, mut workplace) = (run.progress().await, run.workplace().await);
        let lost = || RunError::Sandbox(SandboxError::gone("s"));
        workplace.recover(lost(), 1, &mut progress).await.unwrap();
        assert!(text(&workplace, "Makefile").await.is_some());
        let twice = workplace.recover(lost(), 2, &mut progress).await;
        assert!(matches!(
            twice,
            Err(Halt::End {
                kind: RunOutcomeKind::Paused,
                ..
            })
        ));
        let other = RunError::NoProfile("p".to_owned());
        let other = workplace.recover(other, 1, &mut progress).await;
        assert!(matches!(other, Err(Halt::Broken(RunError::NoProfile(_)))));
    }

    #[tokio::test]
    async fn a_sandbox_over_its_disk_limit_is_not_kept_for_a_resume() {
        let run = TestRun::new().await;
        let (mut progress, mut workplace) = (run.progress().await, run.workplace().await);
        workplace.reset_clone(&mut progress).await.unwrap();
        let full = SandboxError::new(SandboxErrorKind::DiskFull, "too much").with_hint(Some("use less"));
        match workplace.recover(full.into(), 1, &mut progress).await {
            Err(Halt::End {
                kind: RunOutcomeKind::Paused,
                reason,
            }) => assert_eq!(reason, "too much (use less)"),
            other => panic!("{other:?}"),
        }
        workplace.release(RunOutcomeKind::Paused).await.unwrap();
        assert!(!workplace.clone_dir().exists());
    }

    #[tokio::test]
    async fn a_sandbox_is_removed_only_when_the_run_is_over() {
        let run = TestRun::new().await;
        let (mut progress, workplace) = (run.progress().await, run.workplace().await);
        workplace.reset_clone(&mut progress).await.unwrap();
        workplace.release(RunOutcomeKind::Paused).await.unwrap();
        assert!(workplace.clone_dir().exists());
        workplace.release(RunOutcomeKind::Done).await.unwrap();
        assert!(!workplace.clone_dir().exists());
    }
}
