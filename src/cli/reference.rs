//! `ralph completions`, `ralph man`, and the generated page of all commands.

use std::fmt::Write;
use std::path::PathBuf;

use clap::builder::StyledStr;

use super::help::{self, command};
use super::{CliError, CliExit, CliResult, Context, io_error};

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

pub(super) fn completions(context: &Context, args: &CompletionsArgs) -> CliResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(help::WIDTH), "ralph", &mut script);
    context.ui.data(String::from_utf8_lossy(&script).trim_end())?;
    Ok(CliExit::Success)
}

/// Print the manual page of `ralph`, or write the pages of all commands
#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// Write the pages of `ralph` and of every command to this directory, as `ralph-run.1`
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn man(context: &Context, args: &ManArgs) -> CliResult {
    let mut root = command(help::WIDTH).mut_subcommands(|command| command.disable_help_subcommand(true));
    root.build();
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(root)
            .render(&mut page)
            .map_err(|error| CliError::runtime(format!("cannot render the manual page: {error}")))?;
        context.ui.data(String::from_utf8_lossy(&page).trim_end())?;
        return Ok(CliExit::Success);
    };
    let dir = context.surroundings().dir().join(dir);
    std::fs::create_dir_all(&dir).map_err(io_error("create", &dir))?;
    clap_mangen::generate_to(root, &dir).map_err(io_error("write manual pages to", &dir))?;
    Ok(CliExit::Success)
}

/// The reference page of the command line, as `docs/reference/cli.md` holds it.
#[must_use]
pub fn cli_reference() -> String {
    let mut root = command(help::WIDTH).term_width(help::WIDTH);
    root.build();
    let mut page = String::from(
        "# Command line\n\n<!-- Generated; do not edit. `RALPH_UPDATE_REFERENCE=1 cargo test` rewrites it. -->\n\n\
         Exit codes: 0 success, 1 runtime error, 2 usage or configuration error, 3 paused or stopped,\n\
         130 interrupted before a run began, in an image command, or by a third signal to `worker`, `poll` or `serve`.\n",
    );
    describe(&mut page, &mut root, "");
    page
}

fn describe(page: &mut String, command: &mut clap::Command, parent: &str) {
    let name = format!("{parent}{}", command.get_name());
    let help: StyledStr = command.render_long_help();
    let _ = write!(
        page,
        "\n## `{name}`\n\n```text\n{}\n```\n",
        help.to_string().trim_end()
    );
    let parent = format!("{name} ");
    for child in command
        .get_subcommands_mut()
        .filter(|child| !child.is_hide_set() && child.get_name() != "help")
    {
        describe(page, child, &parent);
    }
}
