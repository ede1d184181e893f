//! `ralph demo`

use std::path::{Path, PathBuf};

use crate::exec::{Command, Discard};
use crate::state::write_atomically;

use super::error::{CliError, Exit, io};
use super::image::RebuildFlag;
use super::run::{self, Shown};
use super::{Context, Global};

/// Show the whole job on a small repository, with a scripted model: no account, no credential
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The provider; `local` needs nothing but git
    #[arg(long = "type", value_name = "PROVIDER", default_value = "local")]
    provider: String,
    /// The image, for a provider that has images
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Keep everything in this directory, which must not exist yet or be empty
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    shown: Shown,
}

const FILES: [(&str, &str); 4] = [
    ("convert.sh", include_str!("../../templates/demo/convert.sh")),
    ("test.sh", include_str!("../../templates/demo/test.sh")),
    ("README.md", include_str!("../../templates/demo/README.md")),
    (
        "ralph_task.md",
        include_str!("../../templates/demo/ralph_task.md"),
    ),
];
const SCRIPT: &str = include_str!("../../templates/demo/script.yaml");

pub(super) async fn demo(context: &Context, args: Args) -> Result<Exit, CliError> {
    let place = Place::make(context, args.keep.as_deref())?;
    let project = place.path().join("project");
    lay_out(context, &project).await?;
    let script = place.path().join("script.yaml");
    write_atomically(&script, SCRIPT.as_bytes())?;

    context
        .ui
        .say("The model of this demo is SCRIPTED: its three answers are fixed. Everything else is real: the");
    context.ui.say(format_args!(
        "clone, the commands, the commits, the evidence and the pull request (sandbox `{}`).\n",
        args.provider
    ));
    let mut surroundings = context.surroundings().clone();
    surroundings.cwd.clone_from(&project);
    // The same for everybody: no setting of the user's reaches the demo.
    surroundings.env.retain(|name, _| !name.starts_with("RALPH_"));
    for (name, dir) in [("RALPH_HOME", "ralph"), ("XDG_CONFIG_HOME", "no-config")] {
        let path = place.path().join(dir).display().to_string();
        surroundings.env.insert(name.to_owned(), path);
    }
    let global = Global {
        config: None,
        set: settings(&args),
    };
    let inside = Context::new(context.ui, surroundings, global);
    let arguments = run::Args {
        task: PathBuf::from("ralph_task.md"),
        provider: None,
        agent: None,
        profile: None,
        max_iterations: None,
        script: Some(script),
        image: RebuildFlag::default(),
        shown: args.shown,
    };
    let exit = run::run(&inside, arguments).await?;
    tell(context, &inside, &place, &project).await?;
    Ok(exit)
}

/// What is set for the demo alone. It needs no network, so it gets none where that can be enforced.
fn settings(args: &Args) -> Vec<String> {
    let network = match args.provider.as_str() {
        "docker" => "deny",
        _ => "allow-all",
    };
    let mut set = vec![
        "agent.name=actions".to_owned(),
        "forge.type=local".to_owned(),
        format!("sandbox.type={}", args.provider),
        format!("sandbox.network.policy={network}"),
    ];
    set.extend(args.image.iter().map(|image| format!("sandbox.image={image}")));
    set
}

/// Where a demo happens.
enum Place {
    Kept(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Place {
    fn make(context: &Context, keep: Option<&Path>) -> Result<Self, CliError> {
        let Some(dir) = keep else {
            let temp = tempfile::Builder::new().prefix("ralph-demo-").tempdir();
            return temp
                .map(Self::Temporary)
                .map_err(io("create", Path::new("a temporary directory")));
        };
        let dir = context.surroundings().cwd.join(dir);
        let taken = std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some());
        if taken {
            return Err(
                CliError::usage(format!("`{}` is not empty", dir.display())).hint("name a new directory")
            );
        }
        std::fs::create_dir_all(&dir).map_err(io("create", &dir))?;
        Ok(Self::Kept(dir))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Kept(dir) => dir,
            Self::Temporary(dir) => dir.path(),
        }
    }
}

async fn lay_out(context: &Context, project: &Path) -> Result<(), CliError> {
    for (name, text) in FILES {
        write_atomically(&project.join(name), text.as_bytes())?;
    }
    let identity = ["-c", "user.name=demo", "-c", "user.email=demo@localhost"];
    git(context, project, &["init", "--quiet", "--initial-branch=main"]).await?;
    git(context, project, &["add", "convert.sh", "test.sh", "README.md"]).await?;
    let commit = [
        identity.as_slice(),
        &["commit", "--quiet", "--message", "A converter with a mistake"],
    ]
    .concat();
    git(context, project, &commit).await?;
    Ok(())
}

async fn git(context: &Context, dir: &Path, args: &[&str]) -> Result<String, CliError> {
    let command = Command::new("git").args(args.iter().copied()).cwd(dir);
    let failed = |reason: String| {
        CliError::runtime(format!("`{command}` failed: {reason}")).hint("the demo needs git: `git --version`")
    };
    let exit = context.surroundings().host().run(&command, &mut Discard).await;
    let exit = exit.map_err(|error| failed(error.to_string()))?;
    if !exit.success() {
        return Err(failed(exit.stderr.text().trim().to_owned()));
    }
    Ok(exit.stdout.text())
}

/// What came out, and where it is.
async fn tell(context: &Context, inside: &Context, place: &Place, project: &Path) -> Result<(), CliError> {
    let Some(run) = inside.surroundings().runs()?.list()?.pop() else {
        return Ok(());
    };
    let branch = &run.facts().branch;
    let log = git(
        context,
        project,
        &["log", "--oneline", "--stat", &format!("main..{branch}")],
    )
    .await;
    if let Ok(log) = log {
        context
            .ui
            .say(format_args!("\nWhat the pull request holds:\n{}", log.trim_end()));
    }
    if let (Place::Temporary(_), Ok(text)) = (place, std::fs::read_to_string(run.pull_request_file())) {
        context
            .ui
            .say(format_args!("\nWhat it says:\n{}", text.trim_end()));
    }
    match place {
        Place::Kept(dir) => context.ui.say(format_args!(
            "\nEverything is in {}:\n  project/            the repository, with the branch {branch}\n  ralph/runs/{}/  the run: journal, prompts, answers, evidence, pull-request.md\n  script.yaml         what the scripted model answered",
            dir.display(),
            run.facts().id
        )),
        Place::Temporary(dir) => context.ui.say(format_args!(
            "\nAll of it was in {} and is removed now; `ralph demo --keep DIR` keeps it.",
            dir.path().display()
        )),
    }
    Ok(())
}
