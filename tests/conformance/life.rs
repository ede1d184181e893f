//! The life of a sandbox: made, stopped, started, found again, removed.

use std::path::Path;

use ralph::exec::{Command, Discard, ExitStatus};
use ralph::sandbox::{SandboxError, clone_dir};

use crate::bench::Bench;

contract![
    Any:
        ending_processes_ends_what_runs,
        ending_processes_ends_what_was_left_behind,
        ending_processes_ends_a_child_without_an_environment,
        ending_processes_is_fine_when_none_run,
        other_sandboxes_keep_their_processes,
        a_stopped_sandbox_runs_nothing_and_keeps_its_files,
        a_sandbox_that_never_was_is_not_found,
        a_sandbox_is_made_once,
        a_preview_is_a_link_where_there_is_one,
        there_is_room_for_the_clone;
    Fresh:
        a_reopened_sandbox_has_the_same_files,
        a_reopened_sandbox_ends_what_an_earlier_process_left,
        closing_twice_is_fine,
        a_closed_sandbox_is_gone,
        closing_removes_what_may_not_be_written_to,
        closing_removes_the_deepest_directories
];

async fn ending_processes_ends_what_runs(bench: &Bench) {
    let command = Command::shell(bench.heartbeat("beat"));
    let mut output = Discard;
    let (exit, ()) = tokio::join!(bench.sandbox.exec(&command, &mut output), async {
        bench.wait_for("beat").await;
        bench.sandbox.end_processes().await.unwrap();
    });
    assert_eq!(exit.unwrap().status, ExitStatus::Signal(9));
    assert!(!bench.lives("beat").await);
}

async fn ending_processes_ends_what_was_left_behind(bench: &Bench) {
    let (plain, session) = (bench.heartbeat("plain"), bench.heartbeat("session"));
    bench.prints(&format!("sh -c '{plain}' > /dev/null 2>&1 &")).await;
    bench
        .prints(&format!(
            "(cd / && setsid sh -c \"({session}) &\" < /dev/null > /dev/null 2>&1 &)"
        ))
        .await;
    bench.wait_for("plain").await;
    bench.wait_for("session").await;
    bench.sandbox.end_processes().await.unwrap();
    assert!(!bench.lives("plain").await);
    assert!(!bench.lives("session").await);
}

async fn ending_processes_ends_a_child_without_an_environment(bench: &Bench) {
    let beat = bench.heartbeat("beat");
    bench
        .prints(&format!(
            "(env -i PATH=\"$PATH\" setsid sh -c '{beat}'; true) > /dev/null 2>&1 &"
        ))
        .await;
    bench.wait_for("beat").await;
    bench.sandbox.end_processes().await.unwrap();
    assert!(!bench.lives("beat").await);
}

async fn ending_processes_is_fine_when_none_run(bench: &Bench) {
    bench.sandbox.end_processes().await.unwrap();
    assert_eq!(bench.prints("echo on").await, "on\n");
}

async fn other_sandboxes_keep_their_processes(bench: &Bench) {
    let other = bench.another(bench.spec.completion_grace).await;
    let beat = bench.heartbeat("beat");
    bench.prints(&format!("sh -c '{beat}' > /dev/null 2>&1 &")).await;
    other.end_processes().await.unwrap();
    other.close().await.unwrap();
    bench.goes_on("beat").await;
}

async fn a_stopped_sandbox_runs_nothing_and_keeps_its_files(bench: &Bench) {
    let beat = bench.heartbeat("beat");
    bench
        .prints(&format!(
            "echo kept > file; setsid sh -c '{beat}' > /dev/null 2>&1 &"
        ))
        .await;
    bench.wait_for("beat").await;
    for _ in 0..2 {
        bench.sandbox.stop().await.unwrap();
        let tried = bench.try_exec(Command::new("true")).await;
        assert!(tried.unwrap_err().to_string().ends_with("is stopped"));
    }
    for _ in 0..2 {
        bench.sandbox.start().await.unwrap();
        assert_eq!(bench.prints("cat file").await, "kept\n");
    }
    assert!(!bench.lives("beat").await);
}

async fn a_reopened_sandbox_has_the_same_files(bench: &Bench) {
    bench.prints("echo kept > work/file; chmod 600 work/file").await;
    let again = bench
        .provider
        .reopen(&bench.spec)
        .await
        .unwrap()
        .expect("it is there");
    assert_eq!(
        (again.id(), again.root()),
        (bench.sandbox.id(), bench.sandbox.root())
    );
    assert_eq!(
        again.files().read(Path::new("work/file"), 10).await.unwrap(),
        b"kept\n"
    );
    let exit = again
        .exec(&Command::new("cat").arg("work/file"), &mut Discard)
        .await
        .unwrap();
    assert_eq!(exit.stdout.text(), "kept\n");
}

async fn a_reopened_sandbox_ends_what_an_earlier_process_left(bench: &Bench) {
    let beat = bench.heartbeat("beat");
    bench
        .prints(&format!("setsid sh -c '{beat}' > /dev/null 2>&1 &"))
        .await;
    bench.wait_for("beat").await;
    let again = bench
        .provider
        .reopen(&bench.spec)
        .await
        .unwrap()
        .expect("it is there");
    again.end_processes().await.unwrap();
    assert!(!bench.lives("beat").await);
}

async fn a_sandbox_that_never_was_is_not_found(bench: &Bench) {
    let mut spec = bench.spec.clone();
    spec.run = ralph::id::RunId::random();
    assert!(bench.provider.reopen(&spec).await.unwrap().is_none());
}

async fn a_sandbox_is_made_once(bench: &Bench) {
    bench.prints("echo kept > file").await;
    assert!(bench.provider.create(&bench.spec).await.is_err());
    assert_eq!(bench.prints("cat file").await, "kept\n");
}

async fn closing_twice_is_fine(bench: &Bench) {
    let beat = bench.heartbeat("beat");
    bench
        .prints(&format!("setsid sh -c '{beat}' > /dev/null 2>&1 &"))
        .await;
    for _ in 0..2 {
        bench.sandbox.close().await.unwrap();
    }
    assert!(bench.provider.reopen(&bench.spec).await.unwrap().is_none());
}

async fn a_closed_sandbox_is_gone(bench: &Bench) {
    let again = bench
        .provider
        .reopen(&bench.spec)
        .await
        .unwrap()
        .expect("it is there");
    bench.sandbox.close().await.unwrap();
    for sandbox in [&bench.sandbox, &again] {
        let tried = sandbox.exec(&Command::new("true"), &mut Discard).await;
        assert!(is_gone(&tried), "{tried:?}");
        let read = sandbox.files().read(Path::new("file"), 10).await;
        assert!(is_gone(&read), "{read:?}");
    }
    assert!(is_gone(&bench.sandbox.start().await));
}

async fn closing_removes_what_may_not_be_written_to(bench: &Bench) {
    bench
        .prints("mkdir -p a/b/c && : > a/b/f && chmod 400 a/b/f && chmod 0 a/b/c && chmod 555 a/b a")
        .await;
    bench.sandbox.close().await.unwrap();
    assert!(bench.provider.reopen(&bench.spec).await.unwrap().is_none());
}

async fn closing_removes_the_deepest_directories(bench: &Bench) {
    bench.prints("mkdir -p $(printf 'd/%.0s' $(seq 1 1800))").await;
    bench.sandbox.close().await.unwrap();
    assert!(bench.provider.reopen(&bench.spec).await.unwrap().is_none());
}

async fn a_preview_is_a_link_where_there_is_one(bench: &Bench) {
    let link = bench.sandbox.preview(8123).await.unwrap();
    assert_eq!(link.is_some(), bench.provider.capabilities().preview);
    assert!(link.is_none_or(|link| link.starts_with("http")));
}

async fn there_is_room_for_the_clone(bench: &Bench) {
    let dir = clone_dir(bench.sandbox.as_ref());
    bench
        .sandbox
        .files()
        .write(&dir.join("file"), b"", 0o644)
        .await
        .unwrap();
    assert_eq!(bench.prints("ls work").await, "file\n");
}

fn is_gone<T>(tried: &Result<T, SandboxError>) -> bool {
    tried
        .as_ref()
        .is_err_and(|error| error.to_string().ends_with("is gone"))
}
