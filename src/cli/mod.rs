//! The command line: one file per command, whose doc comment is its help.

mod activity;
mod api_token;
mod config;
mod control;
mod credentials;
mod dashboard;
mod demo;
mod diff;
mod doctor;
mod edit;
mod environment;
mod error;
mod evidence;
mod gateway;
mod help;
mod image;
mod init;
mod issue;
mod json_schema;
mod lint;
mod logs;
mod models;
mod network;
mod overrides;
mod poll;
mod reference;
mod remove;
mod respond;
mod resume;
mod run;
mod sandbox;
mod select;
mod selftest;
mod serve;
mod signals;
mod status;
mod store;
mod submit;
mod terminal;
mod token;
mod ui;
mod usage;
mod warnings;
mod watch;
mod worker;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};

use crate::agent::AgentRecord;
use crate::assembly::{AssemblyContext, Ralph, RalphBuilder, RunControl, Surroundings};
use crate::config::ConfigOverride;
use crate::state::Intervention;

use error::{CliError, CliExit, CliResult, ErrorTopic, io_error, temp_dir};
use overrides::{choice_options, configuration, flags};
use select::select_run;
use ui::Ui;

pub use json_schema::{json_reference, json_schemas};
pub use reference::cli_reference;

/// Runs coding agents unattended, in a loop, inside a sandbox, and hands back a pull request
#[derive(Debug, Parser)]
#[command(name = "ralph", version, disable_help_subcommand = true, max_term_width = help::WIDTH)]
struct CliArgs {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: CliCommand,
}

/// Options that every command has.
#[derive(Clone, Debug, clap::Args)]
struct GlobalArgs {
    /// Read this configuration file instead of `ralph.toml`
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one configuration key, as in `--set budget.max_iterations=5`; a list is `a,b` or `["a", "b"]`; repeatable
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Init(init::InitArgs),
    Lint(lint::LintArgs),
    Run(run::RunArgs),
    Resume(resume::ResumeArgs),
    Poll(poll::PollArgs),
    Submit(submit::SubmitArgs),
    Worker(worker::WorkerArgs),
    Respond(respond::RespondArgs),
    Status(status::StatusArgs),
    Watch(watch::WatchArgs),
    /// Pause a run after its current iteration
    Pause(control::LiveRunArgs),
    /// End the current iteration of a run and start the next one
    Rotate(control::LiveRunArgs),
    /// Stop a run now, or take it out of the queue; `ralph resume` continues it
    Stop(control::LiveRunArgs),
    Note(control::NoteArgs),
    Sign(control::SignArgs),
    Profile(control::ProfileArgs),
    Edit(edit::EditArgs),
    Retry(edit::RetryArgs),
    Rm(remove::RemoveArgs),
    Prune(remove::PruneArgs),
    Logs(logs::LogsArgs),
    Diff(diff::DiffArgs),
    #[command(subcommand)]
    Evidence(evidence::EvidenceSubcommand),
    Models(models::ModelsArgs),
    Doctor(doctor::DoctorArgs),
    Demo(demo::DemoArgs),
    #[command(subcommand)]
    Image(image::ImageCommand),
    Selftest(selftest::SelftestArgs),
    #[command(subcommand)]
    Sandbox(sandbox::SandboxCommand),
    #[command(hide = true)]
    PruneSandboxes(sandbox::PruneSandboxesArgs),
    #[command(subcommand)]
    Network(network::NetworkCommand),
    #[command(subcommand)]
    Gateway(gateway::GatewayCommand),
    #[command(subcommand)]
    Token(token::TokenCommand),
    #[command(hide = true)]
    StoreToken(token::StoreTokenArgs),
    #[command(hide = true)]
    CheckToken(token::CheckTokenArgs),
    #[command(hide = true)]
    GetToken(token::GetTokenArgs),
    #[command(subcommand)]
    Store(store::StoreCommand),
    #[command(subcommand)]
    Config(config::ConfigCommand),
    Serve(serve::ServeArgs),
    Dashboard(dashboard::DashboardArgs),
    #[command(subcommand)]
    ApiToken(api_token::ApiTokenCommand),
    Completions(reference::CompletionsArgs),
    Man(reference::ManArgs),
}

/// What every command works with.
#[derive(Clone)]
struct Context {
    ui: Ui,
    assembly: AssemblyContext,
    global: GlobalArgs,
}

impl Context {
    /// A builder with the surroundings and the settings of this process. `flags` are those of the command.
    fn builder(&self, flags: Vec<ConfigOverride>) -> Result<RalphBuilder, CliError> {
        let given = self.global.given(flags)?;
        let builder = Ralph::builder()
            .surroundings(self.surroundings().clone())
            .reporter(self.ui)
            .overrides(given.overrides);
        Ok(match given.config_file {
            Some(path) => builder.config_file(path),
            None => builder,
        })
    }

    /// The operations on runs, with the settings of this process.
    fn control(&self) -> Result<RunControl, CliError> {
        let given = self.global.given(Vec::new())?;
        Ok(RunControl::with(self.assembly.clone(), given))
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

/// Like [`main`] with these arguments, the first of which is the name of the program. For programs that add to ralph, for
/// example a subscriber of its `tracing` events.
#[must_use]
pub fn main_with(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    ExitCode::from(dispatch(arguments) as u8)
}

fn dispatch(arguments: impl IntoIterator<Item = OsString>) -> CliExit {
    let (args, prints_json) = match usage::parse(arguments) {
        Ok(parsed) => parsed,
        Err(exit) => return exit,
    };
    let surroundings = match Surroundings::from_process() {
        Ok(surroundings) => surroundings,
        Err(error) => return Ui::new(true).error(&error),
    };
    let plain = surroundings.var("NO_COLOR").is_some() || surroundings.var("TERM") == Some("dumb");
    let ui = Ui {
        prints_json,
        ..Ui::new(plain)
    };
    let context = Context {
        ui,
        assembly: AssemblyContext::new(surroundings, Arc::new(ui)),
        global: args.global,
    };
    if !matches!(args.command, CliCommand::Watch(_)) {
        // A line on the screen of `watch` would damage it.
        warnings::show(ui);
    }
    let result = execute(&context, args.command);
    activity::end();
    match (result, ui.lost_output()) {
        (Err(error), _) | (Ok(CliExit::Success), Some(error)) => ui.error(&error),
        (Ok(exit), None) => exit,
        (Ok(exit), Some(error)) => {
            ui.error(&error);
            exit
        }
    }
}

fn execute(context: &Context, command: CliCommand) -> CliResult {
    match command {
        CliCommand::Init(args) => block_on(init::init(context, args)),
        CliCommand::Lint(args) => lint::lint_task(context, &args),
        CliCommand::Run(args) => block_on(run::run(context, args)),
        CliCommand::Resume(args) => block_on(resume::resume(context, args)),
        CliCommand::Poll(args) => block_on(poll::poll(context, args)),
        CliCommand::Submit(args) => block_on(submit::submit_run(context, args)),
        CliCommand::Worker(args) => block_on(worker::worker(context, args)),
        CliCommand::Respond(args) => block_on(respond::respond(context, args)),
        CliCommand::Status(args) => block_on(status::status(context, &args)),
        CliCommand::Watch(args) => block_on(watch::watch(context, args)),
        CliCommand::Pause(args) => block_on(control::intervene(context, args, Intervention::Pause)),
        CliCommand::Rotate(args) => block_on(control::intervene(context, args, Intervention::Rotate)),
        CliCommand::Stop(args) => block_on(control::stop(context, args)),
        CliCommand::Note(args) => block_on(control::note(context, args)),
        CliCommand::Sign(args) => block_on(control::sign(context, args)),
        CliCommand::Profile(args) => block_on(control::profile(context, args)),
        CliCommand::Edit(args) => block_on(edit::edit(context, args)),
        CliCommand::Retry(args) => edit::retry(context, &args),
        CliCommand::Rm(args) => block_on(remove::remove(context, args)),
        CliCommand::Prune(args) => block_on(remove::prune(context, args)),
        CliCommand::Logs(args) => logs::logs(context, &args),
        CliCommand::Diff(args) => block_on(diff::diff(context, args)),
        CliCommand::Evidence(args) => block_on(evidence::evidence(context, args)),
        CliCommand::Models(args) => models::models(context, &args),
        CliCommand::Doctor(args) => block_on(doctor::doctor(context, args)),
        CliCommand::Demo(args) => block_on(demo::demo(context, args)),
        CliCommand::Image(args) => block_on(image::image(context, args)),
        CliCommand::Selftest(args) => block_on(selftest::selftest(context, args)),
        CliCommand::Sandbox(args) => block_on(sandbox::sandbox(context, args)),
        CliCommand::PruneSandboxes(args) => block_on(sandbox::prune(context, args)),
        CliCommand::Network(args) => block_on(network::network(context, args)),
        CliCommand::Gateway(args) => block_on(gateway::gateway(context, args)),
        CliCommand::Token(args) => block_on(token::token(context, args)),
        CliCommand::StoreToken(args) => block_on(token::store(context, args)),
        CliCommand::CheckToken(args) => block_on(token::check(context, args)),
        CliCommand::GetToken(args) => block_on(token::get(context, args)),
        CliCommand::Store(args) => block_on(store::store(context, args)),
        CliCommand::Config(args) => config::config(context, args),
        CliCommand::Serve(args) => block_on(serve::serve(context, args, serve::ServiceFront::Api)),
        CliCommand::Dashboard(args) => block_on(dashboard::dashboard(context, args)),
        CliCommand::ApiToken(args) => block_on(api_token::api_token(context, args)),
        CliCommand::Completions(args) => reference::completions(context, &args),
        CliCommand::Man(args) => reference::man(context, &args),
    }
}

fn block_on<F: Future<Output = CliResult>>(future: F) -> CliResult {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| CliError::runtime(format!("cannot start the async runtime: {error}")))?;
    runtime.block_on(future)
}

/// The help text of an option that takes the name of an agent.
fn agent_help(what: &str) -> String {
    format!("{what}: {}", AgentRecord::names().join(", "))
}
