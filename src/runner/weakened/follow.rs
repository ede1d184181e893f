//! Which parts of which files the commands of a task use: scripts, package scripts, targets of make and just, and data.
//!
//! A file that is merely run as the product, with its output compared or searched, is not a part of the check.

use std::collections::{BTreeMap, BTreeSet};

use super::leads::{Lead, leads};

/// How many steps a command is followed.
const MAX_DEPTH: usize = 5;
/// How many targets are followed that one target needs. The agent may have written the file.
const MAX_TARGETS: usize = 1000;

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
    /// Files that would be run in its place.
    pub(super) shadowed_by: Vec<String>,
    selector: Selector,
}

/// Which part of a file it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Selector {
    /// A script.
    Whole,
    /// A file that is read and not run.
    Data,
    PackageScript(String),
    /// A target of make or just; the first one without a name.
    Target(Option<String>),
}

impl RunnerPart {
    /// The same part in another text of the file.
    pub(super) fn text_in(&self, text: &str) -> Option<String> {
        self.selector.text_in(text)
    }

    /// Whether it is a whole file that is run, or read.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.selector, Selector::Whole | Selector::Data)
    }

    /// Whether it is read and not run.
    pub(super) fn is_data(&self) -> bool {
        self.selector == Selector::Data
    }

    /// What else in a text of the file may change how the part runs.
    pub(super) fn settings_in(&self, text: &str) -> Option<String> {
        match self.selector {
            Selector::PackageScript(_) => package_settings(text),
            Selector::Whole | Selector::Data | Selector::Target(_) => None,
        }
    }
}

impl Selector {
    fn text_in(&self, text: &str) -> Option<String> {
        match self {
            Self::Whole | Self::Data => Some(text.to_owned()),
            Self::PackageScript(name) => {
                let package: serde_json::Value = serde_json::from_str(text).ok()?;
                Some(package.get("scripts")?.get(name)?.as_str()?.to_owned())
            }
            Self::Target(name) => target_with_settings(text, name.as_deref()),
        }
    }

    fn name(&self, path: &str) -> String {
        match self {
            Self::Whole | Self::Data => "the file".to_owned(),
            Self::PackageScript(name) => format!("the script `{name}`"),
            Self::Target(Some(name)) => format!("the target `{name}`"),
            Self::Target(None) => format!("the first target of `{path}`"),
        }
    }
}

/// The parts that commands run, from the texts of files at the base. Files that are not known yet are added to `wanted`.
pub(super) fn runner_parts(
    commands: &[&String],
    texts: &BTreeMap<String, Option<String>>,
    wanted: &mut BTreeSet<String>,
) -> Vec<RunnerPart> {
    let mut parts: Vec<RunnerPart> = Vec::new();
    for command in commands {
        let mut steps = vec![Step {
            text: (*command).clone(),
            is_command: true,
            dir: String::new(),
        }];
        for _ in 0..MAX_DEPTH {
            let mut next = Vec::new();
            for lead in steps.iter().flat_map(Step::leads) {
                let unknown = lead.paths.iter().filter(|path| !texts.contains_key(*path));
                wanted.extend(unknown.cloned());
                let text_of = |path: &String| texts.get(path)?.as_ref();
                let known = lead.paths.iter().position(|path| text_of(path).is_some());
                let Some((at, text)) = known.and_then(|at| Some((at, text_of(&lead.paths[at])?))) else {
                    continue;
                };
                let path = &lead.paths[at];
                let Some(text) = lead.selector.text_in(text) else {
                    continue;
                };
                let is_known = |part: &RunnerPart| {
                    part.path == *path && part.selector == lead.selector && part.command == **command
                };
                if parts.iter().any(is_known) {
                    continue;
                }
                if lead.selector != Selector::Data {
                    next.push(Step {
                        text: text.clone(),
                        is_command: lead.selector != Selector::Whole,
                        dir: lead.dir.clone(),
                    });
                }
                parts.push(RunnerPart {
                    path: path.clone(),
                    name: lead.selector.name(path),
                    command: (*command).clone(),
                    text,
                    shadowed_by: lead.paths[..at].to_vec(),
                    selector: lead.selector,
                });
            }
            steps = next;
        }
    }
    parts
}

/// A text that is followed, and where it runs.
struct Step {
    text: String,
    /// Whether it is a command or a recipe, and not a script.
    is_command: bool,
    dir: String,
}

impl Step {
    fn leads(&self) -> Vec<Lead> {
        leads(&self.text, self.is_command, &self.dir)
    }
}

/// What else of a `package.json` may change how a script runs: all but other scripts, dependencies and descriptions.
fn package_settings(text: &str) -> Option<String> {
    const OTHER: [&str; 8] = [
        "scripts",
        "name",
        "version",
        "description",
        "author",
        "license",
        "keywords",
        "repository",
    ];
    let mut package: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).ok()?;
    package.retain(|key, _| !OTHER.contains(&key.as_str()) && !key.ends_with("ependencies"));
    serde_json::to_string(&package).ok()
}

/// The recipe of a target with the variables that it uses, and lines that count for all targets.
fn target_with_settings(text: &str, name: Option<&str>) -> Option<String> {
    let mut recipe = target(text, name, MAX_DEPTH, &mut BTreeSet::new())?;
    let counts = |line: &&str| {
        if line.starts_with(['\t', ' ', '#', '}']) || line.trim().is_empty() {
            return false;
        }
        match line.split_once('=') {
            Some((variable, _)) => {
                let variable = variable.trim_end_matches([':', '?', '+', '!', ' ']);
                let variable = variable.rsplit(' ').next().unwrap_or(variable);
                recipe.contains(variable)
                    || variable.to_lowercase().contains("shell")
                    || variable == "MAKEFLAGS"
            }
            None => !line.contains(':') || line.starts_with(".IGNORE"),
        }
    };
    let settings: Vec<&str> = text.lines().filter(counts).collect();
    for line in settings {
        recipe.push_str(line);
        recipe.push('\n');
    }
    Some(recipe)
}

/// The recipe of a target, with those of the targets that it needs, each once. `None` if there is no such target.
fn target<'t>(
    text: &'t str,
    name: Option<&str>,
    depth: usize,
    seen: &mut BTreeSet<&'t str>,
) -> Option<String> {
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
    for need in needs.split(';').next().unwrap_or_default().split_whitespace() {
        if depth > 0 && seen.len() < MAX_TARGETS && seen.insert(need) {
            recipe.push_str(&target(text, Some(need), depth - 1, seen).unwrap_or_default());
        }
    }
    Some(recipe)
}
