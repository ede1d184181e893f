//! `ralph resume`

use crate::assembly::configuration::{TaskFile, project_of};
use crate::assembly::image::prepare;
use crate::config::{Override, Place};
use crate::id::RunId;
use crate::runner;
use crate::scm::Repository;
use crate::state::{RunDir, StateError};

use super::Context;
use super::error::{CliError, Exit};
use super::image;
use super::overrides;
use super::run::{Shown, Start, drive};
use super::select::{Which, select};

/// Go on with a run that was stopped, paused, killed or begun on another machine
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The run; the newest one by default
    run: Option<RunId>,
    #[command(flatten)]
    image: image::RebuildFlag,
    #[command(flatten)]
    shown: Shown,
}

pub(super) async fn resume(context: &Context, args: Args) -> Result<Exit, CliError> {
    let dir = find(context, args.run.as_ref()).await?;
    let config = configuration(context, &dir)?;
    let project = project_of(&context.assembly, &dir);
    let start = Start {
        image: prepare(&context.assembly, &config, &project, args.image.into())
            .await?
            .image,
        config: &config,
        show: args.shown.into(),
    };
    drive(context, &dir, start).await
}

/// The configuration of a run that exists: today's files, its own task, and the flags it was begun with.
pub(super) fn configuration(context: &Context, dir: &RunDir) -> Result<crate::config::Config, CliError> {
    let facts = dir.facts();
    let file = TaskFile {
        path: dir.task_file(),
        text: facts.task.clone(),
        project: project_of(&context.assembly, dir),
    };
    let given = |(key, value): &(String, String)| Override {
        place: Place::Flag(format!("{key}, as the run was begun with")),
        key: key.clone(),
        value: value.clone(),
    };
    let given = facts.overrides.iter().map(given).collect();
    overrides::configuration(context, Some(&file), given)
}

/// The run's directory; a run this machine does not know is taken over from its state ref.
async fn find(context: &Context, run: Option<&RunId>) -> Result<RunDir, CliError> {
    let runs = context.surroundings().runs()?;
    match (select(&runs, run, Which::Any), run) {
        (Ok(dir), _) => Ok(dir),
        (Err(_), Some(id)) if matches!(runs.open(id), Err(StateError::NoSuchRun { .. })) => {
            let repo = Repository::open(context.surroundings().host(), &context.surroundings().cwd).await?;
            Ok(runner::adopt(&runs, &repo, id).await?)
        }
        (Err(error), _) => Err(error),
    }
}
