//! The examples of the guide, validated by the programs they are for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rstest::rstest;

use crate::desk::{Desk, host_label};
use crate::need;
use crate::support::ralph::{Place, finish};
use crate::support::skip;

fn example(name: &str) -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples");
    examples.join(name)
}

#[rstest]
#[case::a_worker("workers/ralph-worker@.service", "worker")]
#[case::the_service("service/ralph.service", "serve --workers 4")]
fn systemd_accepts_the_unit(#[case] name: &str, #[case] command: &str) {
    let systemd = need!(skip::program("systemd-analyze"));
    let path = example(name);
    let text = fs::read_to_string(&path).unwrap();
    let place = Place::bare();
    // systemd looks whether the program is there.
    let program = place.ralph(&[]).get_program().to_str().unwrap().to_owned();
    let started = format!("ExecStart=/usr/local/bin/ralph {command}\n");
    assert!(text.contains(&started), "{text}");
    let unit = place.path().join(path.file_name().unwrap());
    fs::write(&unit, text.replace("/usr/local/bin/ralph", &program)).unwrap();
    let ended = finish(Command::new(systemd).arg("verify").arg(&unit));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
}

#[test]
fn kubernetes_accepts_the_job() {
    let validate = need!(
        std::env::var("RALPH_TEST_KUBERNETES_VALIDATE")
            .map_err(|_| "RALPH_TEST_KUBERNETES_VALIDATE is not set; `tests/run` sets it")
    );
    let ended = finish(
        Command::new(validate)
            .arg("--strict")
            .arg(example("workers/kubernetes.yaml")),
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let printed = format!("{}{}", ended.stdout, ended.stderr);
    assert!(
        printed.contains("passed for resource job/ralph-drain"),
        "{printed}"
    );
}

#[test]
fn keda_accepts_the_scaled_job() {
    let validate = need!(
        std::env::var("RALPH_TEST_KEDA_VALIDATE")
            .map_err(|_| "RALPH_TEST_KEDA_VALIDATE is not set; `tests/run` sets it")
    );
    let path = example("workers/kubernetes.yaml");
    let ended = finish(Command::new(&validate).arg(&path));
    assert_eq!(
        (ended.code, ended.stdout.trim()),
        (Some(0), "passed for resource scaledjob/ralph-worker"),
        "{ended:?}"
    );
    // The models refuse what is wrong.
    let place = Place::bare();
    let wrong = place.path().join("wrong.yaml");
    let text = fs::read_to_string(path).unwrap();
    fs::write(
        &wrong,
        text.replace("maxReplicaCount: 20", "maxReplicaCount: many"),
    )
    .unwrap();
    let ended = finish(Command::new(validate).arg(&wrong));
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stderr.contains("maxReplicaCount must be integer"),
        "{ended:?}"
    );
}

/// KEDA asks this query for the number of workers to start.
#[tokio::test(flavor = "multi_thread")]
async fn the_query_of_the_scaled_job_counts_what_its_workers_may_claim() {
    let desk = need!(Desk::postgres().await);
    let text = fs::read_to_string(example("workers/kubernetes.yaml")).unwrap();
    let (_, query) = text.split_once("query: >-\n").unwrap();
    let (query, _) = query.split_once("targetQueryValue").unwrap();
    // Opening the store creates its tables.
    desk.store().await.close().await;
    assert_eq!(desk.count(query).await, 0);
    let host = host_label();
    desk.submit_short(&["--label", &host, "--label", "pool=cluster"]);
    desk.submit_short(&["--label", &host, "--label", "pool=other"]);
    let later = [
        "--label",
        &host,
        "--label",
        "pool=cluster",
        "--not-before",
        "2999-01-01T00:00:00Z",
    ];
    desk.submit_short(&later);
    assert_eq!(desk.count(query).await, 1);
}
