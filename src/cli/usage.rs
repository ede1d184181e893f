//! The parser of the command line, and what it says about mistakes.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, FromArgMatches};

use super::help;
use super::ui::{self, Ui};
use super::{CliArgs, CliError, CliExit, ErrorTopic};
use crate::text::cut_middle;

/// The longest line of a message about wrong arguments, in characters.
const LONGEST_LINE: usize = 400;

/// The commands that read no configuration, so that `--set` and `--config` would change nothing.
pub(super) const WITHOUT_SETTINGS: [&str; 15] = [
    "completions",
    "config schema",
    "demo",
    "diff",
    "evidence key",
    "evidence show",
    "evidence verify",
    "logs",
    "man",
    "network suggest",
    "pause",
    "rotate",
    "status",
    "stop",
    "watch",
];

/// The commands with an argument that may begin with `-`, for which clap's advice to write `--` before it helps.
const TAKE_HYPHENS: [&str; 2] = ["note", "sandbox exec"];

/// The arguments, and whether the command prints JSON. After help or a message, the exit code.
pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<(CliArgs, bool), CliExit> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let width = ui::columns().map_or(help::WIDTH, |columns| help::WIDTH.min(columns.into()));
    let mut command = help::command(width);
    let parsed = command
        .try_get_matches_from_mut(&arguments)
        .and_then(|mut matches| {
            let (path, prints_json) = (path(&matches), prints_json(&matches));
            let args =
                CliArgs::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))?;
            Ok((args, prints_json, path))
        });
    let (args, prints_json, path) = parsed.map_err(|error| show(error, &command, &arguments))?;
    let has_settings = args.global.config.is_some() || !args.global.set.is_empty();
    if has_settings && WITHOUT_SETTINGS.contains(&path.as_str()) {
        let error = CliError::usage(format!("`ralph {path}` takes no settings"));
        return Err(Ui::new(true).error(&error.with_hint("leave out `--config` and `--set`")));
    }
    Ok((args, prints_json))
}

/// The command that was given, without `ralph`.
fn path(matches: &ArgMatches) -> String {
    match matches.subcommand() {
        Some((name, below)) => format!("{name} {}", path(below)).trim_end().to_owned(),
        None => String::new(),
    }
}

/// Whether the command that was given has a flag `--json`, which is set.
fn prints_json(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, below)) => prints_json(below),
        None => matches!(matches.try_get_one::<bool>("json"), Ok(Some(true))),
    }
}

/// Prints help and version to stdout, and usage errors like other errors.
fn show(mut error: clap::Error, root: &clap::Command, arguments: &[OsString]) -> CliExit {
    let ui = Ui::new(true);
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        ui.say(error.render().to_string().trim_end());
        return CliExit::Usage;
    }
    if !error.use_stderr() {
        return match ui.data(error.render().to_string().trim_end()) {
            Ok(()) => CliExit::Success,
            Err(error) => ui.error(&error),
        };
    }
    let (path, command) = named_command(root, arguments);
    remove_unlikely_advice(&mut error, &path);
    let text = error.render().to_string();
    // An argument may be a file by mistake.
    let lines = text.lines().map(|line| cut_middle(line, LONGEST_LINE));
    let text = lines.collect::<Vec<_>>().join("\n");
    let text = text.trim_start_matches("error: ");
    let text = text.replace("invalid digit found in string", "expected a whole number");
    // Clap's last paragraph names `--help` without the command.
    let problem = text.split("\n\nFor more information").next().unwrap_or_default();
    let listed = if command.has_subcommands() {
        "commands"
    } else {
        "options"
    };
    ui.say(format_args!("ralph: {}", problem.trim_end()));
    ui.say(format_args!("see: {}", ErrorTopic::Usage.url()));
    ui.say(format_args!("hint: `ralph{path} --help` lists its {listed}"));
    CliExit::Usage
}

/// The command whose arguments are wrong, and its name with a space before each word.
fn named_command<'a>(root: &'a clap::Command, arguments: &[OsString]) -> (String, &'a clap::Command) {
    let (mut path, mut command) = (String::new(), root);
    let mut rest = arguments.iter().skip(1).filter_map(|argument| argument.to_str());
    while let Some(argument) = rest.next() {
        if matches!(argument, "--set" | "--config") {
            rest.next();
        } else if !argument.starts_with('-') {
            let Some(below) = command.find_subcommand(argument) else {
                break;
            };
            path = format!("{path} {argument}");
            command = below;
        }
    }
    (path, command)
}

/// Keeps only the commands that are spelt much like what was given, and advice about `--` only where it helps.
fn remove_unlikely_advice(error: &mut clap::Error, path: &str) {
    if let (Some(ContextValue::String(given)), Some(ContextValue::Strings(similar))) = (
        error.get(ContextKind::InvalidSubcommand).cloned(),
        error.remove(ContextKind::SuggestedSubcommand),
    ) {
        let is_near =
            |name: &String| strsim::damerau_levenshtein(&given, name) <= given.chars().count() / 3 + 1;
        let near: Vec<String> = similar.into_iter().filter(is_near).collect();
        if !near.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(near));
        }
    }
    if TAKE_HYPHENS.contains(&path.trim_start()) {
        return;
    }
    if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| !tip.to_string().starts_with("to pass "));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_without_settings_exist() {
        let root = help::command(help::WIDTH);
        for path in WITHOUT_SETTINGS.iter().chain(&TAKE_HYPHENS) {
            let arguments: Vec<OsString> = format!("ralph {path}").split(' ').map(OsString::from).collect();
            let (found, command) = named_command(&root, &arguments);
            assert_eq!(found, format!(" {path}"));
            assert!(!command.has_subcommands(), "{path}");
        }
    }
}
