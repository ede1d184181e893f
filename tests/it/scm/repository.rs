use std::fs;
use std::time::{Duration, SystemTime};

use ralph::id::RunId;
use ralph::scm::{Repository, ScmError, free_branch, release_branch, reserve_branch};
use rstest::rstest;

use super::*;

#[tokio::test]
async fn a_worktree_and_a_bare_repository_are_opened_too() {
    let world = World::new().await;
    let user = world.user();
    git(&user, &["worktree", "add", "--quiet", "-b", "side", "../side"]);
    git(&user, &["clone", "--quiet", "--bare", ".", "../bare.git"]);
    for (path, branch) in [
        ("side", "side"),
        ("side/d", "side"),
        ("bare.git", "main"),
        ("user/d/e", "main"),
    ] {
        let repository = Repository::open(host(), &world.dir.path().join(path))
            .await
            .unwrap();
        assert_eq!(
            repository.head_branch().await.unwrap().as_deref(),
            Some(branch),
            "{path}"
        );
        assert_eq!(repository.resolve(branch).await.unwrap(), world.base, "{path}");
    }
    git(&user, &["checkout", "--quiet", "--detach"]);
    assert_eq!(world.repository.head_branch().await.unwrap(), None);
}

#[rstest]
#[case::shallow(&["--depth=1"], "shallow clone")]
#[case::partial(&["--filter=blob:none", "--no-checkout"], "partial clone")]
#[tokio::test]
async fn an_incomplete_repository_is_refused_with_the_way_out(#[case] how: &[&str], #[case] expected: &str) {
    let world = World::new().await;
    let user = world.user();
    git(&user, &["commit", "--quiet", "--allow-empty", "-m", "second"]);
    git(&user, &["config", "uploadpack.allowFilter", "true"]);
    let from = format!("file://{}", user.display());
    git(&user, &[&["clone", "--quiet"], how, &[&from, "../part"]].concat());
    let error = Repository::open(host(), &world.dir.path().join("part"))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, ScmError::Incomplete { kind, .. } if *kind == expected),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("git fetch"));
}

#[tokio::test]
async fn a_directory_without_a_repository_is_no_repository() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_owned(), dir.path().join("gone")] {
        let error = Repository::open(host(), &path).await.unwrap_err();
        assert!(matches!(error, ScmError::NotARepository { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_ref_of_a_repository_that_was_removed_is_an_error() {
    let world = World::new().await;
    let git_dir = world.user().join(".git");
    assert_eq!(world.repository.read_ref("refs/heads/none").await.unwrap(), None);
    fs::remove_dir_all(&git_dir).unwrap();
    fs::create_dir(&git_dir).unwrap();
    let error = world.repository.read_ref("refs/heads/main").await.unwrap_err();
    assert!(matches!(&error, ScmError::Git { .. }), "{error}");
    fs::remove_dir(&git_dir).unwrap();
    let error = world.repository.read_ref("refs/heads/main").await.unwrap_err();
    assert!(matches!(&error, ScmError::Start(_)), "{error}");
}

#[tokio::test]
async fn a_ref_moves_only_from_where_it_is_expected() {
    let world = World::new().await;
    let repository = &world.repository;
    git(
        &world.user(),
        &["commit", "--quiet", "--allow-empty", "-m", "second"],
    );
    let second = repository.resolve("HEAD").await.unwrap();
    let name = "refs/ralph/r2345/x";
    assert!(matches!(
        repository.update_ref(name, &second, Some(&world.base)).await,
        Err(ScmError::RefMoved { found: None, .. })
    ));
    repository.update_ref(name, &world.base, None).await.unwrap();
    for expected in [None, Some(&second)] {
        let error = repository.update_ref(name, &second, expected).await.unwrap_err();
        assert!(
            matches!(&error, ScmError::RefMoved { found: Some(found), .. } if *found == world.base),
            "{error}"
        );
    }
    repository
        .update_ref(name, &second, Some(&world.base))
        .await
        .unwrap();
    assert_eq!(repository.read_ref(name).await.unwrap(), Some(second));
}

#[tokio::test]
async fn the_lock_of_a_killed_git_is_removed_from_own_refs_only_and_not_while_it_is_young() {
    let world = World::new().await;
    let repository = &world.repository;
    for (name, age, expected) in [
        ("refs/ralph/r1/state", 60, true),
        ("refs/notes/ralph-evidence", 60, true),
        ("refs/ralph/r2/state", 5, false),
        ("refs/heads/theirs", 60, false),
    ] {
        let lock = repository.common_dir().join(format!("{name}.lock"));
        fs::create_dir_all(lock.parent().unwrap()).unwrap();
        let made = SystemTime::now() - Duration::from_secs(age);
        fs::File::create(&lock).unwrap().set_modified(made).unwrap();
        let updated = repository.update_ref(name, &world.base, None).await;
        assert_eq!(updated.is_ok(), expected, "{name}: {updated:?}");
        assert_eq!(lock.exists(), !expected, "{name}");
    }
}

#[tokio::test]
async fn the_lock_of_a_killed_git_does_not_keep_a_ref_from_being_deleted() {
    let world = World::new().await;
    let repository = &world.repository;
    let run = RunId::parse("r23456").unwrap();
    let name = format!("refs/ralph/{run}/state");
    repository.update_ref(&name, &world.base, None).await.unwrap();
    let lock = repository.common_dir().join(format!("{name}.lock"));
    let made = SystemTime::now() - Duration::from_secs(60);
    fs::File::create(&lock).unwrap().set_modified(made).unwrap();
    repository.remove_run_refs(&run).await.unwrap();
    assert_eq!(repository.read_ref(&name).await.unwrap(), None);
    assert!(!lock.exists());
}

/// As when the lease of a run ends: git must not be killed while it has locks.
#[tokio::test]
async fn a_change_of_a_ref_that_is_dropped_leaves_no_lock() {
    let world = World::new().await;
    let repository = &world.repository;
    let run = RunId::parse("r23456").unwrap();
    let name = format!("refs/ralph/{run}/state");
    for step in 0..200 {
        let change = async {
            let _ = repository.update_ref(&name, &world.base, None).await;
            let _ = repository.remove_run_refs(&run).await;
        };
        let _ = tokio::time::timeout(Duration::from_micros(100 * step), change).await;
    }
    let dir = repository.common_dir();
    let locks = [dir.join(format!("{name}.lock")), dir.join("packed-refs.lock")];
    for _ in 0..100 {
        if !locks.iter().any(|lock| lock.exists()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("a lock stayed: {locks:?}");
}

#[tokio::test]
async fn the_base_survives_garbage_collection_once_pinned() {
    let world = World::new().await;
    let user = world.user();
    let run = RunId::random();
    world.repository.pin_base(&run, &world.base).await.unwrap();
    world.repository.pin_base(&run, &world.base).await.unwrap();
    git(&user, &["commit", "--quiet", "--amend", "-m", "rewritten"]);
    git(&user, &["reflog", "expire", "--expire=now", "--all"]);
    git(&user, &["gc", "--quiet", "--prune=now"]);
    assert_eq!(
        world.repository.resolve(world.base.as_str()).await.unwrap(),
        world.base
    );
}

#[tokio::test]
async fn an_unknown_revision_is_named() {
    let world = World::new().await;
    for revision in ["nothing", "--all", "main:a.txt"] {
        let error = world.repository.resolve(revision).await.unwrap_err();
        assert!(
            matches!(&error, ScmError::UnknownRevision(name) if name == revision),
            "{error}"
        );
    }
}

#[tokio::test]
async fn submodules_and_lfs_are_said_beforehand() {
    let world = World::with(&[
        (".gitmodules", ""),
        (".gitattributes", "*.bin filter=lfs -text\n"),
    ])
    .await;
    let warnings = world.repository.warnings(&world.base).await.unwrap();
    let expected = [
        "the repository has submodules; their directories are empty in a run's clone",
        "the repository uses Git LFS; a run's clone contains the pointers, not the files",
    ];
    assert_eq!(warnings, expected);
    let plain = World::new().await;
    assert!(plain.repository.warnings(&plain.base).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_next_free_branch_is_found() {
    let world = World::new().await;
    let free = async |claimed: &[String]| {
        free_branch(&world.repository, BRANCH, None, claimed)
            .await
            .unwrap()
    };
    assert_eq!(free(&[]).await, BRANCH);
    assert_eq!(free(&[BRANCH.to_owned()]).await, format!("{BRANCH}-v2"));
    git(&world.user(), &["branch", BRANCH]);
    git(&world.user(), &["branch", &format!("{BRANCH}-v2")]);
    assert_eq!(free(&[]).await, format!("{BRANCH}-v3"));
}

#[tokio::test]
async fn processes_that_ask_together_get_branches_of_their_own() {
    let world = World::new().await;
    let reserve = || reserve_branch(&world.repository, BRANCH, false, &[], &world.base);
    let reserved = tokio::join!(reserve(), reserve(), reserve());
    let mut names = [reserved.0.unwrap(), reserved.1.unwrap(), reserved.2.unwrap()];
    names.sort();
    assert_eq!(
        names,
        [BRANCH.to_owned(), format!("{BRANCH}-v2"), format!("{BRANCH}-v3")]
    );
    release_branch(&world.repository, BRANCH).await.unwrap();
    release_branch(&world.repository, BRANCH).await.unwrap();
    assert_eq!(reserve().await.unwrap(), BRANCH);
}

#[tokio::test]
async fn a_branch_that_is_named_lock_is_reserved() {
    let world = World::new().await;
    let name = "ralph/t/lock";
    let reserved = reserve_branch(&world.repository, name, false, &[], &world.base).await;
    assert_eq!(reserved.unwrap(), name);
}

#[tokio::test]
async fn branches_that_exclude_each_other_are_distinguished() {
    let world = World::new().await;
    let free = async || free_branch(&world.repository, BRANCH, None, &[]).await;
    git(&world.user(), &["branch", &format!("{BRANCH}/below")]);
    assert_eq!(free().await.unwrap(), format!("{BRANCH}-v2"));
    git(&world.user(), &["branch", "-D", &format!("{BRANCH}/below")]);
    let top = BRANCH.split('/').next().unwrap();
    git(&world.user(), &["branch", top]);
    let refused = free().await.unwrap_err();
    assert!(
        matches!(&refused, ScmError::BranchConflict { existing, .. } if existing == top),
        "{refused}"
    );
}

#[tokio::test]
async fn hooks_of_the_user_do_not_run() {
    let world = World::new().await;
    let hook = world.user().join(".git/hooks/reference-transaction");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(&hook, "#!/bin/sh\nexit 1\n").unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    world
        .repository
        .pin_base(&RunId::random(), &world.base)
        .await
        .unwrap();
}
