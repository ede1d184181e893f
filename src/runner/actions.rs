//! The actions of a model's answer, performed in the clone one after another. The first failure ends the list.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::agent::actions::{AgentAction, Patch, PatchedFile, RelPath};
use crate::event::EventKind;
use crate::exec::{Command, Discard, Exit, ExitStatus};
use crate::sandbox::{Sandbox, SandboxError, SandboxErrorKind};
use crate::scm::{PrivateClone, ScmError};
use crate::secret::Redactor;
use crate::state::CommandFailure;
use crate::text::{counted, error_chain, last_bytes};

use super::RunInputs;
use super::error::is_sandbox_fault;
use super::gutter;

/// Timeout of a command that names none.
const RUN_TIMEOUT: Duration = Duration::from_secs(600);
/// The largest file that can be patched, in bytes.
const MAX_FILE: u64 = 16 * 1024 * 1024;
/// How much of a command's output `actions.jsonl` and `errors.log` keep, in bytes.
const MAX_OUTPUT: usize = 4000;

/// Performs actions in a clone.
pub(super) struct Performer<'a> {
    pub(super) inputs: RunInputs<'a>,
    pub(super) sandbox: &'a dyn Sandbox,
    pub(super) clone: &'a PrivateClone<'a>,
}

/// The actions of an iteration and what failed in it.
#[derive(Debug, Default)]
pub(super) struct ActionsLog {
    /// One JSON object per action, for `actions.jsonl`.
    pub(super) lines: Vec<serde_json::Value>,
    /// How many actions an agent program reported. They have no line of their own.
    pub(super) reported: u32,
    /// One line per action, for `activity.log`, until it is written there.
    pub(super) activity: Vec<String>,
    /// Failures, for the loop score.
    pub(super) failures: Vec<CommandFailure>,
    /// Failures as text, for the next prompt.
    pub(super) errors: Vec<String>,
}

impl ActionsLog {
    /// Adds a failure: for the loop score, and as text for the next prompt.
    pub(super) fn fail(&mut self, failure: CommandFailure, error: String) {
        self.failures.push(failure);
        self.errors.push(error);
    }
}

/// The details of an action that succeeded, for `actions.jsonl`, or why it did not.
type ActionResult = Result<serde_json::Value, ActionError>;

/// Why an action did not succeed.
enum ActionError {
    /// It failed.
    Failed { reason: String, failure: CommandFailure },
    /// The sandbox failed, which ends the run.
    Sandbox(SandboxError),
}

impl From<SandboxError> for ActionError {
    fn from(error: SandboxError) -> Self {
        Self::Sandbox(error)
    }
}

impl Performer<'_> {
    /// Performs actions until one fails, and returns whether all succeeded. Only a failing sandbox is an error.
    pub(super) async fn perform(
        &self,
        actions: &[AgentAction],
        log: &mut ActionsLog,
    ) -> Result<bool, SandboxError> {
        for action in actions {
            let (started, what) = (
                Instant::now(),
                self.inputs.parts.redactor.redact(&action.to_string()),
            );
            self.inputs
                .reporter
                .emit(EventKind::ActionStarted { what: what.clone() });
            let (detail, failed) = match self.perform_one(action).await {
                Ok(detail) => (detail, None),
                Err(ActionError::Failed { reason, failure }) => (json!(reason), Some((reason, failure))),
                Err(ActionError::Sandbox(error)) => return Err(error),
            };
            let seconds = (started.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
            let ok = failed.is_none();
            log.lines
                .push(json!({"action": action, "ok": ok, "seconds": seconds, "detail": detail}));
            let first_line = |reason: &str| reason.lines().next().unwrap_or("failed").to_owned();
            let failure = failed.as_ref().map(|(reason, _)| first_line(reason));
            let end = failure.as_deref().unwrap_or("ok");
            log.activity.push(format!("action: {what}: {end}, {seconds} s"));
            self.inputs.reporter.emit(EventKind::Action {
                what: what.clone(),
                seconds: Some(seconds),
                failed: failure,
            });
            if let Some((reason, failure)) = failed {
                log.fail(failure, format!("{what}: {reason}"));
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn perform_one(&self, action: &AgentAction) -> ActionResult {
        match action {
            AgentAction::Run {
                command,
                cwd,
                timeout_s,
            } => self.run(command, cwd.as_ref(), *timeout_s).await,
            AgentAction::Patch { path, patch } => self.patch(path, patch).await,
            AgentAction::Write {
                path,
                append,
                content,
            } => self.write(path, *append, content).await,
            AgentAction::Commit { message, paths } => self.commit(message, paths).await,
            // The session has already turned these into the end of the iteration.
            AgentAction::Rotate { .. }
            | AgentAction::Pause { .. }
            | AgentAction::StopSuccess { .. }
            | AgentAction::StopFailure { .. } => Ok(json!("ends the iteration")),
        }
    }

    async fn run(&self, line: &str, cwd: Option<&RelPath>, timeout_s: Option<u64>) -> ActionResult {
        let root = self.clone.dir();
        let dir = cwd.map_or(root.to_owned(), |dir| root.join(dir.as_path()));
        let timeout = timeout_s.map_or(RUN_TIMEOUT, Duration::from_secs);
        let command = Command::shell(line)
            .cwd(dir)
            .timeout(timeout)
            .envs(&self.inputs.settings.agent_env);
        let mut lines = self.inputs.reporter.lines();
        let exit = self.sandbox.exec(&command, &mut lines).await;
        let exit = exit.map_err(|error| match error.kind() {
            SandboxErrorKind::NotStarted | SandboxErrorKind::File => failed(line, error_chain(&error)),
            _ => error.into(),
        })?;
        let output = output_text(&exit, &self.inputs.parts.redactor);
        if exit.success() {
            return Ok(json!({"status": exit.status.to_string(), "output": output}));
        }
        Err(ActionError::Failed {
            reason: format!("{}\n{output}", exit.status),
            failure: gutter::command_failure(line, &exit, self.sandbox),
        })
    }

    async fn patch(&self, path: &RelPath, diff: &Patch) -> ActionResult {
        let target = self.target(path).await?;
        let old = match self.sandbox.files().read(&target, MAX_FILE).await {
            Ok(bytes) => Some(bytes),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(sandbox_failure("patch", error)),
        };
        match diff.apply(old.as_deref()) {
            Ok(PatchedFile::Content(new)) => self.store(&target, &new).await,
            Ok(PatchedFile::Deleted) => {
                let removed = self.sandbox.files().remove(&target).await;
                removed.map_err(|error| sandbox_failure("patch", error))?;
                Ok(json!("removed"))
            }
            Err(error) => Err(failed("patch", error.to_string())),
        }
    }

    async fn write(&self, path: &RelPath, append: bool, content: &str) -> ActionResult {
        let target = self.target(path).await?;
        if !append {
            return self.store(&target, content.as_bytes()).await;
        }
        let appended = self.sandbox.files().append(&target, content.as_bytes()).await;
        appended.map_err(|error| sandbox_failure("write", error))?;
        Ok(json!({"appended": content.len()}))
    }

    async fn store(&self, target: &Path, bytes: &[u8]) -> ActionResult {
        let mode = self.mode_of(target).await.unwrap_or(0o644);
        let written = self.sandbox.files().write(target, bytes, mode).await;
        written.map_err(|error| sandbox_failure("write", error))?;
        Ok(json!({"written": bytes.len()}))
    }

    /// The permission bits of an existing file, so that a script stays executable.
    async fn mode_of(&self, target: &Path) -> Option<u32> {
        // The parent of a new file may not exist yet. A sandbox that failed also fails the write that follows.
        let entries = self.sandbox.files().list(target.parent()?).await.ok()?;
        let name = target.file_name()?.to_str()?;
        let entry = entries.into_iter().find(|entry| entry.name == name)?;
        Some(entry.mode & 0o777)
    }

    async fn commit(&self, message: &str, paths: &[RelPath]) -> ActionResult {
        let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
        match self.clone.commit(message, &paths).await {
            Ok(Some(commit)) => Ok(json!({"commit": commit})),
            Ok(None) => Err(failed("commit", "nothing to commit".to_owned())),
            Err(ScmError::Sandbox(error)) => Err(sandbox_failure("commit", error)),
            Err(error) => Err(failed("commit", error_chain(&error))),
        }
    }

    /// The absolute path of an action's file, after a check that no part of it is a symbolic link.
    async fn target(&self, path: &RelPath) -> Result<PathBuf, ActionError> {
        let mut args = vec!["-c".to_owned(), LINK_CHECK.to_owned(), "sh".to_owned()];
        let mut prefix = String::new();
        for part in path.as_str().split('/') {
            prefix.push_str(if prefix.is_empty() { "./" } else { "/" });
            prefix.push_str(part);
            args.push(prefix.clone());
        }
        let check = Command::new("sh").args(args).cwd(self.clone.dir());
        let exit = self.sandbox.exec(&check, &mut Discard).await;
        // An agent may have removed the clone, which is no fault of the sandbox.
        let exit = exit.map_err(|error| sandbox_failure("path", error))?;
        match exit.status {
            status if status.success() => Ok(self.clone.dir().join(path.as_path())),
            LINK_FOUND => {
                let link = exit.stdout.text();
                let link = link.trim();
                Err(failed(
                    "path",
                    format!("`{link}` is a symbolic link; write to the file itself"),
                ))
            }
            status => {
                let output = output_text(&exit, &self.inputs.parts.redactor);
                let reason = format!("cannot look for symbolic links in `{path}`: {status}\n{output}");
                Err(failed("path", reason))
            }
        }
    }
}

/// Prints the first argument that is a symbolic link and exits as [`LINK_FOUND`] says.
const LINK_CHECK: &str = r#"for p; do if [ -L "$p" ]; then printf '%s' "$p"; exit 3; fi; done"#;
const LINK_FOUND: ExitStatus = ExitStatus::Code(3);

fn failed(what: &str, reason: String) -> ActionError {
    let failure = gutter::text_failure(what, 1, &reason);
    ActionError::Failed { reason, failure }
}

/// A refused operation fails the action; a sandbox that is gone fails the run.
fn sandbox_failure(what: &str, error: SandboxError) -> ActionError {
    if is_sandbox_fault(error.kind()) {
        return error.into();
    }
    failed(what, error_chain(&error))
}

/// Both output streams, shortened, for people and for the next prompt.
pub(super) fn output_text(exit: &Exit, redactor: &Redactor) -> String {
    let (stdout, stderr) = (exit.stdout.redacted(redactor), exit.stderr.redacted(redactor));
    let text = match (stdout.trim().is_empty(), stderr.trim().is_empty()) {
        (true, _) => stderr,
        (_, true) => stdout,
        _ => format!("{}\n--- stderr ---\n{stderr}", stdout.trim_end()),
    };
    let text = text.trim_end();
    match last_bytes(text, MAX_OUTPUT) {
        whole if whole.len() == text.len() => whole.to_owned(),
        kept => format!(
            "[... {} cut ...]\n{kept}",
            counted(text.len() - kept.len(), "byte")
        ),
    }
}
