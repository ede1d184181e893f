//! What the guides show works as it is written.

use std::path::Path;

use ralph::agent::actions::ActionsAnswer;
use ralph::config::{Config, ConfigError, ConfigInputs, load};
use ralph::model::Script;
use ralph::task::lint;
use rstest::rstest;

use crate::support::ralph::Place;

const SCRIPTS: &str = "docs/guide/scripts.md";

#[test]
fn the_example_task_has_no_findings() {
    let shown = blocks("docs/guide/task-file.md", "markdown");
    assert_eq!(shown.len(), 1);
    assert_eq!(lint(Some(&shown[0]), 2), []);
}

#[test]
fn the_example_script_does_the_example_task() {
    let place = Place::new();
    let (tasks, scripts) = (blocks(SCRIPTS, "markdown"), blocks(SCRIPTS, "yaml"));
    place.write("ralph_task.md", &tasks[0]);
    place.write("script.yaml", &scripts[0]);
    place
        .run(&["run", "--script", "script.yaml"])
        .expect(0, &["done: "]);
    for script in &scripts {
        Script::parse(script).unwrap();
    }
}

#[test]
fn every_action_and_its_fields_are_in_the_guide() {
    let page = page(SCRIPTS);
    let schema = schemars::schema_for!(ActionsAnswer).to_value();
    let actions = schema["$defs"]["AgentAction"]["oneOf"].as_array().unwrap();
    assert_eq!(actions.len(), 8);
    for action in actions {
        let fields = action["properties"].as_object().unwrap();
        let name = fields["type"]["const"].as_str().unwrap();
        let row = format!("| `{name}` |");
        let row = page.lines().find(|line| line.starts_with(&row));
        let row = row.unwrap_or_else(|| panic!("{name} is missing"));
        for field in fields.keys().filter(|field| *field != "type") {
            assert!(row.contains(&format!("`{field}`")), "{field} is not in {row}");
        }
    }
}

#[rstest]
#[case::starter(ralph::task::starter::CONFIG)]
#[case::local_starter(ralph::task::starter::LOCAL_CONFIG)]
fn a_configuration_that_is_written_can_be_loaded(#[case] text: &str) {
    let config = load_shown(text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.settings.default_profile, "default-cheap");
}

#[test]
fn every_configuration_that_a_guide_shows_can_be_loaded() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide");
    let names = std::fs::read_dir(guide).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut loaded = 0;
    // The block of `sdk.md` is for a `Cargo.toml`.
    for name in names.filter(|name| {
        name.rsplit_once('.')
            .is_some_and(|(stem, end)| end == "md" && stem != "sdk")
    }) {
        for block in blocks(&format!("docs/guide/{name}"), "toml") {
            load_shown(&block).unwrap_or_else(|error| panic!("{name}: {error}\n{block}"));
            loaded += 1;
        }
    }
    assert!(loaded > 20, "{loaded}");
}

/// Loads this text as `ralph.toml`, or as the user's file if it begins with a table that a project cannot set.
fn load_shown(text: &str) -> Result<Config, ConfigError> {
    let is_for_user = ["[[notify]]", "[api]", "[dashboard]"]
        .iter()
        .any(|table| text.starts_with(table));
    let dir = tempfile::tempdir().unwrap();
    let user_file = dir.path().join("user.toml");
    let file = if is_for_user {
        user_file.clone()
    } else {
        dir.path().join("ralph.toml")
    };
    std::fs::write(file, text).unwrap();
    load(&ConfigInputs {
        project_dir: dir.path().to_owned(),
        user_file: Some(user_file),
        ..ConfigInputs::default()
    })
}

#[test]
fn every_key_of_a_task_is_in_the_guide() {
    let page = page("docs/guide/task-file.md");
    let keys = "task_id repo_url base_branch target_branch_prefix target_branch_slug slug sandbox_provider sandbox_image \
                sandbox_resources model_profile_default model_profile_fallback max_iterations \
                max_wall_time_minutes max_cost_usd_estimate max_tokens_total max_consecutive_gutter test_command \
                setup_command verify_commands pr.draft pr.labels pr.title_template pr.body_template";
    for key in keys.split_whitespace() {
        let row = format!("| `{key}` |");
        assert!(
            page.lines().any(|line| line.starts_with(&row)),
            "{key} is missing"
        );
    }
}

fn page(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The code blocks of one language in a page.
fn blocks(path: &str, language: &str) -> Vec<String> {
    let page = page(path);
    let parts: Vec<&str> = page.split("```").collect();
    let code = parts.iter().skip(1).step_by(2);
    code.filter_map(|block| Some(block.strip_prefix(language)?.strip_prefix('\n')?.to_owned()))
        .collect()
}
