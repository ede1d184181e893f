//! `ralph serve` as a whole: the API, the worker, notifications and the upkeep of the store in one process.

use std::path::Path;
use std::time::Duration;

use ralph::secret::Secret;
use ralph::store::{IndexedRun, QueueRow, QueueState, Store, StoreAddress};
use serde_json::{Value, json};
use sqlx::{Connection, SqliteConnection};

use crate::service::{Service, user_file};
use crate::sockets::Client;
use crate::support::ralph::{Place, TASK, doing, eventually, processes_of, run, script, whole_task, write};
use crate::support::receiver::{Answer, Receiver};

fn new_run(model: &Value) -> Value {
    json!({"task": TASK, "script": model.to_string()})
}

fn create(service: &Service, model: &Value) -> String {
    let created = service.post("/api/runs", &new_run(model)).expect(201);
    created["run"].as_str().unwrap().to_owned()
}

fn wait_for(service: &Service, run: &str, state: &str) {
    let path = format!("/api/runs/{run}");
    eventually("the run is so far", || service.get(&path)["state"] == state);
}

/// A first answer that works until the file is there, and says that it began.
pub fn held(place: &Place) -> Value {
    let dir = place.path().display();
    let hold = format!("touch {dir}/started; until [ -e {dir}/go ]; do sleep 0.02; done");
    script([doing([write("draft.txt", "draft\n"), run(&hold)]), whole_task()])
}

fn database(place: &Place) -> String {
    format!("sqlite:///{}", place.home().join("ralph.db").display())
}

async fn store(place: &Place) -> Store {
    let address = StoreAddress::parse(&Secret::new(database(place)), Path::new("/")).unwrap();
    Store::open(&address).await.unwrap()
}

async fn queue(place: &Place) -> Vec<QueueRow> {
    store(place).await.queue().await.unwrap()
}

async fn index(place: &Place) -> Vec<IndexedRun> {
    store(place).await.runs().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_created_run_is_done_and_reported() {
    let (place, receiver) = (Place::new(), Receiver::answering(&[Answer::Status(200)]));
    let hook = format!(
        "[[notify]]\nkind = \"webhook\"\nurl = \"{}\"\nevents = [\"done\"]\n",
        receiver.url()
    );
    user_file(&place, &hook);
    let model = held(&place);
    let mut service = Service::working(place, &[]);
    let run = create(&service, &model);
    let started = service.place.path().join("started");
    eventually("the run is at work", || started.exists());
    wait_for(&service, &run, "running");
    let mut client = Client::connect(&service).await;
    client.subscribe(&run, Some(0)).await;
    std::fs::write(service.place.path().join("go"), "").unwrap();
    let mut events = Vec::new();
    while events.last().is_none_or(|event| event != "run_ended") {
        let event = client.receive().await.unwrap();
        events.push(event["event"]["event"].as_str().unwrap().to_owned());
    }
    assert!(
        events.iter().any(|event| event == "iteration_ended"),
        "{events:?}"
    );
    wait_for(&service, &run, "done");
    eventually("the notification is delivered", || {
        !receiver.requests().is_empty()
    });
    assert_eq!(receiver.requests()[0].json()["data"]["run"], run.as_str());
    service.signal("TERM");
    let (code, printed) = service.wait();
    assert_eq!(code, Some(0), "{printed}");
    let rows = queue(&service.place).await;
    assert_eq!(rows[0].outcome.as_deref(), Some("done"), "{rows:?}");
    // The index has what `ralph store rebuild` finds.
    let indexed = index(&service.place).await;
    assert_eq!(
        (indexed.len(), indexed[0].state.as_str()),
        (1, "done"),
        "{indexed:?}"
    );
    service.place.run(&["store", "rebuild"]).expect(0, &[]);
    assert_eq!(index(&service.place).await, indexed);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_signal_records_the_iteration_and_gives_the_run_back() {
    let place = Place::new();
    let model = held(&place);
    let mut service = Service::working(place, &[]);
    let run = create(&service, &model);
    let started = service.place.path().join("started");
    eventually("the run is at work", || started.exists());
    service.signal("TERM");
    let (code, printed) = service.wait();
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains(&format!("run {run}: back in the queue")),
        "{printed}"
    );
    let rows = queue(&service.place).await;
    assert_eq!(
        (rows[0].state, rows[0].attempts),
        (QueueState::Queued, 0),
        "{rows:?}"
    );
    let indexed = index(&service.place).await;
    assert_eq!(
        (indexed[0].state.as_str(), indexed[0].iterations),
        ("interrupted", 1),
        "{indexed:?}"
    );
    // What the first iteration waited for was given up with it.
    service.restart_working(&[]);
    wait_for(&service, &run, "done");
}

#[test]
fn the_second_signal_ends_at_once() {
    let place = Place::new();
    // The tests of the task would go on for ever, and the iteration with them.
    place.write("test.sh", "while true; do sleep 0.1; done\n");
    place.commit("Slow tests");
    let model = held(&place);
    let mut service = Service::working(place, &[]);
    create(&service, &model);
    let started = service.place.path().join("started");
    eventually("the run is at work", || started.exists());
    service.signal("TERM");
    eventually("the tests of the task run", || {
        let processes = processes_of(service.place.path());
        processes.iter().any(|line| line.contains("test.sh"))
    });
    service.signal("TERM");
    let (code, printed) = service.wait();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("Ending at once."), "{printed}");
    assert!(printed.contains("back in the queue"), "{printed}");
}

#[test]
fn no_more_runs_than_workers_are_worked_on_at_once() {
    let place = Place::new();
    let log = place.path().join("log");
    let note = |word: &str| format!("echo {word} >> {}", log.display());
    let both = format!("{}; sleep 0.3; {}", note("in"), note("out"));
    let model = script([doing([run(&both)]), whole_task()]);
    let service = Service::working(place, &["--workers", "1"]);
    let runs = [(); 3].map(|()| create(&service, &model));
    for run in &runs {
        wait_for(&service, run, "done");
    }
    let log = std::fs::read_to_string(&log).unwrap();
    assert_eq!(log, "in\nout\nin\nout\nin\nout\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_ended_long_ago_leave_the_queue_and_nothing_else() {
    let mut service = Service::working(Place::new(), &[]);
    let run = create(&service, &script([whole_task()]));
    eventually("the run is done", || {
        service.printed().contains(&format!("run {run}: done"))
    });
    let keep = ["--set", "service.keep_ended_days=2"];
    service.restart_working(&keep);
    assert_eq!(queue(&service.place).await.len(), 1);
    service.signal("KILL");
    service.wait();
    let mut connection = SqliteConnection::connect(&database(&service.place))
        .await
        .unwrap();
    let day = i64::try_from(Duration::from_secs(24 * 60 * 60).as_millis()).unwrap();
    let older = sqlx::query("UPDATE queue SET ended_at = ended_at - $1").bind(3 * day);
    older.execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    service.restart_working(&keep);
    eventually("it says what it removed", || {
        service.printed().contains("removed 1 runs from the queue")
    });
    assert!(queue(&service.place).await.is_empty());
    // The run and the tokens stay.
    assert_eq!(service.get(&format!("/api/runs/{run}"))["state"], "done");
}

#[test]
fn issues_need_workers() {
    let place = Place::new();
    place
        .run(&["serve", "--workers", "0", "--poll"])
        .expect_refused(&["`service.workers` is 0"]);
    place
        .run(&["serve", "--listen", "127.0.0.1:0", "--poll"])
        .expect_refused(&["`forge.type` is `local`"]);
}
