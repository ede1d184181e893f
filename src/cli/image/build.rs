//! `ralph image build`

use serde::Serialize;

use crate::engine::{Engine, EngineError, Reference};
use crate::image::{Ensured, Facts, ImageError, Step, Wish, ensure, plan, survey};

use super::super::Context;
use super::super::assemble;
use super::super::error::{CliError, Exit};
use super::progress::observer;
use super::wanted::Wanted;
use super::{RebuildFlag, engine, read, tools};

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
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn build(context: &Context, args: Args) -> Result<Exit, CliError> {
    let config = assemble::configuration(context, None, &args.wanted.given())?;
    let project = assemble::project_dir(&context.surroundings.cwd);
    let wish = Wish {
        rebuild: args.rebuild.into(),
        ..args.wanted.wish(context, &config, &project)
    };
    let tools = tools(context)?;
    let found = engine(context, &tools).await;
    if args.dry_run {
        let engine = unless_absent(context, found)?;
        let recipe = read(context, &wish, engine.as_ref(), &tools).await?;
        let facts = match &engine {
            Some(engine) => survey(engine, &recipe.spec, &tools).await?,
            None => Facts::NoEngine,
        };
        let plan = plan(&recipe.spec, &facts);
        return show(context, &args, &plan, plan.to_string().trim_end());
    }
    let name = args.tag.as_deref().map(Reference::parse).transpose();
    let (engine, name) = (found?, name.map_err(ImageError::from)?);
    let recipe = read(context, &wish, Some(&engine), &tools).await?;
    let ensured = ensure(&engine, &recipe, &tools, observer(context.ui).as_mut()).await?;
    if let Some(name) = &name {
        add_name(&engine, &ensured, name).await?;
    }
    let tag = ensured.image.tag.to_string();
    if ensured.done.is_empty() {
        context.ui.say(format_args!("{tag} is there: nothing to do."));
    }
    show(context, &args, &Report::of(&ensured, name.as_ref()), &tag)
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

async fn add_name(engine: &Engine, ensured: &Ensured, name: &Reference) -> Result<(), EngineError> {
    let tag = ensured.image.tag.to_string();
    match engine.image(&tag).await? {
        Some(image) => engine.tag(&image.id, name).await,
        None => Err(EngineError::NotFound { subject: tag }),
    }
}

fn show(context: &Context, args: &Args, json: &impl Serialize, text: &str) -> Result<Exit, CliError> {
    if args.json {
        context.ui.json(json)?;
    } else {
        context.ui.data(text)?;
    }
    Ok(Exit::Success)
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
    fn of(ensured: &'a Ensured, name: Option<&Reference>) -> Self {
        Self {
            tag: ensured.image.tag.to_string(),
            hash: ensured.image.hash.to_string(),
            name: name.map(ToString::to_string),
            done: &ensured.done,
        }
    }
}
