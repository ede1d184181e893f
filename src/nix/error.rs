//! What can go wrong with a flake.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::output::FlakeOutput;
use super::system::{Os, System};
use crate::exec::{Captured, Status};

/// How many lines at the end of a log an error shows.
const TAIL_LINES: usize = 30;

/// What can go wrong with a flake, on disk or in Nix's hands.
#[derive(Debug, Error)]
pub enum NixError {
    /// There is no `nix` on the `PATH`.
    #[error("nix is not installed")]
    Missing(#[source] io::Error),
    /// A program could not be started, or ended in a way that left nothing to read.
    #[error("cannot run {program}")]
    Start {
        /// Which one.
        program: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The directory is in no git repository, so that nobody can say which files belong to the flake.
    #[error("`{}` is in no git repository", .0.display())]
    NotInGit(PathBuf),
    /// Git does not track a `flake.nix` there.
    #[error("git tracks no flake.nix in `{}`", .0.display())]
    NoFlake(PathBuf),
    /// A declared input names no tracked file.
    #[error("git tracks nothing at `{path}`, which is declared as an input of the image")]
    NoSuchInput {
        /// The path, from the root of the repository.
        path: String,
    },
    /// Git could not list the files of the repository.
    #[error("git cannot list the files of `{}` ({status}): {stderr}", root.display())]
    Git {
        /// The repository.
        root: PathBuf,
        /// How git ended.
        status: Status,
        /// What it said.
        stderr: String,
    },
    /// The flake has no such package.
    #[error("{flake} has no `{output}`")]
    AttributeMissing {
        /// The flake.
        flake: String,
        /// The package.
        output: FlakeOutput,
    },
    /// The flake cannot be evaluated.
    #[error("cannot evaluate {flake} ({status}):\n{log_tail}")]
    EvaluationFailed {
        /// The flake.
        flake: String,
        /// How nix ended.
        status: Status,
        /// The end of what it said.
        log_tail: String,
    },
    /// The package was evaluated and could not be built.
    #[error("cannot build `{output}` of {flake} ({status}):\n{log_tail}")]
    BuildFailed {
        /// The flake.
        flake: String,
        /// The package.
        output: FlakeOutput,
        /// How nix ended.
        status: Status,
        /// The end of what it said.
        log_tail: String,
    },
    /// No machine that Nix knows can build for this system.
    #[error("nix has no builder for {system} here:\n{log_tail}")]
    NoBuilder {
        /// The system of the package.
        system: System,
        /// The end of what nix said.
        log_tail: String,
    },
    /// A program printed something else than its documentation says.
    #[error("cannot read what {program} printed as {what}: {text}")]
    Unexpected {
        /// Which one.
        program: &'static str,
        /// What was expected.
        what: &'static str,
        /// The beginning of what came.
        text: String,
    },
    /// A file could not be handled.
    #[error("cannot {operation} `{}`", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl NixError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Missing(_) => Some(
                "install Nix (https://nixos.org/download), or build from a Dockerfile: `ralph image build --dockerfile`",
            ),
            Self::NotInGit(_) => {
                Some("make it a repository with `git init`, and `git add` the flake's files")
            }
            Self::NoFlake(_) => Some("write a flake.nix and `git add` it: Nix sees tracked files only"),
            Self::NoSuchInput { .. } => Some("mend the list of inputs, or `git add` the file"),
            Self::AttributeMissing { .. } => Some(
                "`nix flake show` lists what there is; `nix flake init -t` with ralph's flake shows how to add it",
            ),
            Self::EvaluationFailed { .. } => Some(
                "`nix flake check --no-build` shows the whole message; \
                 when inputs changed, run `nix flake lock` and `git add flake.lock`",
            ),
            Self::BuildFailed { .. } => Some("`nix log` with the .drv named above shows the whole log"),
            Self::NoBuilder { .. } => Some(no_builder_hint(System::this_machine())),
            Self::Start { .. } | Self::Git { .. } | Self::Unexpected { .. } | Self::File { .. } => None,
        }
    }

    /// Wraps the failure of an operation on a file.
    pub(super) fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File {
            operation,
            path: path.to_owned(),
            source,
        }
    }

    /// The error for output that cannot be read.
    pub(super) fn unexpected(program: &'static str, what: &'static str, printed: &[u8]) -> Self {
        Self::Unexpected {
            program,
            what,
            text: String::from_utf8_lossy(&printed[..printed.len().min(200)]).into_owned(),
        }
    }
}

/// The last lines of a log.
pub(super) fn tail(log: &Captured) -> String {
    let text = log.text();
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

fn no_builder_hint(machine: Option<System>) -> &'static str {
    match machine.map(|system| system.os) {
        Some(Os::Darwin) => {
            "images are Linux: set up a Linux builder (`nix run nixpkgs#darwin.linux-builder`, or \
             `nix.linux-builder.enable = true` with nix-darwin), or build from a Dockerfile"
        }
        _ => "name a machine of that system in Nix's `builders`, or enable emulation with `extra-platforms`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_log_is_its_last_lines() {
        let mut log = Captured::with_limit(1 << 20);
        for line in 0..1000 {
            log.push(format!("line {line}\n").as_bytes());
        }
        let tail = tail(&log);
        assert!(
            tail.starts_with("line 970\n") && tail.ends_with("\nline 999"),
            "{tail}"
        );
    }

    #[test]
    fn on_a_mac_the_hint_names_the_linux_builder() {
        let hint = no_builder_hint("aarch64-darwin".parse().ok());
        assert!(hint.contains("linux-builder"), "{hint}");
        assert!(no_builder_hint("x86_64-linux".parse().ok()).contains("builders"));
    }
}
