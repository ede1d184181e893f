//! The configuration as a user meets it: where values come from, and what mistakes in it look like.

use rstest::rstest;
use serde_json::Value;

use crate::support::ralph::{Place, finish, script, whole_task};

#[test]
fn every_value_is_shown_with_the_layer_it_came_from() {
    let place = Place::new();
    let user = place.path().join("home/.config/ralph");
    std::fs::create_dir_all(&user).unwrap();
    std::fs::write(user.join("config.toml"), "[git]\nuser_name = \"Bot\"\n").unwrap();
    let mut command = place.ralph(&["--set", "budget.max_iterations=7", "config", "show", "--json"]);
    command.env("RALPH_DEFAULT_PROVIDER", "local");
    let ended = crate::support::ralph::finish(&mut command);
    ended.expect(0, &[]);
    let rows: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    let layer_of = |key: &str| {
        let row = rows.iter().find(|row| row["key"] == key);
        row.unwrap_or_else(|| panic!("{key} is not in {rows:?}"))["layer"].clone()
    };
    for (key, layer) in [
        ("budget.max_consecutive_gutter", "default"),
        ("budget.max_wall_time_minutes", "task"),
        ("git.user_name", "user"),
        ("agent.name", "project"),
        ("sandbox.type", "env"),
        ("budget.max_iterations", "flag"),
    ] {
        assert_eq!(layer_of(key), layer, "{key}");
    }
    let text = place.run(&["config", "show"]).stdout;
    let line = text.lines().find(|line| line.starts_with("agent.name")).unwrap();
    assert!(
        line.contains("actions") && line.contains("ralph.toml:2:"),
        "{line}"
    );
    let of_task = text
        .lines()
        .find(|line| line.starts_with("budget.max_iterations"));
    let of_task = of_task.unwrap();
    assert!(of_task.ends_with("/ralph_task.md:4:17"), "{of_task}");
}

#[test]
fn a_task_that_cannot_be_read_is_left_out_of_the_configuration_that_is_shown() {
    let place = Place::new();
    let task = crate::support::ralph::TASK;
    place.write(
        "ralph_task.md",
        &task.replace("max_iterations: 6", "max_iterations: many"),
    );
    let ended = place.run(&["config", "show"]);
    ended.expect(0, &[
        "warning: the settings of the task are left out: ralph_task.md:4: `max_iterations` is `many`; expected a whole number above 0 fix: ",
    ]);
    let line = ended
        .stdout
        .lines()
        .find(|line| line.starts_with("budget.max_iterations"));
    assert!(line.unwrap().ends_with("built in"), "{ended:?}");
}

#[test]
fn the_schema_describes_every_key() {
    let ended = Place::new().run(&["config", "schema"]);
    ended.expect(0, &[]);
    let schema: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        schema["properties"]["budget"]["properties"]["max_iterations"]["type"],
        "integer"
    );
}

#[rstest]
#[case::bad_toml("a = \n", &["ralph.toml:1:"])]
#[case::unknown_key("[budget]\nmax_iteration = 3\n", &["ralph.toml:2:1", "unknown key `budget.max_iteration`", "did you mean `budget.max_iterations`?"])]
#[case::wrong_type("[budget]\nmax_iterations = \"x\"\n", &["ralph.toml:2:18", "expected a whole number"])]
#[case::upper_case("[image]\nbase = \"UPPER\"\n", &["ralph.toml:2:8", "the name of an image in lower case"])]
#[case::unknown_word("[agent]\nname = \"clod\"\n", &["ralph.toml:2:8", "`claude`"])]
fn a_mistake_in_the_file_is_named_with_its_place(#[case] text: &str, #[case] said: &[&str]) {
    let place = Place::new();
    place.write("ralph.toml", text);
    for command in [&["config", "show"][..], &["run"], &["lint"]] {
        place.run(command).expect_refused(said);
    }
    assert!(place.runs().is_empty());
}

#[rstest]
#[case::no_such_file(&["--config", "nope.toml", "config", "show"], &["nope.toml", "hint: check the path"])]
#[case::set_without_a_value(&["--set", "budget.max_iterations", "config", "show"], &["KEY=VALUE", "hint: "])]
#[case::set_of_an_unknown_key(&["--set", "budget.max_iteration=1", "config", "show"], &["--set budget.max_iteration", "did you mean"])]
#[case::set_to_the_wrong_type(&["--set", "budget.max_iterations=many", "config", "show"], &["expected a whole number"])]
#[case::unknown_command(&["resum"], &["unrecognized subcommand 'resum'", "a similar subcommand exists: 'resume'"])]
#[case::unknown_flag(&["run", "--frce"], &["unexpected argument '--frce'"])]
#[case::not_a_number(&["image", "prune", "--keep", "x"], &["--keep <N>", "expected a whole number"])]
#[case::verbose_json(&["run", "--json", "--verbose"], &["cannot be used with"])]
fn a_mistake_on_the_command_line_is_refused(#[case] args: &[&str], #[case] said: &[&str]) {
    Place::new().run(args).expect_refused(said);
}

#[rstest]
#[case::command_that_is_spelt_otherwise(&["frobnicate"], "rotate")]
#[case::argument_that_cannot_be_one(&["run", "--forge"], "as a value")]
fn no_advice_is_given_that_does_not_help(#[case] args: &[&str], #[case] not_said: &str) {
    let ended = Place::new().run(args);
    ended.expect_refused(&[]);
    assert!(!ended.stderr.contains(not_said), "{ended:?}");
}

#[rstest]
#[case::set(&["demo", "--set", "nonsense.x=1"], "demo")]
#[case::set_before_the_command(&["--set", "nonsense", "status"], "status")]
#[case::config(&["status", "--config", "nofile"], "status")]
#[case::below_a_group(&["evidence", "key", "--config", "nofile"], "evidence key")]
fn settings_are_refused_by_a_command_that_reads_none(#[case] args: &[&str], #[case] command: &str) {
    let ended = Place::new().run(args);
    let said = format!("`ralph {command}` takes no settings");
    ended.expect_refused(&[&said, "hint: leave out `--config` and `--set`"]);
}

#[test]
fn without_a_command_the_help_is_shown() {
    let ended = Place::new().run(&[]);
    ended.expect(2, &["Usage: ralph", "  demo "]);
    assert_eq!(ended.stdout, "");
}

#[test]
fn a_configuration_file_named_by_a_flag_takes_the_place_of_the_usual_one() {
    let place = Place::new();
    place.write("other.toml", "[budget]\nmax_consecutive_gutter = 11\n");
    let ended = place.run(&["--config", "other.toml", "config", "show", "--json"]);
    let rows: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    let value_of = |key: &str| rows.iter().find(|row| row["key"] == key).unwrap()["value"].clone();
    assert_eq!(value_of("budget.max_consecutive_gutter"), 11);
    assert_eq!(value_of("agent.name"), "claude", "ralph.toml says otherwise");
}

#[test]
fn a_run_needs_no_database() {
    let place = Place::new();
    let mut command = place.scripted(&script([whole_task()]), &[]);
    let ended = finish(command.env("RALPH_DB_URL", "postgres://me:CANARY@127.0.0.1:1/ralph"));
    ended.expect(0, &[]);
    assert!(!format!("{ended:?}").contains("CANARY"), "{ended:?}");
}

/// Variables and secrets of `ralph.toml` reach the commands of the agent and of evidence. Only the length of the secret is
/// shown: a commit with the value would be refused.
#[test]
fn variables_of_the_configuration_reach_commands() {
    let place = Place::new();
    let config = std::fs::read_to_string(place.repo().join("ralph.toml")).unwrap();
    let more = "[sandbox.env]\nGREETING = \"hello\"\n[sandbox.secrets.PASS_WORD]\ndangerously_pass = true\n";
    place.write("ralph.toml", &format!("{config}{more}"));
    let task = crate::support::ralph::TASK
        .replace("grep -q hello b.txt", "grep -q \"$GREETING ${#PASS_WORD}\" b.txt");
    place.write("ralph_task.md", &task);
    let work = crate::support::ralph::ending([
        crate::support::ralph::run("echo \"$GREETING\" >a.txt; echo \"$GREETING ${#PASS_WORD}\" >b.txt"),
        crate::support::ralph::commit("Greet"),
    ]);
    let mut command = place.scripted(&script([work]), &[]);
    finish(command.env("PASS_WORD", "open-sesame-1")).expect(0, &["done: "]);
    let tip = place.git(&["rev-parse", "ralph/t1/say-hello"]);
    assert_eq!(
        place.git(&["show", &format!("{}:b.txt", tip.trim())]),
        "hello 13\n"
    );
}
