//! `ralph image prune`

use indicatif::DecimalBytes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::image::{KeepReason, LocalImage, PruneDecision, PruneRules};

use super::provider_images;
use super::selection::ImageFlags;
use crate::cli::remove::WITHOUT_DRY_RUN;
use crate::cli::{CliError, CliExit, CliResult, Context};
use crate::text::counted;

/// Remove old images that ralph built: those of the engine, the templates of Tart or the snapshots of Daytona. Keeps the
/// images of this project, images in use, the newest of each name, and another project's images of the last 30 days
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ImagePruneArgs {
    #[command(flatten)]
    image: ImageFlags,
    /// How many images of each name to keep, with an engine
    #[arg(long, value_name = "N", default_value_t = 2)]
    keep: usize,
    /// Show what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One image in the JSON output.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct PruneRow<'a> {
    image: String,
    names: &'a [String],
    size: u64,
    fate: &'static str,
}

pub(super) async fn prune(context: &Context, args: ImagePruneArgs) -> CliResult {
    let setup = args.image.setup(context)?;
    if let Some(set) = setup.provider_images().await? {
        return provider_images::prune(context, &set, args.dry_run, args.json).await;
    }
    let builder = setup.connect().await?;
    let plan = builder.plan(&setup.read(Some(&builder)).await?).await?;
    let rules = PruneRules {
        planned: plan.images().map(|image| image.tag.clone()).collect(),
        keep: args.keep,
        now: setup.environment.clock.now(),
    };
    let images = builder.images().await?;
    let mut decisions = rules.decide(&images);
    if !args.dry_run {
        for (image, decision) in &mut decisions {
            if *decision == PruneDecision::Remove {
                *decision = builder.remove(image).await?;
            }
        }
    }
    show(context, &args, &decisions)?;
    Ok(CliExit::Success)
}

fn show(
    context: &Context,
    args: &ImagePruneArgs,
    decisions: &[(&LocalImage, PruneDecision)],
) -> Result<(), CliError> {
    if args.json {
        let rows = decisions.iter().map(|(image, decision)| PruneRow {
            image: image.tag.to_string(),
            names: &image.names,
            size: image.size,
            fate: name(*decision),
        });
        return context.ui.json(&rows.collect::<Vec<_>>());
    }
    let mut removed = 0;
    for (image, decision) in decisions {
        match decision {
            PruneDecision::Remove => {
                removed += 1;
                context
                    .ui
                    .data(format_args!("{} ({})", image.tag, DecimalBytes(image.size)))?;
            }
            PruneDecision::Keep(KeepReason::InUse) => context
                .ui
                .say(format_args!("kept {}: used by a container", image.tag)),
            PruneDecision::Keep(KeepReason::Planned | KeepReason::Newest) => {}
        }
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    context.ui.say(format_args!(
        "{verb} {removed} of {}",
        counted(decisions.len(), "image")
    ));
    context.ui.next(after(args.dry_run && removed > 0));
    Ok(())
}

/// What to do next; `is_preview` if something would be removed.
pub(super) fn after(is_preview: bool) -> &'static str {
    if is_preview {
        WITHOUT_DRY_RUN
    } else {
        "`ralph image status` shows the images that are left"
    }
}

fn name(decision: PruneDecision) -> &'static str {
    match decision {
        PruneDecision::Remove => "removed",
        PruneDecision::Keep(KeepReason::Planned) => "kept: planned",
        PruneDecision::Keep(KeepReason::InUse) => "kept: in use",
        PruneDecision::Keep(KeepReason::Newest) => "kept: newest",
    }
}
