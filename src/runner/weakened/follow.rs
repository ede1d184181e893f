//! Which parts of which files the commands of a task run: scripts, package scripts, targets of make and just.
//!
//! A file that is merely run as the product, with its output compared or searched, is not a part of the check.

use std::collections::{BTreeMap, BTreeSet};

use super::cases::is_check_script;

/// How many steps a command is followed.
const MAX_DEPTH: usize = 5;

/// A part of a file that a command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunnerPart {
    pub(super) path: String,
    /// For people.
    pub(super) name: String,
    /// The command of the task.
    pub(super) command: String,
    /// What it was at the base.
    pub(super) text: String,
    selector: Selector,
}

/// Which part of a file it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Selector {
    Whole,
    PackageScript(String),
    /// A target of make or just; the first one without a name.
    Target(Option<String>),
}

impl RunnerPart {
    /// The same part in another text of the file.
    pub(super) fn text_in(&self, text: &str) -> Option<String> {
        self.selector.text_in(text)
    }
}

impl Selector {
    fn text_in(&self, text: &str) -> Option<String> {
        match self {
            Self::Whole => Some(text.to_owned()),
            Self::PackageScript(name) => {
                let package: serde_json::Value = serde_json::from_str(text).ok()?;
                Some(package.get("scripts")?.get(name)?.as_str()?.to_owned())
            }
            Self::Target(name) => target(text, name.as_deref(), MAX_DEPTH),
        }
    }

    fn name(&self, path: &str) -> String {
        match self {
            Self::Whole => "the file".to_owned(),
            Self::PackageScript(name) => format!("the script `{name}`"),
            Self::Target(Some(name)) => format!("the target `{name}`"),
            Self::Target(None) => format!("the first target of `{path}`"),
        }
    }
}

/// Where a command leads: a file, or one of several names of a file, and a part of it.
struct Lead {
    paths: Vec<String>,
    selector: Selector,
}

/// The parts that commands run, from the texts of files at the base. Files that are not known yet are added to `wanted`.
pub(super) fn runner_parts(
    commands: &[&String],
    texts: &BTreeMap<String, Option<String>>,
    wanted: &mut BTreeSet<String>,
) -> Vec<RunnerPart> {
    let mut parts: Vec<RunnerPart> = Vec::new();
    for command in commands {
        let mut lines = vec![(command.as_str().to_owned(), true)];
        for _ in 0..MAX_DEPTH {
            let mut next = Vec::new();
            for (line, is_command) in &lines {
                for lead in leads(line, *is_command) {
                    wanted.extend(
                        lead.paths
                            .iter()
                            .filter(|path| !texts.contains_key(*path))
                            .cloned(),
                    );
                    let known = lead
                        .paths
                        .iter()
                        .find_map(|path| Some((path, texts.get(path)?.as_ref()?)));
                    let Some((path, text)) = known else { continue };
                    let Some(text) = lead.selector.text_in(text) else {
                        continue;
                    };
                    let is_known = |part: &RunnerPart| part.path == *path && part.selector == lead.selector;
                    if parts.iter().any(is_known) {
                        continue;
                    }
                    next.push((text.clone(), lead.selector != Selector::Whole));
                    parts.push(RunnerPart {
                        path: path.clone(),
                        name: lead.selector.name(path),
                        command: (*command).clone(),
                        text,
                        selector: lead.selector,
                    });
                }
            }
            lines = next;
        }
    }
    parts
}

/// Where the lines of a command or of a script lead.
fn leads(text: &str, is_command: bool) -> Vec<Lead> {
    let joined = text.replace("\\\n", " ");
    joined
        .lines()
        .flat_map(|line| line_leads(line, is_command))
        .collect()
}

fn line_leads(line: &str, is_command: bool) -> Vec<Lead> {
    let line = line.trim().trim_start_matches(['@', '-']);
    if line.starts_with('#') {
        return Vec::new();
    }
    // What is compared, searched or written elsewhere is the product.
    let is_product = line.contains("$(")
        || line.contains('`')
        || line.replace("||", "").contains('|')
        || line.contains('<');
    let mut found = Vec::new();
    for simple in line.split(&[';', '|', '&', '(', ')', '{', '}'][..]) {
        let words: Vec<&str> = simple
            .split_whitespace()
            .map(|word| word.trim_matches(['"', '\'']))
            .skip_while(|word| is_prefix(word))
            .collect();
        if let Some((program, arguments)) = words.split_first() {
            found.extend(command_leads(program, arguments).into_iter().filter(|lead| {
                let sourced = matches!(*program, "." | "source");
                let is_check = lead.paths.iter().any(|path| is_check_script(path));
                lead.selector != Selector::Whole || sourced || is_check || (is_command && !is_product)
            }));
        }
    }
    found
}

/// Words before a command that do not change what it is.
fn is_prefix(word: &str) -> bool {
    const WORDS: [&str; 18] = [
        "env", "time", "exec", "nice", "command", "sudo", "npx", "bundle", "poetry", "uv", "pipenv", "if",
        "then", "do", "else", "!", "while", "until",
    ];
    let assignment = word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    });
    WORDS.contains(&word) || assignment
}

fn command_leads(program: &str, arguments: &[&str]) -> Vec<Lead> {
    let plain = || arguments.iter().copied().filter(|word| !word.starts_with('-'));
    let name = program.rsplit('/').next().unwrap_or(program);
    match name {
        "sh" | "bash" | "dash" | "zsh" | "ksh" | "python" | "python3" | "node" | "ruby" | "perl" | "php"
        | "deno" | "bun" | "." | "source"
            if arguments
                .first()
                .is_none_or(|word| !matches!(*word, "-c" | "-m" | "-e")) =>
        {
            plain().next().and_then(file_lead).into_iter().collect()
        }
        "npm" | "yarn" | "pnpm" => {
            let script = plain().find(|word| !matches!(*word, "run" | "run-script"));
            script
                .map(|script| package_leads(if script == "t" { "test" } else { script }))
                .unwrap_or_default()
        }
        "make" | "gmake" => target_leads(arguments, &["GNUmakefile", "makefile", "Makefile"]),
        "just" => target_leads(arguments, &["justfile", "Justfile", ".justfile"]),
        _ if program.contains('/') => file_lead(program).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// A file of the repository. `None` for a path that leads out of it.
fn file_lead(path: &str) -> Option<Lead> {
    let path = path.trim_start_matches("./");
    let inside = !path.is_empty() && !path.starts_with('/') && !path.contains("..") && !path.contains('$');
    inside.then(|| Lead {
        paths: vec![path.to_owned()],
        selector: Selector::Whole,
    })
}

fn package_leads(script: &str) -> Vec<Lead> {
    let lead = |name: String| Lead {
        paths: vec!["package.json".to_owned()],
        selector: Selector::PackageScript(name),
    };
    ["pre", "", "post"]
        .map(|prefix| lead(format!("{prefix}{script}")))
        .into()
}

fn target_leads(arguments: &[&str], files: &[&str]) -> Vec<Lead> {
    let mut dir = String::new();
    let mut targets: Vec<Option<String>> = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if *word == "-C" {
            dir = words
                .next()
                .map(|dir| format!("{}/", dir.trim_end_matches('/')))
                .unwrap_or_default();
        } else if !word.starts_with('-') && !word.contains('=') {
            targets.push(Some((*word).to_owned()));
        }
    }
    if targets.is_empty() {
        targets.push(None);
    }
    let paths: Vec<String> = files.iter().map(|file| format!("{dir}{file}")).collect();
    let lead = |target| Lead {
        paths: paths.clone(),
        selector: Selector::Target(target),
    };
    targets.into_iter().map(lead).collect()
}

/// The recipe of a target, with those of the targets that it needs. `None` if there is no such target.
fn target(text: &str, name: Option<&str>, depth: usize) -> Option<String> {
    let mut lines = text.lines();
    let (_, needs) = lines.by_ref().find_map(|line| {
        let (names, needs) = line
            .split_once(':')
            .filter(|_| !line.starts_with(['\t', ' ', '#', '.']))?;
        let wanted = names
            .split_whitespace()
            .find(|target| name.is_none_or(|name| *target == name))?;
        (!needs.starts_with('=')).then_some((wanted, needs))
    })?;
    let mut recipe = String::new();
    if let Some((_, inline)) = needs.split_once(';') {
        recipe.push_str(inline.trim());
        recipe.push('\n');
    }
    for line in lines.take_while(|line| line.starts_with(['\t', ' ']) || line.is_empty()) {
        recipe.push_str(line.trim());
        recipe.push('\n');
    }
    if depth > 0 {
        for need in needs.split(';').next().unwrap_or_default().split_whitespace() {
            recipe.push_str(&target(text, Some(need), depth - 1).unwrap_or_default());
        }
    }
    Some(recipe)
}
