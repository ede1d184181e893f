//! How commands are ended, with everything they started, and what becomes of a session.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use ralph::exec::{Command, Discard, Exit, ExitStatus};
use ralph::sandbox::SandboxError;
use ralph::sandbox::session::SessionError;
use rstest::rstest;

use crate::room::{Room, beats, goes_on, in_time};

/// Whether the command failed because its session was lost.
fn is_lost(result: &Result<Exit, SandboxError>) -> bool {
    result.as_ref().is_err_and(|error| {
        error.to_string().contains("`a room`") && matches!(error.cause(), Some(SessionError::Lost { .. }))
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
    let room = crate::need!(Room::open().await);
    let line = format!("{escape} sleep 30");
    let command = Command::shell(line)
        .env("BEAT", room.heartbeat("beat"))
        .timeout(Duration::from_millis(500));
    let started = Instant::now();
    let exit = room.exec(command).await;
    assert_eq!((exit.status, exit.streams_held), (ExitStatus::TimedOut, false));
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    assert!(!room.lives("beat").await);
}

#[tokio::test]
async fn a_command_is_asked_before_it_is_killed() {
    let room = crate::need!(Room::open().await);
    let line = "trap 'echo asked; exit 0' TERM; for n in $(seq 1000); do sleep 0.02; done";
    let exit = room
        .exec(Command::shell(line).timeout(Duration::from_secs(3)))
        .await;
    assert_eq!(exit.status, ExitStatus::TimedOut);
    assert_eq!(exit.stdout.text(), "asked\n");
}

#[tokio::test]
async fn ending_one_command_leaves_the_others_and_what_they_left_alone() {
    let room = crate::need!(Room::open().await);
    let released = format!("setsid sh -c '{}' > /dev/null 2>&1 &", room.heartbeat("released"));
    room.prints(&released).await;
    let timed = Command::shell(format!("setsid sh -c '{}' & sleep 30", room.heartbeat("timed")))
        .timeout(Duration::from_millis(400));
    let other = Command::shell(format!(
        "setsid sh -c '{}' & until [ -e go ]; do sleep 0.05; done; kill $!",
        room.heartbeat("other")
    ));
    let mut outputs = (Discard, Discard);
    let ((), other) = tokio::join!(
        async {
            let timed = room.session.exec(&timed, &mut outputs.0).await;
            assert_eq!(timed.unwrap().status, ExitStatus::TimedOut);
            assert!(!room.lives("timed").await);
            in_time(goes_on(&room.path("other"))).await;
            std::fs::write(room.path("go"), "").unwrap();
        },
        room.session.exec(&other, &mut outputs.1),
    );
    assert_eq!(other.unwrap().status, ExitStatus::Code(0));
    in_time(goes_on(&room.path("released"))).await;
    room.session.end_processes().await.unwrap();
    assert!(!room.lives("released").await);
}

#[rstest]
#[case::itself("kill -9 $$; sleep 30")]
#[case::its_keeper("kill -9 $PPID; sleep 30")]
#[case::its_group("kill -9 0; sleep 30")]
#[tokio::test]
async fn a_command_that_kills(#[case] line: &str) {
    let room = crate::need!(Room::open().await);
    let line = format!(
        "setsid sh -c '{}' > /dev/null 2>&1 & {line}",
        room.heartbeat("beat")
    );
    room.wait_for("guest").await;
    let exit = room.shell(&line).await;
    assert_eq!(exit.status, ExitStatus::Signal(9));
    assert_eq!(room.prints("echo on").await, "on\n");
    in_time(room.session.end_processes()).await.unwrap();
    assert!(!room.lives("beat").await);
}

#[tokio::test]
async fn what_a_lost_keeper_kept_is_ended_and_what_it_printed_is_heard() {
    let room = crate::need!(Room::open().await);
    let beat = room.heartbeat("beat");
    let line = format!("echo before; setsid sh -c '{beat}' & sleep 0.1; kill -9 $PPID; sleep 30");
    let exit = room.shell(&line).await;
    assert_eq!(exit.status, ExitStatus::Signal(9));
    assert_eq!(exit.stdout.text(), "before\n");
    assert!(!room.lives("beat").await);
}

#[tokio::test]
async fn a_stopped_keeper_does_not_keep_a_command_from_being_ended() {
    let room = crate::need!(Room::open().await);
    let line = format!("kill -STOP $PPID; {}", room.heartbeat("beat"));
    let exit = room
        .exec(Command::shell(line).timeout(Duration::from_millis(300)))
        .await;
    assert_eq!(exit.status, ExitStatus::TimedOut);
    assert!(!room.lives("beat").await);
}

#[tokio::test]
async fn a_session_whose_guest_was_killed_fails_and_can_be_allowed_again() {
    let mut room = crate::need!(Room::open().await);
    let beat = Command::shell(format!("setsid sh -c '{}' & sleep 30", room.heartbeat("beat")));
    let sleeps = vec![Command::new("sleep").arg("30"); 20];
    let killer = Command::shell(format!("sleep 0.3; kill -9 {}; sleep 30", room.guest_id()));
    let commands = sleeps.into_iter().chain([beat, killer]);
    for result in join_all(commands.map(|command| room.try_exec(command))).await {
        assert!(is_lost(&result), "{result:?}");
    }
    assert!(!room.session.is_open());
    assert!(is_lost(&room.try_exec(Command::new("true")).await));
    // Its keeper sees the end of the guest no sooner than the session does.
    in_time(async { while room.lives("beat").await {} }).await;
    room.reopen().await;
    assert_eq!(room.prints("echo again").await, "again\n");
}

#[tokio::test]
async fn a_guest_that_does_not_answer_is_given_up() {
    let room = crate::need!(Room::open().await);
    let line = format!("kill -STOP {}; sleep 30", room.guest_id());
    let command = Command::shell(line).timeout(Duration::from_secs(3));
    let result = room.try_exec(command).await;
    let error = result.unwrap_err();
    assert!(
        matches!(error.cause(), Some(SessionError::Silent { .. })),
        "{error:?}"
    );
    assert!(!room.session.is_open());
}

#[tokio::test]
async fn a_command_that_kills_its_keeper_and_the_guest_only_ends_the_session() {
    let room = crate::need!(Room::of_a_stranger().await);
    // The guest first: it would still tell of a keeper that ended before it.
    let line = format!("kill -9 {} $PPID; sleep 30", room.guest_id());
    assert!(is_lost(&room.try_exec(Command::shell(line)).await));
}

#[tokio::test]
async fn a_session_that_is_dropped_ends_what_runs_and_leaves_what_was_left() {
    let room = crate::need!(Room::open().await);
    let (left, running) = (room.heartbeat("left"), room.heartbeat("running"));
    room.prints(&format!(
        "setsid sh -c '{left}' > /dev/null 2>&1 & echo $! > left-id"
    ))
    .await;
    let command = Command::shell(format!("setsid sh -c '{running}' & sleep 30"));
    let mut output = Discard;
    tokio::select! {
        exit = room.session.exec(&command, &mut output) => panic!("{exit:?}"),
        () = room.wait_for("running") => {}
    }
    let Room {
        dir,
        mut guest,
        session,
    } = room;
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
    let room = crate::need!(Room::open().await);
    for round in 0..10 {
        let name = format!("beat-{round}");
        let command = Command::shell(format!(
            "setsid sh -c '{}' & head -c 100000000000 /dev/zero",
            room.heartbeat(&name)
        ));
        let mut output = Discard;
        tokio::select! {
            exit = room.session.exec(&command, &mut output) => panic!("{exit:?}"),
            () = room.wait_for(&name) => {}
        }
        assert_eq!(room.prints("echo on").await, "on\n");
        // The word for it goes to its keeper, and this went to another.
        in_time(async { while room.lives(&name).await {} }).await;
    }
}

#[tokio::test]
async fn no_process_of_a_command_that_ended_is_left() {
    let room = crate::need!(Room::open().await);
    let below = format!("ps -o pid= --ppid {} | wc -l", room.guest_id());
    for _ in 0..50 {
        room.prints("true; (exit 3) & sleep 0.001").await;
    }
    // The keeper of the command that counts.
    in_time(async { while room.prints(&below).await.trim() != "1" {} }).await;
}
