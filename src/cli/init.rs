//! `ralph init`

mod choice;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::assembly::configuration::load_quietly;
use crate::assembly::repository_lack::RepositoryLack;
use crate::atomic_file::{FileAccess, write_atomically};
use crate::task::{ProjectFacts, starter};

use self::choice::{InitChoices, InitOptions};
use super::{CliError, CliExit, CliResult, Context, activity, agent_help, io_error};

/// Write a starter task, configuration, models, guardrails and notes for this project
#[derive(Debug, clap::Args)]
pub(super) struct InitArgs {
    /// The directory to write to; the current one by default
    dir: Option<PathBuf>,
    /// Overwrite `ralph_task.md` and `ralph.toml` too; other files that exist are kept
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
    /// It is overwritten.
    Overwritten,
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
    let keeps_config = keeps_config(&args, &dir)?;
    let read = |file: &str| fs::read_to_string(dir.join(file)).ok();
    let facts = ProjectFacts::detect(|file| dir.join(file).exists(), read);
    context.ui.say(format_args!("This project: {}.", facts.summary()));
    let loaded = load_quietly(&context.assembly, dir.clone(), &context.global.given(Vec::new())?);
    let config = if keeps_config { Some(loaded?) } else { loaded.ok() };
    activity::begin("looking at programs, credentials and providers");
    let options = InitOptions::find(context, config.as_ref()).await?;
    activity::end();
    let choices = match config.filter(|_| keeps_config) {
        Some(config) => options.of_config(&config)?,
        None => options.choose(context, args.agent.as_deref(), args.provider.as_deref())?,
    };
    ignore_keys(context, &dir)?;
    for file in files(&facts, &choices, keeps_config) {
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
    if let Some(missing) = missing_commit(context, &dir, args.dir.as_deref()).await {
        context.ui.say(missing);
    }
    let place = args
        .dir
        .as_ref()
        .map_or(String::new(), |dir| format!("in `{}`, ", dir.display()));
    context.ui.next(format_args!(
        "{place}describe your task in ralph_task.md; then `ralph lint` checks it, and `ralph run` works on it"
    ));
    Ok(CliExit::Success)
}

/// Whether the `ralph.toml` that exists stays. A task that exists is an error, and so are settings for a file that stays.
fn keeps_config(args: &InitArgs, dir: &Path) -> Result<bool, CliError> {
    let exists = |name: &str| !args.force && dir.join(name).exists();
    let refuse = |name: &str, hint: &str| {
        let message = format!("`{}` already exists", dir.join(name).display());
        Err(CliError::usage(message).with_hint(hint))
    };
    if exists("ralph_task.md") {
        return refuse(
            "ralph_task.md",
            "edit it, then `ralph lint`; `ralph init --force` overwrites it",
        );
    }
    if exists("ralph.toml") && (args.agent.is_some() || args.provider.is_some()) {
        return refuse(
            "ralph.toml",
            "without `--agent` and `--type` it is kept; `ralph init --force` overwrites it",
        );
    }
    Ok(exists("ralph.toml"))
}

/// Makes sure that git ignores `.env`, which is for keys.
fn ignore_keys(context: &Context, dir: &Path) -> Result<(), CliError> {
    let path = dir.join(".gitignore");
    let rules = fs::read(&path).unwrap_or_default();
    let is_keys = |line: &str| line.trim().trim_matches('/') == ".env";
    if String::from_utf8_lossy(&rules).lines().any(is_keys) {
        return Ok(());
    }
    let line_break = if rules.is_empty() || rules.ends_with(b"\n") {
        ""
    } else {
        "\n"
    };
    fs::create_dir_all(dir).map_err(io_error("create", dir))?;
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| writeln!(file, "{line_break}.env"))
        .map_err(io_error("write", &path))?;
    context.ui.say("Added `.env` to `.gitignore`: it is for keys.");
    Ok(())
}

/// What a run would lack in the repository. The proposed commands name the directory as it was given.
async fn missing_commit(context: &Context, dir: &Path, given: Option<&Path>) -> Option<String> {
    let lack = RepositoryLack::find(&context.surroundings().host(), dir, given).await?;
    Some(match lack {
        RepositoryLack::Commit { lack, commands } => format!("{}: `{commands}`", capitalized(lack)),
        RepositoryLack::Usable { reason, hint } => {
            let hint = hint.map_or(String::new(), |hint| format!(" ({hint})"));
            format!("A run would be refused: {reason}{hint}")
        }
    })
}

/// The text with an upper-case first letter, as the beginning of a sentence.
fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

fn files(facts: &ProjectFacts, choices: &InitChoices, keeps_config: bool) -> Vec<StarterFile> {
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
    let config = if keeps_config {
        Existing::Kept
    } else {
        Existing::Overwritten
    };
    vec![
        file(
            "ralph_task.md",
            task(facts, choices),
            0o644,
            Existing::Overwritten,
        ),
        file("ralph.toml", choices.config(), 0o644, config),
        kept("config/models.yaml", models),
        kept(
            ".ralph/guardrails.md",
            format!("{}{}", starter::GUARDRAILS, starter::SIGNS),
        ),
        kept(".ralph/notes.md", starter::NOTES.to_owned()),
        kept(".ralph/progress.md", starter::PROGRESS.to_owned()),
        kept(".ralph/diagnostics.md", starter::DIAGNOSTICS.to_owned()),
        kept(".env.example", starter::ENV_EXAMPLE.to_owned()),
        file(".env", starter::ENV_EXAMPLE.to_owned(), KEYS_MODE, Existing::Kept),
    ]
}

/// The mode of a file with keys.
const KEYS_MODE: u32 = 0o600;

/// Takes a file with keys away from other users; `false` if they could not use it before either.
fn close(path: &Path) -> Result<bool, CliError> {
    let mut permissions = fs::metadata(path).map_err(io_error("read", path))?.permissions();
    let of_others = permissions.mode() % 0o100;
    if of_others == 0 {
        return Ok(false);
    }
    permissions.set_mode(KEYS_MODE);
    fs::set_permissions(path, permissions).map_err(io_error("change the mode of", path))?;
    Ok(true)
}

fn write(context: &Context, dir: &Path, file: &StarterFile) -> Result<(), CliError> {
    let path = dir.join(file.name);
    if file.existing == Existing::Kept && path.exists() {
        let closed = if file.mode == KEYS_MODE && close(&path)? {
            "; now only you can read it"
        } else {
            ""
        };
        context
            .ui
            .say(format_args!("`{}` exists and is kept{closed}.", file.name));
        return Ok(());
    }
    write_atomically(&path, file.text.as_bytes(), FileAccess::Mode(file.mode))
        .map_err(io_error("write", &path))?;
    context.ui.data(path.display())
}

/// A line of [`starter::TASK`].
const TEST_COMMAND: &str = "test_command: cargo test";

/// The starter task, with the commands of the project.
fn task(facts: &ProjectFacts, choices: &InitChoices) -> String {
    let mut text = starter::TASK.to_owned();
    let mut set = |line: &str, new: &str| {
        text = text.replacen(&format!("\n{line}\n"), &format!("\n{new}\n"), 1);
    };
    match &facts.test_command {
        Some(command) => set(TEST_COMMAND, &format!("test_command: {}", quoted(command))),
        None => set(TEST_COMMAND, starter::NO_TEST_COMMAND),
    }
    if let Some(command) = &facts.setup_command {
        set(
            "# setup_command: cargo fetch",
            &format!("setup_command: {}", quoted(command)),
        );
    }
    if choices.needs_token_limit() {
        set("# max_tokens_total: 2000000", "max_tokens_total: 2000000");
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
