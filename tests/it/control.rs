//! Control of a run from another terminal, by files: while it works, and while it rests.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use ralph::event::Event;
use rstest::rstest;
use serde_json::{Value, json};

use crate::fake_engine;
use crate::need;
use crate::support::ralph::{
    Live, Place, TASK, call, commit, doing, eventually, finish, in_place_of, run, script, whole_task, write,
};

/// A run whose first iteration works until it is let go.
pub struct Held {
    pub place: Place,
    pub live: Live,
}

impl Held {
    /// Starts a run that will do the whole task in its second iteration, and waits until the first is at work.
    pub fn start() -> Self {
        Self::with(|hold| script([doing([write("draft.txt", "draft\n"), hold]), whole_task()]))
    }

    pub fn with(script: impl FnOnce(Value) -> Value) -> Self {
        Self::started_by(script, |ralph| ralph)
    }

    /// Like [`Held::with`], by another command than `ralph` alone.
    fn started_by(script: impl FnOnce(Value) -> Value, command: impl FnOnce(Command) -> Command) -> Self {
        let place = Place::new();
        let (started, go) = (place.path().join("started"), place.path().join("go"));
        let hold = format!(
            "setsid sh -c 'echo $$ >>{0}.pids; sleep 600' >/dev/null 2>&1 & echo $$ >>{0}.pids; touch {0}; \
             until [ -e {1} ]; do sleep 0.02; done",
            started.display(),
            go.display()
        );
        let script = script(run(&hold));
        let live = Live::start(&mut command(place.scripted(&script, &[])));
        eventually("the first iteration is at work", || {
            started.exists() && pids(&place).len() == 2
        });
        Self { place, live }
    }

    /// A run with a diagnosis that waits for a person, at work again in its second iteration.
    pub fn diagnosed() -> Self {
        let place = Place::new();
        let config = fs::read_to_string(place.repo().join("ralph.toml")).unwrap();
        place.write("ralph.toml", &format!("{config}[doctor]\napply = \"wait\"\n"));
        let (started, go) = (place.path().join("started"), place.path().join("go"));
        let hold = format!(
            "touch {}; until [ -e {} ]; do sleep 0.02; done",
            started.display(),
            go.display()
        );
        let pause = doing([
            write("draft.txt", "draft\n"),
            json!({"type": "pause", "reason": "look"}),
        ]);
        let script = json!({
            "iterations": [[call(&pause)], [call(&doing([run(&hold)]))], [call(&whole_task())]],
            "doctor": [call(&json!({
                "failure_patterns": ["it asks too early"],
                "root_causes": ["the task does not say how"],
                "signs": [{"name": "try", "trigger": "a question", "instruction": "Try first.", "evidence": "it asked"}],
                "spec_edits": [{"find": "# Say hello", "replace": "# Say hello twice"}],
            }))],
        });
        place.run_script(&script).expect(3, &["paused: "]);
        let id = place.run_id();
        place.run(&["doctor", &id]).expect(0, &[]);
        let live = Live::start(&mut place.ralph(&["resume"]));
        eventually("the second iteration is at work", || started.exists());
        Self { place, live }
    }

    pub fn let_go(&self) {
        fs::write(self.place.path().join("go"), "").unwrap();
    }

    pub fn ask(&self, args: &[&str]) {
        self.place.run(args).expect(0, &[&self.place.run_id()]);
    }
}

/// The processes that the held command started.
fn pids(place: &Place) -> Vec<u32> {
    let text = fs::read_to_string(place.path().join("started.pids")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn assert_nothing_left(place: &Place) {
    let alive = |pid: &u32| PathBuf::from(format!("/proc/{pid}")).exists();
    eventually("the command's processes are gone", || {
        !pids(place).iter().any(alive)
    });
}

#[test]
fn a_live_run_is_shown_with_its_process() {
    let held = Held::start();
    let status = held.place.status();
    assert_eq!(status["state"], "running");
    assert_eq!(status["pid"], held.live.pid());
    assert_eq!(status["run"], held.place.run_id().as_str());
    let table = held.place.run(&["status"]).stdout;
    assert!(
        table.contains("running") && table.contains("Say hello"),
        "{table}"
    );
    let again = held.place.run(&["resume"]);
    again.expect(
        1,
        &[
            "is being worked on by process",
            &held.live.pid().to_string(),
            "hint: ",
        ],
    );
    held.let_go();
    held.live.wait().expect(0, &["done: "]);
    let status = held.place.status();
    assert_eq!(status["state"], "done");
    assert_eq!(status["pid"], Value::Null);
    assert_eq!(status["iterations"], 2);
    let one = held.place.run(&["status", &held.place.run_id()]).stdout;
    assert!(
        one.contains("- [x] M1.1") && one.contains("pull-request.md"),
        "{one}"
    );
}

#[test]
fn a_pause_waits_for_the_iteration_and_a_resume_finishes() {
    let held = Held::start();
    let next = format!("next: `ralph resume {}` continues it", held.place.run_id());
    held.place.run(&["pause"]).expect(0, &[&next]);
    held.let_go();
    held.live
        .wait()
        .expect(3, &["paused: a person asked for a pause", "hint: `ralph resume "]);
    let status = held.place.status();
    assert_eq!(status["state"], "paused");
    assert_eq!(status["iterations"], 1, "the iteration was finished first");
    held.place
        .run(&["resume"])
        .expect(0, &["resumed after iteration 1", "iteration 2", "done: "]);
}

#[test]
fn a_rotation_ends_the_iteration_early_and_keeps_its_work() {
    let held = Held::start();
    held.ask(&["rotate"]);
    held.live
        .wait()
        .expect(0, &["a person asked for a fresh context", "iteration 2"]);
    assert_nothing_left(&held.place);
    let diff = held.place.noted("iterations/1/git_diff.patch");
    assert!(diff.contains("+draft"), "{diff}");
}

#[rstest]
#[case::by_command(&[])]
#[case::by_interrupt(&["INT"])]
#[case::by_termination(&["TERM"])]
#[case::by_two_interrupts(&["INT", "INT"])]
fn a_stop_ends_at_once_and_leaves_no_process(#[case] signals: &[&str]) {
    let held = Held::start();
    if signals.is_empty() {
        let next = format!("next: `ralph resume {}` continues it", held.place.run_id());
        held.place.run(&["stop"]).expect(0, &[&next]);
    }
    for name in signals {
        held.live.signal(name);
        std::thread::sleep(Duration::from_millis(50));
    }
    let id = held.place.run_id();
    held.live.wait().expect(3, &[&format!("`ralph resume {id}`")]);
    assert_nothing_left(&held.place);
    assert_eq!(held.place.status()["iterations"], 0);
    fs::write(held.place.path().join("go"), "").unwrap();
    held.place
        .run(&["resume", &id])
        .expect(0, &["resumed after iteration 0", "done: "]);
}

/// `ralph` started by a shell command, which runs it as `"$@"`.
fn by_shell(line: &str, ralph: &Command) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line, "sh"]).arg(ralph.get_program());
    command.args(ralph.get_args());
    in_place_of(&mut command, ralph);
    command
}

#[test]
fn a_closed_terminal_stops_a_run() {
    // A parent that ignores the signal, such as nohup, would pass that on. Only a program that resets it can undo that.
    let reset = Command::new("env")
        .args(["--default-signal=HUP", "true"])
        .status();
    let can_reset = reset.is_ok_and(|status| status.success());
    need!(
        can_reset
            .then_some(())
            .ok_or("this `env` has no --default-signal")
    );
    let line = "exec env --default-signal=HUP \"$@\"";
    let held = Held::started_by(
        |hold| script([doing([hold]), whole_task()]),
        |ralph| by_shell(line, &ralph),
    );
    held.live.signal("HUP");
    held.live.wait().expect(3, &["Stopping."]);
    assert_nothing_left(&held.place);
    assert_eq!(held.place.status()["state"], "stopped");
}

#[test]
fn a_hangup_that_was_ignored_at_the_start_stays_ignored() {
    let held = Held::started_by(
        |hold| script([doing([hold]), whole_task()]),
        |ralph| by_shell("trap '' HUP; exec \"$@\"", &ralph),
    );
    held.live.signal("HUP");
    held.let_go();
    held.live.wait().expect(0, &["done: "]);
}

#[test]
fn a_run_that_broke_says_why_and_can_be_resumed() {
    let place = Place::new();
    let (once, refs) = (place.path().join("once"), place.repo().join(".git/refs/ralph"));
    // Only the first time: git in the user's repository finds the state ref locked.
    let lock = format!(
        "[ -e {0} ] || for dir in {1}/r*; do touch {0} $dir/state.lock; done",
        once.display(),
        refs.display()
    );
    let steps = script([doing([run(&lock)]), whole_task()]);
    place.run_script(&steps).expect(1, &["broken: ", "state.lock"]);
    let status = place.status();
    assert_eq!(status["state"], "broken");
    let reason = status["reason"].as_str().unwrap();
    assert!(reason.contains("state.lock"), "{reason}");
    let id = place.run_id();
    let shown = place.run(&["status", &id]);
    shown.expect(
        0,
        &[&format!(
            "next: `ralph logs {id}` shows why it failed; `ralph resume {id}`"
        )],
    );
    let shown = shown.stdout;
    assert!(shown.contains("broken") && shown.contains(reason), "{shown}");
    place.run(&["resume"]).expect(1, &["broken: ", "state.lock"]);
    fs::remove_file(refs.join(&id).join("state.lock")).unwrap();
    place
        .run(&["resume"])
        .expect(0, &["resumed after iteration 0", "done: "]);
    assert_eq!(place.status()["state"], "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_broke_before_it_was_driven_says_why_and_can_be_resumed() {
    let place = Place::new();
    let env = [
        ("RALPH_HOME", place.home().display().to_string()),
        ("PATH", std::env::var("PATH").unwrap()),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value));
    let builder = ralph::Ralph::builder()
        .surroundings(ralph::Surroundings::new(env.into(), place.repo()))
        .script(script([whole_task()]).to_string());
    // The key is read when the run was just created.
    let key = place.home().join("evidence-key.pem");
    fs::create_dir_all(&key).unwrap();
    let error = builder.build().await.unwrap().start().await.err().unwrap();
    assert!(error.to_string().contains(&key.display().to_string()), "{error}");
    let status = place.status();
    assert_eq!(
        (&status["state"], &status["reason"]),
        (&json!("broken"), &json!(error.to_string()))
    );

    place
        .run(&["resume"])
        .expect(2, &["evidence-key.pem", "hint: check that the file exists"]);
    assert_eq!(place.status()["state"], "broken");
    fs::remove_dir(&key).unwrap();
    place.run(&["resume"]).expect(0, &["done: "]);
    assert_eq!(place.status()["state"], "done");

    // A run that ended by rule keeps its outcome.
    fs::remove_file(&key).unwrap();
    fs::create_dir(&key).unwrap();
    place.run(&["resume"]).expect(2, &["evidence-key.pem"]);
    assert_eq!(place.status()["state"], "done");
}

#[test]
fn a_note_reaches_the_next_prompt() {
    let held = Held::start();
    held.ask(&["note", "--", "- mind the gap"]);
    held.ask(&["note", &held.place.run_id(), "--", "--and the edge"]);
    held.ask(&["note", "mind the step", "--set=budget.max_iterations=5"]);
    held.ask(&[
        "note",
        "--set=budget.max_iterations=5",
        &held.place.run_id(),
        "mind the door",
    ]);
    let refused = held.place.run(&["note", "--oops"]);
    refused.expect_refused(&["unexpected argument '--oops'", "use '-- --oops'"]);
    held.let_go();
    held.live.wait().expect(0, &[]);
    let prompt = |number: u32| held.place.noted(&format!("iterations/{number}/prompt.md"));
    assert!(!prompt(1).contains("mind the gap"));
    for note in [
        "- mind the gap",
        "--and the edge",
        "mind the step",
        "mind the door",
    ] {
        assert!(prompt(2).contains(note), "{note}");
    }
    assert!(!prompt(2).contains("oops"));
}

#[test]
fn a_long_note_is_read_from_stdin_and_one_for_a_run_that_is_done_is_refused() {
    let held = Held::start();
    let note = held.place.path().join("note");
    fs::write(&note, format!("{}mind the end", "long ".repeat(100_000))).unwrap();
    let mut command = held.place.ralph(&["note", "-"]);
    finish(command.stdin(fs::File::open(&note).unwrap()))
        .expect(0, &["Left for run", "before its next iteration: note: long long"]);
    held.let_go();
    held.live.wait().expect(0, &[]);
    assert!(held.place.noted("notes.md").contains("mind the end"));
    held.place
        .run(&["note", "too late"])
        .expect_refused(&["is done, so nothing can be asked of it any more", "hint: "]);
}

#[test]
fn logs_can_be_read_followed_and_parsed() {
    let held = Held::start();
    let following = Live::start(&mut held.place.ralph(&["logs", "-f"]));
    held.let_go();
    let Held { place, live } = held;
    live.wait().expect(0, &[]);
    let followed = following.wait();
    followed.expect(0, &[]);
    assert!(followed.stdout.contains("done: "), "{}", followed.stdout);
    assert_eq!(place.run(&["logs"]).stdout, followed.stdout);
    let id = place.run_id();
    let parsed = place.run(&["logs", "--json", &id]).json_lines();
    assert!(parsed.len() > 10);
    for value in parsed {
        serde_json::from_value::<Event>(value).unwrap();
    }
}

/// A run that committed one file, left another uncommitted, and waits for a person.
pub fn resting() -> Place {
    let place = Place::new();
    let answer = doing([
        write("a.txt", "hello\n"),
        commit("Half of it"),
        write("draft.txt", "draft\n"),
        json!({"type": "pause", "reason": "look"}),
    ]);
    let script = json!({
        "iterations": [[call(&answer)], [call(&whole_task())]],
        "doctor": [call(&json!({
            "failure_patterns": ["it asks too early"],
            "root_causes": ["the task does not say how"],
            "signs": [{"name": "try", "trigger": "a question", "instruction": "Try first.", "evidence": "it asked"}],
            "spec_edits": [{"find": "# Say hello", "replace": "# Say hello twice"}],
            "profile": "strong-doctor",
        }))],
    });
    place
        .run_script(&script)
        .expect(3, &["paused: the agent asks for a person: look"]);
    place
}

#[test]
fn the_diff_of_a_run_shows_committed_and_uncommitted_work() {
    let place = resting();
    let diff = place.run(&["diff"]);
    diff.expect(0, &[]);
    assert!(
        diff.stdout.contains("+hello") && diff.stdout.contains("+draft"),
        "{}",
        diff.stdout
    );
    let stat = place.run(&["diff", "--stat", &place.run_id()]).stdout;
    assert!(
        stat.contains("a.txt     | 1 +") && stat.contains("draft.txt | 1 +") && !stat.contains("+hello"),
        "{stat}"
    );
}

#[test]
fn a_resting_run_is_diagnosed_at_once_and_goes_on_with_the_signs() {
    let place = resting();
    let id = place.run_id();
    let ended = place.run(&["doctor", &id]);
    ended.expect(0, &[]);
    assert!(
        ended.stdout.contains("it asks too early") && ended.stdout.contains("+# Say hello twice"),
        "{}",
        ended.stdout
    );
    assert_eq!(place.status()["state"], "paused", "a diagnosis changes no state");
    place.run(&["note", "go on then"]).expect(0, &[&id]);
    place.run(&["resume"]).expect(0, &["done: "]);
    let prompt = place.noted("iterations/2/prompt.md");
    assert!(prompt.contains("Try first.") && prompt.contains("go on then"));
    assert!(
        prompt.contains("### sign: try\n- trigger: a question\n- instruction: Try first.\n- added_after: iteration 1\n- evidence: it asked"),
        "{prompt}"
    );
    assert!(prompt.contains("# Say hello\n"), "only a person edits the task");
}

#[test]
fn a_live_run_asks_its_doctor_after_the_iteration() {
    let held = Held::with(|hold| {
        json!({
            "iterations": [[call(&doing([hold]))], [call(&whole_task())]],
            "doctor": [call(&json!({
                "failure_patterns": ["it waits"],
                "signs": [{"name": "go", "trigger": "a wait", "instruction": "Do not wait."}],
            }))],
        })
    });
    held.ask(&["doctor", &held.place.run_id()]);
    held.let_go();
    held.live.wait().expect(0, &["diagnosis"]);
    assert!(held.place.noted("diagnostics.md").contains("it waits"));
    assert!(
        held.place
            .noted("iterations/2/prompt.md")
            .contains("Do not wait.")
    );
}

#[test]
fn the_environment_is_described() {
    let place = Place::new();
    let text = place.run(&["doctor", "env"]);
    text.expect(0, &[]);
    assert!(text.stdout.starts_with("git "), "{}", text.stdout);
    let report: Value = serde_json::from_str(&place.run(&["doctor", "env", "--json"]).stdout).unwrap();
    let git = &report["tools"][0];
    assert_eq!(git["program"], "git");
    assert!(
        git["version"]
            .as_str()
            .is_some_and(|version| version.starts_with("git version"))
    );
    let row = |table: &str, name: &str| {
        let rows = report[table].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap().clone()
    };
    assert_eq!(row("providers", "local")["ready"], true);
    assert_eq!(row("providers", "daytona")["ready"], false);
    let actions = row("agents", "actions");
    assert_eq!(actions["ready"], false);
    assert!(
        actions["detail"]
            .as_str()
            .unwrap()
            .contains("`ZAI_API_KEY` is not set"),
        "{actions}"
    );
    assert_eq!(row("keys", "OPENAI_API_KEY")["detail"], "not set");
}

#[rstest]
#[case(
    "providers",
    "daytona",
    "DAYTONA_API_KEY is not set",
    "put it into `.env` or the environment as `DAYTONA_API_KEY`"
)]
#[case(
    "agents",
    "custom",
    "the agent `custom` has no command",
    "`[agent.custom] command = ["
)]
fn what_cannot_be_used_has_a_next_step(
    #[case] table: &str,
    #[case] name: &str,
    #[case] why: &str,
    #[case] next: &str,
) {
    let row = environment_row(&Place::new(), table, name);
    assert_eq!(row["ready"], false);
    assert!(row["detail"].as_str().unwrap().contains(why), "{row}");
    assert!(row["next"].as_str().unwrap().contains(next), "{row}");
}

#[test]
fn the_agent_custom_needs_only_a_command() {
    let place = Place::new();
    place.write("ralph.toml", "[agent.custom]\ncommand = [\"aider\", \"--yes\"]\n");
    let row = environment_row(&place, "agents", "custom");
    assert_eq!(
        (&row["ready"], &row["detail"]),
        (&json!(true), &json!("runs `aider`"))
    );
}

/// A row of `ralph doctor env`.
fn environment_row(place: &Place, table: &str, name: &str) -> Value {
    let report: Value = serde_json::from_str(&place.run(&["doctor", "env", "--json"]).stdout).unwrap();
    let rows = report[table].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap().clone()
}

#[test]
fn what_a_first_run_would_use_is_named_with_the_next_step() {
    let place = Place::new();
    let look = |agent: &str, key: Option<&str>| {
        let mut command = place.ralph(&["doctor", "env", "--json"]);
        command
            .env("RALPH_SANDBOX__TYPE", "local")
            .env("RALPH_AGENT__NAME", agent)
            .env("RALPH_BUDGET__MAX_TOKENS_TOTAL", "100000");
        if agent == "claude" {
            command
                .env("RALPH_AGENT__AUTH", "api-key")
                .env("PATH", place.path_with("claude", "echo 2.0.0"));
        }
        if let Some(variable) = key {
            command.env(variable, "CANARY-0123456789");
        }
        let ended = finish(&mut command);
        ended.expect(0, &[]);
        assert!(!ended.stdout.contains("CANARY"), "{}", ended.stdout);
        let report: Value = serde_json::from_str(&ended.stdout).unwrap();
        report["first_run"].clone()
    };
    for (agent, variable, problem) in [
        ("claude", "ANTHROPIC_API_KEY", "no credential found"),
        ("actions", "ZAI_API_KEY", "`ZAI_API_KEY` is not set"),
    ] {
        let without = look(agent, None);
        assert_eq!(
            (&without["agent"], &without["sandbox"]),
            (&json!(agent), &json!("local"))
        );
        assert!(
            without["problem"].as_str().unwrap().contains(problem),
            "{without}"
        );
        assert!(
            without["next"].as_str().is_some_and(|next| !next.is_empty()),
            "{without}"
        );
        let with = look(agent, Some(variable));
        assert_eq!(with["problem"], Value::Null, "{with}");
    }
}

/// What `ralph doctor env` says of a first run of `claude`, whose credential is there.
fn first_run_of_claude(place: &Place, path: &OsStr) -> Value {
    let mut command = place.ralph(&["doctor", "env", "--json", "--set=agent.name=claude"]);
    command
        .env("PATH", path)
        .env("DOCKER_HOST", "unix:///nonexistent/engine.sock")
        .env("CLAUDE_CODE_OAUTH_TOKEN", "CANARY-0123456789");
    let report: Value = serde_json::from_str(&finish(&mut command).expect(0, &[]).stdout).unwrap();
    report["first_run"].clone()
}

#[test]
fn the_task_counts_for_what_a_first_run_would_use() {
    let place = Place::new();
    let path = place.path_with("claude", "echo 2.0.0");
    assert_eq!(first_run_of_claude(&place, &path)["problem"], Value::Null);

    let boundless = TASK.replace("max_tokens_total: 1000000\n", "");
    place.write("ralph_task.md", &boundless);
    let problem = first_run_of_claude(&place, &path)["problem"].clone();
    assert!(
        problem
            .as_str()
            .unwrap()
            .contains("the cost of the agent `claude` is unknown"),
        "{problem}"
    );

    let elsewhere = TASK.replace("max_iterations: 6\n", "sandbox_provider: docker\n");
    place.write("ralph_task.md", &elsewhere);
    let row = first_run_of_claude(&place, &path);
    assert_eq!(row["sandbox"], "docker");
    let problem = row["problem"].as_str().unwrap();
    assert!(problem.contains("cannot reach a container engine"), "{problem}");
}

#[test]
fn what_a_first_run_would_lack_is_named() {
    let place = Place::bare();
    place.write("ralph.toml", "[sandbox]\ntype = \"local\"\n");
    place.write("ralph_task.md", TASK);
    let path = place.path_with("claude", "echo 2.0.0");
    let is = |path: &OsStr, problem: Option<&str>, next: &str| {
        let row = first_run_of_claude(&place, path);
        assert_eq!((&row["problem"], &row["next"]), (&json!(problem), &json!(next)));
    };
    is(
        &place.bare_path(),
        Some("there is no program `claude` on the PATH, which the agent needs on `local`"),
        "`npm install --global @anthropic-ai/claude-code` installs it; or use a provider whose image has it",
    );
    is(
        &path,
        Some("this is not a git repository, and a run starts from a commit"),
        "`git init && git add --all && git commit -m Begin`",
    );
    place.git(&["init", "--quiet", "--initial-branch=main"]);
    is(
        &path,
        Some("this repository has no commit yet, and a run starts from one"),
        "`git add --all && git commit -m Begin`",
    );
    place.commit("Begin");
    is(
        &path,
        None,
        "`ralph lint` checks the task, and `ralph run` works on it",
    );
}

#[test]
fn the_engine_is_asked() {
    let place = Place::new();
    let ask = |address: &str| {
        let ended = finish(
            place
                .ralph(&["doctor", "env", "--json"])
                .env("DOCKER_HOST", address),
        );
        ended.expect(0, &[]);
        let report: Value = serde_json::from_str(&ended.stdout).unwrap();
        let engine = report["tools"]
            .as_array()
            .unwrap()
            .iter()
            .find(|tool| tool["program"] == "engine");
        engine.unwrap().clone()
    };
    let nowhere = ask("unix:///nonexistent/engine.sock");
    assert_eq!(nowhere["version"], Value::Null);
    let problem = nowhere["problem"].as_str().unwrap();
    assert!(
        problem.contains("cannot reach a container engine (tried unix:///nonexistent/"),
        "{problem}"
    );
    let address = fake_engine::answering(place.path());
    let version = format!("Docker 77.1 at {address}");
    assert_eq!(ask(&address)["version"], version.as_str());
}

#[test]
fn an_engine_that_does_not_answer_is_not_waited_for_without_end() {
    let place = Place::new();
    let (_engine, address) = fake_engine::silent(place.path());
    let ended = finish(place.ralph(&["doctor", "env"]).env("DOCKER_HOST", address));
    ended.expect(0, &[]);
    assert!(
        ended
            .stdout
            .contains("the container engine did not answer within 10 s"),
        "{ended:?}"
    );
}

/// A signal before a run has begun, while the engine is waited for.
#[rstest]
#[case::pull(&["image", "pull", "--set", "sandbox.image=x:1"], "TERM", "an incomplete image has no tag")]
#[case::push(&["image", "push", "--set", "sandbox.image=x:1"], "INT", "an incomplete image has no tag")]
#[case::run(&["run", "--type", "docker", "--set", "sandbox.image=x:1"], "TERM", "no iteration had begun")]
#[case::demo(&["demo", "--type", "docker", "--image", "x:1"], "INT", "no iteration had begun")]
fn a_signal_ends_a_preparation(#[case] args: &[&str], #[case] signal: &str, #[case] hint: &str) {
    let place = Place::new();
    let (engine, address) = fake_engine::silent(place.path());
    engine.set_nonblocking(true).unwrap();
    let live = Live::start(place.ralph(args).env("DOCKER_HOST", address));
    let mut connection = None;
    eventually("it asks the engine", || {
        connection = engine.accept().ok();
        connection.is_some()
    });
    live.signal(signal);
    let ended = live.wait();
    ended.expect(130, &["ralph: interrupted\n", &format!("\nhint: {hint}")]);
    assert!(!ended.stderr.contains("build steps"), "{ended:?}");
}

#[rstest]
#[case(&["status", "rzzzzzzz"])]
#[case(&["pause", "rzzzzzzz"])]
#[case(&["rotate", "rzzzzzzz"])]
#[case(&["stop", "rzzzzzzz"])]
#[case(&["note", "rzzzzzzz", "text"])]
#[case(&["sign", "rzzzzzzz", "a name", "--trigger", "t", "--instruction", "i"])]
#[case(&["profile", "rzzzzzzz", "default-cheap"])]
#[case(&["logs", "rzzzzzzz"])]
#[case(&["diff", "rzzzzzzz"])]
#[case(&["doctor", "rzzzzzzz"])]
#[case(&["resume", "rzzzzzzz"])]
fn a_run_that_does_not_exist_is_refused_with_a_hint(#[case] args: &[&str]) {
    let place = Place::new();
    place
        .run(args)
        .expect_refused(&["no run `rzzzzzzz`", "hint: `ralph status` lists the runs"]);
    assert!(place.runs().is_empty());
}

#[rstest]
#[case(&["pause"], "no run is live")]
#[case(&["stop", "NOT-AN-ID"], "no run is named `NOT-AN-ID`")]
#[case(&["note", " "], "the note is empty")]
#[case(&["resume"], "there are no runs yet")]
fn a_request_that_means_no_run_is_refused(#[case] args: &[&str], #[case] said: &str) {
    Place::new().run(args).expect_refused(&[said]);
}

#[test]
fn a_run_that_rests_takes_no_requests() {
    let place = resting();
    let id = place.run_id();
    for command in ["pause", "rotate", "stop"] {
        let hint = format!("hint: `ralph resume {id}`");
        place.run(&[command, &id]).expect_refused(&["is not live", &hint]);
    }
}
