//! What can go wrong with a sandbox.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::daytona::DaytonaError;
use super::docker::{SealError, Unshared};
use super::session::SessionError;
use crate::engine::EngineError;

/// What can go wrong with a sandbox. A command that fails is not among them: that is an `Exit`.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// The provider cannot be used here.
    #[error("the `{provider}` provider cannot be used here: {reason}")]
    Unavailable {
        /// The provider.
        provider: &'static str,
        /// What is missing.
        reason: String,
    },
    /// The provider cannot do this at all.
    #[error("the `{provider}` provider cannot {operation}: {reason}")]
    Unsupported {
        /// The provider.
        provider: &'static str,
        /// What was asked.
        operation: &'static str,
        /// Why it cannot.
        reason: String,
    },
    /// The engine's containers cannot have a workspace of this machine.
    #[error("the `docker` provider cannot share a workspace with the containers of this engine")]
    Unshared {
        /// Why.
        #[from]
        source: Unshared,
    },
    /// The sandbox is gone: removed by hand, or its host went away. The run makes a new one from its checkpoint.
    #[error("the sandbox `{id}` is gone")]
    Gone {
        /// Which one.
        id: String,
    },
    /// The sandbox stopped by itself, or whatever it runs on went away. The run makes a new one from its checkpoint.
    #[error("the sandbox `{id}` was lost: {reason}")]
    Lost {
        /// Which one.
        id: String,
        /// What became of it.
        reason: String,
    },
    /// The container engine failed it.
    #[error("the container engine failed the sandbox `{id}`")]
    Engine {
        /// Which one.
        id: String,
        /// What the engine said.
        source: Box<EngineError>,
    },
    /// It takes more of the disk than it may, or than there is.
    #[error("everything in the sandbox `{id}` was ended: {reason}")]
    Disk {
        /// Which one.
        id: String,
        /// How much that is.
        reason: String,
    },
    /// Its network is not sealed, or cannot be shown to be. Nothing runs in it.
    #[error("the network of the sandbox `{id}` is not sealed")]
    Unsealed {
        /// Which one.
        id: String,
        /// Why.
        source: Box<SealError>,
    },
    /// Daytona failed it.
    #[error("the sandbox `{id}` was not served by Daytona")]
    Daytona {
        /// Which one.
        id: String,
        /// What Daytona said.
        source: Box<DaytonaError>,
    },
    /// A program of this machine that makes sandboxes failed.
    #[error("`{line}` failed: {said}")]
    Program {
        /// The command line.
        line: String,
        /// What the program said, and how it ended.
        said: String,
        /// What the user can do next, where that is known.
        hint: Option<&'static str>,
    },
    /// As many virtual Macs run as may.
    #[error(
        "cannot start VM — {running} macOS VMs already running (Apple SLA permits max 2). Stop an existing VM with: \
         tart stop <name>"
    )]
    TooManyMacs {
        /// How many run.
        running: usize,
    },
    /// The sandbox is stopped.
    #[error("the sandbox `{id}` is stopped")]
    Stopped {
        /// Which one.
        id: String,
    },
    /// A command could not be started.
    #[error("cannot start `{program}` in the sandbox")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// Its processes could not be watched or ended.
    #[error("cannot keep hold of the processes in the sandbox `{id}`")]
    Processes {
        /// Which one.
        id: String,
        /// Why.
        source: io::Error,
    },
    /// The way into the sandbox broke while something ran. The sandbox itself may be well: the provider opens another.
    #[error("cannot reach the processes in the sandbox `{id}`")]
    Session {
        /// Which one.
        id: String,
        /// Why.
        source: SessionError,
    },
    /// A path leads out of the sandbox: by itself, or by a symlink.
    #[error("`{}` leads out of the sandbox", path.display())]
    Outside {
        /// The path as it was given.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("cannot {operation} `{}` in the sandbox", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A file operation outside the sandbox failed.
    #[error("cannot {operation} `{}` on this machine", path.display())]
    Host {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A file is longer than the caller is ready to take.
    #[error("`{}` in the sandbox is longer than {limit} bytes", path.display())]
    TooLong {
        /// Which file.
        path: PathBuf,
        /// The limit.
        limit: u64,
    },
}

/// What an error means for the sandbox it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it is what was asked that cannot be done.
    Request,
    /// It is lost. A new one may do better.
    Lost,
    /// Whatever it runs on does not answer. That may pass.
    Away,
    /// There are no sandboxes until a person does something.
    Provider,
}

impl SandboxError {
    /// What it means for the sandbox.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Gone { .. } | Self::Lost { .. } | Self::Stopped { .. } | Self::Session { .. } => {
                Fault::Lost
            }
            Self::Engine { source, .. } if source.is_unreachable() => Fault::Away,
            Self::Daytona { source, .. } if source.may_pass() => Fault::Away,
            Self::Unsealed { source, .. } => source.fault(),
            Self::Engine { .. }
            | Self::Daytona { .. }
            | Self::Disk { .. }
            | Self::Program { .. }
            | Self::TooManyMacs { .. }
            | Self::Unshared { .. }
            | Self::Unavailable { .. } => Fault::Provider,
            Self::Unsupported { .. }
            | Self::Start { .. }
            | Self::Processes { .. }
            | Self::Outside { .. }
            | Self::File { .. }
            | Self::Host { .. }
            | Self::TooLong { .. } => Fault::Request,
        }
    }

    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unavailable { .. } => {
                Some("choose another provider with `--type`; `local` works everywhere")
            }
            Self::Unsupported { .. } => {
                Some("choose another provider with `--type`, or ask less of this one")
            }
            Self::Unshared { source } => Some(source.hint()),
            Self::Engine { source, .. } => source.hint(),
            Self::Disk { .. } => Some(
                "see what takes it with `ralph sandbox exec`, make room or raise `sandbox.resources.disk`, then `ralph resume`",
            ),
            Self::Unsealed { source, .. } => source.hint(),
            Self::Daytona { source, .. } => source.hint(),
            Self::Program { hint, .. } => *hint,
            Self::Session { source, .. } => source.hint(),
            Self::Gone { .. } | Self::Lost { .. } => {
                Some("`ralph resume` makes a new one from the run's last checkpoint")
            }
            Self::TooManyMacs { .. }
            | Self::Stopped { .. }
            | Self::Start { .. }
            | Self::Processes { .. }
            | Self::Outside { .. }
            | Self::File { .. }
            | Self::Host { .. }
            | Self::TooLong { .. } => None,
        }
    }
}
