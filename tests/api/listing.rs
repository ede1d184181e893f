//! The list of runs, which comes from the index, and long journals.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::reading::rows;
use crate::service::{Service, done};
use crate::support::ralph::{Held, Place, TASK, eventually, script, whole_task};

fn ids(list: &Value) -> Vec<String> {
    let run = |row: &Value| row["run"].as_str().unwrap().to_owned();
    rows(list, "runs").iter().map(run).collect()
}

#[test]
fn the_list_follows_the_run_directories_and_a_rebuild_changes_nothing() {
    let place = Place::new();
    let held = Held::start(&place);
    let service = Service::start(place);
    let run = service.place.run_id();
    let state = || service.get("/api/runs")["runs"][0]["state"].clone();
    assert_eq!(state(), "running");
    held.let_go();
    held.live.wait().expect(0, &[]);
    // Another process worked on it, and the page shows it at once.
    assert_eq!(state(), "done");
    service.place.run_script(&script([whole_task()])).expect(0, &[]);
    let before = service.get("/api/runs");
    assert_eq!(ids(&before).len(), 2);
    service.place.run(&["store", "rebuild"]).expect(0, &[]);
    assert_eq!(service.get("/api/runs"), before);
    service.place.run(&["rm", &run]).expect(0, &[]);
    assert_eq!(ids(&service.get("/api/runs")).len(), 1);
}

#[test]
fn a_killed_run_and_one_that_was_removed_meanwhile_are_noticed() {
    let place = Place::new();
    let held = Held::start(&place);
    let mut service = Service::start(place);
    assert_eq!(service.get("/api/runs")["runs"][0]["state"], "running");
    held.live.signal("KILL");
    held.live.wait();
    let run = service.place.run_id();
    assert_eq!(service.get("/api/runs")["runs"][0]["state"], "interrupted");
    service.stop();
    service.place.run(&["rm", &run]).expect(0, &[]);
    service.restart();
    assert_eq!(service.get("/api/runs"), json!({"runs": [], "next": null}));
}

#[test]
fn the_list_is_filtered_by_state_project_queue_and_text() {
    let place = done();
    let service = Service::start(place);
    let done = service.place.run_id();
    let task = TASK.replace("# Say hello", "# Greet 100%_all");
    let body = json!({"task": task, "script": script([whole_task()]).to_string()});
    let queued = service.post("/api/runs", &body).expect(201)["run"].clone();
    let queued = queued.as_str().unwrap().to_owned();
    let listed = |query: &str| ids(&service.get(&format!("/api/runs?{query}")));
    assert_eq!(listed("state=done"), [done.as_str()]);
    assert_eq!(listed("state=interrupted"), [queued.as_str()]);
    assert_eq!(listed("queue=queued"), [queued.as_str()]);
    assert_eq!(listed("text=HELLO"), [done.as_str()]);
    assert_eq!(listed("text=100%25_"), [queued.as_str()]);
    assert_eq!(listed("text=%25"), [queued.as_str()]);
    assert_eq!(listed(&format!("text={done}")), [done.as_str()]);
    let project = service.get("/api/runs")["runs"][0]["project"].clone();
    let project = project.as_str().unwrap().to_owned();
    assert_eq!(listed(&format!("project={project}&limit=1")), [queued.as_str()]);
    assert_eq!(listed(&format!("project={project}")), [queued, done]);
    assert_eq!(listed("project=/nowhere"), Vec::<String>::new());
    service
        .ask("GET", "/api/runs?queue=x", None)
        .expect_problem(400, "`queue`");
}

/// So many copies of a run, each with an id of its own.
fn add_copies(run: &Path, count: usize) {
    let facts: Value = serde_json::from_str(&fs::read_to_string(run.join("run.json")).unwrap()).unwrap();
    let journal = fs::read(run.join("journal.jsonl")).unwrap();
    for number in 0..count {
        let mut facts = facts.clone();
        let id = format!("rcopy{number:05}");
        let dir = run.with_file_name(&id);
        facts["id"] = json!(id);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("journal.jsonl"), &journal).unwrap();
        fs::write(dir.join("run.json"), facts.to_string()).unwrap();
    }
}

#[test]
fn a_list_does_not_wait_for_the_first_look_at_thousands_of_runs() {
    let place = done();
    add_copies(&place.run_dir(), 4000);
    let service = Service::start(place);
    let started = Instant::now();
    service.get("/api/runs");
    let first = started.elapsed();
    // A run that is created meanwhile is there at once, although the look is not through.
    let task = TASK.replace("# Say hello", "# Greet");
    let body = json!({"task": task, "script": script([whole_task()]).to_string()});
    let created = service.post("/api/runs", &body).expect(201)["run"].clone();
    assert_eq!(
        ids(&service.get("/api/runs?text=greet")),
        [created.as_str().unwrap()]
    );
    println!(
        "the first list took {first:?}, and a new run {:?} in all",
        started.elapsed()
    );
    assert!(first < Duration::from_secs(4), "{first:?}");
    let counted = || service.get("/api/runs?text=rcopy03999")["runs"][0]["run"].clone();
    eventually("all are looked at", || counted() == "rcopy03999");
    println!("the first look took {:?}", started.elapsed());
}

/// Adds recorded iterations to the journal of a run, by the example of its first one.
fn add_iterations(journal: &Path, from: u64, to: u64) {
    let text = fs::read_to_string(journal).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut record = lines.find(|line: &Value| line["entry"] == "recorded").unwrap();
    let mut file = OpenOptions::new().append(true).open(journal).unwrap();
    for number in from..to {
        record["seq"] = json!(1000 + number);
        record["iteration"] = json!(number);
        record["summary"] = json!("x".repeat(1000));
        writeln!(file, "{record}").unwrap();
    }
}

#[test]
fn a_long_journal_is_read_on_from_where_it_was() {
    let service = Service::start(done());
    let (run, journal) = (
        service.place.run_id(),
        service.place.run_dir().join("journal.jsonl"),
    );
    let whole = fs::read(&journal).unwrap();
    let last = |after: u64| {
        let page = service.get(&format!("/api/runs/{run}/iterations?after={after}&limit=200"));
        let rows = rows(&page, "iterations");
        rows.last().map(|row| row["iteration"].as_u64().unwrap())
    };
    add_iterations(&journal, 2, 401);
    assert!(fs::metadata(&journal).unwrap().len() > 400_000);
    assert_eq!(last(399), Some(400));
    add_iterations(&journal, 401, 403);
    assert_eq!(last(399), Some(402));
    assert_eq!(service.get(&format!("/api/runs/{run}"))["iterations"], 402);
    // Half a line is left for the next look.
    let mut file = OpenOptions::new().append(true).open(&journal).unwrap();
    file.write_all(b"{\"seq\":").unwrap();
    assert_eq!(last(399), Some(402));
    // A checkpoint of another host replaces the file.
    let other = journal.with_extension("new");
    fs::write(&other, whole).unwrap();
    add_iterations(&other, 2, 301);
    fs::rename(&other, &journal).unwrap();
    assert_eq!(last(299), Some(300));
    eventually("the index has it", || {
        service.get("/api/runs")["runs"][0]["iterations"] == 300
    });
}
