//! How a sandbox is found again, taken over, and lost.

use std::path::Path;
use std::time::Duration;

use ralph::exec::{Command, Discard};
use ralph::network::Policy;
use ralph::sandbox::{Provider, Resources, Reuse, SandboxError, SandboxErrorKind, SandboxSpec};
use rstest::rstest;
use tokio::time::timeout;

use crate::docker_test::{DockerTest, prints, sandbox_dirs, shell};
use crate::need;
use crate::support::engine::docker;

/// What may differ between two asks for one sandbox.
fn differently(spec: &SandboxSpec, what: &str) -> SandboxSpec {
    let mut spec = spec.clone();
    match what {
        "memory" => {
            spec.resources = Resources {
                memory_bytes: Some(128 << 20),
                ..spec.resources
            };
        }
        "variables" => drop(spec.env.insert("NEW".to_owned(), "1".to_owned())),
        "network" => spec.network = ralph::network::Policy::allow_all(),
        other => panic!("{other}"),
    }
    spec
}

#[rstest]
#[case::memory("memory")]
#[case::variables("variables")]
#[case::the_network("network")]
#[tokio::test]
async fn a_sandbox_made_from_something_else_is_not_used_again(#[case] what: &str) {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    let changed = differently(&room.spec, what);
    assert!(room.provider.reopen(&changed).await.unwrap().is_none());
    assert!(!room.has(sandbox.id()).await);
    assert_eq!(sandbox_dirs(room.dir.path()), 0);
}

#[tokio::test]
async fn a_later_run_of_the_task_takes_over_a_sandbox_without_an_owner() {
    let room = need!(DockerTest::new().await);
    let first = room.create().await;
    first
        .files()
        .write(Path::new("home/warm"), b"cache", 0o644)
        .await
        .unwrap();
    first.stop().await.unwrap();
    disown(&room);
    let later = room.another_run();
    let second = room.provider.create(&later).await.unwrap();
    assert_eq!(second.id(), first.id());
    assert_eq!(prints(second.as_ref(), "cat ~/warm").await, "cache");
    // It is the later run's now.
    assert!(room.provider.reopen(&room.spec).await.unwrap().is_none());
    second.close().await.unwrap();
}

#[tokio::test]
async fn a_container_that_got_the_name_of_a_lost_one_is_left_to_its_owner() {
    let (room, other) = (need!(DockerTest::new().await), need!(DockerTest::new().await));
    let lost = room.create().await;
    let holder = format!("{}-net", lost.id());
    docker(&room.engine, &["rm", "--force", lost.id(), &holder]);
    let same_name = SandboxSpec {
        purpose: room.spec.purpose.clone(),
        ..other.spec.clone()
    };
    let theirs = other.provider.create(&same_name).await.unwrap();
    assert_eq!(theirs.id(), lost.id());
    let tried = lost.exec(&Command::new("true"), &mut Discard).await;
    assert!(is_gone(&tried), "{tried:?}");
    assert!(room.provider.reopen(&room.spec).await.unwrap().is_none());
    lost.close().await.unwrap();
    assert_eq!(prints(theirs.as_ref(), "echo here").await, "here\n");
    theirs.close().await.unwrap();
}

#[rstest]
#[case::it_is_in_use(false, Reuse::Allowed)]
#[case::it_must_not_be_used_again(true, Reuse::Never)]
#[tokio::test]
async fn a_later_run_of_the_task_gets_one_of_its_own(#[case] is_unowned: bool, #[case] reuse: Reuse) {
    let room = need!(DockerTest::new().await);
    let first = room.create().await;
    if is_unowned {
        first.stop().await.unwrap();
        disown(&room);
    }
    let later = SandboxSpec {
        reuse,
        ..room.another_run()
    };
    let second = room.provider.create(&later).await.unwrap();
    assert_ne!(second.id(), first.id());
    second.close().await.unwrap();
    assert!(room.has(first.id()).await);
    first.close().await.unwrap();
}

#[tokio::test]
async fn a_container_removed_by_hand_is_a_sandbox_that_is_gone() {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    prints(sandbox.as_ref(), "true").await;
    docker(&room.engine, &["rm", "--force", sandbox.id()]);
    for _ in 0..2 {
        let tried = sandbox.exec(&Command::new("true"), &mut Discard).await;
        assert!(is_gone(&tried), "{tried:?}");
    }
    assert!(room.provider.reopen(&room.spec).await.unwrap().is_none());
    room.create().await.close().await.unwrap();
}

#[tokio::test]
async fn a_container_stopped_by_hand_is_a_sandbox_that_is_lost() {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    prints(sandbox.as_ref(), "echo I was here > /proc/1/fd/2").await;
    docker(&room.engine, &["kill", sandbox.id()]);
    let tried = sandbox.exec(&Command::new("true"), &mut Discard).await;
    let error = tried.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Lost);
    let reason = "was lost: its container was stopped; the end of its log: I was here";
    assert!(error.to_string().ends_with(reason), "{error}");
    let again = room.provider.reopen(&room.spec).await.unwrap().unwrap();
    again.start().await.unwrap();
    prints(again.as_ref(), "true").await;
    again.close().await.unwrap();
}

#[rstest]
#[case::by_its_timeout(Command::new("sleep").arg("600").timeout(Duration::from_secs(1)))]
#[case::by_its_idle_timeout(Command::new("sleep").arg("600").idle(Duration::from_secs(1)))]
#[tokio::test]
async fn a_command_in_a_container_that_is_paused_is_bounded(#[case] command: Command) {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    prints(sandbox.as_ref(), "true").await;
    docker(&room.engine, &["pause", sandbox.id()]);
    let tried = timeout(Duration::from_secs(120), sandbox.exec(&command, &mut Discard)).await;
    let error = tried.expect("the command is bounded").unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Lost);
    assert!(error.to_string().ends_with("its container was paused"), "{error}");
    let again = room.provider.reopen(&room.spec).await.unwrap().unwrap();
    again.start().await.unwrap();
    prints(again.as_ref(), "true").await;
    again.close().await.unwrap();
}

#[tokio::test]
async fn an_image_that_is_not_there_is_named() {
    let room = need!(DockerTest::new().await);
    let spec = SandboxSpec {
        image: Some("ralph-test-no-such-image:1".to_owned()),
        ..room.spec.clone()
    };
    let error = room.provider.create(&spec).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "the image `ralph-test-no-such-image:1` does not exist"
    );
    assert_eq!(sandbox_dirs(room.dir.path()), 0);
}

#[tokio::test]
async fn where_the_guest_cannot_run_commands_go_the_engines_way_and_it_is_said() {
    let mut room = need!(DockerTest::new().await);
    // Without a seal the guest is a file of the host, however networks are sealed.
    room.spec.network = Policy::allow_all();
    let sandbox = room.create().await;
    let guest = std::fs::read_dir(room.dir.path().join("guest")).unwrap();
    let mut files = guest.map(|entry| entry.unwrap().path());
    let guest = files.find(|path| path.extension().is_none()).unwrap();
    // No process can write to a program that runs.
    assert!(!shell(sandbox.as_ref(), "kill -9 -1").await.success());
    std::fs::write(&guest, "no program").unwrap();
    assert_eq!(prints(sandbox.as_ref(), "echo well").await, "well\n");
    let notices = sandbox.notices();
    assert!(
        notices[1].contains("no warm session, using one exec per command"),
        "{notices:?}"
    );
    assert_eq!(prints(sandbox.as_ref(), "echo again").await, "again\n");
    assert_eq!(sandbox.notices(), Vec::<String>::new());
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn eight_sandboxes_at_once_do_not_cross() {
    let room = need!(DockerTest::new().await);
    let specs: Vec<SandboxSpec> = (0..8).map(|_| room.another_run()).collect();
    let work = specs.iter().map(|spec| async {
        let sandbox = room.provider.create(spec).await.unwrap();
        let run = spec.run.as_str();
        let line = format!(
            "echo {run} > ~/mine; echo {run} > /tmp/mine; sleep 0.3; cat ~/mine /tmp/mine; ls ~ | wc -l"
        );
        assert_eq!(
            prints(sandbox.as_ref(), &line).await,
            format!("{run}\n{run}\n1\n")
        );
        sandbox.end_processes().await.unwrap();
        sandbox.close().await.unwrap();
    });
    futures_util::future::join_all(work).await;
    assert_eq!(sandbox_dirs(room.dir.path()), 0);
}

/// Makes it look as if the process that had the only sandbox here had ended.
pub fn disown(room: &DockerTest) {
    let places = std::fs::read_dir(room.dir.path().join("sandboxes")).unwrap();
    for place in places {
        let file = place.unwrap().path().join("sandbox.json");
        let text = std::fs::read_to_string(&file).unwrap();
        let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
        record["owner"]["pid"] = serde_json::json!(u32::MAX / 2);
        std::fs::write(&file, record.to_string()).unwrap();
    }
}

/// Another provider over the same directory, as another process would have.
pub fn elsewhere(room: &DockerTest) -> impl Provider {
    ralph::sandbox::docker::provider(crate::support::engine::options(room.dir.path()))
}

fn is_gone<T>(tried: &Result<T, SandboxError>) -> bool {
    tried
        .as_ref()
        .is_err_and(|error| error.to_string().ends_with("is gone"))
}
