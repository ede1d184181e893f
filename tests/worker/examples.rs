//! The examples of the guide, validated by the programs they are for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::need;
use crate::support::ralph::{Place, finish};
use crate::support::skip;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs/examples/workers")
        .join(name)
}

#[test]
fn systemd_accepts_the_unit() {
    let systemd = need!(skip::program("systemd-analyze"));
    let text = fs::read_to_string(example("ralph-worker@.service")).unwrap();
    let place = Place::bare();
    // systemd looks whether the program is there.
    let program = place.ralph(&[]).get_program().to_str().unwrap().to_owned();
    assert!(text.contains("ExecStart=/usr/local/bin/ralph worker\n"), "{text}");
    let unit = place.path().join("ralph-worker@.service");
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
            .arg(example("kubernetes.yaml")),
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
    let path = example("kubernetes.yaml");
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
