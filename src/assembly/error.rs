//! What can go wrong while a run is assembled or driven, with its kind and what to do next.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::iter;
use std::path::Path;

use crate::config::ConfigError;
use crate::credential::{CredentialError, LoginError};
use crate::engine::EngineError;
use crate::evidence::{AttachError, EvidenceKeyError};
use crate::gateway::audit::AuditError;
use crate::gateway::broker::{BrokerError, UpstreamError};
use crate::gateway::meter::MeterError;
use crate::github::GitHubError;
use crate::id::{NameError, RunId};
use crate::image::ImageError;
use crate::model::{ModelError, ScriptError};
use crate::runner::RunError;
use crate::sandbox::docker::SealError;
use crate::sandbox::{SandboxError, SandboxErrorKind};
use crate::scm::ScmError;
use crate::state::StateError;
use crate::task::{LintSeverity, TaskError};
use crate::text::{counted, error_chain};

use super::{AssemblyReporter, ErrorTopic};

/// The hint of every error whose cause is a full disk.
const FULL_DISK: &str = "free some space on the disk, then run the same command again";

/// What kind of error it is: who can mend it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssemblyErrorKind {
    /// The configuration, the task or the call is wrong.
    Usage,
    /// Something failed: a program, a service, the disk.
    Runtime,
    /// The run waits for a person.
    Paused,
    /// The user interrupted it.
    Interrupted,
    /// What was named does not exist.
    NotFound,
    /// It cannot be done now: another process works on the run, or the run is done.
    Conflict,
}

/// Why a run cannot be assembled or driven.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct AssemblyError {
    kind: AssemblyErrorKind,
    topic: ErrorTopic,
    message: String,
    hint: Option<String>,
    findings: Vec<TaskError>,
}

impl AssemblyError {
    /// A mistake in the configuration, the task or the call.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(AssemblyErrorKind::Usage, ErrorTopic::Usage, message.into())
    }

    /// Something that failed.
    pub(crate) fn runtime(message: impl Into<String>) -> Self {
        Self::new(AssemblyErrorKind::Runtime, ErrorTopic::Run, message.into())
    }

    /// A run that waits for a person.
    pub(crate) fn paused(message: impl Into<String>) -> Self {
        Self::new(AssemblyErrorKind::Paused, ErrorTopic::Run, message.into())
    }

    /// Something that the user interrupted.
    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Self::new(
            AssemblyErrorKind::Interrupted,
            ErrorTopic::Interrupted,
            message.into(),
        )
    }

    /// Something that does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(AssemblyErrorKind::NotFound, ErrorTopic::Run, message.into())
    }

    /// Something that cannot be done now.
    #[cfg(feature = "store")]
    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(AssemblyErrorKind::Conflict, ErrorTopic::Run, message.into())
    }

    fn new(kind: AssemblyErrorKind, topic: ErrorTopic, message: String) -> Self {
        Self {
            kind,
            topic,
            message,
            hint: None,
            findings: Vec::new(),
        }
    }

    /// An error of another module, with its causes. A full disk decides what it is about, and what to do next.
    pub(crate) fn from_error(
        kind: AssemblyErrorKind,
        topic: ErrorTopic,
        error: &(dyn Error + 'static),
    ) -> Self {
        let message = error_chain(error);
        if is_full_disk(error) {
            Self::new(kind, ErrorTopic::Run, message).with_hint(FULL_DISK)
        } else {
            Self::new(kind, topic, message)
        }
    }

    /// The same error as the end of this run.
    pub(super) fn of_run(self, run: &RunId) -> Self {
        if self.hint() == Some(FULL_DISK) {
            self.with_hint(format!("free some space on the disk, then `ralph resume {run}`"))
        } else {
            self
        }
    }

    /// A task file with this many findings of the linter.
    pub(crate) fn invalid_task(path: &Path, findings: usize) -> Self {
        let message = format!(
            "the task file `{}` is not valid: {}",
            path.display(),
            counted(findings, "problem")
        );
        Self::usage(message)
            .with_topic(ErrorTopic::Task)
            .with_hint("correct the lines above, then `ralph lint` checks them; docs/guide/task-file.md explains each part")
    }

    /// There is no file at the path of the task.
    pub(crate) fn missing_task(path: &Path) -> Self {
        Self::usage(format!("there is no task file `{}`", path.display()))
            .with_topic(ErrorTopic::Task)
            .with_hint("`ralph init` writes one, or name another file")
    }

    /// Adds lines with details to the message.
    #[must_use]
    fn with_details(mut self, details: impl IntoIterator<Item = String>) -> Self {
        for detail in details {
            for line in detail.lines() {
                self.message.push_str("\n  ");
                self.message.push_str(line);
            }
        }
        self
    }

    /// Sets what it is about.
    #[must_use]
    pub(crate) fn with_topic(mut self, topic: ErrorTopic) -> Self {
        self.topic = topic;
        self
    }

    /// Sets what to do next.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets what to do next, unless that is known.
    pub(crate) fn with_hint_of(mut self, hint: Option<impl Display>) -> Self {
        self.hint = self.hint.or_else(|| hint.map(|hint| hint.to_string()));
        self
    }

    /// What kind of error it is.
    #[must_use]
    pub fn kind(&self) -> AssemblyErrorKind {
        self.kind
    }

    /// What it is about: the section of the documentation that explains it.
    #[must_use]
    pub fn topic(&self) -> ErrorTopic {
        self.topic
    }

    /// What to do next.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// What the linter found in the task.
    #[must_use]
    pub fn findings(&self) -> &[TaskError] {
        &self.findings
    }
}

/// Refuses a task file with errors. Reports the warnings of one without.
pub(crate) fn check_findings(
    path: &Path,
    findings: &[TaskError],
    reporter: &dyn AssemblyReporter,
) -> Result<(), AssemblyError> {
    let is_error = |finding: &&TaskError| finding.severity == LintSeverity::Error;
    let errors = findings.iter().filter(is_error).count();
    if errors > 0 {
        let details = findings.iter().map(|finding| describe_finding(path, finding));
        let mut error = AssemblyError::invalid_task(path, errors).with_details(details);
        error.findings = findings.to_vec();
        return Err(error);
    }
    for warning in findings {
        reporter.warn(&explain_finding(path, warning));
    }
    Ok(())
}

/// A finding of the linter for a person: severity, place, reason and fix.
pub(crate) fn describe_finding(path: &Path, finding: &TaskError) -> String {
    let finding_text = explain_finding(path, finding);
    match finding.severity {
        LintSeverity::Error => finding_text,
        LintSeverity::Warning => format!("warning: {finding_text}"),
    }
}

fn explain_finding(path: &Path, finding: &TaskError) -> String {
    let line = finding.line.map_or(String::new(), |line| format!(":{line}"));
    format!(
        "{}{line}: {}\n  fix: {}",
        path.display(),
        finding.reason,
        finding.fix
    )
}

/// For `map_err`: an I/O error with what was tried on which path.
pub(crate) fn io_error(operation: &str, path: &Path) -> impl FnOnce(io::Error) -> AssemblyError {
    let message = format!("cannot {operation} `{}`", path.display());
    move |error| AssemblyError::runtime(format!("{message}: {error}")).with_hint(io_hint(&error))
}

/// What to do about an I/O error on a path that the message names.
fn io_hint(error: &io::Error) -> &'static str {
    use io::ErrorKind::{
        AlreadyExists, IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem,
        StorageFull,
    };
    match error.kind() {
        StorageFull => FULL_DISK,
        NotFound => "check the path: a part of it does not exist",
        AlreadyExists | NotADirectory => "name another path: a part of this one is a file",
        IsADirectory => "name a file: this is a directory",
        PermissionDenied | ReadOnlyFilesystem => "check the permissions of the path, or name another one",
        _ => "check the path and its permissions",
    }
}

fn is_full_disk(error: &(dyn Error + 'static)) -> bool {
    iter::successors(Some(error), |&error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::StorageFull)
}

use AssemblyErrorKind::{Conflict, NotFound, Runtime, Usage};

/// Errors that always have the same kind and topic, and those of them that have a hint.
macro_rules! from_errors {
    ($($error:ty => $kind:ident, $topic:ident $(, $hint:ident)?;)*) => {
        $(impl From<$error> for AssemblyError {
            fn from(error: $error) -> Self {
                Self::from_error($kind, ErrorTopic::$topic, &error)$(.with_hint_of(error.$hint()))?
            }
        })*
    };
}

from_errors! {
    AuditError => Runtime, Network;
    BrokerError => Runtime, Credentials;
    ConfigError => Usage, Configuration, hint;
    CredentialError => Runtime, Credentials, hint;
    LoginError => Runtime, Credentials, hint;
    MeterError => Runtime, Budget;
    NameError => Usage, Configuration;
    ScriptError => Usage, Task;
    UpstreamError => Usage, Credentials, hint;
}

impl From<GitHubError> for AssemblyError {
    fn from(error: GitHubError) -> Self {
        let kind = match &error {
            GitHubError::AppKey(_) => Usage,
            _ => Runtime,
        };
        Self::from_error(kind, ErrorTopic::Forge, &error).with_hint_of(error.hint())
    }
}

impl From<TaskError> for AssemblyError {
    fn from(error: TaskError) -> Self {
        Self::from_error(Usage, ErrorTopic::Task, &error).with_hint_of(Some(error.fix))
    }
}

impl From<StateError> for AssemblyError {
    fn from(error: StateError) -> Self {
        let (kind, hint) = match &error {
            StateError::NoSuchRun { .. } => (NotFound, Some("`ralph status` lists the runs")),
            StateError::Owned { .. } => (
                Conflict,
                Some("`ralph stop RUN` ends it, `ralph logs -f RUN` shows it"),
            ),
            StateError::TakenOver { .. } => (
                Runtime,
                Some("nothing more is written here; the other process goes on from the last checkpoint"),
            ),
            StateError::NewerFormat { .. } => (Usage, Some("use the ralph that wrote it, or a newer one")),
            StateError::Corrupt { .. } => (
                Runtime,
                Some("the run's state ref in the repository still holds its last checkpoint"),
            ),
            StateError::Io { .. } | StateError::Encode { .. } => (Runtime, None),
        };
        Self::from_error(kind, ErrorTopic::Run, &error).with_hint_of(hint)
    }
}

impl From<ScmError> for AssemblyError {
    fn from(error: ScmError) -> Self {
        let kind = match &error {
            ScmError::NotARepository { .. }
            | ScmError::Incomplete { .. }
            | ScmError::UnusablePath(_)
            | ScmError::NotWritable { .. }
            | ScmError::UnknownRevision(_)
            | ScmError::BranchConflict { .. } => Usage,
            _ => Runtime,
        };
        let topic = match &error {
            ScmError::Refused(_) => ErrorTopic::HandBack,
            ScmError::PushRefused { .. } => ErrorTopic::Forge,
            ScmError::Sandbox(error) => sandbox_topic(error),
            _ => ErrorTopic::Repository,
        };
        Self::from_error(kind, topic, &error).with_hint_of(error.hint())
    }
}

impl From<EvidenceKeyError> for AssemblyError {
    fn from(error: EvidenceKeyError) -> Self {
        Self::from_error(Usage, ErrorTopic::Evidence, &error).with_hint_of(Some(error.hint()))
    }
}

impl From<SandboxError> for AssemblyError {
    fn from(error: SandboxError) -> Self {
        let (kind, fallback) = match error.kind() {
            SandboxErrorKind::Unavailable => {
                (Usage, Some("choose another provider; `local` works everywhere"))
            }
            SandboxErrorKind::Unsupported => {
                (Usage, Some("choose another provider, or ask less of this one"))
            }
            _ => (Runtime, None),
        };
        Self::from_error(kind, sandbox_topic(&error), &error).with_hint_of(error.hint().or(fallback))
    }
}

fn sandbox_topic(error: &SandboxError) -> ErrorTopic {
    if error.cause::<SealError>().is_some() {
        ErrorTopic::Network
    } else if error.cause::<EngineError>().is_some() {
        ErrorTopic::Engine
    } else {
        ErrorTopic::Sandbox
    }
}

impl From<ImageError> for AssemblyError {
    fn from(error: ImageError) -> Self {
        let kind = if error.is_user_error() { Usage } else { Runtime };
        let topic = match &error {
            ImageError::Engine(_) => ErrorTopic::Engine,
            ImageError::Nix(_) => ErrorTopic::Nix,
            ImageError::Other { .. } => ErrorTopic::Image,
        };
        Self::from_error(kind, topic, &error).with_hint_of(error.hint())
    }
}

impl From<EngineError> for AssemblyError {
    fn from(error: EngineError) -> Self {
        ImageError::from(error).into()
    }
}

#[cfg(feature = "store")]
impl From<crate::store::StoreError> for AssemblyError {
    fn from(error: crate::store::StoreError) -> Self {
        use crate::store::StoreError;
        let kind = match &error {
            StoreError::Address { .. } | StoreError::NewerFormat { .. } | StoreError::Label { .. } => Usage,
            StoreError::Directory { .. }
            | StoreError::Open { .. }
            | StoreError::Statement { .. }
            | StoreError::Row { .. } => Runtime,
        };
        Self::from_error(kind, ErrorTopic::Store, &error).with_hint_of(error.hint())
    }
}

impl From<RunError> for AssemblyError {
    fn from(error: RunError) -> Self {
        let topic = match error {
            RunError::State(error) => return error.into(),
            RunError::Sandbox(error) => return error.into(),
            RunError::Scm(error) | RunError::Evidence(AttachError::Scm(error)) => return error.into(),
            RunError::Task(error) => return error.into(),
            RunError::StateRefGone { .. } => ErrorTopic::Repository,
            RunError::NotReady(_) => ErrorTopic::NotReady,
            RunError::Forge(_) => ErrorTopic::Forge,
            RunError::Template(_)
            | RunError::Prompt(_)
            | RunError::Model(ModelError::ScriptExhausted { .. }) => ErrorTopic::Task,
            RunError::Model(_) | RunError::NoProfile(_) => ErrorTopic::Model,
            RunError::Meter(_) => ErrorTopic::Budget,
            RunError::Evidence(AttachError::Encode(_)) => ErrorTopic::Evidence,
            RunError::Refused(_) => ErrorTopic::Run,
        };
        let hint = match &error {
            RunError::StateRefGone { .. } => {
                Some("fetch it from where it was pushed to, or `ralph run` the task again".to_owned())
            }
            RunError::NotReady(lacks) => {
                let steps: Vec<&str> = lacks.iter().map(|lack| lack.next_step.as_str()).collect();
                Some(steps.join("; "))
            }
            RunError::Forge(error) => error.hint().map(|hint| hint.to_string()),
            RunError::Model(error) => Some(error.hint().to_owned()),
            _ => None,
        };
        Self::from_error(Runtime, topic, &error).with_hint_of(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> io::Error {
        io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error())
    }

    #[test]
    fn a_full_disk_has_one_hint_whatever_failed() {
        let sandbox = SandboxError::host("write", Path::new("f"), full()).with_hint(Some("another one"));
        let run = RunId::parse("r7k2m9xq4").unwrap();
        let again = "free some space on the disk, then run the same command again";
        let resume = "free some space on the disk, then `ralph resume r7k2m9xq4`";
        for error in [
            AssemblyError::from(RunError::from(sandbox)),
            io_error("write", Path::new("f"))(full()),
        ] {
            assert!(error.to_string().contains("No space left on device"), "{error}");
            assert_eq!(
                (error.hint(), error.topic()),
                (Some(again), ErrorTopic::Run),
                "{error}"
            );
            assert_eq!(error.of_run(&run).hint(), Some(resume));
        }
        let other = AssemblyError::from(SandboxError::gone("s"));
        assert_eq!(other.hint(), SandboxError::gone("s").hint());
        assert_eq!(other.topic(), ErrorTopic::Sandbox);
    }
}
