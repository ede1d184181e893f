//! The generated reference is what the code says.

use std::collections::BTreeSet;
use std::path::Path;

use ralph::assembly::ErrorTopic;
use ralph::config::env_vars::{EnvVar, EnvVarRole, env_vars};
use ralph::config::{DEFAULTS, KeyPath, schema};
use ralph::task::{
    AgentFact, BlockedHostFact, CheckboxCostFact, CheckboxFact, EvidenceFact, FileFact, FlagFact, ImageFact,
    IterationFact, NetworkFact, PullRequestFacts, PullRequestOptions, RiskFacts, render_pull_request,
};

use rstest::rstest;
use serde_json::{Value, json};

use crate::support::ralph::{Place, TASK, finish, script, whole_task};

#[test]
fn the_configuration_reference_is_up_to_date() {
    check("docs/reference/config.md", &config_page());
    check("docs/reference/config.schema.json", &format!("{:#}\n", schema()));
    check("docs/reference/environment.md", &environment_page());
    check(".env.example", &env_example());
}

#[test]
fn the_command_line_reference_is_up_to_date() {
    check("docs/reference/cli.md", &ralph::cli::cli_reference());
}

#[test]
fn the_schemas_of_json_output_are_up_to_date() {
    check("docs/reference/json.md", &ralph::cli::json_reference());
    let schemas = ralph::cli::json_schemas();
    for (file, schema) in &schemas {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/reference/{file}"));
        if let Ok(committed) = std::fs::read_to_string(path) {
            let lost = lost(&serde_json::from_str(&committed).unwrap(), schema, "");
            assert_eq!(
                lost, [""; 0],
                "{file} breaks its readers: make a new version of the shapes"
            );
        }
        check(&format!("docs/reference/{file}"), &format!("{schema:#}\n"));
    }
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/json/v1");
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), schemas.len());
}

/// What a new schema no longer promises: properties, and entries of `required`, by their place in the old one.
fn lost(old: &Value, new: &Value, place: &str) -> Vec<String> {
    match old {
        Value::Object(keys) => {
            let below = keys.iter().flat_map(|(key, old)| {
                let (new, place_below) = (new.get(key), format!("{place}/{key}"));
                match new {
                    Some(new) => lost(old, new, &place_below),
                    None if place.ends_with("/properties") || key == "required" => vec![place_below],
                    None => Vec::new(),
                }
            });
            below.collect()
        }
        Value::Array(items) if place.ends_with("/required") => {
            let is_left = |item: &&Value| !new.as_array().is_some_and(|new| new.contains(item));
            let gone = items.iter().filter(is_left);
            gone.map(|item| format!("{place}/{item}")).collect()
        }
        Value::Array(items) => {
            // A schema in a list is another one's successor if nothing of it is lost.
            let news = new.as_array().cloned().unwrap_or_default();
            let lost_of = |(index, old): (usize, &Value)| {
                let place = format!("{place}/{index}");
                let of_each = news.iter().map(|new| lost(old, new, &place));
                of_each
                    .min_by_key(Vec::len)
                    .unwrap_or_else(|| lost(old, &Value::Null, &place))
            };
            items.iter().enumerate().flat_map(lost_of).collect()
        }
        _ => Vec::new(),
    }
}

#[rstest]
#[case::nothing(json!({}), &[])]
#[case::a_new_property(json!({"properties": {"c": {}}}), &[])]
#[case::a_property(json!({"properties": {"a": null}}), &["/anyOf/0/properties/a"])]
#[case::a_property_below(json!({"properties": {"b": {"properties": {"x": null}}}}), &["/anyOf/0/properties/b/properties/x"])]
#[case::a_required_entry(json!({"required": ["a"]}), &["/anyOf/0/required/\"b\""])]
#[case::all_required_entries(json!({"required": null}), &["/anyOf/0/required"])]
fn a_schema_that_promises_less_is_noticed(#[case] change: Value, #[case] expected: &[&str]) {
    let old = json!({"properties": {"a": {}, "b": {"properties": {"x": {}}}}, "required": ["a", "b"]});
    let mut new = old.clone();
    merge(&mut new, &change);
    let alternatives = |schema: Value| json!({"anyOf": [schema, {"type": "null"}]});
    assert_eq!(lost(&alternatives(old), &alternatives(new), ""), expected);
}

/// Applies a change as a JSON merge patch: `null` removes.
fn merge(value: &mut Value, change: &Value) {
    match (value, change) {
        (Value::Object(value), Value::Object(change)) => {
            for (key, change) in change {
                if change.is_null() {
                    value.remove(key);
                } else {
                    merge(value.entry(key).or_insert(json!({})), change);
                }
            }
        }
        (value, change) => *value = change.clone(),
    }
}

#[test]
fn every_kind_of_error_has_a_section_in_the_troubleshooting_page() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/troubleshooting.md");
    let page = std::fs::read_to_string(page).unwrap();
    let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let topics: Vec<&str> = ErrorTopic::ALL.iter().map(|topic| topic.anchor()).collect();
    assert_eq!(sections, topics);
}

#[rstest]
#[case::usage(&["status", "unheard-of"], "usage")]
#[case::configuration(&["--config", "nope.toml", "config", "show"], "configuration")]
#[case::task(&["run", "nope.md"], "task")]
#[case::evidence(&["evidence", "verify", "HEAD"], "evidence")]
#[case::engine_of_a_run(&["run", "--script", "script.json", "--type", "docker"], "engine")]
#[case::engine_of_the_demo(&["demo", "--type", "docker"], "engine")]
#[case::engine_of_the_selftest(&["selftest", "--type", "docker"], "engine")]
#[case::cost_of_an_agent(&["run", "priceless.md", "--agent", "codex"], "configuration")]
fn an_error_links_to_its_section(#[case] args: &[&str], #[case] anchor: &str) {
    let place = Place::new();
    place.write("script.json", &script([whole_task()]).to_string());
    let limit = "max_tokens_total: 1000000";
    place.write("priceless.md", &TASK.replace(limit, "max_cost_usd_estimate: 1"));
    let ended = finish(
        place
            .ralph(args)
            .env("DOCKER_HOST", "unix:///nonexistent/engine.sock"),
    );
    let (repository, version) = (env!("CARGO_PKG_REPOSITORY"), env!("CARGO_PKG_VERSION"));
    let link = format!("see: {repository}/blob/v{version}/docs/troubleshooting.md#{anchor}");
    assert!(ended.stderr.lines().any(|line| line == link), "{ended:?}");
}

#[test]
fn the_sample_of_a_pull_request_is_up_to_date() {
    const PAGE: &str = "docs/guide/github.md";
    const BEGIN: &str = "<!-- Generated from here to the end of the block; do not edit. -->\n";
    let text = render_pull_request(&PullRequestOptions::default(), &sample_facts()).unwrap();
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    // Four backticks: the body has blocks of its own.
    let after = rest.splitn(3, "````").nth(2).unwrap();
    check(
        PAGE,
        &format!(
            "{before}{BEGIN}\n````markdown\n{}\n````{after}",
            text.body.trim_end()
        ),
    );
}

/// A run that is like real ones: two iterations, a policy file, a blocked host name.
fn sample_facts() -> PullRequestFacts {
    let own = str::to_owned;
    let commit = "3f9c2ab41d07c55e8a1b6f0e92d47c8831ab5e60";
    let checkbox = |id: &str, text: &str| CheckboxFact {
        id: own(id),
        text: own(text),
        checked: true,
    };
    let evidence = |checkbox: &str, text: &str, command: &str, duration_s| EvidenceFact {
        checkbox: own(checkbox),
        text: own(text),
        command: own(command),
        exit: 0,
        duration_s,
        commit: own(commit),
        runs: 1,
    };
    let file = |path: &str, change: &str, added, removed| FileFact {
        path: own(path),
        change: own(change),
        added: Some(added),
        removed: Some(removed),
    };
    let (one, two) = ("A session ends after 30 minutes", "The page says why it ended");
    PullRequestFacts {
        task_id: own("fix-login"),
        title: own("Fix the login"),
        run: own("r7k2m9xq4"),
        branch: own("ralph/fix-login/fix-the-login"),
        base: own("main"),
        commit: own(commit),
        checkboxes: vec![checkbox("M1.1", one), checkbox("M1.2", two)],
        evidence: vec![
            evidence("M1.1", one, "pytest -q tests/test_session.py", 2.14),
            evidence("M1.2", two, "grep -q 'session ended' templates/login.html", 0.02),
            evidence("all", "(the tests)", "pytest -q | tee report.txt", 8.63),
        ],
        evidence_apart: true,
        files: vec![
            file(".github/workflows/ci.yml", "changed", 1, 1),
            file("src/session.py", "changed", 24, 3),
            file("templates/login.html", "changed", 4, 0),
            file("tests/test_session.py", "added", 31, 0),
        ],
        diff_command: own("git diff main...ralph/fix-login/fix-the-login"),
        flags: vec![FlagFact {
            path: own(".github/workflows/ci.yml"),
            reason: own("decides what runs later"),
        }],
        summary: own("The login page names the reason, fixes #12."),
        ..sample_run()
    }
}

/// What the run was, and what it cost.
fn sample_run() -> PullRequestFacts {
    let own = str::to_owned;
    let iteration = |number, summary: &str, changed_lines, tests: &str| IterationFact {
        number,
        summary: own(summary),
        changed_lines,
        tests: own(tests),
    };
    let cost = |checkbox: &str, iteration, cost: &str| CheckboxCostFact {
        checkbox: own(checkbox),
        iteration,
        cost: own(cost),
    };
    PullRequestFacts {
        iterations: 2,
        history: vec![
            iteration(
                1,
                "Sessions end after 30 minutes; `test_session.py` covers it.",
                58,
                "tests pass",
            ),
            iteration(2, "The login page names the reason, fixes #12.", 6, "tests pass"),
        ],
        agents: vec![AgentFact {
            name: own("claude"),
            model: own("claude-sonnet-4-5"),
        }],
        image: Some(ImageFact {
            name: own("ralph/claude:8c1f2ab0"),
            digest: own("sha256:77aa90c2"),
        }),
        tokens: 184_220,
        cost: own("$0.4213"),
        cost_per_checkbox: own("$0.2107"),
        costs: vec![cost("M1.1", 1, "$0.3120"), cost("M1.2", 2, "$0.1093")],
        risks: RiskFacts {
            flagged_changes: 1,
            weakened_checks: 0,
            searched_for_secrets: true,
        },
        network: NetworkFact {
            is_recorded: true,
            is_incomplete: false,
            blocked_requests: 3,
            blocked: vec![BlockedHostFact {
                name: own("telemetry.example"),
                requests: 3,
            }],
        },
        ..PullRequestFacts::default()
    }
}

#[test]
fn manual_pages_name_only_pages_that_exist() {
    let place = Place::bare();
    place.run(&["man", "--dir", "pages"]).expect(0, &[]);
    let dir = place.repo().join("pages");
    let pages: BTreeSet<String> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in ["ralph.1", "ralph-run.1", "ralph-image-build.1"] {
        assert!(pages.contains(name), "{name} is not in {pages:?}");
    }
    let mut referred = 0;
    for name in &pages {
        let content = std::fs::read_to_string(dir.join(name)).unwrap().replace('\\', "");
        for text in content.split("(1)").filter(|text| text.len() < content.len()) {
            let word = text
                .rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                .next();
            let Some(target) = word.filter(|word| word.starts_with("ralph")) else {
                continue;
            };
            referred += 1;
            assert!(pages.contains(&format!("{target}.1")), "{name} names {target}(1)");
        }
    }
    assert!(referred > 40, "{referred}");
    let printed = place.run(&["man"]).stdout;
    assert_eq!(
        printed.trim_end(),
        std::fs::read_to_string(dir.join("ralph.1")).unwrap().trim_end()
    );
}

/// The committed page is this text; with `RALPH_UPDATE_REFERENCE=1` it becomes it.
#[track_caller]
pub(crate) fn check(page: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    if std::env::var_os("RALPH_UPDATE_REFERENCE").is_some_and(|value| value == "1") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "{page} is stale; `RALPH_UPDATE_REFERENCE=1 cargo test --test it up_to_date` rewrites it"
    );
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
    for key in keys() {
        lines.push(format!("| `{}` | `{key}` |", key.variable()));
    }
    lines.join("\n") + "\n"
}

/// Every key, with `NAME` in place of the names of the default profiles.
fn keys() -> BTreeSet<KeyPath> {
    let (_, sections) = sections(DEFAULTS);
    let mut keys = BTreeSet::new();
    for section in sections {
        let prefix = match section.name.as_deref() {
            None => String::new(),
            Some(name) if name.starts_with("models.") => "models.NAME.".to_owned(),
            Some(name) => format!("{name}."),
        };
        let paths = section.keys.iter().map(|key| format!("{prefix}{}", key.name));
        keys.extend(paths.map(|path| KeyPath::parse(&path)));
    }
    keys
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
Any key can be set by `RALPH_` and its name in capitals, with `__` for each dot. A list is written as `a,b` or \
`[\"a\", \"b\"]`. `NAME` is the name of a profile, with `_` for every character other than letters and digits.
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
            section.keys.push(Key {
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
