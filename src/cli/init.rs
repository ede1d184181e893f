//! `ralph init`

mod choice;

use std::path::{Path, PathBuf};

use crate::assembly::configuration::load_quietly;
use crate::atomic_file::{FileAccess, write_atomically};
use crate::scm::{Repository, ScmError};
use crate::task::{ProjectFacts, starter};

use self::choice::{InitChoices, InitOptions};
use super::{CliError, CliExit, CliResult, Context, activity, agent_help, io_error};

/// Write a starter task, configuration, models, guardrails and notes for this project
#[derive(Debug, clap::Args)]
pub(super) struct InitArgs {
    /// The directory to write to; the current one by default
    dir: Option<PathBuf>,
    /// Overwrite `ralph_task.md` and `ralph.toml`; other files that exist are kept
    #[arg(long)]
    force: bool,
    #[arg(long, value_name = "NAME", help = agent_help("The agent, instead of the best one that is available"))]
    agent: Option<String>,
    /// The provider, instead of the best one that is available: docker, docker-sandbox, tart, daytona or local
    #[arg(long = "type", value_name = "PROVIDER")]
    provider: Option<String>,
}

/// What is done with a file that exists.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Existing {
    /// It is an error, or overwritten with `--force`.
    Refused,
    /// It stays as it is.
    Kept,
}

/// A file to write.
struct StarterFile {
    name: &'static str,
    text: String,
    mode: u32,
    existing: Existing,
}

pub(super) async fn init(context: &Context, args: InitArgs) -> CliResult {
    let current = context.surroundings().dir();
    let dir = args
        .dir
        .as_ref()
        .map_or(current.to_owned(), |dir| current.join(dir));
    if !args.force {
        for name in ["ralph_task.md", "ralph.toml"] {
            let path = dir.join(name);
            if path.exists() {
                let message = format!("`{}` already exists", path.display());
                return Err(CliError::usage(message)
                    .with_hint("edit it, then `ralph lint`; `ralph init --force` overwrites it"));
            }
        }
    }
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).ok();
    let facts = ProjectFacts::detect(|file| dir.join(file).exists(), read);
    context.ui.say(format_args!("This project: {}.", facts.summary()));
    let keys = load_quietly(&context.assembly, dir.clone(), &context.global.given(Vec::new())?).ok();
    activity::begin("looking at programs, credentials and providers");
    let options = InitOptions::find(context, keys.as_ref()).await?;
    activity::end();
    let choices = options.choose(context, args.agent.as_deref(), args.provider.as_deref())?;
    for file in files(&facts, &choices) {
        write(context, &dir, &file)?;
    }
    for line in choices.remarks() {
        context.ui.say(line);
    }
    if facts.test_command.is_none() {
        context
            .ui
            .say("No test command was found: set `test_command` in ralph_task.md.");
    }
    let ignored = read(".gitignore").unwrap_or_default();
    if !ignored.lines().any(|line| line.trim_matches('/') == ".env") {
        context
            .ui
            .say("Add `.env` to .gitignore, it is for keys: `echo .env >> .gitignore`");
    }
    if let Some(missing) = missing_commit(context, &dir).await? {
        context.ui.say(missing);
    }
    context.ui.next(
        "describe your task in ralph_task.md; then `ralph lint` checks it, and `ralph run` works on it",
    );
    Ok(CliExit::Success)
}

/// What a run would miss in the repository: it starts from a commit.
async fn missing_commit(context: &Context, dir: &Path) -> Result<Option<&'static str>, CliError> {
    let repository = match Repository::open(context.surroundings().host(), dir).await {
        Ok(repository) => repository,
        Err(ScmError::NotARepository { .. }) => {
            return Ok(Some(
                "This is not a git repository, and a run starts from a commit: `git init && git add --all && git commit -m Begin`",
            ));
        }
        Err(error) => return Err(error.into()),
    };
    match repository.resolve("HEAD").await {
        Ok(_) => Ok(None),
        Err(ScmError::UnknownRevision(_)) => Ok(Some(
            "This repository has no commit yet, and a run starts from one: `git add --all && git commit -m Begin`",
        )),
        Err(error) => Err(error.into()),
    }
}

fn files(facts: &ProjectFacts, choices: &InitChoices) -> Vec<StarterFile> {
    let [cheap, strong, code] = choices.models();
    let models = [
        ("{{ cheap }}", cheap),
        ("{{ strong }}", strong),
        ("{{ code }}", code),
    ];
    let models = models
        .iter()
        .fold(starter::MODELS.to_owned(), |text, (name, model)| {
            text.replace(name, model)
        });
    let file = |name, text: String, mode, existing| StarterFile {
        name,
        text,
        mode,
        existing,
    };
    let kept = |name, text: String| file(name, text, 0o644, Existing::Kept);
    vec![
        file("ralph_task.md", task(facts, choices), 0o644, Existing::Refused),
        file("ralph.toml", choices.config(), 0o644, Existing::Refused),
        kept("config/models.yaml", models),
        kept(
            ".ralph/guardrails.md",
            format!("{}{}", starter::GUARDRAILS, starter::SIGNS),
        ),
        kept(".ralph/notes.md", starter::NOTES.to_owned()),
        kept(".ralph/progress.md", starter::PROGRESS.to_owned()),
        kept(".ralph/diagnostics.md", starter::DIAGNOSTICS.to_owned()),
        kept(".env.example", starter::ENV_EXAMPLE.to_owned()),
        file(".env", starter::ENV_EXAMPLE.to_owned(), 0o600, Existing::Kept),
    ]
}

fn write(context: &Context, dir: &Path, file: &StarterFile) -> Result<(), CliError> {
    let path = dir.join(file.name);
    if file.existing == Existing::Kept && path.exists() {
        context
            .ui
            .say(format_args!("`{}` exists and is kept.", file.name));
        return Ok(());
    }
    write_atomically(&path, file.text.as_bytes(), FileAccess::Mode(file.mode))
        .map_err(io_error("write", &path))?;
    context.ui.data(path.display())
}

/// The starter task, with the commands of the project.
fn task(facts: &ProjectFacts, choices: &InitChoices) -> String {
    let mut text = starter::TASK.to_owned();
    let mut set = |line: &str, key: &str, value: &str| {
        text = text.replacen(
            &format!("\n{line}\n"),
            &format!("\n{key}: {}\n", quoted(value)),
            1,
        );
    };
    if let Some(command) = &facts.test_command {
        set("test_command: cargo test", "test_command", command);
    }
    if let Some(command) = &facts.setup_command {
        set("# setup_command: cargo fetch", "setup_command", command);
    }
    if choices.needs_token_limit() {
        set("# max_tokens_total: 2000000", "max_tokens_total", "2000000");
    }
    text
}

/// A value of YAML, in quotes where a plain one would mean something else.
fn quoted(value: &str) -> String {
    let is_plain = !value.contains(": ") && !value.contains(" #") && !value.contains(['"', '\'']);
    if is_plain {
        value.to_owned()
    } else {
        format!("{value:?}")
    }
}
