use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;

use ralph::id::RunId;
use ralph::sandbox::local::{LocalOptions, LocalProvider};
use ralph::sandbox::{Provider, SandboxErrorKind, SandboxSpec};
use ralph::scm::{ChangeFlag, HandBackRefusal};

use super::*;
use crate::need;
use crate::support::small_disk::SmallDisk;

#[tokio::test]
async fn commits_and_uncommitted_work_come_back_and_nothing_of_the_users_moves() {
    let world = World::new().await;
    let clone = world.plant().await;
    let before = world.untouched();
    write(clone.dir(), "a.txt", "fixed\n");
    let tip = clone.commit("Fix it", &[]).await.unwrap().unwrap();
    write(clone.dir(), "draft", "not yet\n");

    let back = world.take(&clone, &[]).await.unwrap();
    assert_eq!(back.tip, tip);
    assert_eq!(back.new_commits, std::slice::from_ref(&tip));
    assert_eq!(world.flags(&back).await, []);
    let user = world.user();
    assert_eq!(git(&user, &["show", &format!("{tip}:a.txt")]), "fixed\n");
    assert_eq!(
        git(&user, &["show", &format!("{}:draft", back.work_tree)]),
        "not yet\n"
    );
    assert_eq!(world.untouched(), before);
    assert_eq!(
        std::fs::read_dir(world.dir.path().join("run")).unwrap().count(),
        0,
        "the quarantine is gone"
    );
    world.fsck();
}

#[tokio::test]
async fn without_anything_new_no_bundle_is_made() {
    let world = World::new().await;
    let clone = world.plant().await;
    let nothing = world.take(&clone, &[]).await.unwrap();
    assert_eq!((nothing.tip, nothing.new_commits.len()), (world.base.clone(), 0));
    write(clone.dir(), "draft", "x\n");
    let first = world.take(&clone, &[]).await.unwrap();
    world.sandbox.commands.lock().unwrap().clear();
    let again = world
        .take(&clone, std::slice::from_ref(&first.commit))
        .await
        .unwrap();
    assert_eq!(again.work_tree, first.work_tree);
    assert!(
        !world
            .sandbox
            .commands
            .lock()
            .unwrap()
            .iter()
            .any(|line| line.contains("bundle"))
    );
}

#[tokio::test]
async fn each_hand_back_carries_what_the_last_one_did_not() {
    let world = World::new().await;
    let clone = world.plant().await;
    let mut known = Vec::new();
    for round in 0..5 {
        write(clone.dir(), "d/e/c.txt", &format!("{round}\n"));
        clone
            .commit(&format!("round {round}"), &[])
            .await
            .unwrap()
            .unwrap();
        write(clone.dir(), "draft", &format!("{round}\n"));
        let back = world.take(&clone, &known).await.unwrap();
        assert_eq!(back.new_commits.len(), 1, "round {round}");
        known.extend([back.tip, back.commit]);
    }
    world.fsck();
}

#[tokio::test]
async fn going_back_to_an_earlier_commit_is_no_news() {
    let world = World::new().await;
    let clone = world.plant().await;
    write(clone.dir(), "one", "1");
    let first = clone.commit("one", &[]).await.unwrap().unwrap();
    write(clone.dir(), "two", "2");
    let second = clone.commit("two", &[]).await.unwrap().unwrap();
    world.take(&clone, &[]).await.unwrap();
    git(clone.dir(), &["reset", "--quiet", "--hard", first.as_str()]);
    let back = world.take(&clone, &[second]).await.unwrap();
    assert_eq!((back.tip, back.new_commits.len()), (first, 0));
}

#[tokio::test]
async fn an_amended_commit_is_fine_and_a_rewritten_base_is_not() {
    let world = World::new().await;
    let clone = world.plant().await;
    write(clone.dir(), "one", "1");
    let first = clone.commit("one", &[]).await.unwrap().unwrap();
    world.take(&clone, &[]).await.unwrap();
    git(clone.dir(), &["commit", "--quiet", "--amend", "-m", "better"]);
    let back = world.take(&clone, std::slice::from_ref(&first)).await.unwrap();
    assert_eq!(
        git(
            &world.user(),
            &["log", "-1", "--format=%s", back.new_commits[0].as_str()]
        ),
        "better\n"
    );

    git(clone.dir(), &["checkout", "--quiet", "--orphan", "fresh"]);
    git(clone.dir(), &["commit", "--quiet", "-m", "from nothing"]);
    let error = world.take(&clone, &[first]).await.unwrap_err();
    assert!(
        matches!(&error, ScmError::Refused(HandBackRefusal::Rewritten { base, .. }) if *base == world.base),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_large_hand_back_is_kept_as_one_pack() {
    let world = World::new().await;
    let clone = world.plant().await;
    for number in 0..150 {
        write(clone.dir(), &format!("many/{number}"), &format!("{number}\n"));
    }
    clone.commit("many", &[]).await.unwrap();
    let back = world.take(&clone, &[]).await.unwrap();
    let packs = std::fs::read_dir(world.user().join(".git/objects/pack")).unwrap();
    let packs = packs.filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .path()
            .extension()
            .is_some_and(|e| e == "pack")
    });
    assert_eq!(packs.count(), 1);
    assert_eq!(
        git(&world.user(), &["show", &format!("{}:many/7", back.tip)]),
        "7\n"
    );
    world.fsck();
}

#[tokio::test]
async fn a_repository_with_longer_ids_works_alike() {
    let dir = tempfile::tempdir().unwrap();
    let user = dir.path().join("user");
    std::fs::create_dir(&user).unwrap();
    git(
        &user,
        &[
            "init",
            "--quiet",
            "--object-format=sha256",
            "--initial-branch=main",
        ],
    );
    init(&user, &[("a", "1\n"), ("d/b", "2\n")]);
    let repository = Repository::open(host(), &user).await.unwrap();
    let base = repository.resolve("HEAD").await.unwrap();
    let seed = SeedPack::create(&repository, &[&base], &[], &dir.path().join("seed"))
        .await
        .unwrap();
    let root = dir.path().join("sandbox");
    std::fs::create_dir(&root).unwrap();
    let world = World {
        sandbox: DirSandbox::new(&root),
        dir,
        repository,
        base,
        seed,
    };
    let clone = world.plant().await;
    write(clone.dir(), "d/new", "x\n");
    clone.commit("new", &[]).await.unwrap().unwrap();
    let back = world.take(&clone, &[]).await.unwrap();
    assert_eq!(back.tip.as_str().len(), 64);
    world.fsck();
}

#[tokio::test]
async fn what_a_person_should_look_at_is_flagged() {
    let world = World::new().await;
    let clone = world.plant().await;
    let dir = clone.dir();
    write(dir, ".github/workflows/ci.yml", "on: push\n");
    write(dir, ".ralph/forced", "x");
    git(dir, &["add", "--force", ".ralph/forced", ".github"]);
    std::os::unix::fs::symlink("../../../etc/passwd", dir.join("d/link")).unwrap();
    std::os::unix::fs::symlink("a.txt", dir.join("near")).unwrap();
    std::fs::set_permissions(
        dir.join("a.txt"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    git(dir, &["add", "d/link", "near", "a.txt"]);
    let module = format!("160000,{},module", world.base);
    git(dir, &["update-index", "--add", "--cacheinfo", &module]);
    git(dir, &["commit", "--quiet", "-m", "things"]);
    let refused = world.take(&clone, &[]).await;
    assert!(
        matches!(refused, Err(ScmError::Refused(HandBackRefusal::RunFile { .. }))),
        "{refused:?}"
    );
    clone.drop_run_files().await.unwrap();
    let back = world.take(&clone, &[]).await.unwrap();
    let flag = |path: &str, reason: &str| ChangeFlag {
        path: path.into(),
        reason: reason.to_owned(),
    };
    let expected = [
        flag(".github/workflows/ci.yml", "decides what runs later"),
        flag("a.txt", "mode changed from 100644 to 100755"),
        flag("d/link", "a link out of the repository, to `../../../etc/passwd`"),
        flag("module", "a submodule commit"),
        flag("near", "a link to `a.txt`"),
    ];
    assert_eq!(world.flags(&back).await, expected);
}

/// Bytes that no pack makes shorter.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[tokio::test]
async fn a_disk_without_room_for_the_check_is_not_blamed_on_the_work() {
    let world = World::new().await;
    let clone = world.plant().await;
    fs::write(clone.dir().join("noise"), noise(600 * 1024)).unwrap();
    // Room for the bundle, and not for the pack beside it.
    let disk = need!(SmallDisk::mount(&world.dir.path().join("run"), "1m"));
    let error = world.take(&clone, &[]).await.unwrap_err();
    assert!(
        matches!(&error, ScmError::File { source, .. } if source.kind() == ErrorKind::StorageFull),
        "{error:?}"
    );
    disk.resize("8m");
    world.take(&clone, &[]).await.unwrap();
}

#[tokio::test]
async fn a_disk_without_room_for_a_download_is_not_blamed_on_the_sandbox() {
    let dir = tempfile::tempdir().unwrap();
    let provider = LocalProvider::new(LocalOptions {
        base: dir.path().join("runs"),
        path: std::env::var("PATH").unwrap(),
        passthrough: BTreeMap::new(),
    });
    let spec = SandboxSpec::unrestricted(RunId::parse("r23456").unwrap());
    let sandbox = provider.create(&spec).await.unwrap();
    let inside = sandbox.root().join("bundle");
    sandbox
        .files()
        .write(&inside, &noise(256 * 1024), 0o644)
        .await
        .unwrap();
    let small = dir.path().join("small");
    let _disk = need!(SmallDisk::mount(&small, "64k"));
    let copy = small.join("bundle");
    let download = sandbox.files().download(&inside, &copy, 1 << 20);
    let error = download.await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Host, "{error}");
}
