//! `ralph image prune`

use indicatif::DecimalBytes;
use serde::Serialize;

use crate::image::{Fate, KeptFor, PruneRules, Stocked, judge, parts, remove, stock, survey};

use super::super::Context;
use super::super::error::{CliError, CliExit};
use super::scene::Scene;
use super::wanted::Wanted;

/// Remove old images of ralph's making. What this project needs, what a container needs, the newest of each name, and
/// another project's newest of the last 30 days stay
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

pub(super) async fn prune(context: &Context, args: Args) -> Result<CliExit, CliError> {
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
    show(context, &args, &judged)?;
    Ok(CliExit::Success)
}

fn show(context: &Context, args: &Args, judged: &[(&Stocked, Fate)]) -> Result<(), CliError> {
    if args.json {
        let rows = judged.iter().map(|(image, fate)| row(image, *fate));
        return context.ui.json(&rows.collect::<Vec<Row>>());
    }
    for (image, fate) in judged {
        match fate {
            Fate::Removed => context
                .ui
                .data(format_args!("{} ({})", image.tag, DecimalBytes(image.size)))?,
            Fate::Kept(KeptFor::InUse) => context
                .ui
                .say(format_args!("{} stays: a container needs it.", image.tag)),
            Fate::Kept(KeptFor::Planned | KeptFor::Newest) => {}
        }
    }
    let gone = judged.iter().filter(|(_, fate)| *fate == Fate::Removed).count();
    let verb = if args.dry_run {
        "would be removed"
    } else {
        "removed"
    };
    context
        .ui
        .say(format_args!("{gone} of {} images {verb}.", judged.len()));
    Ok(())
}

fn row(image: &Stocked, fate: Fate) -> Row<'_> {
    Row {
        image: image.tag.to_string(),
        names: &image.names,
        size: image.size,
        fate: word(fate),
    }
}

fn word(fate: Fate) -> &'static str {
    match fate {
        Fate::Removed => "removed",
        Fate::Kept(KeptFor::Planned) => "kept: planned",
        Fate::Kept(KeptFor::InUse) => "kept: in use",
        Fate::Kept(KeptFor::Newest) => "kept: newest",
    }
}
