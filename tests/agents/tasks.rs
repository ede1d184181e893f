//! Whole tasks.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rstest::rstest;
use serde_json::json;

use crate::bench::{Bench, KEY, Program, Within, one_session, says_hello_in, tick, two_sessions};
use crate::need;
use crate::support::model_server::{Teller, Turn};
use crate::traces::{files_with, processes_with};

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_done_in_fresh_sessions_and_the_pull_request_holds_the_work(
    #[values(Program::Claude, Program::Codex)] program: Program,
    #[values(Within::Directory, Within::Sealed)] within: Within,
) {
    let bench = need!(Bench::within(within, program, Teller::of(two_sessions())).await);
    let ended = bench.run(&[]);
    ended.expect(0, &["[x] M1.1", "[x] M1.2", "b.txt says hello now.", "done: "]);
    ended.expect(0, &[&format!("agent {}: ", program.name())]);
    assert!(!ended.stderr.contains("gets the real"), "{ended:?}");
    assert_eq!(bench.handed_back("a.txt"), "hello\n");
    assert_eq!(bench.handed_back("b.txt"), "hello\n");
    let asked = bench.server.asked();
    assert_eq!(asked.len(), 6);
    assert_eq!(asked[3].turn, 0, "the second session knew of the first");
    let used = program.api().tokens() * 6;
    assert_eq!(bench.place.status()["tokens"], used);
    assert_eq!(files_with(&bench.place.home(), KEY), Vec::<PathBuf>::new());
    assert!(!ended.stderr.contains(KEY) && !ended.stdout.contains(KEY));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_given_its_key_works_on_a_bridge_and_that_is_said() {
    let bench = need!(Bench::within(Within::Container, Program::Claude, Teller::of(one_session())).await);
    bench.run(&[]).expect(
        0,
        &[
            "warning: the agent `claude` gets the real `ANTHROPIC_API_KEY`",
            "done: ",
        ],
    );
    assert_eq!(bench.handed_back("b.txt"), "hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_thinks_hard_and_uses_its_own_tools() {
    let written = |file: &str| Turn::Use {
        tool: "Write",
        input: json!({"file_path": file, "content": "hello\n"}),
    };
    let session = vec![
        written("a.txt"),
        written("b.txt"),
        Turn::run("sh test.sh && git add a.txt b.txt && git commit --quiet --message 'Say hello'"),
        Turn::run(format!("{}; {}", tick("M1.1"), tick("M1.2"))),
        Turn::say("Both say hello."),
    ];
    let bench = need!(Bench::new(Program::Claude, vec![session]).await);
    bench.run(&[]).expect(0, &["Both say hello.", "done: "]);
    let first = &bench.server.asked()[0];
    assert_eq!(first.body["output_config"]["effort"], "high");
    assert_eq!(first.body["model"], "first-model");
    assert_eq!(first.header("x-api-key"), KEY);
    let status = bench.place.status();
    assert!(
        status["cost_usd"].as_f64().is_some_and(|cost| cost > 0.0),
        "{status}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_settings_in_the_repository_are_reported() {
    let bench = need!(Bench::new(Program::Claude, one_session()).await);
    let brought = [
        (".claude/settings.json", "{}"),
        (".claude/settings.local.json", "{}"),
        (".codex/config.toml", ""),
        (".cursor/mcp.json", "{\"mcpServers\": {}}"),
        (".mcp.json", "{\"mcpServers\": {}}"),
        ("AGENTS.md", "Be kind.\n"),
        ("CLAUDE.md", "Be brief.\n"),
    ];
    for (file, text) in brought {
        bench.place.write(file, text);
        bench.place.git(&["add", file]);
    }
    bench
        .place
        .git(&["commit", "--quiet", "--message", "Settle agents"]);
    let ended = bench.run(&[]);
    let files = brought.map(|(file, _)| file);
    ended.expect(
        0,
        &[
            "the repository contains agent settings",
            &files.join(", "),
            "done: ",
        ],
    );
    let request = fs::read_to_string(ended.stdout.trim_end().lines().last().unwrap()).unwrap();
    for file in files {
        let line = format!("brought, and that were in force: `{file}`\n");
        assert!(request.contains(&line), "{file}: {request}");
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn what_a_session_leaves_running_is_ended_with_it(
    #[values(Program::Claude, Program::Codex)] program: Program,
    #[values(Within::Directory, Within::Sealed)] within: Within,
) {
    let mark = format!("{}.{}", std::process::id(), fastrand::u32(..));
    let mut first = says_hello_in("a.txt", "M1.1");
    first.insert(
        0,
        Turn::run(format!(
            "(setsid sleep 9876{mark} &) ; nohup sleep 8765{mark} & echo left"
        )),
    );
    let sessions = [first, says_hello_in("b.txt", "M1.2")];
    let left: Arc<OnceLock<Vec<PathBuf>>> = Arc::default();
    let teller = {
        let (mark, left) = (mark.clone(), left.clone());
        Teller::by(move |asked| {
            if asked.session == 1 {
                left.get_or_init(|| processes_with(&mark));
            }
            sessions[asked.session][asked.turn].clone()
        })
    };
    let bench = need!(Bench::within(within, program, teller).await);
    bench
        .run(&["--set", "timers.completion_grace_seconds=1"])
        .expect(0, &["done: "]);
    // Not with the run, nor with its sandbox: when the second session begins they are gone.
    assert_eq!(left.get(), Some(&Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_ends_a_session_of_claude_and_keeps_its_work() {
    let mut endless = says_hello_in("a.txt", "M1.1");
    endless.truncate(2);
    endless.extend((0..20).map(|_| Turn::run("true")));
    let bench = need!(Bench::new(Program::Claude, vec![endless]).await);
    let ended = bench.run(&["--set", "budget.max_cost_usd_estimate=0.02"]);
    ended.expect(1, &["failed: budget exceeded", "[x] M1.1"]);
    assert_eq!(bench.handed_back_so_far("a.txt"), "hello\n");
    assert!(bench.server.asked().len() < 20, "the budget did not bite");
}
