//! The `docker` provider: each sandbox is a container of a Docker Engine, without capabilities, without a way to gain
//! any, and without access to the host except for its workspace.

mod backend;
mod container;
mod create;
mod disk;
mod exec;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod inspection;
mod kernel;
mod proxy;
mod sandbox;
mod seal;
mod seccomp;
mod session_opener;
mod session_socket;
mod user;
mod volume_files;
mod workspace;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

use self::backend::DockerBackend;
pub use self::kernel::SealChoice;
pub(super) use self::proxy::variables as proxy_variables;
pub use self::seal::{SealError, SealPlan};
pub use self::workspace::WorkspaceChoice;
use super::workspace_provider::WorkspaceProvider;
use super::{Provider, SandboxError, SandboxErrorKind};
use crate::atomic_file::{FileAccess, write_atomically};
use crate::clock::Clock;
use crate::engine::{EngineEnvironment, EngineError};
use crate::exec::Host;

/// What the provider needs to know.
#[derive(Clone)]
pub struct DockerOptions {
    /// The directory below which each sandbox gets its own.
    pub base: PathBuf,
    /// How the engine is found.
    pub engine: EngineEnvironment,
    /// Starts the few programs that are needed in addition to the API of the engine.
    pub host: Host,
    /// The directory for the guest program, which every container sees.
    pub guest_dir: PathBuf,
    /// The directory that caches files of images.
    pub cache: PathBuf,
    /// How networks are sealed.
    pub seal: SealChoice,
    /// The OCI runtime of sandboxes. `None` is the engine's default.
    pub runtime: Option<String>,
    /// Where workspaces are.
    pub workspace: WorkspaceChoice,
    /// The name of this host.
    pub host_name: String,
    /// The wall clock, which is compared with the events of the engine.
    pub clock: Arc<dyn Clock>,
}

/// A provider whose sandboxes are containers. It connects to the engine when it is first used.
#[must_use]
pub fn provider(options: DockerOptions) -> impl Provider {
    let (base, host_name) = (options.base.clone(), options.host_name.clone());
    WorkspaceProvider::new(DockerBackend::new(options), base, &host_name)
}

/// An error of the engine that concerns one sandbox.
fn engine_failed_for(sandbox: &str, error: EngineError) -> SandboxError {
    let message = format!("the container engine failed for the sandbox `{sandbox}`");
    SandboxError::new(engine_error_kind(&error), message)
        .with_hint(error.hint())
        .with_cause(error)
}

/// An error of the engine that concerns no sandbox.
fn engine_failed(error: EngineError) -> SandboxError {
    let hint = error.hint();
    SandboxError::from_cause(engine_error_kind(&error), error).with_hint(hint)
}

/// The error for an engine whose containers cannot share a workspace with the host.
fn unshared(reason: impl fmt::Display, hint: &'static str) -> SandboxError {
    let message = format!(
        "the `docker` provider cannot share a workspace with the containers of this engine: {reason}"
    );
    SandboxError::new(SandboxErrorKind::Failed, message).with_hint(Some(hint))
}

/// Writes a file that containers see into this directory, unless it is there. Returns its path.
fn install_file(dir: &Path, name: &str, text: &str) -> io::Result<PathBuf> {
    let file = dir.join(name);
    if fs::read(&file).ok().as_deref() != Some(text.as_bytes()) {
        write_atomically(&file, text.as_bytes(), FileAccess::Mode(0o644))?;
    }
    Ok(file)
}

fn engine_error_kind(error: &EngineError) -> SandboxErrorKind {
    if error.is_unreachable() {
        SandboxErrorKind::Unreachable
    } else {
        SandboxErrorKind::Failed
    }
}
