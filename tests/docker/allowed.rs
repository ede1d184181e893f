//! Hosts that a person allows while a run works: at once, across `kill -9` and a resume, and a new port from the next start.

use std::fs;

use ralph::network::PolicyRule;
use serde_json::Value;

use crate::docker_test::{prints, shell};
use crate::need;
use crate::sealed::{Sealed, StandIn};
use crate::site::{LEFT_BEHIND, Site, wait_until_started};
use crate::support::ralph::{Live, Place, doing, finish, run, script, whole_task};

#[tokio::test]
async fn an_added_name_is_reached_at_once_and_a_new_port_from_the_next_start() {
    let sealed = need!(Sealed::new().await);
    let other = StandIn::start().await;
    let sandbox = sealed.room.create().await;
    let ask =
        |port: u16| format!("curl --silent --show-error --fail --max-time 10 http://added.test:{port}/");
    let (known, new) = (ask(sealed.stand_in.port), ask(other.port));
    assert!(!shell(sandbox.as_ref(), &known).await.success());
    let rule = |port: u16| PolicyRule::parse(&format!("added.test:{port}")).unwrap();
    let added = &sealed.room.spec.egress.added;
    added.add([rule(sealed.stand_in.port), rule(other.port)]);
    assert_eq!(prints(sandbox.as_ref(), &known).await, "hello\n");
    assert!(!shell(sandbox.as_ref(), &new).await.success());
    sandbox.stop().await.unwrap();
    drop(sandbox);
    let again = sealed.again().await;
    again.start().await.unwrap();
    assert_eq!(prints(again.as_ref(), &new).await, "hello\n");
    assert_eq!(prints(again.as_ref(), &known).await, "hello\n");
    again.close().await.unwrap();
}

/// A site with an allowlist, whose first iteration waits until `api.example` has an address.
fn waiting(site: &Site) -> Value {
    site.allow("other.example", "127.0.0.1");
    let wait = "touch started; until getent hosts api.example; do sleep 0.1; done";
    script([doing([run(wait)]), whole_task()])
}

fn allow(site: &Site) {
    let args = ["network", "allow", &site.place.run_id(), "api.example", "--yes"];
    finish(&mut site.ralph(&args)).expect(0, &["takes it at once", "allow network access to api.example"]);
}

/// What the network audit of the run says of `api.example`.
fn audited(place: &Place) -> String {
    let records = fs::read_to_string(place.run_dir().join("network.jsonl")).unwrap();
    records
        .lines()
        .filter(|line| line.contains("api.example"))
        .collect()
}

fn assert_recorded(site: &Site, count: usize) {
    let place = &site.place;
    let asked = "allow network access to api.example";
    let rows = place.status()["interventions"].as_array().unwrap().clone();
    let done = |row: &&Value| row["state"] == "done" && row["what"] == asked;
    assert_eq!(rows.iter().filter(done).count(), count, "{rows:?}");
    let activity = place.noted("activity.log");
    assert_eq!(activity.matches(asked).count(), count, "{activity}");
    let pull_request = fs::read_to_string(place.run_dir().join("pull-request.md")).unwrap();
    assert!(pull_request.contains(asked), "{pull_request}");
    assert!(audited(place).contains("allowed by "), "{}", audited(place));
}

#[tokio::test]
async fn a_host_is_allowed_in_the_middle_of_an_iteration_and_recorded() {
    let site = need!(Site::new().await);
    let live = Live::start(&mut site.scripted(&waiting(&site)));
    wait_until_started(&site);
    allow(&site);
    live.wait()
        .expect(0, &["allow network access to api.example", "done: "]);
    assert!(
        audited(&site.place).contains("denied"),
        "{}",
        audited(&site.place)
    );
    assert_recorded(&site, 1);
    site.expect_nothing_left();
}

#[tokio::test]
async fn an_allowed_host_survives_a_kill_before_its_application_and_the_resume_after_it() {
    let _held = LEFT_BEHIND.lock().await;
    let site = need!(Site::new().await);
    let answers = waiting(&site);
    let [first, second] = [&answers["iterations"][0], &answers["iterations"][1]].map(Clone::clone);
    // The second iteration pauses; the third, after a resume, waits for the host again.
    let mut answers = answers.clone();
    let pause = doing([serde_json::json!({"type": "pause", "reason": "look"})]);
    let paused = script([pause])["iterations"][0].clone();
    answers["iterations"] = Value::from(vec![first.clone(), paused, first, second]);
    let live = Live::start(&mut site.scripted(&answers));
    wait_until_started(&site);
    live.signal("STOP");
    allow(&site);
    live.signal("KILL");
    assert_eq!(live.wait().code, None);
    finish(&mut site.ralph(&["resume"])).expect(3, &["allow network access to api.example"]);
    finish(&mut site.ralph(&["resume"])).expect(0, &["done: "]);
    assert_recorded(&site, 1);
    // What the killed process was about to remove is pruned as any other orphan.
    finish(&mut site.ralph(&["sandbox", "prune", "--type", "docker"])).expect(0, &[]);
    site.expect_nothing_left();
}
