//! Who may stop the sandbox of a run.

use std::time::Duration;

use ralph::{Ralph, Surroundings};

use crate::support::ralph::{Live, Place, doing, eventually, processes_of, run, script};

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_lost_the_run_leaves_the_sandbox_to_the_next_one() {
    let place = Place::new();
    let env = [
        ("RALPH_HOME", place.home().display().to_string()),
        ("PATH", std::env::var("PATH").unwrap()),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value));
    let builder = Ralph::builder()
        .surroundings(Surroundings::new(env.into(), place.repo()))
        .script(script([doing([run("sleep 1001")])]).to_string());
    let active = builder.build().await.unwrap().start().await.unwrap();
    let has_process = || {
        let processes = processes_of(place.path());
        processes.iter().any(|line| line.contains("sleep 1001"))
    };
    tokio::select! {
        ended = active.drive() => panic!("{ended:?}"),
        () = async {
            while !has_process() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        } => {}
    }
    active.stop_sandbox().await.unwrap();
    assert!(!has_process());
    let next = Live::start(&mut place.ralph(&["resume"]));
    eventually("the agent of the next one works", has_process);
    active.stop_sandbox().await.unwrap();
    assert!(has_process(), "the sandbox is that of the next one");
    next.signal("KILL");
    next.wait();
    active.stop_sandbox().await.unwrap();
    assert!(!has_process());
}
