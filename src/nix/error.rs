//! Errors of flakes.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::output::FlakeOutput;
use crate::exec::{CapturedOutput, ExitStatus};

/// How many lines at the end of a log an error shows.
const TAIL_LINES: usize = 30;

/// Why a flake cannot be read, evaluated or built.
#[derive(Debug, Error)]
pub enum NixError {
    /// There is no `nix` on the `PATH`.
    #[error("nix is not installed")]
    Missing(#[source] io::Error),
    /// The directory is not in a git repository, which says which files belong to a flake.
    #[error("`{}` is not in a git repository", .0.display())]
    NotInGit(PathBuf),
    /// Git does not track a `flake.nix` there.
    #[error("no tracked flake.nix in `{}`", .0.display())]
    NoFlake(PathBuf),
    /// A declared input is not a tracked file.
    #[error("no tracked file at `{path}`, which is declared as an input of the image")]
    NoSuchInput {
        /// The path, from the root of the repository.
        path: String,
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
        status: ExitStatus,
        /// The end of its log.
        log_tail: String,
    },
    /// The package evaluates but does not build.
    #[error("cannot build `{output}` of {flake} ({status}):\n{log_tail}")]
    BuildFailed {
        /// The flake.
        flake: String,
        /// The package.
        output: FlakeOutput,
        /// How nix ended.
        status: ExitStatus,
        /// The end of its log.
        log_tail: String,
    },
    /// Two builds gave different results.
    #[error("two builds of `{}` differ in {}", output.display(), files.join(", "))]
    NotReproducible {
        /// The store path of the first build.
        output: PathBuf,
        /// The first files that differ.
        files: Vec<String>,
    },
    /// None of Nix's builders can build for this system.
    #[error("nix has no builder for {system}")]
    NoBuilder {
        /// The system of the package.
        system: &'static str,
    },
    /// Anything else: what failed, and the cause.
    #[error("{0}")]
    Other(String, #[source] Option<io::Error>),
}

impl NixError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Missing(_) => {
                Some("install Nix (https://nixos.org/download), or build the image from a Dockerfile")
            }
            Self::NotInGit(_) => Some("run `git init` there, and `git add` the flake's files"),
            Self::NoFlake(_) => Some("write a flake.nix and `git add` it: Nix reads only tracked files"),
            Self::NoSuchInput { .. } => Some("correct the list of inputs, or `git add` the file"),
            Self::AttributeMissing { .. } => Some(
                "`nix flake show` lists its packages; `nix flake init -t` with ralph's flake shows how to add one",
            ),
            Self::EvaluationFailed { .. } => Some(
                "`nix flake check --no-build` shows the whole message; \
                 when inputs changed, run `nix flake lock` and `git add flake.lock`",
            ),
            Self::BuildFailed { .. } => Some("`nix log` with the .drv named above shows the whole log"),
            Self::NotReproducible { .. } => Some(
                "the second build is beside the first, with `.check` at its end; keep times and random values out",
            ),
            Self::NoBuilder { .. } => Some(no_builder_hint(cfg!(target_os = "macos"))),
            Self::Other(..) => None,
        }
    }

    /// For `map_err`: an I/O operation that failed.
    pub(super) fn io(message: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let message = message.into();
        |error| Self::Other(message, Some(error))
    }

    /// For `map_err`: a file operation that failed.
    pub(super) fn file(operation: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::io(format!("cannot {operation} `{}`", path.display()))
    }

    /// Unexpected output of a program, with its beginning.
    pub(super) fn unexpected(program: &str, what: &str, printed: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&printed[..printed.len().min(200)]);
        let message = format!("unexpected output of {program}: expected {what}, found: {text}");
        Self::Other(message, None)
    }
}

/// The last lines of a log.
pub(super) fn tail(log: &CapturedOutput) -> String {
    let text = log.text();
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

fn no_builder_hint(is_macos: bool) -> &'static str {
    if is_macos {
        "images are Linux: set up a Linux builder (`nix run nixpkgs#darwin.linux-builder`, or \
         `nix.linux-builder.enable = true` with nix-darwin), or build from a Dockerfile"
    } else {
        "add a builder of that system to Nix's `builders`, or enable emulation with `extra-platforms`"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_log_is_its_last_lines() {
        let mut log = CapturedOutput::with_limit(1 << 20);
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
        let hint = no_builder_hint(true);
        assert!(hint.contains("linux-builder"), "{hint}");
        assert!(no_builder_hint(false).contains("builders"));
    }
}
