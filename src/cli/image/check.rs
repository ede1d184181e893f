//! `ralph image build --check`

use serde::Serialize;

use crate::engine::Engine;
use crate::image::{Checked, Difference, FileDifference, Files, Found, Wish, check};

use super::super::Context;
use super::super::error::{CliError, CliExit};
use super::lock::{Lock, Locked, Made};
use super::progress::observer;
use super::scene::Scene;

/// What was found, for programs.
#[derive(Serialize)]
struct Report<'a> {
    tag: String,
    hash: String,
    /// The digests of the two builds.
    digests: [String; 2],
    reproducible: bool,
    differences: &'a [Difference],
    lock: LockReport,
}

/// What comparing with `ralph.lock` gave.
#[derive(Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum LockReport {
    /// Nothing is recorded of this image.
    Absent,
    /// The same is recorded.
    Same,
    /// Something else is recorded.
    Differs { differences: Vec<String> },
}

/// Builds the image twice and compares, also with what `ralph.lock` records.
pub(super) async fn run(
    context: &Context,
    scene: &Scene<'_>,
    engine: &Engine,
    request: Request,
) -> Result<CliExit, CliError> {
    let recipe = scene.read(&request.wish, Some(engine)).await?;
    let lock = Lock::of_project(&request.wish.project)?;
    let checked = check(engine, &recipe, &scene.tools, observer(context.ui).as_mut()).await?;
    let platform = recipe.spec.platform();
    let recorded = lock
        .as_ref()
        .and_then(|lock| lock.named(&checked.image.tag, platform));
    let made = Made {
        platform,
        fingerprint: &checked.first,
    };
    let now = Locked::new(&checked.image, checked.base.as_ref(), made);
    let report = Report::of(&checked, recorded, &now);
    match request.form {
        Form::Json => context.ui.json(&report)?,
        Form::Text => context.ui.data(report.lines(&checked).join("\n"))?,
    }
    if report.is_good() {
        return Ok(CliExit::Success);
    }
    let times = !checked.differences.is_empty() && checked.differences.iter().all(is_only_times);
    context.ui.say(hint(&report, times));
    Ok(CliExit::Failure)
}

/// What is to be checked, and how that is told.
pub(super) struct Request {
    pub(super) wish: Wish,
    pub(super) form: Form,
}

/// How something is told on stdout.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Text,
    Json,
}

impl<'a> Report<'a> {
    fn of(checked: &'a Checked, recorded: Option<&Locked>, now: &Locked) -> Self {
        Self {
            tag: checked.image.tag.to_string(),
            hash: checked.image.hash.hex(),
            digests: [
                checked.first.digest().to_string(),
                checked.second.digest().to_string(),
            ],
            reproducible: checked.differences.is_empty(),
            differences: &checked.differences,
            lock: match recorded.map(|recorded| recorded.differences(now)) {
                None => LockReport::Absent,
                Some(differences) if differences.is_empty() => LockReport::Same,
                Some(differences) => LockReport::Differs { differences },
            },
        }
    }

    fn is_good(&self) -> bool {
        self.reproducible && !matches!(self.lock, LockReport::Differs { .. })
    }

    fn lines(&self, checked: &Checked) -> Vec<String> {
        let [first, second] = &self.digests;
        let mut lines = if self.reproducible {
            vec![format!("{}: two builds gave the same image, {first}", self.tag)]
        } else {
            let headline = format!("{}: two builds gave two images, {first} and {second}", self.tag);
            let differences = checked.differences.iter().flat_map(described);
            std::iter::once(headline).chain(differences).collect()
        };
        match &self.lock {
            LockReport::Absent => lines.push("ralph.lock records nothing of it".to_owned()),
            LockReport::Same => lines.push("ralph.lock records the same image".to_owned()),
            LockReport::Differs { differences } => {
                lines.push("ralph.lock records another image:".to_owned());
                lines.extend(differences.iter().map(|line| format!("  {line}")));
            }
        }
        lines
    }
}

fn described(difference: &Difference) -> Vec<String> {
    match difference {
        Difference::Layers { first, second } => {
            vec![format!("  the first has {first} layers, the second {second}")]
        }
        Difference::Setting { name } => vec![format!("  {name} differs")],
        Difference::Layer { number, files } => match files {
            Files::No => vec![format!("  layer {number} differs")],
            Files::Yes { count, some, .. } => {
                let headline = format!("  layer {number} differs in {count} files");
                std::iter::once(headline).chain(some.iter().map(file)).collect()
            }
        },
    }
}

fn file(file: &FileDifference) -> String {
    let what = match file.found {
        Found::OnlyInFirst => "only in the first",
        Found::OnlyInSecond => "only in the second",
        Found::Content => "other content",
        Found::Attributes => "other kind, mode or owner",
        Found::Time => "other time",
    };
    format!("    {}: {what}", file.path)
}

fn is_only_times(difference: &Difference) -> bool {
    matches!(
        difference,
        Difference::Layer {
            files: Files::Yes { only_times: true, .. },
            ..
        }
    )
}

fn hint(report: &Report, times: bool) -> &'static str {
    if report.reproducible {
        "hint: if the change is meant, `ralph image build --lock` records it"
    } else if times {
        "hint: builders write the time into the files that they make, so that an image from a Dockerfile is not the same \
         byte for byte unless its builder is told otherwise (SOURCE_DATE_EPOCH and `rewrite-timestamp` with buildx); one \
         from a flake is"
    } else {
        "hint: pin what the build fetches: packages by version, downloads by hash"
    }
}
