//! Actions of the built-in agent through a whole run: what is refused, where that is reported, and how the run continues.

use std::fs;

use rstest::rstest;
use serde_json::{Value, json};

use crate::support::ralph::{Place, call, doing, run, script, whole_task, write};

#[rstest]
#[case::above(json!({"type": "write", "path": "../outside", "content": "x"}), "..")]
#[case::absolute(json!({"type": "write", "path": "/outside", "content": "x"}), "/outside")]
#[case::git(json!({"type": "write", "path": ".git/config", "content": "x"}), ".git")]
#[case::git_in_capitals(json!({"type": "write", "path": "sub/.GIT/hooks/x", "content": "x"}), ".GIT")]
#[case::cwd(json!({"type": "run", "command": "true", "cwd": "a/../.."}), "..")]
#[case::unknown_field(json!({"type": "run", "command": "true", "shell": "zsh"}), "shell")]
#[case::wrong_type(json!({"type": "run", "command": "true", "timeout_s": "10"}), "timeout_s")]
fn an_answer_with_a_wrong_action_is_not_performed_and_the_mistake_named(
    #[case] action: Value,
    #[case] named: &str,
) {
    let place = Place::new();
    let bad = call(&doing([write("a.txt", "x"), action]));
    let script = json!({"iterations": [[bad.clone(), bad], [call(&whole_task())]]});
    place.run_script(&script).expect(0, &["iteration 2", "done: "]);
    let errors = place.noted("errors.log");
    assert!(
        errors.contains("could not be used") && errors.contains(named),
        "{errors}"
    );
    assert_eq!(place.noted("iterations/1/actions.jsonl"), "");
}

#[test]
fn a_script_with_an_unknown_action_is_refused_before_the_run() {
    let place = Place::new();
    let unknown = doing([write("a.txt", "x"), json!({"type": "exec", "command": "true"})]);
    let ended = place.run_script(&script([whole_task(), unknown]));
    ended.expect_refused(&[
        "the script, iteration 2, call 1: the answer does not follow the schema:",
        "actions[1].type: `exec` is not an action; expected one of `run`, `patch`, `write`, `commit`, ",
        "hint: correct the answer, or add a second call",
    ]);
    assert!(place.runs().is_empty());
}

#[test]
fn one_repair_round_belongs_to_the_iteration() {
    let place = Place::new();
    let script = json!({"iterations": [[call(&doing([run("")])), call(&whole_task())]]});
    place.run_script(&script).expect(0, &["done: "]);
    assert_eq!(place.status()["iterations"], 1);
}

#[test]
fn an_answer_that_stays_unusable_is_a_recorded_failure() {
    let place = Place::new();
    let bad = |field: &str| json!({"summary": "s", "actions": [], field: 1});
    let script = json!({"iterations": [
        [call(&bad("thoughts")), call(&bad("more"))],
        [call(&whole_task())],
    ]});
    place.run_script(&script).expect(0, &["iteration 2"]);
    let errors = place.noted("errors.log");
    assert!(
        errors.contains("[iteration 1] the answer could not be used") && errors.contains("more"),
        "{errors}"
    );
    let prompt = place.noted("iterations/2/prompt.md");
    assert!(
        prompt.contains("the answer could not be used"),
        "the next prompt does not say so"
    );
    let metrics: Value = serde_json::from_str(&place.noted("iterations/1/metrics.json")).unwrap();
    assert_eq!(metrics["failures"][0]["command"], "answer");
}

#[rstest]
#[case::out_of_the_clone("OUTSIDE", "link/canary")]
#[case::into_git(".git", "link/canary")]
#[case::a_file_outside("OUTSIDE/file", "link")]
fn no_action_follows_a_link(#[case] target: &str, #[case] path: &str) {
    let place = Place::new();
    let outside = place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "precious\n").unwrap();
    let target = target.replace("OUTSIDE", outside.to_str().unwrap());
    let patch = format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-precious\n+changed\n");
    let attempts = [
        write(path, "x"),
        json!({"type": "write", "path": path, "append": true, "content": "x"}),
        json!({"type": "patch", "path": path, "patch": patch}),
    ];
    let link = format!("ln -sfn {target} link");
    let answers = attempts.into_iter().map(|attempt| doing([run(&link), attempt]));
    place.run_script(&script(answers.chain([json!({
        "summary": "enough", "actions": [{"type": "pause", "reason": "look"}],
    })])));
    let errors = place.noted("errors.log");
    assert_eq!(errors.matches("is a symbolic link").count(), 3, "{errors}");
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "precious\n");
    assert!(!outside.join("canary").exists());
    let clone = place.run_dir().join("sandbox/work");
    assert!(!clone.join(".git/canary").exists());
}

#[test]
fn a_patch_that_does_not_apply_is_reported_with_its_hunk_and_ends_the_list() {
    let place = Place::new();
    let patch = "--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-A projekt\n+Another\n";
    let answer = doing([
        json!({"type": "patch", "path": "README.md", "patch": patch}),
        write("later.txt", "x"),
    ]);
    place
        .run_script(&script([answer, whole_task()]))
        .expect(0, &["! patch: README.md"]);
    let errors = place.noted("errors.log");
    assert!(
        errors.contains("`@@ -1 +1 @@`) does not apply") && errors.contains("A projekt"),
        "{errors}"
    );
    let actions = place.noted("iterations/1/actions.jsonl");
    assert_eq!(
        actions.lines().count(),
        1,
        "the action after it was performed: {actions}"
    );
    assert!(place.noted("iterations/2/prompt.md").contains("A projekt"));
}

#[test]
fn claims_are_checked_and_not_believed() {
    let place = Place::new();
    let lie = json!({"summary": "all done", "actions": [{"type": "stop_success", "reason": "done"}],
        "claims": {"checkboxes_checked": ["M1.1", "M9.9"], "milestones_completed": ["M1"]}});
    let ended = place.run_script(&script([lie, whole_task()]));
    ended.expect(
        0,
        &[
            "[ ] M1.1: its verification fails",
            "[ ] M9.9: the task has no such checkbox",
            "iteration 2",
        ],
    );
}
