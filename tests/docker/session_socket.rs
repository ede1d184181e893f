//! The way of a session past the engine.

use std::fs;
use std::path::{Path, PathBuf};

use ralph::network::Policy;
use ralph::sandbox::Sandbox;

use crate::docker_test::{DockerTest, prints};
use crate::need;
use crate::support::engine::docker;

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_a_socket_of_its_own_and_leaves_no_door_open() {
    let room = need!(unsealed().await);
    let sandbox = room.create().await;
    assert_eq!(
        prints(
            sandbox.as_ref(),
            "ls -A /.ralph/door; touch /.ralph/door/mine 2>&1 | wc -l"
        )
        .await,
        "1\n"
    );
    assert!(sockets_of_the_guest(&room, sandbox.as_ref()) > 0);
    sandbox.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_finds_no_door_stays_with_the_engine() {
    let room = need!(unsealed().await);
    let sandbox = room.create().await;
    // What the container sees is the directory that was there when it was made.
    let door = door_of(&room);
    fs::rename(&door, door.with_extension("old")).unwrap();
    fs::create_dir(&door).unwrap();
    assert_eq!(prints(sandbox.as_ref(), "echo here").await, "here\n");
    assert_eq!(sockets_of_the_guest(&room, sandbox.as_ref()), 0);
    assert_eq!(sandbox.notices(), Vec::<String>::new());
    sandbox.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_door_the_engine_carries_everything() {
    let room = need!(unsealed().await);
    let sandbox = room.create().await;
    fs::remove_dir(door_of(&room)).unwrap();
    assert_eq!(prints(sandbox.as_ref(), "echo here").await, "here\n");
    sandbox.close().await.unwrap();
}

/// A room whose sandboxes open their session with the first command: where a network is sealed, that is shown by one.
async fn unsealed() -> Result<DockerTest, String> {
    let mut room = DockerTest::new().await?;
    room.spec.network = Policy::allow_all();
    Ok(room)
}

/// The directory of the door of the one sandbox of a room.
fn door_of(room: &DockerTest) -> PathBuf {
    let mut places = fs::read_dir(room.dir.path().join("sandboxes")).unwrap();
    places.next().unwrap().unwrap().path().join("door")
}

/// How many sockets the guest has open, while it runs no command.
fn sockets_of_the_guest(room: &DockerTest, sandbox: &dyn Sandbox) -> usize {
    let listed = docker(&room.engine, &["top", sandbox.id(), "-o", "pid,args"]);
    let guest = listed
        .lines()
        .find(|line| line.contains("/.ralph/guest"))
        .unwrap();
    let process = guest.split_whitespace().next().unwrap();
    let open = fs::read_dir(Path::new("/proc").join(process).join("fd")).unwrap();
    let links = open.flatten().filter_map(|one| fs::read_link(one.path()).ok());
    links
        .filter(|link| link.to_string_lossy().starts_with("socket:"))
        .count()
}
