//! No known secret gets into a file, a log, a prompt, a commit, a pull request or onto a stream: canaries are placed
//! wherever ralph reads, and looked for wherever it writes.

use std::fs;
use std::path::Path;
use std::process::Command;

use rstest::rstest;
use serde_json::{Value, json};

use crate::support::chat_server::{Answer, ChatServer};
use crate::support::ralph::{
    Ended, Place, TASK, call, commit, doing, finish, run, script, whole_task, write,
};

const OPENAI: &str = "sk-canary-openai-0123456789abcdef";
const PAT: &str = "ghp_canaryPAT0123456789abcdef";
const QUOTED: &str = r#"canary "quoted" and \escaped\ 0123456789"#;
const DOTENV: &str = "zai-canary-dotenv-0123456789abcdef";
const ENDPOINT: &str = "canary-endpoint-key-0123456789abcdef";
const PEM: &str = "-----BEGIN RSA PRIVATE KEY-----
MIIcanaryFirstLine0123456789abcdefghijklmnopqrstuvwxyz0123456789
canarySecondLine0123456789abcdefghijklmnopqrstuvwxyz012345678901
-----END RSA PRIVATE KEY-----";

/// Everything that must be found nowhere.
fn canaries() -> Vec<&'static str> {
    let lines = PEM.lines().filter(|line| !line.starts_with("-----"));
    [OPENAI, PAT, QUOTED, DOTENV, ENDPOINT]
        .into_iter()
        .chain(lines)
        .collect()
}

/// A place that knows all canaries: from the environment, from `.env`, and by a name that only its configuration has.
fn place() -> Place {
    let place = Place::new();
    place.write(
        ".env",
        &format!("ZAI_API_KEY={DOTENV}\nMY_ENDPOINT_KEY={ENDPOINT}\n"),
    );
    place.write(".gitignore", ".env\n");
    let config = fs::read_to_string(place.repo().join("ralph.toml")).unwrap();
    place.write(
        "ralph.toml",
        &format!("{config}[model_endpoint]\napi_key_env = \"MY_ENDPOINT_KEY\"\n"),
    );
    place
}

fn with_canaries(command: &mut Command) -> Ended {
    finish(
        command
            .env("OPENAI_API_KEY", OPENAI)
            .env("GITHUB_PAT", PAT)
            .env("ANTHROPIC_API_KEY", QUOTED)
            .env("GITHUB_APP_PRIVATE_KEY_PEM", PEM),
    )
}

/// A command that prints a canary in two halves that are nowhere together before.
fn in_two_halves(canary: &str) -> String {
    let (first, second) = canary.split_at(canary.len() / 2);
    format!("printf %s '{first}'; sleep 0.2; printf %s '{second}'")
}

/// What a model answers that knows every canary and keeps none of them to itself.
fn telling_everything() -> Vec<Value> {
    let all = [OPENAI, PAT, QUOTED, DOTENV, ENDPOINT, PEM].join("\n");
    vec![
        json!({"summary": format!("I found {all}"), "actions": [
            write("found.txt", &all),
            run(&format!("echo {OPENAI} {PAT}; echo {DOTENV} >&2")),
            commit(&format!("Keep {all}")),
            run(&format!("echo {ENDPOINT}; exit 3")),
        ]}),
        doing([
            run(&in_two_halves(OPENAI)),
            run(&format!("({}) >&2; false", in_two_halves(PAT))),
        ]),
        whole_task(),
    ]
}

/// Fails when a canary stands in anything that a run left, on disk or in git, or in what it said.
fn assert_silent(place: &Place, ended: &Ended) {
    let said = format!("{}{}", ended.stdout, ended.stderr);
    let git = ["cat-file", "--batch-all-objects", "--batch"];
    let mut places = vec![("streams".to_owned(), said), ("git".to_owned(), place.git(&git))];
    places.push(("refs".to_owned(), place.git(&["for-each-ref"])));
    collect(place.path(), &mut places);
    for canary in canaries() {
        let escaped = json!(canary).to_string();
        let escaped = escaped.trim_matches('"');
        for (place, text) in &places {
            let leaks = text.contains(canary) || text.contains(escaped);
            assert!(!leaks, "{canary} stands in {place}");
        }
    }
}

/// All files, by name and content, but those in which the test itself placed canaries.
fn collect(dir: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let own = [".env", "script.json"].iter().any(|name| path.ends_with(name));
        if path.is_symlink() || own {
            continue;
        }
        if path.is_dir() {
            collect(&path, found);
        } else {
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            found.push((path.display().to_string(), format!("{}\n{text}", path.display())));
        }
    }
}

#[rstest]
#[case::for_a_person(&[])]
#[case::for_a_person_with_output(&["--verbose"])]
#[case::for_a_program(&["--json"])]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_in_the_answers_of_a_model_are_not_passed_on(#[case] args: &[&str]) {
    let place = place();
    let mut answers = telling_everything().into_iter();
    let server = ChatServer::serve(Some(ENDPOINT), move |_| {
        Answer::text(&answers.next().unwrap().to_string())
    })
    .await;
    let endpoint = format!("model_endpoint.base_url={}", server.base_url());
    let mut command = place.ralph(&["run", "--set", &endpoint]);
    let ended = with_canaries(command.args(args));
    ended.expect(0, &["iterations 3"]);
    assert_silent(&place, &ended);

    let prompts: String = server
        .requests()
        .iter()
        .map(|request| request.body.to_string())
        .collect();
    for canary in canaries() {
        assert!(!prompts.contains(canary), "{canary} was sent to the model");
    }
    let found = place.git(&["show", "ralph/t1/say-hello:found.txt"]);
    assert_eq!(found.matches("[redacted]").count(), 6, "{found}");
    let outputs = place.noted("iterations/2/actions.jsonl");
    assert_eq!(outputs.matches("[redacted]").count(), 2, "{outputs}");
}

#[rstest]
#[case::in_a_file("({}) >leak.txt")]
#[case::in_a_commit("({}) >leak.txt; git add leak.txt; git commit -qm leak")]
#[case::in_a_commit_that_another_undoes(
    "({}) >leak.txt; git add leak.txt; git commit -qm leak; git rm -q leak.txt; git commit -qm undo"
)]
#[case::in_a_binary_file("(printf '\\000\\377'; {}; printf '\\000') >leak.bin")]
#[case::in_a_message("git commit -q --allow-empty -m \"$({})\"")]
#[case::in_a_name("touch \"$({})\"")]
#[case::after_much_else("(head -c 70000 /dev/zero | tr '\\0' x; {}) >leak.txt")]
fn a_secret_that_the_agent_puts_together_is_not_taken_over(#[case] command: &str) {
    let place = place();
    let command = command.replace("{}", &in_two_halves(OPENAI));
    let script = script([doing([write("a.txt", "hello\n"), run(&command)]), whole_task()]);
    let refs = place.git(&["for-each-ref", "refs/heads"]);
    let ended = with_canaries(&mut place.scripted(&script, &[]));
    ended.expect(
        3,
        &[
            "the agent's changes contain a known secret",
            "the work of this iteration is dropped",
        ],
    );
    assert_silent(&place, &ended);
    assert_eq!(place.git(&["for-each-ref", "refs/heads"]), refs);
}

#[test]
fn a_secret_in_the_task_the_script_a_setting_or_a_note_is_not_kept() {
    let place = place();
    let task = TASK.replace("# Say hello", &format!("# Say {OPENAI}"));
    let answers = json!({"iterations": [
        [call(&json!({"summary": PAT, "actions": [{"type": "pause", "reason": DOTENV}]}))],
        [call(&whole_task())],
    ]});
    place.write("ralph_task.md", &task);
    let setting = format!("sandbox.image={PAT}");
    let ended = with_canaries(&mut place.scripted(&answers, &["--set", &setting]));
    ended.expect(3, &["[redacted]"]);
    fs::remove_file(place.repo().join("ralph_task.md")).unwrap();
    assert_silent(&place, &ended);
    let note = with_canaries(&mut place.ralph(&["note", &format!("use {PAT}")]));
    assert_silent(&place, note.expect(0, &[]));
    let resumed = with_canaries(&mut place.ralph(&["resume"]));
    assert_silent(&place, resumed.expect(0, &["done: "]));
    assert!(place.noted("iterations/2/prompt.md").contains("use [redacted]"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_repeats_the_key_in_its_refusal_is_not_quoted() {
    let place = place();
    let server = ChatServer::start([Answer::error(400, &format!("bad key {ENDPOINT}"))]).await;
    let endpoint = format!("model_endpoint.base_url={}", server.base_url());
    let ended = with_canaries(&mut place.ralph(&["run", "--set", &endpoint]));
    ended.expect(3, &["paused: "]);
    assert_silent(&place, &ended);
}
