//! `[[notify]]`: notices reach real receivers, once, and never end or delay a run.

use std::fs;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::ralph::{Live, Place, doing, eventually, finish, script, whole_task};
use crate::support::receiver::{Answer, Receiver, Request};

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Writes the user's own configuration file.
fn user_file(place: &Place, text: &str) {
    let dir = place.path().join("home/.config/ralph");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("config.toml"), text).unwrap();
}

/// The types of the webhooks that arrived.
fn types(receiver: &Receiver) -> Vec<String> {
    let requests = receiver.requests();
    let kind = |request: &Request| request.json()["type"].as_str().unwrap().to_owned();
    requests.iter().map(kind).collect()
}

fn webhook(url: &str, events: &str) -> String {
    format!("[[notify]]\nkind = \"webhook\"\nurl = \"{url}\"\nevents = [{events}]\n")
}

fn pausing() -> Value {
    doing([json!({"type": "pause", "reason": "look"})])
}

fn record(place: &Place) -> Vec<Value> {
    let text = fs::read_to_string(place.run_dir().join("notifications.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Fails unless a webhook has the signature of its key.
fn check_signature(request: &Request) {
    let signed = format!(
        "{}.{}.{}",
        request.header("webhook-id"),
        request.header("webhook-timestamp"),
        request.body
    );
    let key = STANDARD.decode(KEY.strip_prefix("whsec_").unwrap()).unwrap();
    let signature = request.header("webhook-signature").strip_prefix("v1,").unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
    ring::hmac::verify(&key, signed.as_bytes(), &STANDARD.decode(signature).unwrap()).unwrap();
}

#[test]
fn each_kind_delivers_in_its_own_form() {
    let place = Place::new();
    let [hook, slack, ntfy] = [(); 3].map(|()| Receiver::answering(&[Answer::Status(200)]));
    let said = place.path().join("said");
    user_file(
        &place,
        &format!(
            r#"
[[notify]]
kind = "webhook"
url = "{}"
secret_env = "HOOK_KEY"
events = ["done", "pull_request"]
[[notify]]
kind = "slack"
url_env = "SLACK_URL"
events = ["done"]
[[notify]]
kind = "ntfy"
url = "{}"
secret_env = "NTFY_TOKEN"
events = ["done"]
[[notify]]
kind = "command"
command = ["sh", "-c", 'printf "%s|%s|" "$NOTIFY_EVENT" "$NOTIFY_TITLE" > "$0"; cat >> "$0"', "{}"]
events = ["done"]
"#,
            hook.url(),
            ntfy.url(),
            said.display()
        ),
    );
    let mut ralph = place.scripted(&script([whole_task()]), &[]);
    ralph
        .env("HOOK_KEY", KEY)
        .env("SLACK_URL", slack.url())
        .env("NTFY_TOKEN", "tk_0123456789");
    finish(&mut ralph).expect(0, &["done: "]);

    assert_eq!(types(&hook), ["run.pull_request", "run.done"]);
    let done = &hook.requests()[1];
    assert!(done.line.starts_with("POST /hook "), "{done:?}");
    let data = &done.json()["data"];
    assert_eq!(data["run"], place.run_id());
    assert_eq!(data["title"], "ralph: done: Say hello");
    check_signature(done);

    let message = slack.requests()[0].json();
    let text = message["text"].as_str().unwrap();
    assert!(text.starts_with("*ralph: done: Say hello*\n"), "{text}");
    let topic = &ntfy.requests()[0];
    assert!(topic.line.starts_with("PUT /hook "), "{topic:?}");
    assert_eq!(topic.header("title"), "ralph: done: Say hello");
    assert_eq!(topic.header("authorization"), "Bearer tk_0123456789");
    assert_eq!(topic.header("priority"), "default");
    let said = fs::read_to_string(said).unwrap();
    let stdin = said.strip_prefix("done|ralph: done: Say hello|").unwrap();
    assert_eq!(serde_json::from_str::<Value>(stdin).unwrap()["type"], "run.done");
}

#[test]
fn a_project_cannot_make_the_host_start_programs_or_call_addresses() {
    let place = Place::new();
    let config = fs::read_to_string(place.repo().join("ralph.toml")).unwrap();
    let notify = "notify = [{ kind = \"command\", command = [\"touch\", \"owned\"], events = [\"done\"] }]\n";
    place.write("ralph.toml", &format!("{notify}{config}"));
    place
        .run_script(&script([whole_task()]))
        .expect_refused(&["`notify`: a project or a task cannot set it", "ralph.toml:1:"]);
    assert!(place.runs().is_empty());
}

#[rstest::rstest]
#[case::variable_not_set(
    "kind = \"slack\"\nurl_env = \"UNSET\"",
    "names the variable `UNSET`, which is not set"
)]
#[case::slack_address_in_the_file("kind = \"slack\"\nurl = \"https://h.example/x\"", "is a credential")]
#[case::no_address("kind = \"ntfy\"", "it needs either `url` or `url_env`")]
#[case::no_program("kind = \"command\"", "needs `command`")]
#[case::bad_key(
    "kind = \"webhook\"\nurl = \"https://h.example/x\"\nsecret_env = \"SHORT_KEY\"",
    "a key of a webhook is"
)]
fn a_notification_that_cannot_work_is_refused_before_the_run(#[case] notify: &str, #[case] said: &str) {
    let place = Place::new();
    user_file(&place, &format!("[[notify]]\n{notify}\nevents = [\"done\"]\n"));
    let mut ralph = place.scripted(&script([whole_task()]), &[]);
    finish(ralph.env("SHORT_KEY", "whsec_aGVsbG8=")).expect_refused(&[said]);
    assert!(place.runs().is_empty());
}

#[test]
fn a_receiver_that_fails_twice_gets_the_same_notice_a_third_time() {
    let place = Place::new();
    let hook = Receiver::answering(&[Answer::Status(500), Answer::Close, Answer::Status(200)]);
    user_file(&place, &webhook(&hook.url(), "\"done\""));
    place.run_script(&script([whole_task()])).expect(0, &["done: "]);
    let requests = hook.requests();
    assert_eq!(requests.len(), 3, "{requests:?}");
    let id = requests[0].header("webhook-id").to_owned();
    assert!(requests.iter().all(|request| request.header("webhook-id") == id));
    let record = record(&place);
    assert_eq!(record.len(), 2, "{record:?}");
    assert_eq!(record[1]["entry"], "delivered");
    assert_eq!(record[1]["id"], id);
    // A run that is done already reports its end again.
    place.run(&["resume"]).expect(0, &["already done"]);
    assert_eq!(hook.requests().len(), 3);
}

#[rstest::rstest]
#[case::its_own_error(Answer::Status(503), 3, "it answered 503")]
#[case::refused(Answer::Status(404), 1, "it answered 404")]
#[case::redirected(Answer::Status(302), 1, "it answered 302")]
fn a_receiver_that_does_not_accept_is_given_up_and_the_run_is_done(
    #[case] answer: Answer,
    #[case] attempts: usize,
    #[case] said: &str,
) {
    let place = Place::new();
    let hook = Receiver::answering(&[answer]);
    user_file(&place, &webhook(&hook.url(), "\"done\""));
    let warning = format!("notification by webhook: `done` is not delivered: {said}");
    place
        .run_script(&script([whole_task()]))
        .expect(0, &["done: ", &warning]);
    assert_eq!(hook.requests().len(), attempts);
    let record = record(&place);
    assert_eq!(record[1]["entry"], "gave_up", "{record:?}");
    place.run(&["resume"]).expect(0, &[]);
    assert_eq!(hook.requests().len(), attempts, "a resume does not begin again");
}

#[test]
fn a_receiver_that_hangs_holds_up_neither_the_run_nor_other_receivers() {
    let place = Place::new();
    let hanging = Receiver::answering(&[Answer::Hang]);
    let hook = Receiver::answering(&[Answer::Status(200)]);
    let events = "\"needs_attention\", \"done\"";
    user_file(
        &place,
        &(webhook(&hanging.url(), events) + &webhook(&hook.url(), events)),
    );
    let started = Instant::now();
    place
        .run_script(&script([pausing(), whole_task()]))
        .expect(3, &["notifications are not delivered after 15 s"]);
    assert!(started.elapsed() < Duration::from_secs(60));
    assert_eq!(types(&hook), ["run.needs_attention"]);
    // It answers now: what it missed comes first.
    hanging.answer(Answer::Status(200));
    let before = hanging.requests().len();
    place.run(&["resume"]).expect(0, &["done: "]);
    assert_eq!(types(&hanging)[before..], ["run.needs_attention", "run.done"]);
    assert_eq!(types(&hook), ["run.needs_attention", "run.done"]);
}

#[test]
fn a_killed_process_loses_no_notice_and_repeats_none_that_was_accepted() {
    let place = Place::new();
    let hook = Receiver::answering(&[Answer::Hang]);
    let accepted = Receiver::answering(&[Answer::Status(200)]);
    let events = "\"needs_attention\", \"done\"";
    user_file(
        &place,
        &(webhook(&hook.url(), events) + &webhook(&accepted.url(), events)),
    );
    let live = Live::start(&mut place.scripted(&script([pausing(), whole_task()]), &[]));
    eventually("the notice is sent and recorded", || {
        let file = place.runs().first().map(|run| run.join("notifications.jsonl"));
        let text = file
            .and_then(|file| fs::read_to_string(file).ok())
            .unwrap_or_default();
        !hook.requests().is_empty() && text.contains("delivered")
    });
    live.signal("KILL");
    live.wait();
    let first = hook.requests()[0].clone();
    hook.answer(Answer::Status(200));
    let before = hook.requests().len();
    place.run(&["resume"]).expect(0, &["done: "]);
    let after = hook.requests()[before..].to_vec();
    assert_eq!(after.len(), 2, "{after:?}");
    assert_eq!(after[0].header("webhook-id"), first.header("webhook-id"));
    assert_eq!(after[0].body, first.body);
    assert_eq!(after[1].json()["type"], "run.done");
    assert_eq!(types(&accepted), ["run.needs_attention", "run.done"]);
}

#[test]
fn a_receiver_that_is_added_later_gets_no_old_notices() {
    let place = Place::new();
    let [first, second] = [(); 2].map(|()| Receiver::answering(&[Answer::Status(200)]));
    let events = "\"needs_attention\", \"done\"";
    user_file(&place, &webhook(&first.url(), events));
    place
        .run_script(&script([pausing(), whole_task()]))
        .expect(3, &[]);
    user_file(
        &place,
        &(webhook(&first.url(), events) + &webhook(&second.url(), events)),
    );
    place.run(&["resume"]).expect(0, &["done: "]);
    assert_eq!(types(&first), ["run.needs_attention", "run.done"]);
    assert_eq!(types(&second), ["run.done"]);
}

#[test]
fn a_notice_contains_no_secret() {
    let place = Place::new();
    let secret = "sk-0123456789abcdef0123456789";
    let hook = Receiver::answering(&[Answer::Status(200)]);
    user_file(&place, &webhook(&hook.url(), "\"needs_attention\""));
    let pause = doing([json!({"type": "pause", "reason": format!("key {secret} is refused")})]);
    let mut ralph = place.scripted(&script([pause]), &[]);
    finish(ralph.env("OPENAI_API_KEY", secret)).expect(3, &[]);
    let request = &hook.requests()[0];
    assert!(request.body.contains("key [redacted] is refused"), "{request:?}");
    assert!(!request.body.contains(secret), "{request:?}");
}

#[test]
fn a_share_of_a_budget_and_a_failure_are_notices() {
    let place = Place::new();
    let hook = Receiver::answering(&[Answer::Status(200)]);
    user_file(&place, &webhook(&hook.url(), "\"budget\", \"failed\""));
    let answers = script([pausing(), whole_task()]);
    finish(&mut place.scripted(&answers, &["--set", "budget.max_iterations=1"])).expect(3, &[]);
    assert_eq!(types(&hook), ["run.budget"]);
    place.run(&["resume"]).expect(1, &["failed: "]);
    assert_eq!(types(&hook), ["run.budget", "run.failed"]);
}
