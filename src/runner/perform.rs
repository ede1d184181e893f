//! Performing the actions of an answer, in order, in the clone. The first that fails ends the list.

use crate::text::error_chain;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::agent::actions::{AgentAction, Patch, PatchedFile, RelPath};
use crate::event::EventKind;
use crate::exec::{Command, Discard, Exit};
use crate::sandbox::{Sandbox, SandboxError, SandboxErrorKind};
use crate::scm::PrivateClone;
use crate::secret::Redactor;
use crate::state::CommandFailure;

use super::gutter;
use super::report::Reporter;
use super::text;

/// How long a command may run that names no time of its own.
const RUN_TIMEOUT: Duration = Duration::from_secs(600);
/// The largest file a patch is applied to.
const LARGEST_FILE: u64 = 16 * 1024 * 1024;
/// How much of a command's output is kept in `actions.jsonl` and `errors.log`.
const OUTPUT_KEPT: usize = 4000;

/// Where actions are performed.
pub(super) struct Bench<'a> {
    pub(super) sandbox: &'a dyn Sandbox,
    pub(super) clone: &'a PrivateClone<'a>,
    pub(super) reporter: &'a Reporter,
    pub(super) redactor: &'a Redactor,
    /// Variables that commands see.
    pub(super) env: &'a BTreeMap<String, String>,
}

/// What came of performing.
#[derive(Debug, Default)]
pub(super) struct Performed {
    /// One JSON object per action, for `actions.jsonl`.
    pub(super) log: Vec<serde_json::Value>,
    /// What failed, for the loop score.
    pub(super) failures: Vec<CommandFailure>,
    /// What failed, for the next prompt.
    pub(super) errors: Vec<String>,
}

/// How one action went.
enum Went {
    Well(serde_json::Value),
    Wrong { reason: String, failure: CommandFailure },
}

impl Bench<'_> {
    /// Performs the actions until one fails. Only a sandbox that fails is an error.
    pub(super) async fn perform(
        &self,
        actions: &[AgentAction],
        performed: &mut Performed,
    ) -> Result<bool, SandboxError> {
        for action in actions {
            let started = Instant::now();
            let went = self.act(action).await?;
            let seconds = (started.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
            let what = self.redactor.redact(&action.to_string());
            match went {
                Went::Well(detail) => {
                    performed
                        .log
                        .push(json!({"action": action, "ok": true, "seconds": seconds, "detail": detail}));
                    self.reporter.emit(EventKind::Action { what, failed: None });
                }
                Went::Wrong { reason, failure } => {
                    performed
                        .log
                        .push(json!({"action": action, "ok": false, "seconds": seconds, "detail": reason}));
                    self.reporter.emit(EventKind::Action {
                        what: what.clone(),
                        failed: Some(first_line(&reason)),
                    });
                    performed.errors.push(format!("{what}: {reason}"));
                    performed.failures.push(failure);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    async fn act(&self, action: &AgentAction) -> Result<Went, SandboxError> {
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
            // The endings are not performed: the session turned them into the iteration's ending.
            AgentAction::Rotate { .. }
            | AgentAction::Pause { .. }
            | AgentAction::StopSuccess { .. }
            | AgentAction::StopFailure { .. } => Ok(Went::Well(json!("ends the iteration"))),
        }
    }

    async fn run(
        &self,
        line: &str,
        cwd: Option<&RelPath>,
        timeout_s: Option<u64>,
    ) -> Result<Went, SandboxError> {
        let root = self.clone.dir();
        let dir = cwd.map_or(root.to_owned(), |dir| root.join(dir.as_path()));
        let timeout = timeout_s.map_or(RUN_TIMEOUT, Duration::from_secs);
        let command = Command::shell(line).cwd(dir).timeout(timeout).envs(self.env);
        let exit = match self.sandbox.exec(&command, &mut self.reporter.lines()).await {
            Ok(exit) => exit,
            Err(error) => match error.kind() {
                SandboxErrorKind::NotStarted | SandboxErrorKind::File => {
                    return Ok(wrong(line, error_chain(&error)));
                }
                _ => return Err(error),
            },
        };
        let output = output_of(&exit, self.redactor);
        if exit.success() {
            return Ok(Went::Well(
                json!({"status": exit.status.to_string(), "output": output}),
            ));
        }
        let failure = gutter::failure(line, &exit, self.sandbox);
        Ok(Went::Wrong {
            reason: format!("{}\n{output}", exit.status),
            failure,
        })
    }

    async fn patch(&self, path: &RelPath, diff: &Patch) -> Result<Went, SandboxError> {
        let target = match self.target(path).await? {
            Ok(target) => target,
            Err(went) => return Ok(went),
        };
        let old = match self.sandbox.files().read(&target, LARGEST_FILE).await {
            Ok(bytes) => Some(bytes),
            Err(error) if error.is_not_found() => None,
            Err(error) => return refused("patch", error),
        };
        match diff.apply(old.as_deref()) {
            Ok(PatchedFile::Content(new)) => self.store(&target, &new).await,
            Ok(PatchedFile::Deleted) => match self.sandbox.files().remove(&target).await {
                Ok(()) => Ok(Went::Well(json!("removed"))),
                Err(error) => refused("patch", error),
            },
            Err(error) => Ok(wrong("patch", error.to_string())),
        }
    }

    async fn write(&self, path: &RelPath, append: bool, content: &str) -> Result<Went, SandboxError> {
        let target = match self.target(path).await? {
            Ok(target) => target,
            Err(went) => return Ok(went),
        };
        if !append {
            return self.store(&target, content.as_bytes()).await;
        }
        match self.sandbox.files().append(&target, content.as_bytes()).await {
            Ok(()) => Ok(Went::Well(json!({"appended": content.len()}))),
            Err(error) => refused("write", error),
        }
    }

    async fn store(&self, target: &Path, bytes: &[u8]) -> Result<Went, SandboxError> {
        let mode = self.mode_of(target).await.unwrap_or(0o644);
        match self.sandbox.files().write(target, bytes, mode).await {
            Ok(()) => Ok(Went::Well(json!({"written": bytes.len()}))),
            Err(error) => refused("write", error),
        }
    }

    /// The permission bits of a file that is there, so that a script stays executable.
    async fn mode_of(&self, target: &Path) -> Option<u32> {
        let entries = self.sandbox.files().list(target.parent()?).await.ok()?;
        let name = target.file_name()?.to_str()?;
        entries
            .into_iter()
            .find(|entry| entry.name == name)
            .map(|entry| entry.mode & 0o777)
    }

    async fn commit(&self, message: &str, paths: &[RelPath]) -> Result<Went, SandboxError> {
        let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
        match self.clone.commit(message, &paths).await {
            Ok(Some(commit)) => Ok(Went::Well(json!({"commit": commit}))),
            Ok(None) => Ok(wrong("commit", "there is nothing to commit".to_owned())),
            Err(error) => Ok(wrong("commit", error_chain(&error))),
        }
    }

    /// The file an action means, once it is sure that no link leads elsewhere.
    async fn target(&self, path: &RelPath) -> Result<Result<PathBuf, Went>, SandboxError> {
        let mut args = vec!["-c".to_owned(), LINK_CHECK.to_owned(), "sh".to_owned()];
        let mut prefix = String::new();
        for part in path.as_str().split('/') {
            prefix.push_str(if prefix.is_empty() { "./" } else { "/" });
            prefix.push_str(part);
            args.push(prefix.clone());
        }
        let check = Command::new("sh").args(args).cwd(self.clone.dir());
        let exit = self.sandbox.exec(&check, &mut Discard).await?;
        if exit.success() {
            return Ok(Ok(self.clone.dir().join(path.as_path())));
        }
        let link = exit.stdout.text();
        Ok(Err(wrong(
            "path",
            format!("`{}` is a symbolic link; write to the file itself", link.trim()),
        )))
    }
}

/// Names the first argument that is a symbolic link.
const LINK_CHECK: &str = r#"for p; do if [ -L "$p" ]; then printf '%s' "$p"; exit 3; fi; done"#;

fn wrong(what: &str, reason: String) -> Went {
    let failure = gutter::failure_of_text(what, 1, &reason);
    Went::Wrong { reason, failure }
}

/// A file operation that the sandbox refused is the action's failure; a sandbox that is gone is the run's.
fn refused(what: &str, error: SandboxError) -> Result<Went, SandboxError> {
    match error.kind() {
        SandboxErrorKind::NotStarted
        | SandboxErrorKind::File
        | SandboxErrorKind::TooLong
        | SandboxErrorKind::Host
        | SandboxErrorKind::Unsupported => Ok(wrong(what, error_chain(&error))),
        SandboxErrorKind::Lost
        | SandboxErrorKind::Unreachable
        | SandboxErrorKind::Unavailable
        | SandboxErrorKind::Failed => Err(error),
    }
}

/// Both streams, shortened, for people and for the next prompt.
pub(super) fn output_of(exit: &Exit, redactor: &Redactor) -> String {
    let (stdout, stderr) = (exit.stdout.redacted(redactor), exit.stderr.redacted(redactor));
    let text = match (stdout.trim().is_empty(), stderr.trim().is_empty()) {
        (true, _) => stderr,
        (_, true) => stdout,
        _ => format!("{}\n--- stderr ---\n{stderr}", stdout.trim_end()),
    };
    let text = text.trim_end();
    match text::end(text, OUTPUT_KEPT) {
        whole if whole.len() == text.len() => whole.to_owned(),
        kept => format!("[... {} bytes cut ...]\n{kept}", text.len() - kept.len()),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
