//! `examples/docker_claude.rs` with the real program: a whole run by the library, without the `cli` feature.

use std::path::PathBuf;
use std::process::Command;

use crate::bench::{Bench, Program, Within, one_session};
use crate::need;
use crate::support::model_server::Teller;
use crate::support::ralph::finish;

#[tokio::test(flavor = "multi_thread")]
async fn the_docker_example_does_a_task_with_a_credential_that_stays_on_the_host() {
    let bench = need!(Bench::within(Within::Sealed, Program::Claude, Teller::of(one_session())).await);
    let ended = finish(&mut example(&bench, "docker_claude"));
    ended.expect(0, &[]);
    assert!(ended.stdout.starts_with("Done: "), "{ended:?}");
    assert_eq!(bench.handed_back("a.txt"), "hello\n");
    let run = bench.place.runs().pop().unwrap();
    let usage = std::fs::read_to_string(run.join("spending.jsonl")).unwrap();
    assert!(!usage.is_empty(), "no request passed the broker");
}

/// An example built without default features, in the environment and the directory of the bench's `ralph`.
fn example(bench: &Bench, name: &str) -> Command {
    let target = std::env::current_exe().unwrap();
    let target: PathBuf = target.ancestors().nth(3).unwrap().to_owned();
    let mut build = Command::new(env!("CARGO"));
    build
        .args([
            "build",
            "--quiet",
            "--offline",
            "--no-default-features",
            "--example",
            name,
        ])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(build.status().unwrap().success(), "{name} is not built");
    let ralph = bench.ralph(&[]);
    let mut command = Command::new(target.join("debug/examples").join(name));
    command.env_clear().current_dir(bench.place.repo());
    for (name, value) in ralph.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command
}
