//! `ralph image build --check`

use schemars::JsonSchema;
use serde::Serialize;

use crate::image::{
    FileDifference, ImageBuilder, ImageDifference, ImageLock, ImageTag, LayerDifference, LayerFileChange,
    LockedImage,
};

use super::progress::observer;
use super::selection::ImageSetup;
use crate::cli::{CliExit, CliResult, Context};
use crate::text::counted;

/// The JSON output.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct CheckReport<'a> {
    tag: &'a ImageTag,
    hash: String,
    /// The digests of the two builds.
    digests: [String; 2],
    reproducible: bool,
    differences: &'a [ImageDifference],
    lock: LockReport,
}

/// How the image compares with `ralph.lock`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "state", rename_all = "lowercase")]
enum LockReport {
    /// `ralph.lock` has no record of it.
    Absent,
    Same,
    Differs {
        differences: Vec<String>,
    },
}

/// Builds the image twice, and compares the two with each other and with `ralph.lock`.
pub(super) async fn run(
    context: &Context,
    setup: &ImageSetup<'_>,
    builder: &ImageBuilder,
    json: bool,
) -> CliResult {
    let recipe = setup.read(Some(builder)).await?;
    let lock = ImageLock::read(&setup.request.project)?;
    let check = builder.check(&recipe, observer(context.ui).as_mut()).await?;
    let platform = recipe.spec.platform;
    let recorded = lock
        .as_ref()
        .and_then(|lock| lock.find_repository(&check.image.tag, platform));
    let now = LockedImage::new(&check.image, check.base.as_ref(), platform, &check.first);
    let report = CheckReport {
        tag: &check.image.tag,
        hash: check.image.hash.hex(),
        digests: [&check.first, &check.second].map(|build| build.digest().to_string()),
        reproducible: check.differences.is_empty(),
        differences: &check.differences,
        lock: match recorded.map(|recorded| recorded.differences(&now)) {
            None => LockReport::Absent,
            Some(differences) if differences.is_empty() => LockReport::Same,
            Some(differences) => LockReport::Differs { differences },
        },
    };
    context.ui.report(json, &report, report.lines().join("\n"))?;
    if report.reproducible && !matches!(report.lock, LockReport::Differs { .. }) {
        return Ok(CliExit::Success);
    }
    context.ui.say(report.hint());
    Ok(CliExit::Failure)
}

impl CheckReport<'_> {
    fn lines(&self) -> Vec<String> {
        let [first, second] = &self.digests;
        let mut lines = if self.reproducible {
            vec![format!("{}: two builds gave the same image, {first}", self.tag)]
        } else {
            let tag = self.tag;
            let headline = format!("{tag}: two builds gave different images, {first} and {second}");
            let differences = self.differences.iter().flat_map(difference_lines);
            std::iter::once(headline).chain(differences).collect()
        };
        match &self.lock {
            LockReport::Absent => lines.push("ralph.lock has no record of it".to_owned()),
            LockReport::Same => lines.push("ralph.lock records the same image".to_owned()),
            LockReport::Differs { differences } => {
                lines.push("ralph.lock records a different image:".to_owned());
                lines.extend(differences.iter().map(|line| format!("  {line}")));
            }
        }
        lines
    }

    fn hint(&self) -> &'static str {
        if self.reproducible {
            "hint: if the change is intended, record it with `ralph image build --lock`"
        } else if self.differences.iter().all(is_only_times) {
            "hint: builders write the current time into the files that they create, so an image from a Dockerfile is not \
             reproducible byte for byte unless the builder omits times (SOURCE_DATE_EPOCH and `rewrite-timestamp` \
             with buildx); an image from a flake is"
        } else {
            "hint: pin what the build downloads: packages by version, files by hash"
        }
    }
}

fn difference_lines(difference: &ImageDifference) -> Vec<String> {
    match difference {
        ImageDifference::Layers { first, second } => {
            vec![format!(
                "  the first has {}, the second has {second}",
                counted(*first, "layer")
            )]
        }
        ImageDifference::Setting { name } => vec![format!("  {name} differs")],
        ImageDifference::Layer { number, files } => match files {
            LayerDifference::No => vec![format!("  layer {number} differs")],
            LayerDifference::Yes { count, some, .. } => {
                let headline = format!("  layer {number} differs in {}", counted(*count, "file"));
                std::iter::once(headline)
                    .chain(some.iter().map(file_line))
                    .collect()
            }
        },
    }
}

fn file_line(file: &FileDifference) -> String {
    let what = match file.found {
        LayerFileChange::OnlyInFirst => "only in the first",
        LayerFileChange::OnlyInSecond => "only in the second",
        LayerFileChange::Content => "content differs",
        LayerFileChange::Attributes => "kind, mode or owner differs",
        LayerFileChange::Time => "time differs",
    };
    format!("    {}: {what}", file.path)
}

fn is_only_times(difference: &ImageDifference) -> bool {
    matches!(
        difference,
        ImageDifference::Layer {
            files: LayerDifference::Yes { only_times: true, .. },
            ..
        }
    )
}
