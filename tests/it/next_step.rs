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

/// A shallow clone, which git can use and a run cannot.
fn shallow() -> Place {
    let place = Place::bare();
    let origin = place.path().join("origin");
    std::fs::create_dir(&origin).unwrap();
    for args in [
        &["init", "--quiet"][..],
        &["commit", "--quiet", "--allow-empty", "--message", "One"],
        &["commit", "--quiet", "--allow-empty", "--message", "Two"],
    ] {
        place.git_in(&origin, args).expect(0, &[]);
    }
    let url = format!("file://{}", origin.display());
    place.git(&["clone", "--quiet", "--depth", "1", &url, "."]);
    place
}

/// A repository that git does not open.
fn damaged() -> Place {
    let place = empty();
    place.write(".git/config", "[core\n");
    place
}

/// A configuration without a task.
fn configured() -> Place {
    let place = empty();
    place.write("ralph.toml", "[sandbox]\ntype = \"local\" # mine\n");
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

/// The same with the key that signed its evidence in `key.pem`.
fn keyed() -> Place {
    let place = done();
    let printed = place.run(&["evidence", "key"]);
    place.write("key.pem", &printed.expect(0, &[]).stdout);
    place
}

/// The same after a run that waits, and a newer one that is done.
fn paused_then_done() -> Place {
    let place = paused();
    place.run_script(&script([whole_task()])).expect(0, &["done: "]);
    place
}

/// A task that waits for a worker.
fn queued() -> Place {
    let place = Place::new();
    place.run(&["submit"]).expect(0, &["Queued."]);
    place
}

/// A task file with bytes that are no text.
fn binary() -> Place {
    let place = empty();
    std::fs::write(place.repo().join("ralph_task.md"), [0xff, 0xfe]).unwrap();
    place
}

/// A task as `ralph init` writes it.
fn initialized() -> Place {
    let place = empty();
    finish(place.ralph(&["init"]).env("DOCKER_HOST", NO_ENGINE)).expect(0, &[]);
    place
}

/// The same after a run that waits for a person.
fn paused() -> Place {
    crate::control::resting()
}

#[rstest]
#[case::init(nothing, &["init"], "next: describe your task in ralph_task.md; then `ralph lint`")]
#[case::init_of_a_shallow_clone(shallow, &["init"], "next: describe your task in ralph_task.md")]
#[case::init_in_a_directory(nothing, &["init", "new"], "next: in `new`, describe your task in ralph_task.md")]
#[case::init_with_a_configuration(configured, &["init"], "next: describe your task in ralph_task.md")]
#[case::init_again(ready, &["init"], "hint: edit it, then `ralph lint`; `ralph init --force`")]
#[case::lint(ready, &["lint"], "next: `ralph run ralph_task.md` works on it")]
#[case::lint_without_a_task(nothing, &["lint"], "hint: `ralph init` writes one, or name another file")]
#[case::doctor_without_a_task(nothing, &["doctor", "env", "--set=agent.name=actions", LOCAL, KEYLESS, LIMITED], "next: `ralph init` writes a task")]
#[case::doctor_with_a_task(ready, &["doctor", "env", LOCAL, KEYLESS, LIMITED], "next: `ralph lint` checks the task, and `ralph run`")]
#[case::doctor_of_a_run(paused, &["doctor", "r"], "next: `ralph doctor r")]
#[case::doctor_of_a_run_as_json(paused, &["doctor", "r", "--json"], "hint: `ralph status RUN --json` prints a run as JSON")]
#[case::models(ready, &["models", "--set=default_profile=strong-doctor"], "next: `ralph run` starts with the profile `strong-doctor`")]
#[case::models_without_a_key(ready, &["models"], "next: `ZAI_API_KEY` is not set, the key of Z.ai; set `ZAI_API_KEY` in `.env`; or use the service of `ANTHROPIC_API_KEY`, which is set: `ralph run --set models.default-cheap.litellm_model=anthropic/")]
#[case::models_of_a_program(ready, &["models", "--set=agent.name=claude"], "next: `ralph doctor env` shows whether `claude` can log in")]
#[case::run_without_a_task(nothing, &["run"], "hint: `ralph init` writes one, or name another file")]
#[case::run_without_a_repository(task_alone, &["run"], "hint: run inside a git repository, or create one with `git init`")]
#[case::demo(nothing, &["demo"], "next: `ralph doctor env` shows what your own run would use; `ralph init`")]
#[case::status_of_nothing(nothing, &["status"], "No runs yet. `ralph run` starts one")]
#[case::status_of_a_run_that_is_done(done, &["status"], "next: read /")]
#[case::status_of_the_newest_run(paused_then_done, &["status"], "next: read /")]
#[case::status_of_a_run_that_is_queued(queued, &["status"], "next: run r")]
#[case::status_of_a_run_that_waits(paused, &["status"], "next: `ralph resume r")]
#[case::watch(nothing, &["watch"], "No runs yet. `ralph run` starts one")]
#[case::logs(nothing, &["logs"], "hint: `ralph run` starts one")]
#[case::resume(nothing, &["resume"], "hint: `ralph run` starts one")]
#[case::pause(nothing, &["pause"], "hint: `ralph status` lists the runs")]
#[case::image(ready, &["image", "build"], "hint: start Docker or podman")]
#[case::image_plan(ready, &["image", "build", "--dry-run"], "next: start Docker or podman")]
#[case::token(ready, &["token", "check", "--agent", "claude"], "next: `ralph token check --agent claude --auth oauth --verify`")]
#[case::no_token(ready, &["token", "check", "--agent", "cursor"], "hint: store a new one: `ralph token store --agent cursor")]
#[case::selftest(ready, &["selftest", "--type", "local"], "hint: `ralph doctor env`")]
#[case::pause_of_a_run_that_rests(paused, &["pause", "r"], "hint: ")]
#[case::note_for_a_run_that_waits(paused, &["note", "Look again."], "next: `ralph resume r")]
#[case::sign_for_a_run_that_waits(paused, &["sign", "small", "--trigger=a diff", "--instruction=split it"], "next: `ralph resume r")]
#[case::profile_of_a_run_that_waits(paused, &["profile", "strong-doctor"], "next: `ralph resume r")]
#[case::retry_of_a_run_that_waits(paused, &["retry"], "next: `ralph resume r")]
#[case::removed(done, &["rm", "r"], "next: `ralph status` shows the runs that are left")]
#[case::pruned(done, &["prune", "--older-than=0s"], "next: `ralph status` shows the runs that are left")]
#[case::would_be_pruned(done, &["prune", "--older-than=0s", "--dry-run"], "next: the same command without `--dry-run` removes them")]
#[case::nothing_would_be_pruned(done, &["prune", "--older-than=7d", "--dry-run"], "next: `ralph status` lists the runs")]
#[case::nothing_is_pruned(done, &["prune", "--older-than=7d"], "next: `ralph status` lists the runs")]
#[case::sandboxes_pruned(done, &["sandbox", "prune", "--type=local"], "next: `ralph sandbox ls` shows the sandboxes that are left")]
#[case::config(ready, &["config", "show"], "next: change a value in `ralph.toml`, or for one run with `ralph run --set KEY=VALUE`")]
#[case::evidence_key(ready, &["evidence", "key"], "next: commit this key (")]
#[case::evidence(done, &["evidence", "show", "ralph/t1/say-hello"], "next: `ralph evidence verify ")]
#[case::verified(keyed, &["evidence", "verify", "ralph/t1/say-hello", "--key=key.pem"], "next: review the change that passed these commands: `git diff ")]
#[case::submit(ready, &["submit"], "next: `ralph worker` works on it, unless one runs already; `ralph status`")]
#[case::submit_without_a_task(nothing, &["submit"], "hint: `ralph init` writes one, or name another file")]
#[case::no_token_of_the_api(ready, &["api-token", "list"], "next: `ralph api-token create NAME` creates one")]
#[case::token_of_the_api(ready, &["api-token", "create", "ci"], "next: send it to `ralph serve` as `Authorization: Bearer TOKEN`")]
#[case::login(ready, &["api-token", "login"], "next: `POST /api/login` exchanges it for a session")]
#[case::rebuild(done, &["store", "rebuild"], "next: `ralph status` lists the runs")]
#[case::unknown_command(nothing, &["biuld"], "hint: `ralph --help` lists its commands")]
#[case::unknown_command_of_a_group(nothing, &["--set", "a=b", "token", "list"], "hint: `ralph token --help` lists its commands")]
#[case::unknown_option(nothing, &["run", "--forge"], "hint: `ralph run --help` lists its options")]
#[case::directory_that_cannot_be_created(nothing, &["demo", "--keep=/proc/new"], "hint: check the path")]
#[case::directory_at_a_file(configured, &["demo", "--keep=ralph.toml"], "hint: name another path")]
#[case::init_in_a_directory_that_cannot_be_created(nothing, &["init", "/proc/new"], "hint: check the path")]
#[case::manual_in_a_directory_that_cannot_be_created(nothing, &["man", "--dir=/proc/new"], "hint: check the path")]
#[case::edit_with_a_file_that_is_missing(paused, &["edit", "--file=missing"], "hint: check the path")]
#[case::lint_of_a_directory(ready, &["lint", "."], "hint: name a file: this is a directory")]
#[case::lint_of_a_file_that_is_no_text(binary, &["lint"], "hint: name a text file, or save this one as UTF-8")]
#[case::lint_of_the_starter_task(initialized, &["lint"], "hint: correct the lines above, then `ralph lint` checks them; docs/guide/task-file.md")]
#[case::retry_without_an_iteration(queued, &["retry", "--from=9"], "hint: `ralph resume r")]
#[case::gateway_without_an_address(ready, &["gateway", "check", "--auth=gateway"], "hint: set `model_endpoint.base_url`")]
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
        last.starts_with("next: read /") && last.contains("/pull-request.md; `git merge ralph/"),
        "{ended:?}"
    );
    assert!(place.run(&["status"]).stderr.ends_with(&format!("{last}\n")));
    let branch = last.split('`').nth(1).unwrap().trim_start_matches("git merge ");
    place.git(&["merge", "--quiet", branch]);
    assert!(place.repo().join("a.txt").exists());

    let place = Place::new();
    let idle = json!({"summary": "nothing", "actions": []});
    let mut command = place.scripted(&script([idle]), &["--max-iterations", "1"]);
    let ended = finish(&mut command);
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.starts_with("hint: `ralph diff r"), "{ended:?}");
    let resume = format!(
        "`ralph resume {} --set budget.max_iterations=N` continues it",
        place.run_id()
    );
    assert!(last.ends_with(&resume), "{ended:?}");
}

#[rstest]
#[case::not_a_repository(
    nothing,
    "This is not a git repository, and a run starts from a commit: `git init && git add --all && git commit -m Begin`"
)]
#[case::no_commit(
    empty,
    "This repository has no commit yet, and a run starts from one: `git add --all && git commit -m Begin`"
)]
#[case::shallow_clone(shallow, "A run would be refused: `")]
#[case::shallow_clone_and_its_hint(
    shallow,
    "shallow clone: a run needs a repository with its complete history (fetch the rest with `git fetch --unshallow`)"
)]
#[case::damaged(damaged, "A run would be refused: `")]
fn init_says_what_a_run_misses_in_the_repository(#[case] place: fn() -> Place, #[case] said: &str) {
    let place = place();
    let ended = finish(place.ralph(&["init"]).env("DOCKER_HOST", NO_ENGINE));
    ended.expect(0, &[said, "Added `.env` to `.gitignore`: it is for keys."]);
    assert!(place.repo().join("ralph_task.md").exists());
}

#[test]
fn what_init_proposes_for_a_directory_works_and_commits_no_key() {
    let place = Place::bare();
    let ended = finish(place.ralph(&["init", "my dir"]).env("DOCKER_HOST", NO_ENGINE));
    let proposed = "git -C 'my dir' init && git -C 'my dir' add --all && git -C 'my dir' commit -m Begin";
    ended.expect(0, &[&format!("`{proposed}`")]);
    let author = "export GIT_AUTHOR_NAME=u GIT_AUTHOR_EMAIL=u@localhost GIT_COMMITTER_NAME=u GIT_COMMITTER_EMAIL=u@localhost";
    finish(&mut place.shell(&format!("{author}; {proposed}"))).expect(0, &[]);
    let listed = place.git_in(&place.repo().join("my dir"), &["ls-files"]).stdout;
    assert!(listed.contains(".env.example\n.gitignore\n"), "{listed}");
    assert!(!listed.lines().any(|name| name == ".env"), "{listed}");
}

#[test]
fn no_next_step_is_printed_beside_json() {
    let place = done();
    for args in [
        &["models", "--json"][..],
        &["status", "--json"],
        &["selftest", "--type", "local", "--json"],
        &["image", "build", "--dry-run", "--json"],
    ] {
        let ended = finish(place.ralph(args).env("DOCKER_HOST", NO_ENGINE));
        assert!(!ended.stderr.contains("next: "), "{args:?}: {ended:?}");
    }
}

#[test]
fn a_key_of_another_service_is_named_with_the_setting_that_uses_it() {
    let place = Place::new();
    let ended = finish(place.ralph(&["models"]).env("OPENAI_API_KEY", KEY));
    ended.expect(
        0,
        &["next: `ZAI_API_KEY` is not set, the key of Z.ai; set `ZAI_API_KEY` in `.env`; or use the service of `OPENAI_API_KEY`, which is set: `ralph run --set models.default-cheap.litellm_model=openai/"],
    );
    let refused = finish(place.ralph(&["run", LOCAL]).env("OPENAI_API_KEY", KEY));
    refused.expect(
        1,
        &["set `ZAI_API_KEY` in `.env`, then `ralph resume`; or use the service of `OPENAI_API_KEY`, which is set: `ralph resume --set models.default-cheap.litellm_model=openai/"],
    );
}

#[rstest]
#[case::text(&[])]
#[case::json(&["--json"])]
fn a_terminal_shows_what_a_run_waits_for_and_for_how_long(#[case] format: &[&str]) {
    let terminal = need!(skip::program("script"));
    let place = Place::new();
    place.write("test.sh", "sleep 4; test ! -e broken\n");
    place.commit("Take longer");
    let file = place.path().join("script.json");
    std::fs::write(&file, script([whole_task()]).to_string()).unwrap();
    let args = [&["run", "--script", file.to_str().unwrap()], format].concat();
    let mut command = place.on_terminal(&terminal, "", &args);
    let ended = finish(command.env("TERM", "xterm"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("s evidence: "), "{ended:?}");
    if format.is_empty() {
        let last = ended.stdout.lines().last().unwrap();
        assert!(last.starts_with("next: "), "{last}: {ended:?}");
    }
}

#[test]
fn a_script_without_an_answer_of_the_doctor_says_so() {
    let place = Place::new();
    let idle = json!({"summary": "nothing", "actions": []});
    let mut script = script([idle]);
    script["then"] = json!("repeat");
    let ended = finish(&mut place.scripted(&script, &["--set=doctor.every_iterations=2"]));
    ended.expect(
        1,
        &["ralph: the script has no answer for call 1 of the doctor, which was asked after iteration "],
    );
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.starts_with("hint: add `doctor:` to the script"), "{ended:?}");
}

#[test]
fn the_status_of_a_run_names_its_repository_elsewhere() {
    let place = done();
    let elsewhere = place.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let status = || finish(place.ralph(&["status"]).current_dir(&elsewhere));
    let merge = format!("`cd {} && git merge ralph/", place.repo().display());
    status().expect(0, &["next: read /", &merge]);
    // Without a checkout, the work has to get into one.
    place.git(&["config", "core.bare", "true"]);
    std::fs::remove_file(place.repo().join(".git/index")).unwrap();
    let pull = format!("`git pull {}/.git ralph/", place.repo().display());
    status().expect(0, &["next: read /", &pull]);
}

#[test]
fn status_shows_which_runs_are_queued() {
    let place = queued();
    let shown = place.run(&["status"]);
    let row = shown.stdout.lines().nth(1).unwrap();
    assert_eq!(row.split_whitespace().nth(1), Some("queued"), "{shown:?}");
    assert_eq!(place.status()["state"], "interrupted");
}

#[test]
fn status_creates_no_store() {
    let place = queued();
    for name in ["ralph.db", "ralph.db-wal", "ralph.db-shm"] {
        let _ = std::fs::remove_file(place.home().join(name));
    }
    place.run(&["status"]).expect(0, &["next: `ralph resume r"]);
    assert!(!place.home().join("ralph.db").exists());
}
