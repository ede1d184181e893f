//! `ralph demo`

use std::path::{Path, PathBuf};

use crate::assembly::Ralph;
use crate::config::SandboxType;
use crate::exec::{Command, Discard};
use crate::state::{RunDir, RunOutcomeKind, write_atomically};
use crate::text::shell_word;

use super::run::{EventOutputArgs, drive_to_end, start, summarize};
use super::terminal::EventFormat;
use super::{CliError, CliResult, Context, ErrorTopic, io_error, temp_dir};

/// Show a whole run on a small repository with a scripted model; needs no account
#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {
    /// The provider; `local` needs nothing but git
    #[arg(long = "type", value_name = "PROVIDER", default_value = "local", value_parser = SandboxType::ALL.map(SandboxType::name))]
    provider: String,
    /// The image, for a provider that uses images
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Keep everything in this directory, which must be new or empty
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    output: EventOutputArgs,
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

pub(super) async fn demo(context: &Context, args: DemoArgs) -> CliResult {
    let dir = DemoDir::create(context, args.keep.as_deref())?;
    let project = dir.path.join("project");
    create_project(context, &project).await?;
    write_atomically(&dir.path.join("script.yaml"), SCRIPT.as_bytes())?;

    context
        .ui
        .say("The model of this demo is SCRIPTED: its three answers are fixed. Everything else is real: the");
    context.ui.say(format_args!(
        "clone, the commands, the commits, the evidence and the pull request (sandbox `{}`).\n",
        args.provider
    ));
    // No setting of the user applies to the demo.
    let below = |name: &str| dir.path.join(name).display().to_string();
    let surroundings = context
        .surroundings()
        .clone()
        .without_vars(|name| name.starts_with("RALPH_"))
        .with_var("RALPH_HOME", below("ralph"))
        .with_var("XDG_CONFIG_HOME", below("no-config"))
        .with_dir(&project);
    let format = EventFormat::from(args.output);
    // The demo needs no network, so it gets none where the provider can enforce that.
    let network = if args.provider == "docker" {
        "deny"
    } else {
        "allow-all"
    };
    let mut builder = Ralph::builder()
        .surroundings(surroundings)
        .reporter(context.ui)
        .sink(format.sink(context.ui))
        .script(SCRIPT)
        .set("agent.name", "actions")
        .set("forge.type", "local")
        .set("sandbox.type", &args.provider)
        .set("sandbox.network.policy", network);
    if let Some(image) = &args.image {
        builder = builder.set("sandbox.image", image);
    }
    let (run, signals) = start(context, builder).await?;
    let ralph = dir.ralph();
    let driven = drive_to_end(context, &run, signals, ralph.as_deref()).await;
    let resume = ralph.map(|ralph| format!("{ralph} resume {}", run.dir().facts().id));
    let outcome = driven.map_err(|error| with_own_command(error, run.dir(), resume.as_deref()))?;
    let exit = summarize(context, run.dir(), &outcome, format, None)?;
    show_result(context, run.dir(), &dir, &project).await;
    match resume {
        Some(resume) if outcome.kind != RunOutcomeKind::Done => context.ui.next(format_args!("`{resume}` continues it")),
        _ => context.ui.next(
            "`ralph doctor env` shows what your own run would use; `ralph init` in your repository prepares it",
        ),
    }
    Ok(exit)
}

/// An error whose hint names the command that continues the demo, or starts another one: `ralph resume` alone does not find the run.
fn with_own_command(error: CliError, run: &RunDir, resume: Option<&str>) -> CliError {
    let own = resume.map_or("`ralph demo` again".to_owned(), |resume| format!("`{resume}`"));
    let names = [
        format!("`ralph resume {}`", run.facts().id),
        "`ralph resume`".to_owned(),
    ];
    let hint = error.hint().map(|hint| {
        let hint = hint.to_owned();
        names.iter().fold(hint, |hint, name| hint.replace(name, &own))
    });
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// The directory of a demo.
struct DemoDir {
    path: PathBuf,
    /// Removes the directory when it is dropped, unless it is kept.
    temporary: Option<tempfile::TempDir>,
}

impl DemoDir {
    /// How ralph is called for a run of this demo. `None` if the directory is removed.
    fn ralph(&self) -> Option<String> {
        if self.temporary.is_some() {
            return None;
        }
        let home = self.path.join("ralph");
        Some(format!(
            "RALPH_HOME={} ralph",
            shell_word(&home.to_string_lossy())
        ))
    }

    fn create(context: &Context, keep: Option<&Path>) -> Result<Self, CliError> {
        let Some(dir) = keep else {
            let dir = temp_dir()?;
            return Ok(Self {
                path: dir.path().to_owned(),
                temporary: Some(dir),
            });
        };
        let dir = context.surroundings().dir().join(dir);
        let taken = std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some());
        if taken {
            return Err(CliError::usage(format!("`{}` is not empty", dir.display()))
                .with_hint("name a new directory"));
        }
        std::fs::create_dir_all(&dir).map_err(io_error("create", &dir))?;
        Ok(Self {
            path: dir,
            temporary: None,
        })
    }
}

async fn create_project(context: &Context, project: &Path) -> Result<(), CliError> {
    for (name, text) in FILES {
        write_atomically(&project.join(name), text.as_bytes())?;
    }
    let identity = ["-c", "user.name=demo", "-c", "user.email=demo@localhost"];
    let commit = ["commit", "--quiet", "--message", "A converter with a mistake"];
    git(context, project, &["init", "--quiet", "--initial-branch=main"]).await?;
    git(context, project, &["add", "convert.sh", "test.sh", "README.md"]).await?;
    git(context, project, &[identity, commit].concat()).await?;
    Ok(())
}

async fn git(context: &Context, dir: &Path, args: &[&str]) -> Result<String, CliError> {
    let command = Command::new("git").args(args.iter().copied()).cwd(dir);
    let failed = |reason: String| {
        CliError::runtime(format!("`{command}` failed: {reason}"))
            .with_topic(ErrorTopic::Repository)
            .with_hint("the demo needs git: `git --version`")
    };
    let exit = context.surroundings().host().run(&command, &mut Discard).await;
    let exit = exit.map_err(|error| failed(error.to_string()))?;
    if !exit.success() {
        return Err(failed(exit.stderr.text().trim().to_owned()));
    }
    Ok(exit.stdout.text())
}

/// Shows the result of the run and where its files are.
async fn show_result(context: &Context, run: &RunDir, dir: &DemoDir, project: &Path) {
    let branch = &run.facts().branch;
    let commits = format!("main..{branch}");
    if let Ok(log) = git(context, project, &["log", "--oneline", "--stat", &commits]).await {
        let log = log.trim_end();
        context
            .ui
            .say(format_args!("\nThe commits of the pull request:\n{log}"));
    }
    let path = dir.path.display();
    if dir.temporary.is_some() {
        if let Ok(text) = std::fs::read_to_string(run.pull_request_file()) {
            context
                .ui
                .say(format_args!("\nIts description:\n{}", text.trim_end()));
        }
        context.ui.say(format_args!(
            "\nEverything was in {path}, which is removed now; `ralph demo --keep DIR` keeps it."
        ));
    } else {
        context.ui.say(format_args!(
            "\nEverything is in {path}:\n  project/            the repository, with the branch {branch}\n  ralph/runs/{}/  the run: journal, prompts, answers, evidence, pull-request.md\n  script.yaml         what the scripted model answered",
            run.facts().id
        ));
    }
}
