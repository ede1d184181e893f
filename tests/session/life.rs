//! How commands are ended, with everything they started, and what becomes of a session.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use ralph::exec::{Command, Discard, Exit, ExitStatus};
use ralph::sandbox::SandboxError;
use ralph::sandbox::session::SessionError;
use rstest::rstest;

use crate::guest_session::{GuestSession, beats, goes_on, in_time};
use crate::support::skip;

/// Whether the command failed because its session was lost.
fn is_lost(result: &Result<Exit, SandboxError>) -> bool {
    result.as_ref().is_err_and(|error| {
        error.to_string().contains("`a bench`") && matches!(error.cause(), Some(SessionError::Lost { .. }))
    })
}

#[rstest]
#[case::in_the_group("sh -c \"$BEAT\" &")]
#[case::in_another_session("setsid sh -c \"$BEAT\" &")]
#[case::without_a_parent("(setsid sh -c \"$BEAT\" & exit 0);")]
#[case::without_an_environment("(env -i PATH=$PATH setsid sh -c \"($BEAT) & exit 0\" & exit 0);")]
#[case::deaf_to_being_asked("(trap '' TERM HUP INT; setsid sh -c \"$BEAT\" & exit 0);")]
#[case::stopped("setsid sh -c \"kill -STOP \\$\\$; $BEAT\" &")]
#[tokio::test]
async fn a_timeout_reaches_a_child(#[case] escape: &str) {
    let bench = crate::need!(GuestSession::open().await);
    let line = format!("{escape} sleep 30");
    let command = Command::shell(line)
        .env("BEAT", bench.heartbeat("beat"))
        .timeout(Duration::from_millis(500));
    let started = Instant::now();
    let exit = bench.exec(command).await;
    assert_eq!((exit.status, exit.streams_held), (ExitStatus::TimedOut, false));
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    assert!(!bench.lives("beat").await);
}

#[tokio::test]
async fn a_command_is_asked_before_it_is_killed() {
    let bench = crate::need!(GuestSession::open().await);
    let line = "trap 'echo asked; exit 0' TERM; for n in $(seq 1000); do sleep 0.02; done";
    let exit = bench
        .exec(Command::shell(line).timeout(Duration::from_secs(3)))
        .await;
    assert_eq!(exit.status, ExitStatus::TimedOut);
    assert_eq!(exit.stdout.text(), "asked\n");
}

#[tokio::test]
async fn ending_one_command_leaves_the_others_and_what_they_left_alone() {
    let bench = crate::need!(GuestSession::open().await);
    let released = format!(
        "setsid sh -c '{}' > /dev/null 2>&1 &",
        bench.heartbeat("released")
    );
    bench.prints(&released).await;
    let timed = Command::shell(format!("setsid sh -c '{}' & sleep 30", bench.heartbeat("timed")))
        .timeout(Duration::from_millis(400));
    let other = Command::shell(format!(
        "setsid sh -c '{}' & until [ -e go ]; do sleep 0.05; done; kill $!",
        bench.heartbeat("other")
    ));
    let mut outputs = (Discard, Discard);
    let ((), other) = tokio::join!(
        async {
            let timed = bench.session.exec(&timed, &mut outputs.0).await;
            assert_eq!(timed.unwrap().status, ExitStatus::TimedOut);
            assert!(!bench.lives("timed").await);
            in_time(goes_on(&bench.path("other"))).await;
            std::fs::write(bench.path("go"), "").unwrap();
        },
        bench.session.exec(&other, &mut outputs.1),
    );
    assert_eq!(other.unwrap().status, ExitStatus::Code(0));
    in_time(goes_on(&bench.path("released"))).await;
    bench.session.end_processes().await.unwrap();
    assert!(!bench.lives("released").await);
}

#[rstest]
#[case::itself("kill -9 $$; sleep 30")]
#[case::its_keeper("kill -9 $PPID; sleep 30")]
#[case::its_group("kill -9 0; sleep 30")]
#[tokio::test]
async fn a_command_that_kills(#[case] line: &str) {
    let bench = crate::need!(GuestSession::open().await);
    let line = format!(
        "setsid sh -c '{}' > /dev/null 2>&1 & {line}",
        bench.heartbeat("beat")
    );
    bench.wait_for("guest").await;
    let exit = bench.shell(&line).await;
    assert_eq!(exit.status, ExitStatus::Signal(9));
    assert_eq!(bench.prints("echo on").await, "on\n");
    in_time(bench.session.end_processes()).await.unwrap();
    assert!(!bench.lives("beat").await);
}

#[tokio::test]
async fn what_a_lost_keeper_kept_is_ended_and_what_it_printed_is_received() {
    let bench = crate::need!(GuestSession::open().await);
    let beat = bench.heartbeat("beat");
    let line = format!("echo before; setsid sh -c '{beat}' & sleep 0.1; kill -9 $PPID; sleep 30");
    let exit = bench.shell(&line).await;
    assert_eq!(exit.status, ExitStatus::Signal(9));
    assert_eq!(exit.stdout.text(), "before\n");
    assert!(!bench.lives("beat").await);
}

#[tokio::test]
async fn a_stopped_keeper_does_not_keep_a_command_from_being_ended() {
    let bench = crate::need!(GuestSession::open().await);
    let line = format!("kill -STOP $PPID; {}", bench.heartbeat("beat"));
    let exit = bench
        .exec(Command::shell(line).timeout(Duration::from_millis(300)))
        .await;
    assert_eq!(exit.status, ExitStatus::TimedOut);
    assert!(!bench.lives("beat").await);
}

#[tokio::test]
async fn a_session_whose_guest_was_killed_fails_and_can_be_allowed_again() {
    let mut bench = crate::need!(GuestSession::open().await);
    let beat = Command::shell(format!("setsid sh -c '{}' & sleep 30", bench.heartbeat("beat")));
    let sleeps = vec![Command::new("sleep").arg("30"); 20];
    let killer = Command::shell(format!("sleep 0.3; kill -9 {}; sleep 30", bench.guest_id()));
    let commands = sleeps.into_iter().chain([beat, killer]);
    for result in join_all(commands.map(|command| bench.try_exec(command))).await {
        assert!(is_lost(&result), "{result:?}");
    }
    assert!(!bench.session.is_open());
    assert!(is_lost(&bench.try_exec(Command::new("true")).await));
    // Its keeper sees the end of the guest no sooner than the session does.
    in_time(async { while bench.lives("beat").await {} }).await;
    bench.reopen().await;
    assert_eq!(bench.prints("echo again").await, "again\n");
}

#[tokio::test]
async fn a_guest_that_does_not_answer_is_given_up() {
    let bench = crate::need!(GuestSession::open().await);
    let line = format!("kill -STOP {}; sleep 30", bench.guest_id());
    let command = Command::shell(line).timeout(Duration::from_secs(3));
    let result = bench.try_exec(command).await;
    let error = result.unwrap_err();
    assert!(
        matches!(error.cause(), Some(SessionError::Silent { .. })),
        "{error:?}"
    );
    assert!(!bench.session.is_open());
}

#[tokio::test]
async fn a_command_that_kills_its_keeper_and_the_guest_only_ends_the_session() {
    let bench = crate::need!(GuestSession::as_unique_user().await);
    // The guest first: it would still report a keeper that ended before it.
    let line = format!("kill -9 {} $PPID; sleep 30", bench.guest_id());
    assert!(is_lost(&bench.try_exec(Command::shell(line)).await));
}

#[tokio::test]
async fn a_session_that_is_dropped_ends_what_runs_and_leaves_what_was_left() {
    let bench = crate::need!(GuestSession::open().await);
    let (left, running) = (bench.heartbeat("left"), bench.heartbeat("running"));
    bench
        .prints(&format!(
            "setsid sh -c '{left}' > /dev/null 2>&1 & echo $! > left-id"
        ))
        .await;
    let command = Command::shell(format!("setsid sh -c '{running}' & sleep 30"));
    let mut output = Discard;
    tokio::select! {
        exit = bench.session.exec(&command, &mut output) => panic!("{exit:?}"),
        () = bench.wait_for("running") => {}
    }
    let GuestSession {
        dir,
        mut guest,
        session,
    } = bench;
    drop(session);
    assert!(in_time(guest.wait()).await.unwrap().success());
    assert!(!beats(&dir.path().join("running")).await);
    in_time(goes_on(&dir.path().join("left"))).await;
    let left_id = std::fs::read_to_string(dir.path().join("left-id")).unwrap();
    let killed = std::process::Command::new("kill").arg(left_id.trim()).status();
    assert!(killed.unwrap().success());
}

#[tokio::test]
async fn a_dropped_command_is_ended_and_the_session_goes_on() {
    let bench = crate::need!(GuestSession::open().await);
    for round in 0..10 {
        let name = format!("beat-{round}");
        let command = Command::shell(format!(
            "setsid sh -c '{}' & head -c 100000000000 /dev/zero",
            bench.heartbeat(&name)
        ));
        let mut output = Discard;
        tokio::select! {
            exit = bench.session.exec(&command, &mut output) => panic!("{exit:?}"),
            () = bench.wait_for(&name) => {}
        }
        assert_eq!(bench.prints("echo on").await, "on\n");
        // The word for it goes to its keeper, and this went to another.
        in_time(async { while bench.lives(&name).await {} }).await;
    }
}

/// A program that became root, which a guest of another user may not kill.
#[tokio::test]
async fn a_process_that_cannot_be_killed_is_not_reported_as_ended() {
    let bench = crate::need!(GuestSession::as_unique_user().await);
    let become_root = bench.path("setpriv");
    std::fs::copy(crate::need!(skip::program("setpriv")), &become_root).unwrap();
    std::fs::set_permissions(&become_root, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let command = Command::shell("./setpriv --reuid=0 sh -c 'echo $$ > began; exec sleep 60'");
    let mut output = Discard;
    let began = tokio::select! {
        exit = bench.session.exec(&command, &mut output) => Err(format!("nothing becomes root here: {exit:?}")),
        () = bench.wait_for("began") => Ok(()),
    };
    crate::need!(began);
    let ended = in_time(bench.session.end_processes()).await;
    let left = std::fs::read_to_string(bench.path("began")).unwrap();
    let killed = std::process::Command::new("kill").arg(left.trim()).status();
    assert!(killed.unwrap().success(), "it ended");
    let error = ended.unwrap_err();
    assert!(
        matches!(error.cause(), Some(SessionError::Silent { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn no_process_of_a_command_that_ended_is_left() {
    let bench = crate::need!(GuestSession::open().await);
    let below = format!("ps -o pid= --ppid {} | wc -l", bench.guest_id());
    for _ in 0..50 {
        bench.prints("true; (exit 3) & sleep 0.001").await;
    }
    // The keeper of the command that counts.
    in_time(async { while bench.prints(&below).await.trim() != "1" {} }).await;
}
