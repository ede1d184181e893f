//! A flake, and what Nix makes of it. The one file that starts `nix`.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use serde::Deserialize;

use super::error::{NixError, tail};
use super::flake_ref::{FlakeRef, LocalFlake};
use super::output::{Attribute, FlakeOutput};
use super::store_path::StorePath;
use crate::exec::{Command, Discard, Exit, Host, OutputLine, OutputSink, Stream};

/// The options of every call. A lock that does not fit the flake is an error, not something to mend in passing: what
/// is built must follow from the tracked files alone.
const OPTIONS: [&str; 3] = [
    "--extra-experimental-features",
    "nix-command flakes",
    "--no-update-lock-file",
];

/// What nix says when no machine of its own can build for a system; the second since 2.31.
const NO_BUILDER: [&str; 2] = ["is required to build", "required system or feature not available"];

/// A flake that Nix can be asked about.
#[derive(Clone, Debug)]
pub struct Flake {
    host: Host,
    pub(super) place: Place,
}

/// Where a flake is, once it was looked for.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Local(LocalFlake),
    Pinned(String),
}

/// Whether a flake has a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It has.
    Present,
    /// It has not.
    Missing,
}

/// A package that is in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// How it is built.
    pub derivation: StorePath,
    /// What was built.
    pub out: StorePath,
}

impl Flake {
    /// The flake at this place. Starts nothing; the host's variables are those that `nix` and `git` will see.
    pub fn open(host: Host, reference: &FlakeRef) -> Result<Self, NixError> {
        let place = match reference {
            FlakeRef::Dir(dir) => Place::Local(LocalFlake::find(dir)?),
            FlakeRef::Pinned(url) => Place::Pinned(url.clone()),
        };
        Ok(Self { host, place })
    }

    /// Builds a package, or finds it built. What nix reports while it works goes to `progress`.
    pub async fn build(
        &self,
        output: &FlakeOutput,
        progress: &mut dyn OutputSink,
    ) -> Result<Built, NixError> {
        self.build_with(&[], output, progress).await
    }

    /// Builds a package that was built before once more, and fails where the two differ. What it is made from is taken
    /// from the store.
    pub async fn build_again(
        &self,
        output: &FlakeOutput,
        progress: &mut dyn OutputSink,
    ) -> Result<Built, NixError> {
        self.build_with(&["--rebuild"], output, progress).await
    }

    async fn build_with(
        &self,
        options: &[&str],
        output: &FlakeOutput,
        progress: &mut dyn OutputSink,
    ) -> Result<Built, NixError> {
        let command = self
            .nix("build")
            .args(["--json", "--no-link", "--print-build-logs"])
            .args(options.iter().copied())
            .arg(self.installable(output));
        let exit = self.run(&command, &mut Progress(progress)).await?;
        if exit.success() {
            built(&stdout(&exit)?)
        } else {
            Err(self.why_not_built(output, &exit).await)
        }
    }

    /// Evaluates a text that belongs to a package (`imageTag`), without building it.
    pub async fn eval_raw(&self, output: &FlakeOutput, field: &Attribute) -> Result<String, NixError> {
        let text = self.installable(format_args!("{output}.{field}"));
        let command = self.nix("eval").arg("--raw").arg(text);
        let printed = self.evaluated(&command).await?;
        String::from_utf8(printed).map_err(|error| NixError::unexpected("nix", "text", error.as_bytes()))
    }

    /// Asks nix whether the flake has a package. Evaluates no more of it than its name.
    pub async fn has(&self, output: &FlakeOutput) -> Result<Presence, NixError> {
        let FlakeOutput { system, attribute } = output;
        let flake = self.expression();
        let question = format!(r#"{flake} ? packages."{system}"."{attribute}""#);
        let command = self.nix("eval").args(["--impure", "--json", "--expr", &question]);
        match self.evaluated(&command).await?.trim_ascii() {
            b"true" => Ok(Presence::Present),
            b"false" => Ok(Presence::Missing),
            other => Err(NixError::unexpected("nix", "true or false", other)),
        }
    }

    /// The flake for people.
    fn name(&self) -> String {
        match &self.place {
            Place::Local(flake) => format!("the flake in `{}`", flake.path().display()),
            Place::Pinned(url) => format!("the flake `{url}`"),
        }
    }

    /// A call of nix. A local flake is `.` for it: then Nix finds the repository around it, whatever the path is made of,
    /// and takes tracked files as they stand in the working directory.
    fn nix(&self, subcommand: &str) -> Command {
        let command = Command::new("nix").arg(subcommand).args(OPTIONS);
        match &self.place {
            Place::Local(flake) => command.cwd(flake.path()),
            Place::Pinned(_) => command,
        }
    }

    fn installable(&self, attributes: impl fmt::Display) -> String {
        match &self.place {
            Place::Local(_) => format!(".#{attributes}"),
            Place::Pinned(url) => format!("{url}#{attributes}"),
        }
    }

    /// The flake in the Nix language.
    fn expression(&self) -> String {
        match &self.place {
            Place::Local(_) => "builtins.getFlake (toString ./.)".to_owned(),
            Place::Pinned(url) => format!("builtins.getFlake {}", quoted(url)),
        }
    }

    /// Runs git at the root of the flake's repository and returns what it printed.
    pub(super) async fn git(&self, flake: &LocalFlake, command: &Command) -> Result<Vec<u8>, NixError> {
        let command = command.clone().cwd(flake.root());
        let started = self.host.run(&command, &mut Discard).await;
        let exit = started.map_err(|source| NixError::Start {
            program: "git",
            source,
        })?;
        if !exit.success() {
            return Err(NixError::Git {
                root: flake.root().to_owned(),
                status: exit.status,
                stderr: tail(&exit.stderr),
            });
        }
        exit.stdout
            .complete()
            .ok_or_else(|| NixError::unexpected("git", "a list that can be read whole", b""))
    }

    async fn evaluated(&self, command: &Command) -> Result<Vec<u8>, NixError> {
        let exit = self.run(command, &mut Discard).await?;
        if exit.success() {
            return stdout(&exit);
        }
        Err(NixError::EvaluationFailed {
            flake: self.name(),
            status: exit.status,
            log_tail: tail(&exit.stderr),
        })
    }

    /// Nix has one exit code for everything. Rather than reading its mind from its words, ask again, more simply.
    async fn why_not_built(&self, output: &FlakeOutput, exit: &Exit) -> NixError {
        let log_tail = tail(&exit.stderr);
        if NO_BUILDER.iter().any(|words| log_tail.contains(words)) {
            let system = output.system;
            return NixError::NoBuilder { system, log_tail };
        }
        let (flake, output, status) = (self.name(), output.clone(), exit.status);
        match self.has(&output).await {
            Ok(Presence::Missing) => NixError::AttributeMissing { flake, output },
            Ok(Presence::Present) => NixError::BuildFailed {
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

    async fn run(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, NixError> {
        self.host
            .run(command, output)
            .await
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => NixError::Missing(source),
                _ => NixError::Start {
                    program: "nix",
                    source,
                },
            })
    }
}

/// A string of the Nix language.
fn quoted(text: &str) -> String {
    format!(
        "\"{}\"",
        text.replace('\\', r"\\").replace('"', "\\\"").replace('$', r"\$")
    )
}

/// Git, without what a repository's settings could make it start.
pub(super) fn git() -> Command {
    /// The longest list of files that is read.
    const KEEP: usize = 256 * 1024 * 1024;
    Command::new("git")
        .args(["--no-optional-locks", "-c", "core.fsmonitor=false"])
        .env("LC_ALL", "C")
        .keep(KEEP)
}

fn stdout(exit: &Exit) -> Result<Vec<u8>, NixError> {
    exit.stdout
        .complete()
        .ok_or_else(|| NixError::unexpected("nix", "an answer that can be read whole", b""))
}

/// What `nix build --json` says of one package.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BuildAnswer {
    drv_path: String,
    outputs: BTreeMap<String, String>,
}

fn built(printed: &[u8]) -> Result<Built, NixError> {
    let read = || {
        let [answer]: [BuildAnswer; 1] = serde_json::from_slice(printed).ok()?;
        Some(Built {
            derivation: StorePath::from_absolute_path(&answer.drv_path).ok()?,
            out: StorePath::from_absolute_path(answer.outputs.get("out")?).ok()?,
        })
    };
    read().ok_or_else(|| NixError::unexpected("nix", "one package with an output `out`", printed))
}

/// Passes on what nix reports, and keeps its answer back.
struct Progress<'a>(&'a mut dyn OutputSink);

impl OutputSink for Progress<'_> {
    fn line(&mut self, line: OutputLine) {
        if line.stream == Stream::Stderr {
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

    use super::*;

    #[test]
    fn the_answer_names_the_derivation_and_the_output() {
        let answer = br#"[{"drvPath":"/nix/store/gqhsl6085jixawszxib3mwyi76cjkyyi-image.tar.gz.drv","outputs":{"out":"/nix/store/8x8ghf3s9b6xx092a5pnnzgmik00f51b-image.tar.gz"},"startTime":0}]"#;
        let built = built(answer).unwrap();
        assert_eq!(built.derivation.name(), "image.tar.gz.drv");
        assert_eq!(
            built.out.to_string(),
            "8x8ghf3s9b6xx092a5pnnzgmik00f51b-image.tar.gz"
        );
    }

    #[rstest]
    #[case("")]
    #[case("[]")]
    #[case(r#"[{"drvPath":"/nix/store/x","outputs":{}}]"#)]
    fn another_answer_is_an_error_that_shows_it(#[case] answer: &str) {
        let error = built(answer.as_bytes()).unwrap_err();
        assert!(error.to_string().ends_with(answer), "{error}");
    }

    #[rstest]
    #[case("github:o/n", r#""github:o/n""#)]
    #[case(r#"a"b\c${d}"#, r#""a\"b\\c\${d}""#)]
    fn an_address_within_an_expression_means_only_itself(#[case] text: &str, #[case] expression: &str) {
        assert_eq!(quoted(text), expression);
    }

    #[tokio::test]
    async fn without_nix_the_error_says_so() {
        let host = Host::new(BTreeMap::from([("PATH".to_owned(), "/nonexistent".to_owned())]));
        let pinned = FlakeRef::Pinned("github:o/n/b3d51a0365f6695e7dd5cdf3e180604530ed33b4".to_owned());
        let flake = Flake::open(host, &pinned).unwrap();
        let output = FlakeOutput {
            system: "x86_64-linux".parse().unwrap(),
            attribute: Attribute::docker_image(),
        };
        let error = flake.build(&output, &mut Discard).await.unwrap_err();
        assert!(matches!(error, NixError::Missing(_)), "{error:?}");
        assert!(error.hint().is_some_and(|hint| hint.contains("Dockerfile")));
    }
}
