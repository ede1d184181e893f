//! `ralph image status`

use std::time::Duration;

use indicatif::{DecimalBytes, HumanDuration};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::image::{
    ImageRole, ImageState, ImageStatus, ImageStep, ImageTag, LocalImage, PlannedBase, labels,
};
use crate::text::counted;

use super::provider_images;
use super::selection::ImageFlags;
use crate::cli::{CliExit, CliResult, Context};

/// Show the planned image, whether it is up to date, and all images that ralph built: those of the engine, the templates
/// of Tart or the snapshots of Daytona
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ImageStatusArgs {
    #[command(flatten)]
    image: ImageFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The JSON output.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct StatusReport<'a> {
    /// `sandbox.image`, which is used in place of the planned image.
    named: Option<NamedImage<'a>>,
    planned: PlannedReport<'a>,
    images: Vec<ImageRow<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct NamedImage<'a> {
    image: &'a str,
    present: bool,
}

#[derive(Serialize, JsonSchema)]
struct PlannedReport<'a> {
    tag: &'a ImageTag,
    hash: String,
    state: ImageState,
    base: Option<&'a PlannedBase>,
    /// What remains to be done, and why.
    steps: &'a [ImageStep],
}

#[derive(Serialize, JsonSchema)]
struct ImageRow<'a> {
    image: &'a ImageTag,
    role: ImageRole,
    names: Vec<&'a str>,
    hash: Option<&'a str>,
    agent: Option<&'a str>,
    project: Option<&'a str>,
    mode: Option<&'a str>,
    base: Option<&'a str>,
    pulled_from: Option<&'a str>,
    size: u64,
    layers: usize,
    since: Option<Timestamp>,
    in_use: bool,
}

pub(super) async fn status(context: &Context, args: ImageStatusArgs) -> CliResult {
    let setup = args.image.setup(context)?;
    if let Some(set) = setup.provider_images().await? {
        return provider_images::status(context, &set, args.json, &args.image.next_step()).await;
    }
    let builder = setup.connect().await?;
    let recipe = setup.read(Some(&builder)).await?;
    let ImageStatus { plan, state, images } = builder.status(&recipe).await?;
    let named = match setup.config.settings.sandbox.image.as_deref() {
        Some(image) => Some(NamedImage {
            image,
            present: builder.engine.image(image).await?.is_some(),
        }),
        None => None,
    };
    let report = StatusReport {
        named,
        planned: PlannedReport {
            tag: &plan.image.tag,
            hash: plan.image.hash.hex(),
            state,
            base: plan.base.as_ref(),
            steps: &plan.steps,
        },
        images: images.iter().map(|(image, role)| row(image, *role)).collect(),
    };
    let lines = lines(&report, setup.environment.clock.now());
    context.ui.report(args.json, &report, lines.join("\n"))?;
    context.ui.next(match state {
        ImageState::Present => args.image.next_step(),
        ImageState::Stale | ImageState::Missing => {
            "`ralph image build` makes it, and so does the next run".to_owned()
        }
    });
    Ok(CliExit::Success)
}

fn row(image: &LocalImage, role: ImageRole) -> ImageRow<'_> {
    let names = image.names.iter().chain(&image.other_names);
    let label = |name| image.labels.get(name).map(String::as_str);
    ImageRow {
        image: &image.tag,
        role,
        names: names.map(String::as_str).collect(),
        hash: label(labels::HASH),
        agent: label(labels::AGENT),
        project: label(labels::PROJECT),
        mode: label(labels::MODE),
        base: label(labels::BASE),
        pulled_from: image.pulled_from.as_deref(),
        size: image.size,
        layers: image.layers,
        since: image.since,
        in_use: image.in_use,
    }
}

fn lines(report: &StatusReport, now: Timestamp) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(NamedImage { image, present }) = &report.named {
        let state = if *present { "present" } else { "missing" };
        lines.push(format!("sandboxes start from {image} (`sandbox.image`), {state}"));
    }
    let planned = &report.planned;
    let state = match planned.state {
        ImageState::Present => "present",
        ImageState::Stale => "stale",
        ImageState::Missing => "missing",
    };
    lines.push(format!("planned: {}, {state}", planned.tag));
    if let Some(base) = planned.base {
        lines.push(format!("base: {} ({})", base.reference, base.identity));
    }
    lines.extend(planned.steps.iter().map(|step| format!("to do: {step}")));
    lines.extend(report.images.iter().map(|row| line(row, now)));
    lines
}

fn line(row: &ImageRow, now: Timestamp) -> String {
    let role = match row.role {
        ImageRole::Planned => "planned",
        ImageRole::Base => "base",
        ImageRole::Old => "old",
        ImageRole::Other => "other",
    };
    let origin = match (row.pulled_from, row.mode) {
        (Some(name), _) => format!("pulled from {name}"),
        (None, Some(mode)) => format!("built ({mode})"),
        (None, None) => "built".to_owned(),
    };
    let age = row.since.map(|since| {
        let age = now.duration_since(since).try_into().unwrap_or(Duration::ZERO);
        format!("{} old", HumanDuration(age))
    });
    let in_use = if row.in_use { ", in use" } else { "" };
    format!(
        "{:8} {}: {origin}, {}, {}, {}{in_use}",
        role,
        row.image,
        DecimalBytes(row.size),
        counted(row.layers, "layer"),
        age.as_deref().unwrap_or("age unknown")
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::known(Some("2026-11-13T00:00:00Z"), "3 days old")]
    #[case::unknown(None, "age unknown")]
    fn the_age_of_an_image_is_shown_where_it_is_known(#[case] since: Option<&str>, #[case] expected: &str) {
        let tag = ImageTag::at_end_of("agent-loop-sandbox-holder:v0123abcd").unwrap();
        let row = ImageRow {
            image: &tag,
            role: ImageRole::Other,
            names: Vec::new(),
            hash: None,
            agent: None,
            project: None,
            mode: None,
            base: None,
            pulled_from: None,
            size: 1_000_000,
            layers: 1,
            since: since.map(|time| time.parse().unwrap()),
            in_use: false,
        };
        assert_eq!(
            line(&row, "2026-11-16T00:00:00Z".parse().unwrap()),
            format!("other    {tag}: built, 1.00 MB, 1 layer, {expected}")
        );
    }
}
