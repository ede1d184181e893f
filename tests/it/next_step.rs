//! The last line of a command says what to do next, when it succeeded and when it failed.

use std::process::Stdio;

use rstest::rstest;
use serde_json::json;

use crate::need;
use crate::support::ralph::{Place, TASK, finish, script, whole_task};
use crate::support::skip;

const NO_ENGINE: &str = "unix:///nonexistent/engine.sock";
const KEY: &str = "sk-ant-api03-example";

/// A sandbox and a model that need nothing, and a limit for a model without a price.
const LOCAL: &str = "--set=sandbox.type=local";
const LIMITED: &str = "--set=budget.max_tokens_total=1000000";
const KEYLESS: &str = "--set=models.default-cheap.litellm_model=ollama/llama3";

/// A directory with nothing in it.
fn nothing() -> Place {
    Place::bare()
}

/// A repository without a commit.
fn empty() -> Place {
    let place = Place::bare();
    place.git(&["init", "--quiet", "--initial-branch=main"]);
    place
}

/// A task without a repository.
fn task_alone() -> Place {
    let place = Place::bare();
    place.write("ralph_task.md", TASK);
    place
}

/// A repository with a task that can be run.
fn ready() -> Place {
    Place::new()
}

/// The same after a run that is done.
fn done() -> Place {
    let place = Place::new();
    place.run_script(&script([whole_task()])).expect(0, &["done: "]);
    place
}

/// The same after a run that waits for a person.
fn paused() -> Place {
    crate::control::resting()
}

#[rstest]
#[case::init(nothing, &["init"], "next: describe your task in ralph_task.md; then `ralph lint`")]
#[case::init_again(ready, &["init"], "hint: edit it, then `ralph lint`; `ralph init --force`")]
#[case::lint(ready, &["lint"], "next: `ralph run ralph_task.md` works on it")]
#[case::lint_without_a_task(nothing, &["lint"], "hint: ")]
#[case::doctor_without_a_task(nothing, &["doctor", "env", LOCAL, KEYLESS, LIMITED], "next: `ralph init` writes a task")]
#[case::doctor_with_a_task(ready, &["doctor", "env", LOCAL, KEYLESS, LIMITED], "next: `ralph lint` checks the task, and `ralph run`")]
#[case::models(ready, &["models"], "next: ")]
#[case::run_without_a_task(nothing, &["run"], "hint: ")]
#[case::run_without_a_repository(task_alone, &["run"], "hint: run inside a git repository, or create one with `git init`")]
#[case::demo(nothing, &["demo"], "next: `ralph doctor env` shows what your own run would use; `ralph init`")]
#[case::status_of_nothing(nothing, &["status"], "No runs yet. `ralph run` starts one")]
#[case::status_of_a_run_that_is_done(done, &["status"], "next: `ralph status RUN` shows")]
#[case::status_of_a_run_that_waits(paused, &["status"], "next: `ralph resume r")]
#[case::watch(nothing, &["watch"], "No runs yet. `ralph run` starts one")]
#[case::logs(nothing, &["logs"], "hint: `ralph run` starts one")]
#[case::resume(nothing, &["resume"], "hint: `ralph run` starts one")]
#[case::pause(nothing, &["pause"], "hint: `ralph status` lists the runs")]
#[case::image(ready, &["image", "build"], "hint: start Docker or podman")]
#[case::image_plan(ready, &["image", "build", "--dry-run"], "next: `ralph image build`")]
#[case::token(ready, &["token", "check", "--agent", "claude"], "next: `ralph token check --verify`")]
#[case::no_token(ready, &["token", "check", "--agent", "cursor"], "hint: store a new one: `ralph token store --agent cursor")]
#[case::selftest(ready, &["selftest", "--type", "local"], "hint: `ralph doctor env`")]
#[case::unknown_command(nothing, &["biuld"], "For more information, try '--help'.")]
fn the_last_line_says_what_to_do_next(
    #[case] place: fn() -> Place,
    #[case] args: &[&str],
    #[case] expected: &str,
) {
    let place = place();
    let mut command = place.ralph(args);
    command
        .env("DOCKER_HOST", NO_ENGINE)
        .env("CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-example")
        .env("ANTHROPIC_API_KEY", KEY)
        .stdin(Stdio::null());
    let ended = finish(&mut command);
    let shown = if ended.stderr.trim().is_empty() {
        &ended.stdout
    } else {
        &ended.stderr
    };
    let last = shown.lines().last().unwrap_or_default();
    assert!(last.starts_with(expected), "{last}: {ended:?}");
}

#[test]
fn a_run_ends_with_what_to_do_next() {
    let place = Place::new();
    let ended = place.run_script(&script([whole_task()]));
    let last = ended.stderr.lines().last().unwrap();
    assert!(
        last.starts_with("next: read the pull request; `git merge ralph/"),
        "{ended:?}"
    );
    let branch = last.split('`').nth(1).unwrap().trim_start_matches("git merge ");
    place.git(&["merge", "--quiet", branch]);
    assert!(place.repo().join("a.txt").exists());

    let place = Place::new();
    let idle = json!({"summary": "nothing", "actions": []});
    let mut command = place.scripted(&script([idle]), &["--max-iterations", "1"]);
    let ended = finish(&mut command);
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.starts_with("hint: `ralph diff r"), "{ended:?}");
}

#[rstest]
#[case::not_a_repository(
    nothing,
    "This is not a git repository, and a run starts from a commit: `git init && "
)]
#[case::no_commit(
    empty,
    "This repository has no commit yet, and a run starts from one: `git add --all && "
)]
fn init_says_that_a_run_needs_a_commit(#[case] place: fn() -> Place, #[case] said: &str) {
    let place = place();
    let ended = finish(place.ralph(&["init"]).env("DOCKER_HOST", NO_ENGINE));
    ended.expect(0, &[said, "`echo .env >> .gitignore`"]);
}

#[test]
fn a_key_of_another_service_is_named_with_the_setting_that_uses_it() {
    let place = Place::new();
    let ended = finish(place.ralph(&["models"]).env("OPENAI_API_KEY", KEY));
    ended.expect(
        0,
        &["next: `ZAI_API_KEY` is not set, the key of Z.ai; put it into `.env` or the environment, or use `OPENAI_API_KEY`, which is set: `--set models.default-cheap.litellm_model=openai/"],
    );
}

#[test]
fn a_terminal_shows_what_a_run_waits_for_and_for_how_long() {
    let terminal = need!(skip::program("script"));
    let place = Place::new();
    place.write("test.sh", "sleep 4; test ! -e broken\n");
    place.commit("Take longer");
    let file = place.path().join("script.json");
    std::fs::write(&file, script([whole_task()]).to_string()).unwrap();
    let mut command = place.on_terminal(&terminal, "", &["run", "--script", file.to_str().unwrap()]);
    let ended = finish(command.env("TERM", "xterm"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("s evidence: "), "{ended:?}");
    let last = ended.stdout.lines().last().unwrap();
    assert!(last.starts_with("next: "), "{last}: {ended:?}");
}
