//! The help: commands in groups by what people do, and examples for each. Both come from `templates/help.txt`.

use clap::{Args, CommandFactory};

use super::usage::WITHOUT_SETTINGS;
use super::{CliArgs, GlobalArgs};

/// `# group`, `## command` and its examples, one per line.
const TEXT: &str = include_str!("../../templates/help.txt");

/// The width of help that is not for a terminal, and the largest one, in characters.
pub(super) const WIDTH: usize = 100;

const FIRST_STEPS: &str = "\
First steps:
  ralph demo          # see a whole run; needs no account
  ralph doctor env    # what is installed, what is missing, and what to do about it
  ralph init          # in your repository; then edit ralph_task.md
  ralph run           # work on it, and get a pull request

`ralph COMMAND --help` shows the options and examples of a command.";

/// The command tree with its help, whose list of commands is this wide.
pub(super) fn command(width: usize) -> clap::Command {
    let root = CliArgs::command().after_help(FIRST_STEPS);
    let root = root.mut_subcommands(|child| {
        let name = child.get_name().to_owned();
        with_examples(child, &name)
    });
    let list = command_list(&root, width);
    root.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}{{after-help}}"
    ))
}

/// Adds the examples of this command and of those below it, and hides options that it refuses.
fn with_examples(command: clap::Command, path: &str) -> clap::Command {
    let command = command.mut_subcommands(|child| {
        let path = format!("{path} {}", child.get_name());
        with_examples(child, &path)
    });
    let command = if WITHOUT_SETTINGS.contains(&path) {
        let refused = GlobalArgs::augment_args(clap::Command::default());
        command.args(refused.get_arguments().map(|option| option.clone().hide(true)))
    } else {
        command
    };
    let mut lines = examples(path);
    if lines.is_empty() {
        let below = command.get_subcommands();
        lines = below
            .flat_map(|child| {
                examples(&format!("{path} {}", child.get_name()))
                    .into_iter()
                    .take(1)
            })
            .collect();
    }
    if lines.is_empty() {
        // Another name of a command, which is hidden.
        return command;
    }
    command.after_help(format!("Examples:\n  {}", lines.join("\n  ")))
}

/// The lines of examples of a command, which is named without `ralph`.
fn examples(path: &str) -> Vec<&'static str> {
    let mut lines = TEXT
        .lines()
        .skip_while(|line| line.strip_prefix("## ") != Some(path));
    lines.next();
    lines
        .take_while(|line| !line.starts_with('#'))
        .filter(|line| !line.is_empty())
        .collect()
}

/// The titles of the groups, each with the names of its commands.
fn groups() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in TEXT.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            groups.push((title, Vec::new()));
        } else if let (Some(path), Some((_, names))) = (line.strip_prefix("## "), groups.last_mut()) {
            let name = path.split(' ').next().unwrap_or(path);
            if names.last() != Some(&name) {
                names.push(name);
            }
        }
    }
    groups
}

fn command_list(root: &clap::Command, width: usize) -> String {
    let groups = groups();
    let names = groups.iter().flat_map(|(_, names)| names);
    let longest = names.map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (title, names) in groups {
        text.extend([title, ":\n"]);
        for command in names.iter().filter_map(|name| root.find_subcommand(name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let lines = wrapped(&about, width.saturating_sub(longest + 4));
            let name = format!("  {:<longest$}  ", command.get_name());
            let indent = format!("\n{:1$}", "", longest + 4);
            text.extend([&*name, &lines.join(&indent), "\n"]);
        }
        text.push('\n');
    }
    text
}

/// The lines of a text, each at most this wide unless a word is wider.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::DEFAULTS;

    /// Every command that is shown, by its path without `ralph`.
    fn shown(command: &clap::Command, parent: &str) -> Vec<String> {
        let children = command.get_subcommands().filter(|child| !child.is_hide_set());
        children
            .flat_map(|child| {
                let path = format!("{parent}{}", child.get_name());
                let below = shown(child, &format!("{path} "));
                [vec![path], below].concat()
            })
            .collect()
    }

    #[test]
    fn every_command_is_in_one_group() {
        let mut groups_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (title, names) in groups() {
            for name in names {
                groups_of.entry(name).or_default().push(title);
            }
        }
        let root = CliArgs::command();
        let top: Vec<String> = shown(&root, "")
            .into_iter()
            .filter(|path| !path.contains(' '))
            .collect();
        for name in &top {
            assert_eq!(
                groups_of.get(name.as_str()).map(Vec::len),
                Some(1),
                "`{name}` is in {groups_of:?}"
            );
        }
        assert_eq!(
            groups_of.len(),
            top.len(),
            "{groups_of:?} names a command that does not exist"
        );
    }

    #[test]
    fn every_command_has_examples_that_parse_as_that_command() {
        let paths = shown(&CliArgs::command(), "");
        let titles: Vec<&str> = TEXT.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        for title in &titles {
            assert!(
                paths.iter().any(|path| path == title),
                "there is no command `{title}`"
            );
        }
        for path in &paths {
            let has_children = paths.iter().any(|other| other.starts_with(&format!("{path} ")));
            let lines = examples(path);
            assert!(has_children || !lines.is_empty(), "`{path}` has no example");
            for line in lines {
                assert!(line.chars().count() + 2 <= WIDTH, "`{line}` is too wide");
                let words = words(line);
                let matches = command(WIDTH).try_get_matches_from(&words);
                let matches = matches.unwrap_or_else(|error| panic!("{line}: {error}"));
                assert!(
                    parsed_path(&matches).starts_with(path),
                    "`{line}` is below `{path}`"
                );
            }
        }
    }

    #[test]
    fn profiles_of_examples_are_in_the_default_configuration() {
        let mut named = Vec::new();
        for line in TEXT.lines().filter(|line| line.starts_with("ralph ")) {
            let words = words(line);
            let matches = command(WIDTH).try_get_matches_from(&words).unwrap();
            let option = words
                .iter()
                .position(|word| word == "--profile")
                .map(|at| words[at + 1].clone());
            let argument = matches
                .subcommand_matches("profile")
                .and_then(|matches| matches.get_one::<String>("name").cloned());
            named.extend(option.into_iter().chain(argument));
        }
        assert!(named.len() >= 2, "{named:?}");
        for profile in named {
            let table = format!("\n[models.{profile}]\n");
            assert!(DEFAULTS.contains(&table), "there is no profile `{profile}`");
        }
    }

    #[test]
    fn first_steps_parse() {
        let lines = FIRST_STEPS.lines().filter(|line| line.starts_with("  "));
        for line in lines {
            assert!(
                CliArgs::command().try_get_matches_from(words(line)).is_ok(),
                "{line}"
            );
        }
    }

    #[test]
    fn help_lists_each_command_in_its_group_and_wraps_long_lines() {
        for width in [60, WIDTH] {
            let help = command(width).term_width(width).render_help().to_string();
            for (title, names) in groups() {
                let group = help.split(&format!("\n{title}:\n")).nth(1).unwrap();
                let group = group.split("\n\n").next().unwrap();
                for name in names {
                    assert!(
                        group
                            .lines()
                            .any(|line| line.trim_start().starts_with(&format!("{name} "))),
                        "{group}"
                    );
                }
                assert!(group.lines().all(|line| line.chars().count() <= width), "{group}");
            }
            assert!(!help.contains("Commands:"), "{help}");
        }
        let image = command(WIDTH)
            .find_subcommand_mut("image")
            .unwrap()
            .render_help()
            .to_string();
        assert!(image.contains("\n  ralph image build "), "{image}");
    }

    /// A line of shell as words. Quotes hold a word together; a comment ends the line.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(" #").next().unwrap();
        let quoted = line.split('"').enumerate();
        quoted
            .flat_map(|(index, part)| match index % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect(),
                _ => vec![part.to_owned()],
            })
            .collect()
    }

    fn parsed_path(matches: &clap::ArgMatches) -> String {
        match matches.subcommand() {
            Some((name, below)) => format!("{name} {}", parsed_path(below)).trim_end().to_owned(),
            None => String::new(),
        }
    }
}
