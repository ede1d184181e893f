//! The ownership of VMs: consecutive runs of the same task, and killed processes.

use std::path::Path;
use std::time::Duration;

use ralph::sandbox::{RemovalScope, Reuse, SandboxActivity, SandboxErrorKind, SandboxSpec};
use rstest::rstest;

use crate::need;
use crate::site::{Ground, Program};
use crate::support::ralph::{Live, Place, eventually, finish};

#[rstest]
#[tokio::test]
async fn a_later_run_of_the_same_task_takes_over_an_orphan(
    #[values(Program::Tart, Program::Sbx)] program: Program,
    #[values(true, false)] put_to_rest: bool,
) {
    let ground = need!(Ground::new(program).await);
    let sandbox = ground.provider().create(&ground.spec).await.unwrap();
    let id = sandbox.id().to_owned();
    sandbox
        .files()
        .write(Path::new("work/file"), b"kept", 0o644)
        .await
        .unwrap();
    if put_to_rest {
        sandbox.stop().await.unwrap();
    }
    drop(sandbox);
    ground.disown();
    let later = ground.provider().create(&ground.another_run()).await.unwrap();
    assert_eq!(later.id(), id);
    assert_eq!(
        later.files().read(Path::new("work/file"), 9).await.unwrap(),
        b"kept"
    );
    later.close().await.unwrap();
    assert!(ground.vms().is_empty() && ground.places().is_empty());
}

#[rstest]
#[case::another_task(|spec: &mut SandboxSpec| spec.purpose.task = "another".to_owned())]
#[case::made_from_something_else(|spec: &mut SandboxSpec| spec.resources.cpu_millis = Some(1000))]
#[case::not_to_be_used_again(|spec: &mut SandboxSpec| spec.reuse = Reuse::Never)]
#[tokio::test]
async fn an_orphan_that_does_not_match_is_not_taken_over(#[case] change: fn(&mut SandboxSpec)) {
    let ground = need!(Ground::new(Program::Sbx).await);
    let sandbox = ground.provider().create(&ground.spec).await.unwrap();
    sandbox
        .files()
        .write(Path::new("work/file"), b"kept", 0o644)
        .await
        .unwrap();
    drop(sandbox);
    ground.disown();
    let mut spec = ground.another_run();
    change(&mut spec);
    let later = ground.provider().create(&spec).await.unwrap();
    assert!(later.files().list(Path::new("work")).await.unwrap().is_empty());
    later.close().await.unwrap();
}

#[tokio::test]
async fn a_vm_in_use_is_not_taken_over() {
    let ground = need!(Ground::new(Program::Sbx).await);
    let sandbox = ground.provider().create(&ground.spec).await.unwrap();
    let other = ground.provider().create(&ground.another_run()).await.unwrap();
    assert_ne!(sandbox.id(), other.id());
    sandbox.close().await.unwrap();
    other.close().await.unwrap();
}

#[rstest]
#[tokio::test]
async fn an_attached_vm_is_not_started(#[values(Program::Tart, Program::Sbx)] program: Program) {
    let ground = need!(Ground::new(program).await);
    let sandbox = ground.provider().create(&ground.spec).await.unwrap();
    let looked_into = ground.provider().attach(sandbox.id()).await.unwrap().unwrap();
    looked_into.stop().await.unwrap();
    let error = looked_into.start().await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unsupported, "{error:?}");
    sandbox.close().await.unwrap();
}

#[rstest]
#[case::while_it_is_made(Program::Sbx, "slow-create")]
#[case::while_it_boots(Program::Tart, "slow-boot")]
#[tokio::test]
async fn an_interrupted_creation_is_an_orphan_and_pruned(#[case] program: Program, #[case] slow: &str) {
    let ground = need!(Ground::new(program).await);
    let place = Place::new();
    ground.site.put(slow, "");
    let ralph = Live::start(&mut ground.ralph(&place, &["selftest", "--escapes"]));
    eventually("the creation of a VM has begun", || {
        !ground.site.kept("making").is_empty()
    });
    ralph.signal("KILL");
    ralph.wait();
    // The program that it started ends as well, as after a power failure.
    let making = ground.site.kept("making");
    std::process::Command::new("kill")
        .args(["-9", making.trim()])
        .status()
        .unwrap();
    std::fs::remove_file(ground.site.path("bin/state").join(slow)).unwrap();
    assert!(!ground.vms().is_empty());
    let pruned = finish(&mut ground.ralph(&place, &["sandbox", "prune"]));
    pruned.expect(0, &[]);
    assert!(ground.vms().is_empty(), "{:?} {pruned:?}", ground.vms());
}

#[rstest]
#[tokio::test]
async fn an_unfinished_vm_is_created_again(#[values(Program::Tart, Program::Sbx)] program: Program) {
    let ground = need!(Ground::new(program).await);
    let sandbox = ground.provider().create(&ground.spec).await.unwrap();
    sandbox
        .files()
        .write(Path::new("work/file"), b"half", 0o644)
        .await
        .unwrap();
    drop(sandbox);
    std::fs::remove_file(ground.places()[0].join("finished")).unwrap();
    assert!(ground.provider().reopen(&ground.spec).await.unwrap().is_none());
    assert!(ground.vms().is_empty() && ground.places().is_empty());
}

#[tokio::test]
async fn a_vm_that_cannot_be_removed_after_a_failed_creation_is_removed_later() {
    let ground = need!(Ground::new(Program::Tart).await);
    let faults = ["boot-fails", "delete-fails"];
    for fault in faults {
        ground.site.put(fault, "");
    }
    let created = ground.provider().create(&ground.spec).await;
    let error = created.err().unwrap().to_string();
    assert!(error.contains("the virtual machine failed to start"), "{error}");
    assert_eq!((ground.vms().len(), ground.places().len()), (1, 1));
    for fault in faults {
        std::fs::remove_file(ground.site.path("bin/state").join(fault)).unwrap();
    }
    ground.disown();
    let later = ground.provider().create(&ground.another_run()).await.unwrap();
    assert_eq!(ground.vms(), [later.id()]);
    later.close().await.unwrap();
    assert!(ground.vms().is_empty() && ground.places().is_empty());
}

#[tokio::test]
async fn a_stopped_vm_is_removed_and_cloned_again() {
    let ground = need!(Ground::new(Program::Tart).await);
    let sandbox = ground.provider().create(&ground.spec).await.unwrap();
    let (id, before) = (sandbox.id().to_owned(), ground.site.kept("calls").lines().count());
    sandbox.stop().await.unwrap();
    let again = ground.provider().reopen(&ground.spec).await.unwrap().unwrap();
    let calls = ground.site.kept("calls");
    let calls: Vec<&str> = calls
        .lines()
        .skip(before)
        .map(|line| line.split(' ').nth(1).unwrap())
        .collect();
    let of = |verb: &str| calls.iter().position(|call| *call == verb);
    assert!(
        of("stop") < of("delete") && of("delete") < of("clone") && of("clone") < of("run"),
        "{calls:?}"
    );
    assert_eq!(again.id(), id);
    again.close().await.unwrap();
}

#[tokio::test]
async fn a_list_of_vms_is_cached_for_two_seconds() {
    let ground = need!(Ground::new(Program::Tart).await);
    let provider = ground.provider();
    let sandbox = provider.create(&ground.spec).await.unwrap();
    let lists = || ground.site.kept("calls").matches("tart list").count();
    provider.list().await.unwrap();
    let before = lists();
    for _ in 0..5 {
        assert_eq!(
            provider.list().await.unwrap()[0].activity,
            SandboxActivity::Running
        );
    }
    assert!(lists() <= before + 1, "{} lists", lists() - before);
    tokio::time::sleep(Duration::from_millis(2100)).await;
    provider.list().await.unwrap();
    assert!(lists() > before);
    assert!(provider.remove(sandbox.id(), RemovalScope::Any).await.unwrap());
}
