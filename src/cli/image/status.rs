//! `ralph image status`

use std::time::Duration;

use indicatif::{DecimalBytes, HumanDuration};
use jiff::Timestamp;
use serde::Serialize;

use crate::image::{
    Arrival, Plan, PlannedImage, Role, State, Step, Stocked, Usage, labels, parts, plan, stock, survey,
};

use super::super::Context;
use super::super::error::{CliError, CliExit};
use super::scene::Scene;
use super::wanted::Wanted;

/// Show which image is planned, whether it is there, and what else there is of ralph's making
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How things stand, for programs.
#[derive(Serialize)]
struct Report<'a> {
    /// What sandboxes start from in place of the planned image.
    named: Option<Named<'a>>,
    planned: Planned<'a>,
    images: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Named<'a> {
    image: &'a str,
    present: bool,
}

#[derive(Serialize)]
struct Planned<'a> {
    tag: String,
    hash: String,
    state: State,
    base: Option<Base<'a>>,
    /// What remains to be done, and why.
    steps: &'a [Step],
}

#[derive(Serialize)]
struct Base<'a> {
    reference: &'a str,
    identity: String,
}

#[derive(Serialize)]
struct Row<'a> {
    image: String,
    role: Role,
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

pub(super) async fn status(context: &Context, args: Args) -> Result<CliExit, CliError> {
    let scene = Scene::of(context, &args.wanted)?;
    let engine = scene.engine().await?;
    let recipe = scene.read(&scene.wish(&args.wanted), Some(&engine)).await?;
    let facts = survey(&engine, &recipe.spec, &scene.tools).await?;
    let plan = plan(&recipe.spec, &facts);
    let images = stock(&engine, &scene.tools).await?;
    let named = match scene.config.settings.sandbox.image.as_deref() {
        Some(image) => Some(Named {
            image,
            present: engine.image(image).await?.is_some(),
        }),
        None => None,
    };
    let needed = parts(&recipe.spec, &facts);
    let report = Report {
        named,
        planned: planned(&plan),
        images: images.iter().map(|image| row(image, &needed)).collect(),
    };
    if args.json {
        context.ui.json(&report)?;
    } else {
        for line in lines(&report, scene.tools.clock.now()) {
            context.ui.data(line)?;
        }
    }
    Ok(CliExit::Success)
}

fn planned(plan: &Plan) -> Planned<'_> {
    Planned {
        tag: plan.image.tag.to_string(),
        hash: plan.image.hash.hex(),
        state: State::of(plan),
        base: plan.base.as_ref().map(|base| Base {
            reference: base.reference.as_str(),
            identity: base.identity.to_string(),
        }),
        steps: &plan.steps,
    }
}

fn row<'a>(image: &'a Stocked, planned: &[PlannedImage]) -> Row<'a> {
    let names = image.names.iter().chain(&image.other_names);
    Row {
        image: image.tag.to_string(),
        role: Role::of(&image.tag, planned),
        names: names.map(String::as_str).collect(),
        hash: image.labels.get(labels::HASH),
        agent: image.labels.get(labels::AGENT),
        project: image.labels.get(labels::PROJECT),
        mode: image.labels.get(labels::MODE),
        base: image.labels.get(labels::BASE),
        pulled_from: match &image.arrival {
            Arrival::Pulled(name) => Some(name),
            Arrival::Built => None,
        },
        size: image.size,
        layers: image.layers,
        since: image.since,
        in_use: image.usage == Usage::InUse,
    }
}

fn lines(report: &Report, now: Timestamp) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(Named { image, present }) = &report.named {
        let there = if *present { "there" } else { "not there" };
        lines.push(format!(
            "sandboxes start from {image} (`sandbox.image`), which is {there}"
        ));
    }
    let planned = &report.planned;
    let state = match planned.state {
        State::Present => "present",
        State::Stale => "stale",
        State::Missing => "missing",
    };
    lines.push(format!("planned: {}, {state}", planned.tag));
    if let Some(base) = &planned.base {
        lines.push(format!("base: {} ({})", base.reference, base.identity));
    }
    lines.extend(planned.steps.iter().map(|step| format!("to do: {step}")));
    lines.extend(report.images.iter().map(|row| line(row, now)));
    lines
}

fn line(row: &Row, now: Timestamp) -> String {
    let role = match row.role {
        Role::Planned => "planned",
        Role::Base => "base",
        Role::Old => "old",
        Role::Other => "other",
    };
    let origin = match (row.pulled_from, row.mode) {
        (Some(name), _) => format!("pulled from {name}"),
        (None, Some(mode)) => format!("built ({mode})"),
        (None, None) => "built".to_owned(),
    };
    let age = row.since.map(|since| {
        let age = now.duration_since(since).try_into().unwrap_or(Duration::ZERO);
        format!(", here for {}", HumanDuration(age))
    });
    let in_use = if row.in_use { ", in use" } else { "" };
    format!(
        "{:8} {}: {origin}, {}, {} layers{}{in_use}",
        role,
        row.image,
        DecimalBytes(row.size),
        row.layers,
        age.unwrap_or_default()
    )
}
