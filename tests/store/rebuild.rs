//! `ralph store rebuild`: the index of runs, from run directories and from state refs.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::slice::from_ref;

use jiff::Timestamp;
use ralph::RunId;
use ralph::exec::Host;
use ralph::scm::{CheckpointContent, Checkpoints, Repository, StateFile};
use ralph::store::{IndexedRun, Store};
use ralph::usage::Usd;
use tempfile::TempDir;

use crate::database::{Database, LEASE, claim, run, submission};
use crate::on_both;

on_both!(
    a_rebuild_gives_the_same_answers_and_leaves_the_queue,
    a_corrupt_journal_keeps_no_other_run_out_of_a_rebuild,
    epochs_are_above_those_of_state_refs,
    a_store_can_be_opened_by_a_task,
);

/// What `ralph demo --keep` leaves: a project, and a run that is done.
struct Demo {
    dir: TempDir,
}

impl Demo {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let demo = Self { dir };
        let kept = demo.dir.path().join("demo");
        demo.ralph(None, &["demo", "--keep", kept.to_str().unwrap()]);
        demo
    }

    fn project(&self) -> PathBuf {
        self.dir.path().join("demo/project")
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("demo/ralph")
    }

    fn ralph(&self, database: Option<&Database>, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ralph"));
        command
            .args(args)
            .current_dir(database.map_or_else(|| self.dir.path().to_owned(), |_| self.project()))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.dir.path())
            .env("RALPH_HOME", self.home());
        if let Some(database) = database {
            command.env("RALPH_DB_URL", database.url());
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    }

    fn rebuild(&self, database: &Database) -> String {
        let output = self.ralph(Some(database), &["store", "rebuild"]);
        String::from_utf8(output.stderr).unwrap()
    }

    fn run_id(&self) -> RunId {
        let entry = fs::read_dir(self.home().join("runs")).unwrap().next().unwrap();
        RunId::parse(entry.unwrap().file_name().to_str().unwrap()).unwrap()
    }

    async fn repository(&self) -> Repository {
        let path = std::env::var("PATH").unwrap();
        let host = Host::new(BTreeMap::from([("PATH".to_owned(), path)]));
        Repository::open(host, &self.project()).await.unwrap()
    }
}

async fn a_rebuild_gives_the_same_answers_and_leaves_the_queue(database: Database) {
    let demo = Demo::new();
    let said = demo.rebuild(&database);
    assert!(said.starts_with("Indexed 1 run in the store `"), "{said}");
    let store = database.open().await;
    let before = store.runs().await.unwrap();
    let [indexed] = before.as_slice() else {
        panic!("{before:?}");
    };
    assert_eq!(indexed.id, demo.run_id());
    assert_eq!((&*indexed.state, indexed.iterations), ("done", 3));
    assert_eq!((indexed.ticked, indexed.tokens), (indexed.checkboxes, 5450));
    assert!(indexed.pull_request.is_some() && indexed.checkboxes > 0);
    let elsewhere = IndexedRun {
        id: run(1),
        host: "elsewhere".to_owned(),
        ..indexed.clone()
    };
    store.index_runs(from_ref(&elsewhere)).await.unwrap();
    let before = store.runs().await.unwrap();
    let queue = a_queue(&store).await;

    demo.rebuild(&database);
    assert_eq!(store.runs().await.unwrap(), before);
    let gone = "DELETE FROM runs WHERE host <> 'elsewhere'";
    database.execute(gone).await;
    demo.rebuild(&database);
    assert_eq!(store.runs().await.unwrap(), before, "from the run directory");
    database.execute(gone).await;
    fs::remove_dir_all(demo.home().join("runs")).unwrap();
    demo.rebuild(&database);
    assert_eq!(store.runs().await.unwrap(), before, "from the state ref");
    assert_eq!(store.queue().await.unwrap(), queue);
}

async fn a_corrupt_journal_keeps_no_other_run_out_of_a_rebuild(database: Database) {
    let demo = Demo::new();
    let (id, runs) = (demo.run_id(), demo.home().join("runs"));
    let facts = fs::read_to_string(runs.join(id.as_str()).join("run.json")).unwrap();
    let damaged = runs.join("r23456");
    fs::create_dir(&damaged).unwrap();
    fs::write(damaged.join("run.json"), facts.replace(id.as_str(), "r23456")).unwrap();
    fs::write(damaged.join("journal.jsonl"), "{}\n").unwrap();
    let said = demo.rebuild(&database);
    assert!(
        said.contains("left out run `r23456`: ") && said.contains("Indexed 1 run in the store `"),
        "{said}"
    );
    let indexed = database.open().await.runs().await.unwrap();
    let indexed: Vec<&RunId> = indexed.iter().map(|run| &run.id).collect();
    assert_eq!(indexed, [&id]);
}

/// A queue with a run at work, which used something.
async fn a_queue(store: &Store) -> Vec<ralph::store::QueueRow> {
    for number in [1, 2] {
        store.submit(&submission(number)).await.unwrap();
    }
    let claimed = claim(store, "a").await.unwrap();
    let spent = Usd::from_nanos(5);
    let _ = store.renew(&claimed, LEASE, spent).await.unwrap();
    store.queue().await.unwrap()
}

async fn epochs_are_above_those_of_state_refs(database: Database) {
    let demo = Demo::new();
    let checkpoints = Checkpoints::new(demo.repository().await, demo.run_id());
    let newest = checkpoints.load().await.unwrap().unwrap();
    let lease = r#"{"owner":{"host":"elsewhere","pid":1,"epoch":41},"until":"2026-01-01T00:00:00Z"}"#;
    let lease = StateFile {
        path: "lease.json".to_owned(),
        bytes: lease.into(),
    };
    let content = CheckpointContent {
        iteration: newest.iteration,
        tip: &newest.tip,
        work_tree: &newest.work_tree,
        files: &[lease],
        at: Timestamp::now(),
    };
    checkpoints.save(Some(&newest.commit), &content).await.unwrap();
    demo.rebuild(&database);
    let store = database.open().await;
    store.submit(&submission(1)).await.unwrap();
    assert_eq!(claim(&store, "a").await.unwrap().epoch, 42);
}

/// The future of `open` can be moved to another thread.
async fn a_store_can_be_opened_by_a_task(database: Database) {
    let opened = tokio::spawn(async move {
        let store = database.open().await;
        store.runs().await.unwrap().len()
    });
    assert_eq!(opened.await.unwrap(), 0);
}

/// The pool would wait ten seconds for a server that is not there.
#[tokio::test]
async fn a_refused_connection_fails_at_once() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("postgres://me@127.0.0.1:{port}/ralph");
    let error = Store::open(&crate::database::address(&url)).await.unwrap_err();
    let ralph::store::StoreError::Open { source, .. } = &error else {
        panic!("{error:?}");
    };
    let is_refused =
        matches!(source, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused);
    assert!(is_refused, "{source:?}");
    assert!(error.hint().unwrap().contains("RALPH_DB_URL"));
}
