//! A part of the seal is lost, stopped or taken over: the sandbox is closed until it is sealed again.

use ralph::exec::{Command, Discard};
use ralph::sandbox::docker::SealError;
use ralph::sandbox::{Provider, SandboxErrorKind};

use crate::docker_test::sandbox_dirs;
use crate::life::{disown, elsewhere};
use crate::need;
use crate::sealed::{Sealed, eventually_async, holder, is_alone, open_files, reason};
use crate::site::LEFT_BEHIND;
use crate::support::engine::docker;

#[tokio::test]
async fn a_holder_that_is_killed_leaves_its_sandbox_closed_and_another_is_made() {
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    docker(&sealed.room.engine, &["kill", &holder(sandbox.as_ref())]);
    let mut tried = Ok(());
    // A moment may pass until it is seen.
    while tried.is_ok() {
        tried = sandbox.exec(&Command::new("true"), &mut Discard).await.map(drop);
    }
    let seen = reason(&tried);
    assert!(matches!(seen, SealError::HolderEnded), "{seen:?}");
    assert!(sealed.is_closed(sandbox.id()).await);
    assert!(sandbox.verify().await.is_err());
    let asked = sealed.stand_in.asked();
    // Found again and started, it has a new network, sealed as the first.
    let again = sealed.again().await;
    again.start().await.unwrap();
    assert_eq!(sealed.ask(again.as_ref()).await, "hello\n");
    assert!(sealed.stand_in.asked() > asked);
    again.close().await.unwrap();
}

#[tokio::test]
async fn a_holder_that_was_started_again_gets_its_sandbox_back() {
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    let holder = holder(sandbox.as_ref());
    docker(&sealed.room.engine, &["kill", &holder]);
    docker(&sealed.room.engine, &["start", &holder]);
    assert!(sealed.is_closed(sandbox.id()).await);
    // What ran was on the network of the holder that ended.
    let again = sealed.again().await;
    assert_eq!(sealed.ask(again.as_ref()).await, "hello\n");
    again.close().await.unwrap();
}

#[tokio::test]
async fn a_sandbox_without_its_holder_is_made_again() {
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    docker(&sealed.room.engine, &["rm", "--force", &holder(sandbox.as_ref())]);
    assert!(
        sealed
            .room
            .provider
            .reopen(&sealed.room.spec)
            .await
            .unwrap()
            .is_none()
    );
    assert!(!sealed.room.has(sandbox.id()).await);
    assert_eq!(sandbox_dirs(sealed.room.dir.path()), 0);
}

#[tokio::test]
async fn a_sandbox_that_was_stopped_is_sealed_again_when_it_starts() {
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    for _ in 0..2 {
        assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
        sandbox.stop().await.unwrap();
        let tried = sandbox.exec(&Command::new("true"), &mut Discard).await;
        assert!(tried.unwrap_err().to_string().ends_with("is stopped"));
        sandbox.start().await.unwrap();
    }
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn the_holder_of_a_sandbox_that_is_gone_is_stopped_too() {
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    docker(&sealed.room.engine, &["rm", "--force", sandbox.id()]);
    let error = sandbox.stop().await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Lost, "{error:?}");
    let is_running = sealed
        .room
        .inspect(&holder(sandbox.as_ref()), "{{.State.Running}}");
    assert_eq!(is_running, "false");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn reopening_a_sandbox_takes_its_network_from_the_earlier_owner() {
    let sealed = need!(Sealed::new().await);
    let first = sealed.room.create().await;
    let provider = elsewhere(&sealed.room);
    let second = provider.reopen(&sealed.room.spec).await.unwrap().unwrap();
    // Without being started: the first command starts it.
    assert_eq!(sealed.ask(second.as_ref()).await, "hello\n");
    assert!(first.verify().await.is_err());
    assert_eq!(sealed.ask(second.as_ref()).await, "hello\n");
    second.close().await.unwrap();
}

#[tokio::test]
async fn a_later_run_of_the_task_takes_over_a_sealed_sandbox() {
    let sealed = need!(Sealed::new().await);
    let first = sealed.room.create().await;
    first.stop().await.unwrap();
    disown(&sealed.room);
    let second = sealed
        .room
        .provider
        .create(&sealed.room.another_run())
        .await
        .unwrap();
    assert_eq!(second.id(), first.id());
    assert_eq!(sealed.ask(second.as_ref()).await, "hello\n");
    second.close().await.unwrap();
}

#[tokio::test]
async fn when_ralph_is_gone_the_sandbox_is_closed() {
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    let (id, asked) = (sandbox.id().to_owned(), sealed.stand_in.asked());
    drop(sandbox);
    while !sealed.is_closed(&id).await {}
    assert!(sealed.stand_in.asked() <= asked + 2);
    let again = sealed.again().await;
    again.start().await.unwrap();
    assert_eq!(sealed.ask(again.as_ref()).await, "hello\n");
    again.close().await.unwrap();
}

#[tokio::test]
async fn nothing_is_left_of_a_seal() {
    // Other tests open files too.
    if !is_alone("seal_lost::nothing_is_left_of_a_seal") {
        return;
    }
    let sealed = need!(Sealed::new().await);
    let mut before = None;
    for _ in 0..3 {
        let sandbox = sealed.room.create().await;
        assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
        let holder = holder(sandbox.as_ref());
        sandbox.close().await.unwrap();
        drop(sandbox);
        assert!(!sealed.room.has(&holder).await);
        assert_eq!(sandbox_dirs(sealed.room.dir.path()), 0);
        // What the first one opened for all stays.
        let before = *before.get_or_insert_with(open_files);
        eventually_async(|| open_files() <= before).await;
    }
}

#[tokio::test]
async fn a_holder_that_outlived_its_sandbox_is_pruned() {
    let _held = LEFT_BEHIND.lock().await;
    let sealed = need!(Sealed::new().await);
    let sandbox = sealed.room.create().await;
    let holder = holder(sandbox.as_ref());
    docker(&sealed.room.engine, &["rm", "--force", sandbox.id()]);
    std::fs::remove_dir_all(sealed.room.dir.path().join("sandboxes").join(sandbox.id())).unwrap();
    let provider = elsewhere(&sealed.room);
    let removed = provider
        .remove(&holder, ralph::sandbox::RemovalScope::Orphans)
        .await;
    assert!(removed.unwrap());
    assert!(!sealed.room.has(&holder).await);
}
