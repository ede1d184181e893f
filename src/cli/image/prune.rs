//! `ralph image prune`

use indicatif::DecimalBytes;
use serde::Serialize;

use crate::engine::{Image, Removal};
use crate::image::load::unfinished;
use crate::image::{Fate, KeptFor, PruneRules, Stocked, judge, parts, remove, stock, survey};

use super::super::Context;
use super::super::error::{CliError, Exit};
use super::scene::Scene;
use super::wanted::Wanted;

/// Remove old images of ralph's making. What this project needs, what a container needs, the newest of each name, and
/// another project's newest of the last 30 days stay. What is left of loads that were killed goes too
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// How many images of each name stay
    #[arg(long, value_name = "N", default_value_t = 2)]
    keep: usize,
    /// Show what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One image, for programs.
#[derive(Serialize)]
struct Row<'a> {
    image: String,
    names: &'a [String],
    size: u64,
    fate: &'static str,
}

pub(super) async fn prune(context: &Context, args: Args) -> Result<Exit, CliError> {
    let scene = Scene::of(context, &args.wanted)?;
    let engine = scene.engine().await?;
    let recipe = scene.read(&scene.wish(&args.wanted), Some(&engine)).await?;
    let facts = survey(&engine, &recipe.spec, &scene.tools).await?;
    let planned = parts(&recipe.spec, &facts);
    let rules = PruneRules {
        planned: planned.into_iter().map(|image| image.tag).collect(),
        keep: args.keep,
        now: scene.tools.clock.now(),
    };
    let images = stock(&engine, &scene.tools).await?;
    let mut judged = judge(&images, &rules);
    if !args.dry_run {
        for (image, fate) in &mut judged {
            if *fate == Fate::Removed {
                *fate = remove(&engine, image).await?;
            }
        }
    }
    let mut portions = unfinished(&engine).await?;
    if !args.dry_run {
        for portion in std::mem::take(&mut portions) {
            if engine.remove_unused(portion.id.as_str()).await? == Removal::Removed {
                portions.push(portion);
            }
        }
    }
    show(context, &args, &judged, &portions)?;
    Ok(Exit::Success)
}

fn show(
    context: &Context,
    args: &Args,
    judged: &[(&Stocked, Fate)],
    portions: &[Image],
) -> Result<(), CliError> {
    if args.json {
        let rows = judged.iter().map(|(image, fate)| row(image, *fate));
        let rows: Vec<Row> = rows.chain(portions.iter().map(row_of_portion)).collect();
        return context.ui.json(&rows);
    }
    for portion in portions {
        let size = DecimalBytes(portion.size);
        let line = format_args!("{} ({size}), left by a load that was killed", portion.id);
        context.ui.data(line)?;
    }
    for (image, fate) in judged {
        let size = DecimalBytes(image.size);
        match fate {
            Fate::Removed => context.ui.data(format_args!("{} ({size})", image.tag))?,
            Fate::Kept(KeptFor::InUse) => context
                .ui
                .say(format_args!("{} stays: a container needs it.", image.tag)),
            Fate::Kept(KeptFor::Planned | KeptFor::Newest) => {}
        }
    }
    let gone = judged.iter().filter(|(_, fate)| *fate == Fate::Removed).count() + portions.len();
    let all = judged.len() + portions.len();
    let verb = if args.dry_run {
        "would be removed"
    } else {
        "removed"
    };
    context.ui.say(format_args!("{gone} of {all} images {verb}."));
    Ok(())
}

fn row_of_portion(portion: &Image) -> Row<'_> {
    Row {
        image: portion.id.to_string(),
        names: &[],
        size: portion.size,
        fate: "removed",
    }
}

fn row(image: &Stocked, fate: Fate) -> Row<'_> {
    Row {
        image: image.tag.to_string(),
        names: &image.names,
        size: image.size,
        fate: match fate {
            Fate::Removed => "removed",
            Fate::Kept(KeptFor::Planned) => "kept: planned",
            Fate::Kept(KeptFor::InUse) => "kept: in use",
            Fate::Kept(KeptFor::Newest) => "kept: newest",
        },
    }
}
