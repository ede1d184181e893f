//! The reference pages, generated from `templates/default.toml` and the table of variables. They are committed, and a test
//! fails when one is stale.

use super::env_vars::{EnvVar, EnvVarRole, env_vars};
use super::key::KeyPath;
use super::{DEFAULTS, schema};

/// A generated file: its path in the repository, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferencePage {
    /// The path.
    pub path: &'static str,
    /// The text.
    pub text: String,
}

/// Every generated file.
#[must_use]
pub fn pages() -> Vec<ReferencePage> {
    let page = |path, text| ReferencePage { path, text };
    vec![
        page("docs/reference/config.md", config_page()),
        page("docs/reference/config.schema.json", format!("{:#}\n", schema())),
        page("docs/reference/environment.md", environment_page()),
        page(".env.example", env_example()),
    ]
}

/// The documentation of each key in a commented TOML file.
pub(super) fn docs(toml: &str) -> Vec<(KeyPath, String)> {
    let (_, sections) = sections(toml);
    let keys = sections.into_iter().flat_map(|section| section.keys);
    keys.filter(|key| !key.doc.is_empty())
        .map(|key| (key.path, key.doc))
        .collect()
}

fn config_page() -> String {
    let (intro, sections) = sections(DEFAULTS);
    let mut lines = vec!["# Configuration".to_owned(), String::new(), GENERATED.to_owned()];
    for paragraph in intro {
        lines.extend([String::new(), paragraph]);
    }
    for section in sections {
        let heading = section
            .name
            .map_or("Top level".to_owned(), |name| format!("`[{name}]`"));
        lines.extend([String::new(), format!("## {heading}"), String::new()]);
        if !section.doc.is_empty() {
            lines.extend([section.doc, String::new()]);
        }
        lines.push("| key | default | meaning |\n|---|---|---|".to_owned());
        for key in section.keys {
            let default = match key.presence {
                Presence::Set => format!("`{}`", key.value),
                Presence::Example => format!("not set; for example `{}`", key.value),
            };
            lines.push(format!("| `{}` | {default} | {} |", key.name, key.doc));
        }
    }
    lines.join("\n") + "\n"
}

fn environment_page() -> String {
    let mut lines = vec![
        "# Environment variables".to_owned(),
        format!("\n{GENERATED}\n\n{ENVIRONMENT_INTRO}"),
        "| variable | purpose | secret | sets |\n|---|---|---|---|".to_owned(),
    ];
    for var in env_vars() {
        let secret = if var.is_secret() { "yes" } else { "no" };
        let sets = match var.role {
            EnvVarRole::Key(key) => format!("`{key}`"),
            EnvVarRole::Secret
            | EnvVarRole::Identifier
            | EnvVarRole::Program
            | EnvVarRole::Build
            | EnvVarRole::Tests => String::new(),
        };
        lines.push(format!("| `{}` | {} | {secret} | {sets} |", var.name, var.doc));
    }
    lines.push(format!("\n## Keys of the configuration\n\n{KEYS_INTRO}"));
    lines.push("| variable | key |\n|---|---|".to_owned());
    for key in schema::known().keys() {
        lines.push(format!("| `{}` | `{key}` |", key.variable()));
    }
    lines.join("\n") + "\n"
}

fn env_example() -> String {
    let mut lines = vec![ENV_EXAMPLE_INTRO.to_owned()];
    let settable = |var: &EnvVar| match var.role {
        EnvVarRole::Secret | EnvVarRole::Identifier | EnvVarRole::Key(_) => true,
        EnvVarRole::Program | EnvVarRole::Build | EnvVarRole::Tests => false,
    };
    for var in env_vars().filter(settable) {
        lines.push(format!("# {}\n#{}=\n", var.doc, var.name));
    }
    lines.join("\n")
}

const GENERATED: &str = "<!-- Generated; do not edit. `RALPH_UPDATE_REFERENCE=1 cargo test` rewrites it. -->";

const ENVIRONMENT_INTRO: &str = "\
A variable of the environment wins over the same one in `.env`, which is read next to `ralph.toml`. An empty variable \
counts as unset. A `RALPH_` variable that is not listed here is an error.

Secret values are never shown, written to a log or passed to a sandbox.
";

const KEYS_INTRO: &str = "\
Any key can be set by `RALPH_` and its name in capitals, with `__` for each dot. The items of a list are separated by \
commas. `NAME` is the name of a profile, with `_` for every character other than letters and digits.
";

const ENV_EXAMPLE_INTRO: &str = "\
# Copy to `.env` next to `ralph.toml`, fill in what you need and keep the copy out of git.
# A variable of the environment wins over the one here.
";

/// A table of the file: its name, its documentation and its keys.
struct Section {
    name: Option<String>,
    doc: String,
    keys: Vec<Key>,
}

struct Key {
    path: KeyPath,
    name: String,
    value: String,
    doc: String,
    presence: Presence,
}

enum Presence {
    Set,
    Example,
}

/// Splits the commented file into the paragraphs at its top and the tables.
fn sections(toml: &str) -> (Vec<String>, Vec<Section>) {
    let mut intro: Vec<String> = Vec::new();
    let mut sections = vec![Section {
        name: None,
        doc: String::new(),
        keys: Vec::new(),
    }];
    let mut comment: Vec<&str> = Vec::new();
    for line in toml.lines() {
        if let Some(words) = line.strip_prefix("# ") {
            comment.push(words);
        } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.push(Section {
                name: Some(name.to_owned()),
                doc: take_comment(&mut comment),
                keys: Vec::new(),
            });
        } else if let (Some((name, value)), Some(section)) = (line.split_once(" = "), sections.last_mut()) {
            let (name, presence) = match name.strip_prefix('#') {
                Some(name) => (name, Presence::Example),
                None => (name, Presence::Set),
            };
            let prefix = section
                .name
                .iter()
                .fold(String::new(), |prefix, name| prefix + name + ".");
            section.keys.push(Key {
                path: KeyPath::parse(&format!("{prefix}{name}")),
                name: name.to_owned(),
                value: value.to_owned(),
                doc: take_comment(&mut comment),
                presence,
            });
        } else if !comment.is_empty() {
            intro.push(take_comment(&mut comment));
        }
    }
    (intro, sections)
}

fn take_comment(comment: &mut Vec<&str>) -> String {
    std::mem::take(comment).join(" ")
}
