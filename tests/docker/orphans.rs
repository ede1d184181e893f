//! Whose a sandbox is, and who may remove it.

use std::fs;
use std::path::PathBuf;

use ralph::sandbox::{Provider, RemovalScope, SandboxActivity, SandboxListing, SandboxOwnership};

use crate::docker_test::{DockerTest, prints, sandbox_dirs};
use crate::life::{disown, elsewhere};
use crate::need;
use crate::site::LEFT_BEHIND;
use crate::support::engine::docker;

async fn listed(room: &DockerTest, id: &str) -> Option<SandboxListing> {
    let all = elsewhere(room).list().await.unwrap();
    all.into_iter().find(|one| one.id == id)
}

#[tokio::test]
async fn a_sandbox_in_use_is_never_pruned() {
    let _held = LEFT_BEHIND.lock().await;
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    let found = listed(&room, sandbox.id()).await.unwrap();
    assert_eq!(
        (found.activity, found.standing),
        (SandboxActivity::Running, SandboxOwnership::InUse)
    );
    assert_eq!(found.run.as_ref(), Some(&room.spec.run));
    let pruned = elsewhere(&room).remove(sandbox.id(), RemovalScope::Orphans).await;
    assert!(!pruned.unwrap());
    prints(sandbox.as_ref(), "true").await;
    assert!(
        elsewhere(&room)
            .remove(sandbox.id(), RemovalScope::Any)
            .await
            .unwrap()
    );
    assert!(!room.has(sandbox.id()).await);
    assert_eq!(sandbox_dirs(room.dir.path()), 0);
}

#[tokio::test]
async fn a_sandbox_whose_owner_ended_is_pruned_with_its_workspace() {
    let _held = LEFT_BEHIND.lock().await;
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    sandbox.stop().await.unwrap();
    disown(&room);
    let found = listed(&room, sandbox.id()).await.unwrap();
    assert_eq!(
        (found.activity, found.standing),
        (SandboxActivity::Stopped, SandboxOwnership::OwnerEnded)
    );
    assert!(
        elsewhere(&room)
            .remove(sandbox.id(), RemovalScope::Orphans)
            .await
            .unwrap()
    );
    assert!(!room.has(sandbox.id()).await);
    assert_eq!(sandbox_dirs(room.dir.path()), 0);
    assert!(
        !elsewhere(&room)
            .remove(sandbox.id(), RemovalScope::Orphans)
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn a_sandbox_whose_workspace_is_gone_is_an_orphan() {
    let _held = LEFT_BEHIND.lock().await;
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    fs::remove_dir_all(room.dir.path().join("sandboxes").join(sandbox.id())).unwrap();
    let found = listed(&room, sandbox.id()).await.unwrap();
    assert_eq!(found.standing, SandboxOwnership::WorkspaceGone);
    assert!(
        elsewhere(&room)
            .remove(sandbox.id(), RemovalScope::Orphans)
            .await
            .unwrap()
    );
    assert!(!room.has(sandbox.id()).await);
}

/// An engine that failed while the sandbox was removed may have kept its containers, and their owner still works.
#[tokio::test]
async fn what_an_engine_kept_of_a_removed_sandbox_is_swept_by_the_next_one() {
    let _held = LEFT_BEHIND.lock().await;
    let room = need!(DockerTest::new().await);
    let left = room.create().await;
    left.stop().await.unwrap();
    fs::remove_dir_all(room.dir.path().join("sandboxes").join(left.id())).unwrap();
    // Its name is free again.
    let next = room.create_another().await;
    assert_eq!(next.id(), left.id());
    next.close().await.unwrap();
}

/// Two hosts with one name and the same paths, which share an engine: neither sees the data directory of the other.
#[tokio::test]
async fn a_host_of_the_same_name_does_not_remove_the_sandboxes_of_another() {
    let _held = LEFT_BEHIND.lock().await;
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    let evidence = room.provider.create_for_evidence(&room.spec).await;
    let evidence = evidence.unwrap().unwrap();
    let here = ["sandboxes", "sandboxes.id"].map(|name| room.dir.path().join(name));
    let there = ["away", "away.id"].map(|name| room.dir.path().join(name));
    let swap = |from: &[PathBuf], to: &[PathBuf]| {
        for (from, to) in from.iter().zip(to) {
            fs::rename(from, to).unwrap();
        }
    };
    swap(&here, &there);
    let mut other_task = room.another_run();
    "of another task".clone_into(&mut other_task.purpose.task);
    for _ in 0..2 {
        // The first time, this host has no data directory of its own.
        let found = listed(&room, sandbox.id()).await.unwrap();
        assert_eq!(found.standing, SandboxOwnership::InUse);
        let pruned = elsewhere(&room).remove(sandbox.id(), RemovalScope::Orphans).await;
        assert!(!pruned.unwrap());
        elsewhere(&room)
            .create(&other_task)
            .await
            .unwrap()
            .close()
            .await
            .unwrap();
        assert!(room.has(sandbox.id()).await);
        let reopened = elsewhere(&room).reopen(&room.another_run()).await;
        assert!(reopened.unwrap().is_none());
        assert!(room.has(evidence.id()).await);
    }
    for path in &here {
        let removed = fs::remove_dir_all(path).or_else(|_| fs::remove_file(path));
        removed.unwrap();
    }
    swap(&there, &here);
    prints(sandbox.as_ref(), "true").await;
    evidence.close().await.unwrap();
    sandbox.close().await.unwrap();
    assert!(!room.has(sandbox.id()).await);
}

#[tokio::test]
async fn a_workspace_whose_container_is_gone_is_pruned_when_its_owner_ended() {
    let _held = LEFT_BEHIND.lock().await;
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    docker(&room.engine, &["rm", "--force", sandbox.id()]);
    let found = listed(&room, sandbox.id()).await.unwrap();
    assert_eq!(
        (found.activity, found.standing),
        (SandboxActivity::Removed, SandboxOwnership::InUse)
    );
    disown(&room);
    assert!(
        elsewhere(&room)
            .remove(sandbox.id(), RemovalScope::Orphans)
            .await
            .unwrap()
    );
    assert_eq!(sandbox_dirs(room.dir.path()), 0);
}

#[tokio::test]
async fn the_next_start_removes_what_a_killed_process_left_running() {
    let _held = LEFT_BEHIND.lock().await;
    let room = need!(DockerTest::new().await);
    let left = room.create().await;
    disown(&room);
    let mut other_task = room.another_run();
    "of another task".clone_into(&mut other_task.purpose.task);
    "another-branch".clone_into(&mut other_task.purpose.branch);
    let next = elsewhere(&room).create(&other_task).await.unwrap();
    assert!(!room.has(left.id()).await);
    next.close().await.unwrap();
    assert_eq!(sandbox_dirs(room.dir.path()), 0);
}
