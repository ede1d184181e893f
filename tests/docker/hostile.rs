//! What is wild inside stays inside.

use std::time::{Duration, Instant};

use ralph::exec::{Command, Discard, ExitStatus};
use ralph::sandbox::SandboxErrorKind;
use rstest::rstest;

use crate::docker_test::{DockerTest, prints, shell};
use crate::need;
use crate::support::engine::docker;

/// Held by a limit of processes and of memory. Never to be run outside a container that has both.
const FORK_BOMB: &str = "bomb() { bomb | bomb & }; bomb; sleep 30";

#[tokio::test]
async fn a_fork_bomb_ends_with_the_processes_of_the_sandbox() {
    let mut room = need!(DockerTest::new().await);
    // So much that the limit of processes is reached first. At the limit of memory, a kernel may need minutes to end them all.
    room.spec.resources.memory_bytes = Some(2 << 30);
    let (sandbox, other) = (room.create().await, room.create_another().await);
    let pids = room.inspect(sandbox.id(), "{{.HostConfig.PidsLimit}} {{.HostConfig.Memory}}");
    assert!(
        !pids.split(' ').any(|limit| limit == "0" || limit == "<nil>"),
        "{pids}"
    );
    let bomb = Command::shell(FORK_BOMB).timeout(Duration::from_secs(2));
    // Whatever comes of it, it comes.
    let _ = sandbox.exec(&bomb, &mut Discard).await;
    assert_eq!(prints(other.as_ref(), "echo well").await, "well\n");
    sandbox.end_processes().await.unwrap();
    assert_eq!(prints(sandbox.as_ref(), "echo again").await, "again\n");
    // All are killed by now, and run no instruction of their own. The kernel takes a while to remove thousands of them.
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        let left = prints(sandbox.as_ref(), "ls -d /proc/[0-9]* | wc -l").await;
        if left.trim().parse::<u32>().unwrap() < 12 {
            break;
        }
        assert!(Instant::now() < give_up, "{left}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    sandbox.close().await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test]
async fn twice_the_memory_is_refused_and_named() {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    let hog = "head -c 600m /dev/zero | tail -c 512m > /dev/null";
    let exit = shell(sandbox.as_ref(), hog).await;
    assert_eq!(exit.status, ExitStatus::OutOfMemory);
    assert_eq!(exit.status.to_string(), "killed: the sandbox is out of memory");
    assert_eq!(prints(sandbox.as_ref(), "echo well").await, "well\n");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_filled_disk_in_memory_fills_nothing_else() {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    let exit = shell(sandbox.as_ref(), "cat /dev/zero > /tmp/full").await;
    assert!(!exit.success(), "{}", exit.status);
    assert!(
        exit.stderr.text().contains("No space left"),
        "{}",
        exit.stderr.text()
    );
    assert_eq!(
        prints(sandbox.as_ref(), "echo well > ~/file && cat ~/file").await,
        "well\n"
    );
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn an_endless_printer_is_ended_in_time_and_fills_no_memory() {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    let started = Instant::now();
    let command = Command::new("yes").timeout(Duration::from_secs(1)).keep(1 << 16);
    let exit = sandbox.exec(&command, &mut Discard).await.unwrap();
    assert_eq!(exit.status, ExitStatus::TimedOut);
    assert!(started.elapsed() < Duration::from_secs(20));
    assert!(exit.stdout.text().len() < 1 << 18);
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn who_kills_the_session_ends_its_own_command_and_no_later_one() {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    let exit = shell(sandbox.as_ref(), "kill -9 -1").await;
    assert!(!exit.success());
    assert_eq!(prints(sandbox.as_ref(), "echo well").await, "well\n");
    let notices = sandbox.notices();
    assert!(
        notices.iter().any(|notice| notice.contains("reopening it")),
        "{notices:?}"
    );
    assert_eq!(sandbox.notices(), Vec::<String>::new());
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn evidence_does_not_come_by_the_session() {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    let parent = Command::shell("tr '\\0' ' ' < /proc/$PPID/cmdline; echo $PPID");
    let warm = sandbox.exec(&parent, &mut Discard).await.unwrap().stdout.text();
    assert!(warm.contains("guest"), "{warm}");
    let plain = sandbox
        .exec_trusted(&parent, &mut Discard)
        .await
        .unwrap()
        .stdout
        .text();
    // A parent outside the container: the engine's own.
    assert_eq!(plain.trim(), "0");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn who_left_its_session_is_gone_before_evidence() {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    let line = "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 0.1; done' >/dev/null 2>&1 & echo $!";
    prints(sandbox.as_ref(), line).await;
    sandbox.end_processes().await.unwrap();
    let processes = Command::shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' '");
    let seen = sandbox.exec_trusted(&processes, &mut Discard).await.unwrap();
    assert!(!seen.stdout.text().contains("trap"), "{}", seen.stdout.text());
    sandbox.close().await.unwrap();
}

#[rstest]
#[case::in_the_workspace("/workspace/home")]
#[case::in_the_containers_own_layer("/var/tmp")]
#[tokio::test]
async fn a_sandbox_that_grows_beyond_its_limit_is_stopped_and_named(#[case] dir: &str) {
    const LIMIT: u64 = 40 << 20;
    let mut room = need!(DockerTest::new().await);
    room.spec.resources.disk_bytes = Some(LIMIT);
    let sandbox = room.create().await;
    prints(
        sandbox.as_ref(),
        &format!("head -c 10000000 /dev/zero > {dir}/small"),
    )
    .await;
    // Slowly, so that what is measured is when it is noticed and not how fast a disk is.
    let fill = format!("while :; do head -c 4000000 /dev/zero >> {dir}/full; sleep 0.05; done");
    let command = Command::shell(fill).timeout(Duration::from_secs(60));
    let error = sandbox.exec(&command, &mut Discard).await.unwrap_err();
    assert!(error.to_string().ends_with("and may use 40 MB"), "{error}");
    assert_eq!(error.kind(), SandboxErrorKind::DiskFull);

    let full = || {
        docker(
            &room.engine,
            &["exec", sandbox.id(), "wc", "-c", &format!("{dir}/full")],
        )
    };
    let first = full();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(full(), first, "something still writes");
    let size: u64 = first.split(' ').next().unwrap().parse().unwrap();
    assert!(size < 4 * LIMIT, "{size}");
    sandbox.close().await.unwrap();
}
