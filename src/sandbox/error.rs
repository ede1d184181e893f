//! Why a sandbox operation failed.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;

use super::session::SessionError;
use crate::id::RunId;
use crate::text::error_chain;

/// Why a sandbox operation failed. A command that exits with an error is not a `SandboxError` but an
/// [`Exit`](crate::exec::Exit).
///
/// Providers describe their own errors as the cause; callers decide by [`SandboxError::kind`].
#[derive(Debug)]
pub struct SandboxError {
    kind: SandboxErrorKind,
    /// Without a message the error reads like its cause.
    message: Option<String>,
    hint: Option<Cow<'static, str>>,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

/// What a [`SandboxError`] means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxErrorKind {
    /// The provider cannot be used on this host until a person installs or configures something.
    Unavailable,
    /// The provider cannot do what was asked, here or anywhere.
    Unsupported,
    /// The provider failed, and would fail again until a person acts.
    Failed,
    /// The sandbox used too much disk space. It would again exceed its limit at the next command, so it must be replaced.
    DiskFull,
    /// The engine or service behind the sandbox does not answer. A later attempt may succeed.
    Unreachable,
    /// The sandbox was removed, stopped or cannot be controlled any more. A new one may work.
    Lost,
    /// A command could not be started, for example because the program does not exist.
    NotStarted,
    /// A file operation inside the sandbox failed, or its path leads out of the sandbox.
    File,
    /// A file is longer than the limit of the caller.
    TooLong,
    /// An operation on the host failed.
    Host,
}

impl SandboxError {
    /// An error with a message of its own.
    #[must_use]
    pub fn new(kind: SandboxErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: Some(message.into()),
            hint: None,
            cause: None,
        }
    }

    /// An error that reads like its cause.
    #[must_use]
    pub fn from_cause(kind: SandboxErrorKind, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            kind,
            message: None,
            hint: None,
            cause: Some(cause.into()),
        }
    }

    /// Adds the error that led to this one.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Sets or clears what the user can do next.
    #[must_use]
    pub fn with_hint(mut self, hint: Option<impl Into<Cow<'static, str>>>) -> Self {
        self.hint = hint.map(Into::into);
        self
    }

    /// The provider cannot be used on this host.
    #[must_use]
    pub fn unavailable(provider: &str, reason: impl fmt::Display) -> Self {
        let message = format!("cannot use the `{provider}` provider: {reason}");
        Self::new(SandboxErrorKind::Unavailable, message)
    }

    /// No name is left for a sandbox of this run.
    pub(super) fn names_are_taken(provider: &str, run: &RunId) -> Self {
        Self::unavailable(
            provider,
            format!("all names for a sandbox of run {run} are taken"),
        )
    }

    /// The image of a spec does not exist. `None` is an empty name.
    pub(super) fn missing_image(image: Option<&str>) -> Self {
        let message = format!("the image `{}` does not exist", image.unwrap_or_default());
        Self::new(SandboxErrorKind::Failed, message)
            .with_hint(Some("check the name of the image, or pull or build it first"))
    }

    /// The provider cannot do what was asked. `operation` completes "the provider cannot …".
    #[must_use]
    pub fn unsupported(provider: &str, operation: &str, reason: impl fmt::Display) -> Self {
        let message = format!("the `{provider}` provider cannot {operation}: {reason}");
        Self::new(SandboxErrorKind::Unsupported, message)
    }

    /// The sandbox was removed.
    #[must_use]
    pub fn gone(sandbox: &str) -> Self {
        let message = format!("the sandbox `{sandbox}` is gone");
        Self::new(SandboxErrorKind::Lost, message).with_hint(Some(RESUME))
    }

    /// The sandbox ended by itself.
    #[must_use]
    pub fn lost(sandbox: &str, reason: impl fmt::Display) -> Self {
        let message = format!("the sandbox `{sandbox}` was lost: {reason}");
        Self::new(SandboxErrorKind::Lost, message).with_hint(Some(RESUME))
    }

    /// The sandbox is stopped and runs no commands.
    #[must_use]
    pub fn stopped(sandbox: &str) -> Self {
        Self::new(
            SandboxErrorKind::Lost,
            format!("the sandbox `{sandbox}` is stopped"),
        )
    }

    /// The connection to the guest broke while a command ran.
    pub(super) fn session(sandbox: &str, cause: SessionError) -> Self {
        let message = format!("lost the warm session with the sandbox `{sandbox}`");
        let hint = cause.hint();
        Self::new(SandboxErrorKind::Lost, message)
            .with_cause(cause)
            .with_hint(hint)
    }

    /// A command could not be started.
    #[must_use]
    pub fn not_started(program: &str, cause: io::Error) -> Self {
        let message = format!("cannot start `{program}` in the sandbox");
        Self::new(SandboxErrorKind::NotStarted, message).with_cause(cause)
    }

    /// The processes of a sandbox could not be watched or ended.
    #[must_use]
    pub fn processes(sandbox: &str, cause: io::Error) -> Self {
        let message = format!("cannot control the processes in the sandbox `{sandbox}`");
        Self::new(SandboxErrorKind::Host, message).with_cause(cause)
    }

    /// A file operation in the sandbox failed. `operation` completes "cannot …".
    #[must_use]
    pub fn file(operation: &str, path: &Path, cause: io::Error) -> Self {
        let message = format!("cannot {operation} `{}` in the sandbox", path.display());
        Self::new(SandboxErrorKind::File, message).with_cause(cause)
    }

    /// A path leads out of the sandbox, by itself or through a symlink.
    #[must_use]
    pub fn outside(path: &Path) -> Self {
        let message = format!("`{}` leads out of the sandbox", path.display());
        Self::new(SandboxErrorKind::File, message)
    }

    /// A file in the sandbox is longer than the limit in bytes.
    #[must_use]
    pub fn too_long(path: &Path, limit: u64) -> Self {
        let message = format!("`{}` in the sandbox is longer than {limit} bytes", path.display());
        Self::new(SandboxErrorKind::TooLong, message)
    }

    /// A file operation on the host failed. `operation` completes "cannot …".
    #[must_use]
    pub fn host(operation: &str, path: &Path, cause: io::Error) -> Self {
        let message = format!("cannot {operation} `{}` on the host", path.display());
        Self::new(SandboxErrorKind::Host, message).with_cause(cause)
    }

    /// What the error means for the caller.
    #[must_use]
    pub fn kind(&self) -> SandboxErrorKind {
        self.kind
    }

    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The error that led to this one, if it is of type `T`.
    #[must_use]
    pub fn cause<T: Error + 'static>(&self) -> Option<&T> {
        self.cause.as_ref()?.downcast_ref()
    }

    /// Whether a file or directory in the sandbox does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.kind == SandboxErrorKind::File
            && self
                .cause::<io::Error>()
                .is_some_and(|cause| cause.kind() == io::ErrorKind::NotFound)
    }
}

/// The hint for a sandbox that has to be replaced.
pub(super) const RESUME: &str = "`ralph resume` creates a new sandbox from the last checkpoint of the run";

impl fmt::Display for SandboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.message, &self.cause) {
            (Some(message), _) => f.write_str(message),
            (None, Some(cause)) => cause.fmt(f),
            (None, None) => f.write_str("the sandbox failed"),
        }
    }
}

impl Error for SandboxError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let cause = self.cause.as_deref()?;
        match self.message {
            Some(_) => Some(cause),
            None => cause.source(),
        }
    }
}

/// Logs a failed removal after another error, which is the one to report.
pub(super) fn warn_not_removed(sandbox: &str, removed: Result<(), impl Error + 'static>) {
    if let Err(error) = removed {
        tracing::warn!(sandbox, error = %error_chain(&error), "cannot remove a sandbox after an error");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_message_it_reads_like_its_cause() {
        let cause = io::Error::new(
            io::ErrorKind::NotFound,
            SessionError::from(io::Error::other("eof")),
        );
        let error = SandboxError::from_cause(SandboxErrorKind::Failed, cause);
        assert_eq!(
            error.to_string(),
            "lost the connection to the guest in the sandbox"
        );
        assert_eq!(error.source().unwrap().to_string(), "eof");
        assert!(error.cause::<io::Error>().is_some());
        assert!(!error.is_not_found());
    }
}
