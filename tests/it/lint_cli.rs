//! The linter: `ralph lint` reports everything at once, `ralph run` starts nothing.

use rstest::rstest;
use serde_json::Value;

use crate::fake_engine;
use crate::support::ralph::{Place, TASK, finish, script, whole_task};

#[test]
fn a_valid_task_is_reported_as_valid() {
    let place = Place::new();
    place.run(&["lint"]).expect(0, &["ralph_task.md is valid."]);
    assert_eq!(place.run(&["lint", "--json"]).stdout, "[]\n");
}

#[test]
fn a_task_that_is_not_there_is_named() {
    let place = Place::new();
    for command in ["lint", "run", "submit"] {
        let ended = place.run(&[command, "other.md"]);
        ended.expect(2, &["ralph: there is no task file `other.md`\n"]);
        assert_eq!(ended.stdout, "", "{command}");
    }
    let ended = place.run(&["lint", "other.md", "--json"]);
    ended.expect(2, &["ralph: there is no task file `other.md`\n"]);
    let findings: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(findings[0]["rule"], "file-exists");
}

#[test]
fn a_key_with_two_names_is_given_once() {
    let place = Place::new();
    let head = "---\ntask_id: t1\ntarget_branch_prefix: ralph/t1/\ntarget_branch_slug: one\n";
    place.write("ralph_task.md", &TASK.replacen("---\ntask_id: t1\n", head, 1));
    place
        .run_script(&script([whole_task()]))
        .expect(0, &["branch ralph/t1/one)"]);
    let both = format!("{head}slug: two\n");
    place.write("ralph_task.md", &TASK.replacen("---\ntask_id: t1\n", &both, 1));
    let ended = place.run(&["lint"]);
    ended.expect(2, &["1 problem"]);
    let finding = "ralph_task.md:5: `target_branch_slug` and `slug` are the same key";
    assert!(ended.stdout.starts_with(finding), "{}", ended.stdout);
}

#[test]
fn code_that_is_not_run_is_named_and_refuses_nothing() {
    let place = Place::new();
    let verify = "- verify: `grep -q hello a.txt`";
    let explained = format!("{verify}, which is like running `exit 1`");
    place.write("ralph_task.md", &TASK.replacen(verify, &explained, 1));
    let line = TASK.lines().position(|line| line.contains(verify)).unwrap() + 1;
    let warning = format!("warning: ralph_task.md:{line}: `exit 1` is not run: ");
    let fix = "\n  fix: to run it, add a line - verify: `exit 1`, or ";

    let ended = place.run(&["lint"]);
    ended.expect(0, &["ralph_task.md is valid, with 1 warning."]);
    assert!(ended.stdout.starts_with(&warning), "{}", ended.stdout);
    assert!(ended.stdout.contains(fix), "{}", ended.stdout);
    let findings: Value = serde_json::from_str(&place.run(&["lint", "--json"]).stdout).unwrap();
    let expected = ["ignored-code", "warning"];
    assert_eq!([&findings[0]["rule"], &findings[0]["severity"]], expected);

    let ended = place.run_script(&script([whole_task()]));
    ended.expect(0, &[&warning, fix]);
    assert_eq!(ended.stderr.matches(&warning).count(), 1, "{}", ended.stderr);
}

/// A task in which four things are wrong.
const BROKEN: &str = "\
---
task_id: t1
max_iterations: many
max_wall_time_minutes: 5
max_tokens_total: 1000
tset_command: make
---
# Title

- [ ] M1.1 the only box
";

#[test]
fn every_finding_is_reported_at_once_with_line_reason_and_fix() {
    let place = Place::new();
    place.write("ralph_task.md", BROKEN);
    let ended = place.run(&["lint", "--json"]);
    ended.expect(2, &["ralph: the task file `ralph_task.md` is not valid: "]);
    let findings: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    for (rule, line) in [
        ("values", 3),
        ("known-keys", 6),
        ("enough-checkboxes", 10),
        ("verification", 10),
    ] {
        let found = findings.iter().find(|finding| finding["rule"] == rule);
        let found = found.unwrap_or_else(|| panic!("{rule} is not in {findings:?}"));
        assert_eq!(found["line"], line, "{found}");
        assert!(
            found["fix"].as_str().is_some_and(|fix| !fix.is_empty()),
            "{found}"
        );
    }
    let text = place.run(&["lint"]).stdout;
    assert!(text.contains("ralph_task.md:3: "), "{text}");
    assert_eq!(text.matches("\n  fix: ").count(), findings.len(), "{text}");
}

#[test]
fn the_number_of_boxes_a_task_needs_is_configurable() {
    let place = Place::new();
    let ended = place.run(&["--set", "task.min_checkboxes=3", "lint"]);
    ended.expect(2, &["1 problem"]);
}

#[rstest]
#[case::findings(BROKEN, &[], &["ralph_task.md:3: ", "  fix: ", "problems"])]
#[case::unknown_agent(TASK, &["--agent", "clod"], &["clod"])]
#[case::agent_without_a_command(TASK, &["--agent", "custom"], &["the agent `custom` has no command", "hint: "])]
#[case::provider_of_a_later_version(TASK, &["--type", "tart"], &["tart", "--type"])]
#[case::unknown_profile(TASK, &["--profile", "nope"], &["there is no profile `nope`"])]
#[case::no_such_script(TASK, &["--script", "nope.yaml"], &["nope.yaml", "hint: `--script` takes a file"])]
#[case::bad_script(TASK, &["--script", "README.md"], &["cannot parse the script: "])]
#[case::unenforceable_policy(TASK, &["--set", "sandbox.network.policy=deny"], &["hint: ", "on_unenforceable"])]
fn a_run_that_cannot_begin_leaves_nothing_behind(
    #[case] task: &str,
    #[case] args: &[&str],
    #[case] said: &[&str],
) {
    let place = Place::new();
    place.write("ralph_task.md", task);
    let refs = place.git(&["for-each-ref"]);
    place.run(&[&["run"], args].concat()).expect_refused(said);
    assert!(place.runs().is_empty());
    assert_eq!(place.git(&["for-each-ref"]), refs);
}

#[test]
fn outside_of_a_repository_a_run_says_what_is_missing() {
    let place = Place::new();
    std::fs::remove_dir_all(place.repo().join(".git")).unwrap();
    let ended = place.run_script(&script([whole_task()]));
    ended.expect_refused(&["is not a git repository", "hint: ", "git init"]);
    assert!(place.runs().is_empty());
}

#[rstest]
#[case::without_a_commit(None)]
#[case::without_the_base_branch(Some("nope"))]
fn a_repository_that_lacks_the_base_is_refused(#[case] base: Option<&str>) {
    let place = Place::new();
    match base {
        None => {
            place.git(&["update-ref", "-d", "HEAD"]);
        }
        Some(branch) => place.write(
            "ralph_task.md",
            &TASK.replace("task_id", &format!("base_branch: {branch}\ntask_id")),
        ),
    }
    let ended = place.run_script(&script([whole_task()]));
    ended.expect_refused(&[
        "is not a commit, branch or tag of this repository",
        "a new repository needs a first commit",
    ]);
    assert!(place.runs().is_empty());
}

#[test]
fn the_example_of_init_is_no_task_until_it_is_edited() {
    let place = Place::new();
    let mut init = place.ralph(&["init", "--force"]);
    finish(init.env("DOCKER_HOST", "unix:///nonexistent/engine.sock"))
        .expect(0, &["`ralph run` works on it"]);
    let ended = place.run(&["lint"]);
    ended.expect(2, &["is not valid: 4 problems"]);
    for fix in [
        "  fix: write what this task does as its heading",
        "  fix: replace this paragraph with a description of the task",
        "  fix: write a success criterion of this task, with a `verify:` command that fails now",
    ] {
        assert!(ended.stdout.contains(fix), "{}", ended.stdout);
    }
    place
        .run_script(&script([whole_task()]))
        .expect_refused(&["ralph_task.md:33: this line is left from the example that `ralph init` writes"]);
    assert!(place.runs().is_empty());
    let mut text = std::fs::read_to_string(place.repo().join("ralph_task.md")).unwrap();
    for (example, own) in [
        ("What is to be done, in one line", "Say hello"),
        ("Say why you want it, what", "What"),
        ("The greeting names the user", "a.txt says hello"),
        ("The greeting ends with a line break", "b.txt says hello"),
    ] {
        text = text.replace(example, own);
    }
    place.write("ralph_task.md", &text);
    place.run(&["lint"]).expect(0, &["is valid"]);
}

#[test]
fn a_task_without_a_test_command_of_its_own_is_not_valid() {
    let place = Place::bare();
    place.run(&["init"]).expect(
        0,
        &["No test command was found: set `test_command` in ralph_task.md."],
    );
    let ended = place.run(&["lint"]);
    ended.expect(2, &["is not valid: 5 problems"]);
    let fix = "  fix: name the command that runs your tests, as in `test_command: npm test`";
    assert!(ended.stdout.contains(fix), "{}", ended.stdout);
}

#[test]
fn init_proposes_a_set_up_from_the_lock_files() {
    let place = Place::bare();
    place.write("package-lock.json", "{}");
    place.write("Cargo.lock", "");
    place.run(&["init"]).expect(0, &[]);
    let text = std::fs::read_to_string(place.repo().join("ralph_task.md")).unwrap();
    assert!(
        text.contains("\nsetup_command: npm ci && cargo fetch --locked\n"),
        "{text}"
    );
}

#[test]
fn init_chooses_a_container_where_an_engine_answers() {
    let place = Place::bare();
    let init = |address: &str| finish(place.ralph(&["init", "--force"]).env("DOCKER_HOST", address));
    let show = || place.run(&["config", "show"]).stdout;
    let engine = fake_engine::answering(place.path());
    init(&engine).expect(
        0,
        &["ralph.toml sets `docker` as the sandbox: Docker 77.1 at unix://"],
    );
    let shown = show();
    let value = |key: &str| {
        let line = shown.lines().find(|line| line.starts_with(key));
        line.unwrap_or_else(|| panic!("{key} is not in {shown}"))
            .to_owned()
    };
    assert!(value("sandbox.type").contains("docker"), "{shown}");
    assert!(value("sandbox.network.policy").contains("allowlist"), "{shown}");
    init("unix:///nonexistent/engine.sock").expect(
        0,
        &["warning: ralph.toml sets `local` as the sandbox, which isolates nothing: cannot reach a container engine"],
    );
    assert!(show().contains("allow-all"));
}

#[test]
fn what_init_wrote_is_not_overwritten_unasked() {
    let place = Place::bare();
    let ended = place.run(&["init"]);
    ended.expect(0, &["`ralph run` works on it"]);
    assert_eq!(ended.stdout.lines().count(), 9);
    place.write("ralph_task.md", "mine");
    place.run(&["init"]).expect_refused(&[
        "ralph_task.md` already exists",
        "`ralph init --force` overwrites it",
    ]);
    let text = || std::fs::read_to_string(place.repo().join("ralph_task.md")).unwrap();
    assert_eq!(text(), "mine");
    place.run(&["init", "--force"]).expect(0, &[]);
    assert_ne!(text(), "mine");
}
