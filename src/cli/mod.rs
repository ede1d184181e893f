//! The command line: one file per command, whose doc comment is its help.

mod config;
mod control;
mod credentials;
mod demo;
mod diff;
mod doctor;
mod error;
mod gateway;
mod image;
mod init;
mod lint;
mod logs;
mod network;
mod overrides;
mod reference;
mod resume;
mod run;
mod sandbox;
mod select;
mod selftest;
mod signals;
mod status;
mod terminal;
mod token;
mod ui;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::assembly::{AssemblyContext, Surroundings};

use error::{CliError, Exit};
use ui::Ui;

pub use reference::cli_reference;

/// Runs coding agents unattended, in a loop, inside a sandbox, and hands back a pull request
#[derive(Debug, Parser)]
#[command(name = "ralph", version, disable_help_subcommand = true, max_term_width = 100)]
struct Args {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, clap::Args)]
struct Global {
    /// Read this configuration file in place of `ralph.toml`
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one configuration key, as in `--set budget.max_iterations=5`; may be given again
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Args),
    Lint(lint::Args),
    Run(run::Args),
    Resume(resume::Args),
    Status(status::Args),
    Pause(control::PauseArgs),
    Rotate(control::RotateArgs),
    Stop(control::StopArgs),
    Note(control::NoteArgs),
    Logs(logs::Args),
    Diff(diff::Args),
    Doctor(doctor::Args),
    Demo(demo::Args),
    Image(image::Args),
    Selftest(selftest::Args),
    Sandbox(sandbox::Args),
    PruneSandboxes(sandbox::PruneArgs),
    Network(network::Args),
    Gateway(gateway::Args),
    Token(token::Args),
    StoreToken(token::StoreArgs),
    CheckToken(token::CheckArgs),
    GetToken(token::GetArgs),
    Config(config::Args),
    Completions(reference::CompletionsArgs),
    Man(reference::ManArgs),
}

/// What every command is given.
struct Context {
    ui: Ui,
    assembly: AssemblyContext,
    global: Global,
}

impl Context {
    fn new(ui: Ui, surroundings: Surroundings, global: Global) -> Self {
        let assembly = AssemblyContext {
            surroundings,
            reporter: Arc::new(ui),
        };
        Self { ui, assembly, global }
    }

    fn surroundings(&self) -> &Surroundings {
        &self.assembly.surroundings
    }
}

/// Parses the process's arguments, runs the command and returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    main_with(std::env::args_os())
}

/// The same with these arguments, the first of which is the name of the program: for one that is ralph and more, such as one
/// that listens to its `tracing` events.
#[must_use]
pub fn main_with(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    ExitCode::from(dispatch(arguments) as u8)
}

fn dispatch(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    let surroundings = match Surroundings::from_process() {
        Ok(surroundings) => surroundings,
        Err(error) => return Ui::new(true).error(&error.into()),
    };
    let ui = Ui::new(surroundings.var("NO_COLOR").is_some());
    let context = Context::new(ui, surroundings, args.global);
    match execute(&context, args.command) {
        Ok(exit) => exit,
        Err(error) => ui.error(&error),
    }
}

fn execute(context: &Context, command: Command) -> Result<Exit, CliError> {
    match command {
        Command::Init(args) => init::init(context, &args),
        Command::Lint(args) => lint::lint(context, &args),
        Command::Run(args) => block_on(run::run(context, args)),
        Command::Resume(args) => block_on(resume::resume(context, args)),
        Command::Status(args) => status::status(context, &args),
        Command::Pause(args) => control::pause(context, &args),
        Command::Rotate(args) => control::rotate(context, &args),
        Command::Stop(args) => control::stop(context, &args),
        Command::Note(args) => control::note(context, &args),
        Command::Logs(args) => logs::logs(context, &args),
        Command::Diff(args) => block_on(diff::diff(context, args)),
        Command::Doctor(args) => block_on(doctor::doctor(context, args)),
        Command::Demo(args) => block_on(demo::demo(context, args)),
        Command::Image(args) => block_on(image::image(context, args)),
        Command::Selftest(args) => block_on(selftest::try_out(context, args)),
        Command::Sandbox(args) => block_on(sandbox::sandbox(context, args)),
        Command::PruneSandboxes(args) => block_on(sandbox::prune(context, args)),
        Command::Network(args) => block_on(network::network(context, args)),
        Command::Gateway(args) => block_on(gateway::gateway(context, args)),
        Command::Token(args) => block_on(token::token(context, args)),
        Command::StoreToken(args) => block_on(token::store(context, args)),
        Command::CheckToken(args) => block_on(token::check(context, args)),
        Command::GetToken(args) => block_on(token::get(context, args)),
        Command::Config(args) => config::config(context, &args),
        Command::Completions(args) => reference::completions(context, &args),
        Command::Man(args) => reference::man(context, &args),
    }
}

fn block_on<F: Future<Output = Result<Exit, CliError>>>(future: F) -> Result<Exit, CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| CliError::runtime(format!("the async runtime cannot start: {error}")))?;
    runtime.block_on(future)
}

/// Help and version go to stdout and are no error; anything else is told as ralph tells errors.
fn usage(error: &clap::Error) -> Exit {
    let ui = Ui::new(true);
    let text = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        ui.say(text.trim_end());
        return Exit::Usage;
    }
    if !error.use_stderr() {
        let _ = ui.data(text.trim_end());
        return Exit::Success;
    }
    ui.say(format_args!(
        "ralph: {}",
        text.trim_start_matches("error: ").trim_end()
    ));
    Exit::Usage
}

/// The command tree, for completions, the manual page and the reference.
fn command() -> clap::Command {
    Args::command()
}
