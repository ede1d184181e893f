//! Which profile a run goes on with: by a person, by the name of an agent, by a diagnosis. One that cannot be called is refused.

use std::fs;
use std::path::PathBuf;

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use crate::control::resting;
use crate::support::direct_server::{DirectServer, Flavour, KEY, Said};
use crate::support::ralph::{Ended, Place, TASK, call, doing, finish, script, whole_task, write};

/// The requests to the only run that wait.
fn waiting(place: &Place) -> Vec<String> {
    let rows = place.status()["interventions"].clone();
    let is_pending = |row: &&Value| row["state"] == "pending";
    let what = |row: &Value| row["what"].as_str().unwrap().to_owned();
    rows.as_array()
        .unwrap()
        .iter()
        .filter(is_pending)
        .map(what)
        .collect()
}

fn configure(place: &Place, more: &str) {
    let config = fs::read_to_string(place.repo().join("ralph.toml")).unwrap();
    place.write("ralph.toml", &format!("{config}{more}"));
}

#[test]
fn the_name_of_an_agent_is_that_of_its_profile() {
    let place = resting();
    place.run(&["profile", "codex"]).expect_refused(&[
        "no model profile of this run has the agent `codex`",
        "[models.codex]",
    ]);
    configure(&place, "[models.strong-doctor]\nagent = 'codex'\n");
    place.run(&["profile", "codex"]).expect_refused(&[
        "the agent `codex` of the profile `strong-doctor` cannot be used: no credential found",
        "ralph token store",
    ]);
    place
        .run(&["resume", "--set", "default_profile=strong-doctor"])
        .expect_refused(&["the agent `codex` of the profile `strong-doctor` cannot be used: no credential"]);
    assert_eq!(waiting(&place), Vec::<String>::new());
    finish(
        place
            .ralph(&["profile", "codex", "--once"])
            .env("OPENAI_API_KEY", KEY),
    )
    .expect(0, &["profile strong-doctor for one iteration"]);
    place
        .run(&["profile", "actions"])
        .expect(0, &["profile default-cheap"]);
    configure(&place, "[models.actions]\nlitellm_model = 'zai/glm-4.7'\n");
    place.run(&["profile", "actions"]).expect(0, &["profile actions"]);
    assert_eq!(
        waiting(&place),
        [
            "profile strong-doctor for one iteration",
            "profile default-cheap",
            "profile actions"
        ]
    );
}

/// A run with a real model at Z.ai that waits for a person. Only the key of Z.ai is there.
struct Unscripted {
    place: Place,
    server: DirectServer,
}

impl Unscripted {
    async fn start(diagnosis: Value) -> Self {
        let server = DirectServer::start(Flavour::Zai, move |body| {
            let is_doctor = body["messages"].to_string().contains("failure_patterns");
            Said::Text(if is_doctor {
                diagnosis.to_string()
            } else {
                doing([json!({"type": "pause", "reason": "look"})]).to_string()
            })
        })
        .await;
        let place = Place::new();
        place.write(
            "ralph.toml",
            "[agent]\nname = 'actions'\n[sandbox]\ntype = 'local'\n[sandbox.network]\npolicy = 'allow-all'\n",
        );
        let this = Self { place, server };
        this.run(&["run"]).expect(3, &["paused: "]);
        this
    }

    fn run(&self, args: &[&str]) -> Ended {
        let mut command = self.place.ralph(args);
        command
            .env("ZAI_API_KEY", KEY)
            .env("ZAI_BASE_URL", self.server.base_url());
        tokio::task::block_in_place(|| finish(&mut command))
    }
}

fn diagnosis(profile: &str) -> Value {
    json!({
        "failure_patterns": ["it asks too early"], "root_causes": ["the task does not say how"],
        "signs": [{"name": "try", "trigger": "a question", "instruction": "Try first."}],
        "spec_edits": [], "profile": profile,
    })
}

#[rstest]
#[case::by_command(&["profile", "strong-doctor"])]
#[case::by_setting(&["resume", "--set", "default_profile=strong-doctor"])]
#[case::by_edit(&["edit", "--file", "edited.md"])]
#[tokio::test(flavor = "multi_thread")]
async fn a_profile_without_a_key_is_refused_to_a_person(#[case] args: &[&str]) {
    let run = Unscripted::start(diagnosis("default-cheap")).await;
    let calls = run.server.calls().len();
    let chosen = "task_id: t1\nmodel_profile_default: strong-doctor\n";
    run.place
        .write("edited.md", &TASK.replace("task_id: t1\n", chosen));
    run.run(args).expect_refused(&[
        "the profile `strong-doctor` cannot be used: `ANTHROPIC_API_KEY` is not set, the key of Anthropic",
        "set `ANTHROPIC_API_KEY` in `.env`; or use the service of `ZAI_API_KEY`, which is set",
    ]);
    assert_eq!(waiting(&run.place), Vec::<String>::new());
    assert_eq!(run.server.calls().len(), calls);
    run.run(&["profile", "default-cheap"]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_without_a_key_is_not_offered_to_the_doctor_nor_taken_from_it() {
    let run = Unscripted::start(diagnosis("strong-doctor")).await;
    let id = run.place.run_id();
    run.run(&["doctor", &id]).expect(
        0,
        &["the doctor suggests the model `strong-doctor`, but there is no such profile that can be called"],
    );
    let prompt = run.server.calls().pop().unwrap()["messages"].to_string();
    let offered = prompt
        .split("profile")
        .find(|part| part.contains("default-cheap"));
    assert!(offered.is_some(), "{prompt}");
    assert!(!prompt.contains("strong-doctor"), "{prompt}");
    assert_eq!(waiting(&run.place), Vec::<String>::new());
}

/// A resting run whose diagnosis edits the task in this way.
fn diagnosed(find: &str, replace: &str, profile: Option<&str>) -> Place {
    let place = Place::new();
    let asks = doing([write("a.txt", "a\n"), json!({"type": "pause", "reason": "look"})]);
    let mut script = script([asks, whole_task()]);
    script["doctor"] = json!([call(&json!({
        "failure_patterns": ["it asks too early"], "root_causes": ["the task does not say how"],
        "signs": [{"name": "try", "trigger": "a question", "instruction": "Try first."}],
        "spec_edits": [{"find": find, "replace": replace}], "profile": profile,
    }))]);
    place.run_script(&script).expect(3, &["paused: "]);
    configure(&place, "[doctor]\napply = 'wait'\n");
    place.run(&["doctor", &place.run_id()]).expect(0, &[]);
    place
}

#[test]
fn a_diagnosis_is_shown_when_it_is_applied() {
    let place = diagnosed("# Say hello", "# Say hello twice", None);
    place.run(&["doctor", &place.run_id(), "--apply"]).expect(
        0,
        &[
            "edited task",
            "From this diagnosis:\n",
            "it asks too early",
            "the task does not say how",
            "```diff\n-# Say hello\n+# Say hello twice\n```",
        ],
    );
}

/// Removes the requests that were left after the first one with `part` in its id.
fn keep_until(place: &Place, part: &str) {
    let entries = fs::read_dir(place.run_dir().join("control")).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<(Timestamp, PathBuf)> = files
        .map(|path| {
            let request: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            (request["at"].as_str().unwrap().parse().unwrap(), path)
        })
        .collect();
    files.sort();
    let is_part = |(_, path): &(Timestamp, PathBuf)| path.to_string_lossy().contains(part);
    let first = files.iter().position(is_part).unwrap();
    for (_, path) in &files[first + 1..] {
        fs::remove_file(path).unwrap();
    }
}

#[rstest]
#[case::of_the_task(None, "strong-doctor")]
#[case::and_of_its_own(Some("default-cheap"), "default-cheap")]
fn an_edit_of_a_diagnosis_that_changes_the_profile_takes_effect(
    #[case] own: Option<&str>,
    #[case] used: &str,
) {
    let place = diagnosed(
        "task_id: t1",
        "task_id: t1\nmodel_profile_default: strong-doctor",
        own,
    );
    let id = place.run_id();
    let apply = ["doctor", &id, "--apply"];
    place
        .run(&apply)
        .expect(0, &["edited task", "profile strong-doctor"]);
    place.run(&apply).expect(0, &["is left to apply"]);
    // If it was killed in the middle of the edit, the next one leaves the rest.
    let asked = waiting(&place);
    keep_until(&place, "4-spec");
    place.run(&apply).expect(0, &[]);
    assert_eq!(waiting(&place), asked);
    place
        .run(&["resume"])
        .expect(0, &[&format!("iteration 2 with {used}"), "done: "]);
}
