//! `ralph image build`

use serde::Serialize;

use crate::engine::{Engine, EngineError, EngineImage, EngineImageReference};
use crate::image::{Ensured, Facts, Fingerprint, ImageError, Step, Wish, ensure, plan, survey};

use super::super::Context;
use super::super::error::{CliError, CliExit};
use super::RebuildFlag;
use super::check::{self, Form};
use super::lock::{Lock, Locked, Made};
use super::progress::observer;
use super::scene::Scene;
use super::wanted::Wanted;

/// Build the image, unless it is there already
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    #[command(flatten)]
    rebuild: RebuildFlag,
    /// Give the image this name too, once it is there
    #[arg(long, value_name = "NAME", conflicts_with = "dry_run")]
    tag: Option<String>,
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    proof: Proof,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Whether a build gives the same image again.
#[derive(Debug, clap::Args)]
struct Proof {
    /// Build the image twice, from scratch and out of everybody's way, and compare the two with each other and with
    /// what `ralph.lock` records; exit with 1 where they differ
    #[arg(long, conflicts_with_all = ["dry_run", "tag", "lock", "rebuild"])]
    check: bool,
    /// Record in `ralph.lock` which image this is
    #[arg(long, conflicts_with = "dry_run")]
    lock: bool,
}

pub(super) async fn build(context: &Context, args: Args) -> Result<CliExit, CliError> {
    let scene = Scene::of(context, &args.wanted)?;
    let wish = Wish {
        rebuild: args.rebuild.into(),
        ..scene.wish(&args.wanted)
    };
    let found = scene.engine().await;
    if args.dry_run {
        return show_plan(context, &scene, &args, (&wish, found)).await;
    }
    let name = args.tag.as_deref().map(EngineImageReference::parse).transpose();
    let (engine, name) = (found?, name.map_err(ImageError::from)?);
    if args.proof.check {
        let form = if args.json { Form::Json } else { Form::Text };
        return check::run(context, &scene, &engine, check::Request { wish, form }).await;
    }
    let recipe = scene.read(&wish, Some(&engine)).await?;
    let ensured = ensure(&engine, &recipe, &scene.tools, observer(context.ui).as_mut()).await?;
    if let Some(name) = &name {
        let image = built(&engine, &ensured).await?;
        engine.tag(&image.id, name).await?;
    }
    if args.proof.lock {
        let fingerprint = &Fingerprint::of(&built(&engine, &ensured).await?);
        let platform = recipe.spec.platform();
        let made = Made {
            platform,
            fingerprint,
        };
        let locked = Locked::new(&ensured.image, ensured.base.as_ref(), made);
        Lock::record(&Lock::path_in(&wish.project), locked)?;
    }
    let tag = ensured.image.tag.to_string();
    if ensured.done.is_empty() {
        context.ui.say(format_args!("{tag} is there: nothing to do."));
    }
    show(context, &args, &Report::of(&ensured, name.as_ref()), &tag)
}

async fn show_plan(
    context: &Context,
    scene: &Scene<'_>,
    args: &Args,
    (wish, found): (&Wish, Result<Engine, EngineError>),
) -> Result<CliExit, CliError> {
    let engine = unless_absent(context, found)?;
    let recipe = scene.read(wish, engine.as_ref()).await?;
    let facts = match &engine {
        Some(engine) => survey(engine, &recipe.spec, &scene.tools).await?,
        None => Facts::NoEngine,
    };
    let plan = plan(&recipe.spec, &facts);
    show(context, args, &plan, plan.to_string().trim_end())
}

/// Without any engine a plan can be shown all the same.
fn unless_absent(
    context: &Context,
    found: Result<Engine, EngineError>,
) -> Result<Option<Engine>, EngineError> {
    match found {
        Ok(engine) => Ok(Some(engine)),
        Err(error @ EngineError::NoEngine { .. }) => {
            context.ui.say(format_args!("warning: {error}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The image that was ensured.
async fn built(engine: &Engine, ensured: &Ensured) -> Result<EngineImage, EngineError> {
    let tag = ensured.image.tag.to_string();
    let image = engine.image(&tag).await?;
    image.ok_or(EngineError::NotFound { subject: tag })
}

fn show(context: &Context, args: &Args, json: &impl Serialize, text: &str) -> Result<CliExit, CliError> {
    if args.json {
        context.ui.json(json)?;
    } else {
        context.ui.data(text)?;
    }
    Ok(CliExit::Success)
}

/// What was done, for programs.
#[derive(Serialize)]
struct Report<'a> {
    tag: String,
    hash: String,
    name: Option<String>,
    done: &'a [Step],
}

impl<'a> Report<'a> {
    fn of(ensured: &'a Ensured, name: Option<&EngineImageReference>) -> Self {
        Self {
            tag: ensured.image.tag.to_string(),
            hash: ensured.image.hash.hex(),
            name: name.map(ToString::to_string),
            done: &ensured.done,
        }
    }
}
