//! Exit codes, and the errors of commands.

/// An error of a command. Its kind decides the exit code.
pub(super) use crate::assembly::AssemblyError as CliError;
pub(super) use crate::assembly::{ErrorTopic, io_error};

/// The result of a command: its exit code, or why it failed.
pub(super) type CliResult = Result<CliExit, CliError>;

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum CliExit {
    /// The command succeeded.
    Success = 0,
    /// The command failed.
    Failure = 1,
    /// The arguments, the configuration or the task are wrong.
    Usage = 2,
    /// The run waits for a person.
    Paused = 3,
    /// Ctrl-C ended the command, as shells report it.
    Interrupted = 130,
}

/// A directory that is removed when it is dropped.
pub(super) fn temp_dir() -> Result<tempfile::TempDir, CliError> {
    tempfile::Builder::new()
        .prefix("ralph-")
        .tempdir()
        .map_err(|error| {
            CliError::runtime(format!("cannot create a temporary directory: {error}"))
                .with_topic(ErrorTopic::Configuration)
                .with_hint("set TMPDIR to a directory that you can write to, on a disk with free space")
        })
}
