//! `ralph image build`

use schemars::JsonSchema;
use serde::Serialize;

use crate::engine::{EngineError, EngineImage, EngineImageReference};
use crate::image::{
    EngineState, EnsuredImage, ImageBuilder, ImageError, ImageFingerprint, ImageLock, ImagePlan, ImageStep,
    ImageTag, LockedImage, PlannedDockerfile,
};

use super::RebuildFlag;
use super::check;
use super::progress::observer;
use super::provider_images::{self, ProviderImageSet};
use super::selection::{ImageFlags, ImageSetup};
use crate::cli::{CliError, CliExit, CliResult, Context, ErrorTopic};

/// Build the image, unless it is up to date
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(in crate::cli) struct ImageBuildArgs {
    #[command(flatten)]
    image: ImageFlags,
    #[command(flatten)]
    rebuild: RebuildFlag,
    /// Also give the image this name
    #[arg(long, value_name = "NAME", conflicts_with = "dry_run")]
    tag: Option<String>,
    /// Show what would be done
    #[arg(long)]
    dry_run: bool,
    /// With `--dry-run`, show the Dockerfiles too
    #[arg(short, long, requires = "dry_run")]
    verbose: bool,
    /// Build the image twice, from scratch and under temporary tags, and compare the two with each other and with
    /// `ralph.lock`; exit with 1 if they differ
    #[arg(long, conflicts_with_all = ["dry_run", "tag", "lock", "rebuild"])]
    check: bool,
    /// Record the image in `ralph.lock`
    #[arg(long, conflicts_with = "dry_run")]
    lock: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn build(context: &Context, args: ImageBuildArgs) -> CliResult {
    let mut setup = args.image.setup(context)?;
    setup.request.rebuild = args.rebuild.into();
    if setup.builds_at_provider()
        && let Some(set) = setup.provider_images().await?
    {
        return build_at_provider(context, &setup, &set, &args).await;
    }
    let connected = setup.connect().await;
    if args.dry_run {
        return show_plan(context, &setup, &args, connected).await;
    }
    let name = args.tag.as_deref().map(EngineImageReference::parse).transpose();
    let (builder, name) = (connected?, name.map_err(ImageError::from)?);
    if args.check {
        return check::run(context, &setup, &builder, args.json).await;
    }
    let recipe = setup.read(Some(&builder)).await?;
    let ensured = builder.ensure(&recipe, observer(context.ui).as_mut()).await?;
    if let Some(name) = &name {
        let image = built(&builder, &ensured).await?;
        builder.engine.tag(&image.id, name).await?;
    }
    if args.lock {
        let built = ImageFingerprint::new(&built(&builder, &ensured).await?);
        let platform = recipe.spec.platform;
        let locked = LockedImage::new(&ensured.image, ensured.base.as_ref(), platform, &built);
        ImageLock::record(&setup.request.project, locked)?;
    }
    let tag = &ensured.image.tag;
    if ensured.done.is_empty() {
        context.ui.say(format_args!("{tag} is up to date, nothing to do"));
    }
    let report = BuildReport {
        tag,
        hash: ensured.image.hash.hex(),
        name: name.as_ref().map(ToString::to_string),
        done: &ensured.done,
    };
    context.ui.report(args.json, &report, tag)?;
    context.ui.next(args.image.next_step());
    Ok(CliExit::Success)
}

/// Makes the template or snapshot.
async fn build_at_provider(
    context: &Context,
    setup: &ImageSetup<'_>,
    set: &ProviderImageSet,
    args: &ImageBuildArgs,
) -> CliResult {
    if args.check || args.lock || args.tag.is_some() {
        let message = "`--check`, `--lock` and `--tag` are for images of a container engine";
        return Err(CliError::usage(message)
            .with_topic(ErrorTopic::Image)
            .with_hint("add `--type docker`"));
    }
    if !args.dry_run {
        return provider_images::build(context, setup, set, args.json, &args.image.next_step()).await;
    }
    if let Some(dockerfile) = set
        .spec
        .dockerfile
        .as_deref()
        .filter(|_| args.verbose && !args.json)
    {
        context.ui.data(dockerfile.trim_end())?;
    }
    provider_images::status(context, set, args.json, &args.image.next_step()).await
}

async fn show_plan(
    context: &Context,
    setup: &ImageSetup<'_>,
    args: &ImageBuildArgs,
    connected: Result<ImageBuilder, EngineError>,
) -> CliResult {
    let mut next_step = "the same command without `--dry-run` does this";
    let builder = match connected {
        Ok(builder) => Some(builder),
        // A plan can be shown without an engine.
        Err(error @ EngineError::NoEngine { .. }) => {
            context.ui.say(format_args!("warning: {error}"));
            next_step = error.hint().unwrap_or(next_step);
            None
        }
        Err(error) => return Err(error.into()),
    };
    let recipe = setup.read(builder.as_ref()).await?;
    let plan = match &builder {
        Some(builder) => builder.plan(&recipe).await?,
        None => ImagePlan::new(&recipe.spec, &EngineState::NoEngine),
    };
    let dockerfiles = args.verbose.then(|| plan.dockerfiles(&recipe.spec));
    let shown = dockerfiles.iter().flatten().map(ToString::to_string);
    let text: Vec<String> = std::iter::once(plan.to_string()).chain(shown).collect();
    let report = PlanReport {
        plan: &plan,
        dockerfiles,
    };
    context
        .ui
        .report(args.json, &report, text.join("\n").trim_end())?;
    context.ui.next(next_step);
    Ok(CliExit::Success)
}

async fn built(builder: &ImageBuilder, ensured: &EnsuredImage) -> Result<EngineImage, EngineError> {
    let tag = ensured.image.tag.to_string();
    let image = builder.engine.image(&tag).await?;
    image.ok_or(EngineError::NotFound { subject: tag })
}

/// The JSON output of a dry run.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct PlanReport<'a> {
    #[serde(flatten)]
    plan: &'a ImagePlan,
    #[serde(skip_serializing_if = "Option::is_none")]
    dockerfiles: Option<Vec<PlannedDockerfile>>,
}

/// The JSON output.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct BuildReport<'a> {
    tag: &'a ImageTag,
    hash: String,
    name: Option<String>,
    done: &'a [ImageStep],
}
