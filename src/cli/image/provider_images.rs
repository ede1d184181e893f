//! The `image` commands for providers that keep their images themselves: templates of Tart, snapshots of Daytona.

use std::sync::Arc;
use std::time::Duration;

use indicatif::HumanDuration;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::assembly::provider_image::PlannedProviderImage;
use crate::image::Rebuild;
use crate::sandbox::{Provider, ProviderImage, ProviderImageFate, ProviderImages, SandboxSpec};
use crate::text::counted;

use super::selection::ImageSetup;
use crate::cli::{CliError, CliExit, CliResult, Context, ErrorTopic, activity};

/// A provider that keeps its images itself, and what its sandboxes start from.
pub(super) struct ProviderImageSet {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) planned: PlannedProviderImage,
    pub(super) spec: SandboxSpec,
}

/// The JSON output of `status` and of a dry run.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct ProviderStatus<'a> {
    provider: &'static str,
    kind: &'static str,
    /// What sandboxes start from; `null` if the provider chooses.
    planned: Option<&'a str>,
    images: &'a [ProviderImage],
}

/// The JSON output of `build`.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct ProviderBuild<'a> {
    provider: &'static str,
    kind: &'static str,
    name: Option<&'a str>,
}

/// One row of the JSON output of `prune`.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct ProviderPruneRow<'a> {
    name: &'a str,
    fate: ProviderImageFate,
}

impl ProviderImageSet {
    fn images(&self) -> Result<&dyn ProviderImages, CliError> {
        let name = self.provider.name();
        let missing = || {
            CliError::usage(format!("the `{name}` provider keeps no images of its own"))
                .with_topic(ErrorTopic::Image)
        };
        self.provider.images().ok_or_else(missing)
    }

    async fn list(&self) -> Result<Vec<ProviderImage>, CliError> {
        Ok(self.images()?.list(&self.spec).await?)
    }
}

/// Shows what sandboxes start from, and everything that ralph made.
pub(super) async fn status(
    context: &Context,
    set: &ProviderImageSet,
    json: bool,
    next_step: &str,
) -> CliResult {
    let (images, now) = (set.list().await?, context.surroundings().now());
    let planned = images.iter().find(|image| image.is_planned);
    let headline = match planned {
        Some(image) if image.is_present => format!("planned: {}, present", image.name),
        Some(image) => format!("planned: {}, missing", image.name),
        None => format!("planned: the default of the `{}` provider", set.provider.name()),
    };
    let rows = images.iter().filter(|image| image.is_present);
    let lines: Vec<String> = std::iter::once(headline)
        .chain(rows.map(|image| line(image, now)))
        .collect();
    let report = ProviderStatus {
        provider: set.provider.name(),
        kind: set.images()?.kind(),
        planned: planned.map(|image| image.name.as_str()),
        images: &images,
    };
    context.ui.report(json, &report, lines.join("\n"))?;
    context.ui.next(match planned {
        Some(image) if !image.is_present => "`ralph image build` makes it, and so does the next run",
        _ => next_step,
    });
    Ok(CliExit::Success)
}

/// Makes what sandboxes start from, unless it exists.
pub(super) async fn build(
    context: &Context,
    setup: &ImageSetup<'_>,
    set: &ProviderImageSet,
    json: bool,
    next_step: &str,
) -> CliResult {
    if setup.request.rebuild == Rebuild::Always {
        set.planned.discard(&context.assembly, &setup.config).await?;
    }
    let images = set.images()?;
    activity::begin(format!("making the {}", images.kind()));
    let name = images.ensure(&set.spec).await?;
    let report = ProviderBuild {
        provider: set.provider.name(),
        kind: images.kind(),
        name: name.as_deref(),
    };
    let text = name.as_deref().unwrap_or("nothing to build");
    context.ui.report(json, &report, text)?;
    context.ui.next(next_step);
    Ok(CliExit::Success)
}

/// Removes what is old, or shows it.
pub(super) async fn prune(context: &Context, set: &ProviderImageSet, dry_run: bool, json: bool) -> CliResult {
    let (images, now) = (set.list().await?, context.surroundings().now());
    let present = images.iter().filter(|image| image.is_present && image.is_own);
    let decided: Vec<(&ProviderImage, ProviderImageFate)> =
        present.map(|image| (image, image.fate(now))).collect();
    let old = decided.iter().filter(|(_, fate)| *fate == ProviderImageFate::Old);
    for (image, _) in old.clone() {
        if !dry_run {
            set.images()?.remove(&image.name).await?;
        }
        if !json {
            context.ui.data(&image.name)?;
        }
    }
    if json {
        let rows = decided.iter().map(|(image, fate)| ProviderPruneRow {
            name: &image.name,
            fate: *fate,
        });
        context.ui.json(&rows.collect::<Vec<_>>())?;
    } else {
        let verb = if dry_run { "would remove" } else { "removed" };
        let all = counted(decided.len(), set.images()?.kind());
        let count = old.count();
        context.ui.say(format_args!("{verb} {count} of {all}"));
        context.ui.next(super::prune::after(dry_run && count > 0));
    }
    Ok(CliExit::Success)
}

fn line(image: &ProviderImage, now: Timestamp) -> String {
    let role = if image.is_planned {
        "planned"
    } else if image.is_of_project {
        "old"
    } else {
        "other"
    };
    let used = image.used.map_or_else(
        || "last use unknown".to_owned(),
        |used| {
            let ago = now.duration_since(used).try_into().unwrap_or(Duration::ZERO);
            format!("used {} ago", HumanDuration(ago))
        },
    );
    let in_use = if image.in_use { ", in use" } else { "" };
    format!("{role:8} {}: {used}{in_use}", image.name)
}
