//! A flake, and how Nix builds it. Only this file and `rebuild` start `nix`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::error::{NixError, tail};
use super::flake_ref::{FlakeRef, LocalFlake};
use super::output::FlakeOutput;
use crate::exec::{Command, Discard, Exit, Host, OutputLine, OutputSink, OutputStream};

/// The options of every call. An outdated lock file is an error and is not updated: the build must depend on the tracked
/// files alone.
const OPTIONS: [&str; 3] = [
    "--extra-experimental-features",
    "nix-command flakes",
    "--no-update-lock-file",
];

/// Where the Nix store is. Outputs have this path also if the store is kept elsewhere.
const STORE_DIR: &str = "/nix/store";

/// What nix prints if none of its builders can build for a system. The second since 2.31.
const NO_BUILDER: [&str; 2] = ["is required to build", "required system or feature not available"];

/// A flake, and the host that runs `nix` and `git` on it.
#[derive(Clone, Debug)]
pub struct Flake {
    host: Host,
    pub(super) location: FlakeLocation,
}

/// Where a flake is.
#[derive(Clone, Debug)]
pub(super) enum FlakeLocation {
    Local(LocalFlake),
    Pinned(String),
}

impl Flake {
    /// Opens a flake. Starts no process. `nix` and `git` will get the host's environment variables.
    pub fn open(host: Host, reference: &FlakeRef) -> Result<Self, NixError> {
        let location = match reference {
            FlakeRef::Dir(dir) => FlakeLocation::Local(LocalFlake::find(dir)?),
            FlakeRef::Pinned(url) => FlakeLocation::Pinned(url.clone()),
        };
        Ok(Self { host, location })
    }

    /// Builds a package if needed, and returns its store path. The build log goes to `progress`.
    ///
    /// With `again`, everything that the package is made of and that was built on this host is built once more. That
    /// fails if a result differs from the one in the store.
    pub async fn build(
        &self,
        output: &FlakeOutput,
        again: bool,
        progress: &mut dyn OutputSink,
    ) -> Result<PathBuf, NixError> {
        let command = self
            .nix("build")
            .args(["--json", "--no-link", "--print-build-logs"])
            .arg(self.installable(output));
        let exit = self.run(&command, &mut BuildLog(progress)).await?;
        if !exit.success() {
            return Err(self.build_error(output, &exit).await);
        }
        let built = parse_store_path(&stdout(&exit)?)?;
        if again {
            self.rebuild_parts(&built, &mut BuildLog(progress)).await?;
        }
        Ok(built)
    }

    /// Asks nix whether the flake has a package, without evaluating it.
    pub async fn has_package(&self, output: &FlakeOutput) -> Result<bool, NixError> {
        let FlakeOutput { system, attribute } = output;
        let flake = self.expression();
        let question = format!(r#"{flake} ? packages."{system}"."{attribute}""#);
        let command = self.nix("eval").args(["--impure", "--json", "--expr", &question]);
        let exit = self.run(&command, &mut Discard).await?;
        if !exit.success() {
            return Err(NixError::EvaluationFailed {
                flake: self.name(),
                status: exit.status,
                log_tail: tail(&exit.stderr),
            });
        }
        match stdout(&exit)?.trim_ascii() {
            b"true" => Ok(true),
            b"false" => Ok(false),
            other => Err(NixError::unexpected("nix", "true or false", other)),
        }
    }

    /// The flake as messages name it.
    fn name(&self) -> String {
        match &self.location {
            FlakeLocation::Local(flake) => format!("the flake in `{}`", flake.path().display()),
            FlakeLocation::Pinned(url) => format!("the flake `{url}`"),
        }
    }

    /// A call of nix, in the directory of a local flake. Nix then finds the repository around it, whatever characters
    /// the path has, and reads tracked files from the working tree.
    pub(super) fn nix(&self, subcommand: &str) -> Command {
        let command = Command::new("nix").arg(subcommand).args(OPTIONS);
        match &self.location {
            FlakeLocation::Local(flake) => command.cwd(flake.path()),
            FlakeLocation::Pinned(_) => command,
        }
    }

    fn installable(&self, output: &FlakeOutput) -> String {
        match &self.location {
            FlakeLocation::Local(_) => format!(".#{output}"),
            FlakeLocation::Pinned(url) => format!("{url}#{output}"),
        }
    }

    /// The flake as a Nix expression.
    fn expression(&self) -> String {
        match &self.location {
            FlakeLocation::Local(_) => "builtins.getFlake (toString ./.)".to_owned(),
            FlakeLocation::Pinned(url) => format!("builtins.getFlake {}", quote(url)),
        }
    }

    /// Runs git at the root of the flake's repository and returns its stdout.
    pub(super) async fn git(&self, flake: &LocalFlake, command: &Command) -> Result<Vec<u8>, NixError> {
        let command = command.clone().cwd(&flake.root);
        let started = self.host.run(&command, &mut Discard).await;
        let exit = started.map_err(NixError::io("cannot run git"))?;
        if !exit.success() {
            let (root, status, stderr) = (flake.root.display(), exit.status, tail(&exit.stderr));
            let message = format!("cannot list the files of `{root}`: git failed ({status}): {stderr}");
            return Err(NixError::Other(message, None));
        }
        exit.stdout
            .complete()
            .ok_or_else(|| NixError::unexpected("git", "a complete list", b""))
    }

    /// Finds out why a build failed. Nix has one exit code for every failure, so it is asked whether the package exists.
    async fn build_error(&self, output: &FlakeOutput, exit: &Exit) -> NixError {
        let log_tail = tail(&exit.stderr);
        if NO_BUILDER.iter().any(|words| log_tail.contains(words)) {
            let system = output.system;
            return NixError::NoBuilder { system };
        }
        let (flake, output, status) = (self.name(), output.clone(), exit.status);
        match self.has_package(&output).await {
            Ok(false) => NixError::AttributeMissing { flake, output },
            Ok(true) => NixError::BuildFailed {
                flake,
                output,
                status,
                log_tail,
            },
            Err(_) => NixError::EvaluationFailed {
                flake,
                status,
                log_tail,
            },
        }
    }

    pub(super) async fn run(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, NixError> {
        self.host
            .run(command, output)
            .await
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => NixError::Missing(source),
                _ => NixError::io("cannot run nix")(source),
            })
    }
}

/// A Nix string literal.
fn quote(text: &str) -> String {
    format!(
        "\"{}\"",
        text.replace('\\', r"\\").replace('"', "\\\"").replace('$', r"\$")
    )
}

/// A git command that ignores repository settings which could start programs.
pub(super) fn git() -> Command {
    /// The longest list of files that is read.
    const KEEP: usize = 256 * 1024 * 1024;
    Command::new("git")
        .args(["--no-optional-locks", "-c", "core.fsmonitor=false"])
        .env("LC_ALL", "C")
        .keep(KEEP)
}

pub(super) fn stdout(exit: &Exit) -> Result<Vec<u8>, NixError> {
    exit.stdout
        .complete()
        .ok_or_else(|| NixError::unexpected("nix", "a complete answer", b""))
}

/// One package in the output of `nix build --json`.
#[derive(Deserialize)]
struct BuildAnswer {
    outputs: BTreeMap<String, PathBuf>,
}

fn parse_store_path(printed: &[u8]) -> Result<PathBuf, NixError> {
    let read = || {
        let [mut answer]: [BuildAnswer; 1] = serde_json::from_slice(printed).ok()?;
        answer.outputs.remove("out")
    };
    read()
        .filter(|path| path.parent() == Some(Path::new(STORE_DIR)) && path.file_name().is_some())
        .ok_or_else(|| NixError::unexpected("nix", "one package with an output `out`", printed))
}

/// Passes on stderr, but not the JSON on stdout.
struct BuildLog<'a>(&'a mut dyn OutputSink);

impl OutputSink for BuildLog<'_> {
    fn line(&mut self, line: OutputLine) {
        if line.stream == OutputStream::Stderr {
            self.0.line(line);
        }
    }

    fn wants_lines(&self) -> bool {
        self.0.wants_lines()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::output::Attribute;
    use super::*;

    #[test]
    fn the_answer_names_the_output() {
        let answer = br#"[{"drvPath":"/nix/store/gqhsl6085jixawszxib3mwyi76cjkyyi-image.tar.gz.drv","outputs":{"out":"/nix/store/8x8ghf3s9b6xx092a5pnnzgmik00f51b-image.tar.gz"},"startTime":0}]"#;
        let expected = "/nix/store/8x8ghf3s9b6xx092a5pnnzgmik00f51b-image.tar.gz";
        assert_eq!(parse_store_path(answer).unwrap(), Path::new(expected));
    }

    #[rstest]
    #[case("")]
    #[case("[]")]
    #[case(r#"[{"outputs":{}}]"#)]
    #[case(r#"[{"outputs":{"out":"/nix/store"}}]"#)]
    #[case(r#"[{"outputs":{"out":"/nix/store/.."}}]"#)]
    #[case(r#"[{"outputs":{"out":"/etc/passwd"}}]"#)]
    fn another_answer_is_an_error_that_shows_it(#[case] answer: &str) {
        let error = parse_store_path(answer.as_bytes()).unwrap_err();
        assert!(error.to_string().ends_with(answer), "{error}");
    }

    #[rstest]
    #[case("github:o/n", r#""github:o/n""#)]
    #[case(r#"a"b\c${d}"#, r#""a\"b\\c\${d}""#)]
    fn an_address_within_an_expression_means_only_itself(#[case] text: &str, #[case] expression: &str) {
        assert_eq!(quote(text), expression);
    }

    #[tokio::test]
    async fn without_nix_the_error_says_so() {
        let host = Host::new(BTreeMap::from([("PATH".to_owned(), "/nonexistent".to_owned())]));
        let pinned = FlakeRef::Pinned("github:o/n/b3d51a0365f6695e7dd5cdf3e180604530ed33b4".to_owned());
        let flake = Flake::open(host, &pinned).unwrap();
        let output = FlakeOutput {
            system: "x86_64-linux",
            attribute: Attribute::docker_image(),
        };
        let error = flake.build(&output, false, &mut Discard).await.unwrap_err();
        assert!(matches!(error, NixError::Missing(_)), "{error:?}");
        assert!(error.hint().is_some_and(|hint| hint.contains("Dockerfile")));
    }
}
