use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use ralph::scm::{LineCount, PathChange, Snapshot};
use rstest::rstest;

use super::*;

fn changes(snapshot: &Snapshot) -> Vec<(String, PathChange)> {
    snapshot
        .dirty
        .iter()
        .map(|dirty| (dirty.path.to_string(), dirty.change))
        .collect()
}

/// The tree that `git add --all` would make of a working directory, worked out the slow way.
fn slow_tree(dir: &Path) -> String {
    let index = dir.join(".git/slow-index");
    let with = |args: &[&str]| {
        let output = std::process::Command::new("git")
            .current_dir(dir)
            .args(args)
            .env("GIT_INDEX_FILE", &index)
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?} {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    with(&["read-tree", "HEAD"]);
    with(&["add", "--all"]);
    with(&["write-tree"]).trim().to_owned()
}

#[tokio::test]
async fn a_planted_clone_is_whole_private_and_on_its_branch() {
    let world = World::with(&[("a.txt", "one\n"), ("ralph_task.md", "the user's\n")]).await;
    let clone = world.plant().await;
    let dir = clone.dir();
    assert_eq!(git(dir, &["symbolic-ref", "--short", "HEAD"]).trim(), BRANCH);
    git(dir, &["fsck", "--full", "--strict"]);
    assert!(!dir.join(".git/objects/info/alternates").exists());
    assert!(!dir.join(".git/hooks").exists());
    write(dir, "ralph_task.md", "the runner's\n");
    write(dir, ".ralph/notes.md", "x\n");
    assert_eq!(
        git(dir, &["status", "--porcelain"]),
        "",
        "the run's own state is not seen"
    );
    let snapshot = clone.snapshot().await.unwrap();
    assert_eq!(snapshot.tip, world.base);
    assert_eq!(snapshot.branch.as_deref(), Some(BRANCH));
    assert_eq!(snapshot.dirty, []);
    assert_eq!(
        snapshot.tree.as_str(),
        git(dir, &["rev-parse", "HEAD^{tree}"]).trim()
    );
}

#[tokio::test]
async fn a_clone_does_not_hold_what_the_base_does_not_reach() {
    let world = World::new().await;
    write(&world.user(), "secret.txt", "deleted\n");
    git(&world.user(), &["add", "--all"]);
    git(&world.user(), &["commit", "--quiet", "-m", "unpushed"]);
    let blob = git(&world.user(), &["rev-parse", "HEAD:secret.txt"]);
    let clone = world.plant().await;
    let all = git(clone.dir(), &["cat-file", "--batch-all-objects", "--batch-check"]);
    assert!(!all.contains(blob.trim()));
}

#[tokio::test]
async fn planting_again_starts_over() {
    let world = World::new().await;
    let clone = world.plant().await;
    write(clone.dir(), "junk", "x");
    std::fs::write(clone.dir().join(".git/HEAD"), "broken").unwrap();
    let clone = world.plant().await;
    assert_eq!(clone.snapshot().await.unwrap().dirty, []);
}

/// Whether the index knows the tree of the whole working directory: the first number of its `TREE` extension.
fn index_knows_its_trees(dir: &Path) -> bool {
    let index = std::fs::read(dir.join(".git/index")).unwrap();
    let extension = index.windows(4).position(|name| name == b"TREE");
    let root = extension.map(|at| &index[at + 8..]).expect("no TREE extension");
    !root.starts_with(b"\0-1 ")
}

#[tokio::test]
async fn a_renewed_index_remembers_the_trees_that_commits_made_it_forget() {
    let world = World::with(&[("a/b/c", "one\n")]).await;
    let clone = world.plant().await;
    assert!(index_knows_its_trees(clone.dir()));
    write(clone.dir(), "a/b/c", "two\n");
    clone.commit("Two", &[]).await.unwrap().unwrap();
    assert!(!index_knows_its_trees(clone.dir()));
    clone.refresh_index().await.unwrap();
    assert!(index_knows_its_trees(clone.dir()));
    assert_eq!(clone.snapshot().await.unwrap().dirty, []);
}

#[tokio::test]
async fn an_index_with_a_conflict_is_left_as_it_is() {
    let world = World::with(&[("a", "one\n")]).await;
    let clone = world.plant().await;
    let blob = git(clone.dir(), &["rev-parse", "HEAD:a"]);
    let info = clone.dir().join("conflict");
    std::fs::write(
        &info,
        format!("100644 {0} 1\ta\n100644 {0} 2\ta\n100644 {0} 3\ta\n", blob.trim()),
    )
    .unwrap();
    git(clone.dir(), &["rm", "--quiet", "--cached", "a"]);
    let stdin = std::fs::File::open(&info).unwrap();
    let made = std::process::Command::new("git")
        .current_dir(clone.dir())
        .args(["update-index", "--index-info"])
        .stdin(stdin)
        .status();
    assert!(made.unwrap().success());
    clone.refresh_index().await.unwrap();
    assert_eq!(git(clone.dir(), &["ls-files", "--unmerged"]).lines().count(), 3);
}

const VARIED: [(&str, &str); 9] = [
    ("keep", "k\n"),
    ("edit", "e\n"),
    ("gone", "g\n"),
    ("run", "r\n"),
    ("file", "f\n"),
    ("dir/x", "x\n"),
    ("staged", "s\n"),
    ("unstaged", "u\n"),
    (".gitignore", "*.log\n"),
];

#[tokio::test]
async fn a_snapshot_sees_every_kind_of_change() {
    let world = World::with(&VARIED).await;
    let clone = world.plant().await;
    let dir = clone.dir();
    write(dir, "edit", "changed\n");
    std::fs::remove_file(dir.join("gone")).unwrap();
    std::fs::set_permissions(dir.join("run"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::remove_file(dir.join("file")).unwrap();
    write(dir, "file/inside", "now a directory\n");
    std::fs::remove_dir_all(dir.join("dir")).unwrap();
    symlink("keep", dir.join("dir")).unwrap();
    write(dir, "staged", "new\n");
    git(dir, &["add", "staged"]);
    git(dir, &["rm", "--quiet", "--cached", "unstaged"]);
    write(dir, "ignored.log", "x\n");
    write(dir, "new/deep/file", "x\n");
    let nested = dir.join("nested");
    init(&nested, &[("n", "n\n")]);
    let odd = std::ffi::OsStr::from_bytes(b"o\xff \"q\"\nx");
    std::fs::write(dir.join(odd), "odd").unwrap();
    write(dir, ".ralph/progress.md", "p");
    git(dir, &["add", "--force", ".ralph/progress.md"]);

    let snapshot = clone.snapshot().await.unwrap();
    let expected = [
        ("dir", PathChange::Added),
        ("dir/x", PathChange::Deleted),
        ("edit", PathChange::Modified),
        ("file", PathChange::Deleted),
        ("file/inside", PathChange::Added),
        ("gone", PathChange::Deleted),
        ("nested", PathChange::Repository),
        ("new/deep/file", PathChange::Added),
        ("o\\xff \"q\"\\nx", PathChange::Added),
        ("run", PathChange::Modified),
        ("staged", PathChange::Modified),
    ];
    assert_eq!(
        changes(&snapshot),
        expected.map(|(path, change)| (path.to_owned(), change))
    );
    std::fs::remove_dir_all(&nested).unwrap();
    assert_eq!(
        snapshot.tree.as_str(),
        slow_tree(dir),
        "what `git add --all` would make of it"
    );
    assert_eq!(
        clone.snapshot().await.unwrap().tree,
        snapshot.tree,
        "the same work, the same tree"
    );
}

#[rstest]
#[case::reverted("a.txt", "one\n")]
#[tokio::test]
async fn a_staged_change_that_was_undone_on_disk_is_no_change(#[case] path: &str, #[case] original: &str) {
    let world = World::new().await;
    let clone = world.plant().await;
    write(clone.dir(), path, "staged\n");
    git(clone.dir(), &["add", path]);
    write(clone.dir(), path, original);
    let snapshot = clone.snapshot().await.unwrap();
    assert_eq!(snapshot.dirty, []);
    assert_eq!(clone.commit("nothing", &[]).await.unwrap(), None);
}

#[tokio::test]
async fn an_emptied_working_directory_has_the_empty_tree() {
    let world = World::with(&[("a", "x"), ("d/b", "y")]).await;
    let clone = world.plant().await;
    std::fs::remove_file(clone.dir().join("a")).unwrap();
    std::fs::remove_dir_all(clone.dir().join("d")).unwrap();
    let snapshot = clone.snapshot().await.unwrap();
    assert_eq!(snapshot.tree.as_str(), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
}

#[tokio::test]
async fn line_ends_are_kept_as_git_would_keep_them() {
    let world = World::with(&[("dos.txt", "a\r\nb\r\n")]).await;
    git(&world.user(), &["rev-parse", "HEAD"]);
    let clone = world.plant().await;
    write(clone.dir(), ".gitattributes", "* text=auto\n");
    write(clone.dir(), "dos.txt", "a\r\nb\r\nc\r\n");
    let snapshot = clone.snapshot().await.unwrap();
    assert_eq!(snapshot.tree.as_str(), slow_tree(clone.dir()));
}

#[tokio::test]
async fn commits_hold_what_was_named_and_leave_the_rest() {
    let world = World::new().await;
    let clone = world.plant().await;
    let dir = clone.dir();
    assert_eq!(clone.commit("nothing", &[]).await.unwrap(), None);
    write(dir, "a.txt", "changed\n");
    write(dir, "[x]*.txt", "odd\n");
    write(dir, "x1.txt", "not meant\n");
    write(dir, "other", "staged\n");
    git(dir, &["add", "other"]);
    let paths = ["a.txt".to_owned(), "[x]*.txt".to_owned(), ".ralph".to_owned()];
    write(dir, ".ralph/notes.md", "never\n");
    let made = clone.commit("Fix it\n\nbecause", &paths).await.unwrap().unwrap();
    assert_eq!(git(dir, &["rev-parse", BRANCH]).trim(), made.as_str());
    assert_eq!(
        git(dir, &["log", "-1", "--format=%an <%ae> %B"]).trim(),
        "Ralph <ralph@example.org> Fix it\n\nbecause"
    );
    assert_eq!(
        git(dir, &["show", "--name-status", "--format=", "HEAD"]),
        "A\t[x]*.txt\nM\ta.txt\n"
    );
    assert_eq!(git(dir, &["status", "--porcelain"]), "A  other\n?? x1.txt\n");
    let second = clone.commit("The rest", &[]).await.unwrap().unwrap();
    assert_eq!(
        git(dir, &["rev-parse", &format!("{second}^")]).trim(),
        made.as_str()
    );
    assert_eq!(git(dir, &["status", "--porcelain"]), "");
    assert_eq!(git(dir, &["ls-files", ".ralph"]), "");
    git(dir, &["fsck", "--strict"]);
}

#[tokio::test]
async fn a_commit_follows_a_file_that_becomes_a_directory() {
    let world = World::new().await;
    let clone = world.plant().await;
    std::fs::remove_file(clone.dir().join("a.txt")).unwrap();
    write(clone.dir(), "a.txt/inside", "x\n");
    std::fs::remove_dir_all(clone.dir().join("d")).unwrap();
    write(clone.dir(), "d", "x\n");
    clone.commit("turn", &[]).await.unwrap().unwrap();
    assert_eq!(git(clone.dir(), &["status", "--porcelain"]), "");
    assert_eq!(git(clone.dir(), &["ls-files"]), "a.txt/inside\nd\n");
}

#[tokio::test]
async fn no_hook_or_filter_of_the_clone_is_asked_by_a_snapshot_or_commit() {
    let world = World::new().await;
    let clone = world.plant().await;
    let (dir, trace) = (clone.dir(), world.dir.path().join("trace"));
    let script = format!("#!/bin/sh\necho \"$0\" >> '{}'\n", trace.display());
    for hook in [
        "pre-commit",
        "post-commit",
        "reference-transaction",
        "post-index-change",
        "fsmonitor",
    ] {
        write(dir, &format!(".git/hooks/{hook}"), &script);
        std::fs::set_permissions(
            dir.join(".git/hooks").join(hook),
            std::fs::Permissions::from_mode(0o755),
        )
        .unwrap();
    }
    let hooks = dir.join(".git/hooks").display().to_string();
    git(dir, &["config", "core.hooksPath", &hooks]);
    git(dir, &["config", "core.fsmonitor", &format!("{hooks}/fsmonitor")]);
    let _ = std::fs::remove_file(&trace);
    write(dir, "a.txt", "changed\n");
    clone.snapshot().await.unwrap();
    clone.commit("x", &[]).await.unwrap().unwrap();
    assert!(!trace.exists(), "{}", std::fs::read_to_string(&trace).unwrap());
}

#[tokio::test]
async fn a_diff_counts_lines_and_bounds_the_patch() {
    let world = World::new().await;
    let clone = world.plant().await;
    let dir = clone.dir();
    write(dir, "a.txt", "one\nmore\n");
    std::fs::remove_file(dir.join("d/b.txt")).unwrap();
    std::fs::write(dir.join("bin"), [0, 1, 2, 0]).unwrap();
    let small = clone.snapshot().await.unwrap();
    let diff = clone.diff(&world.base, &small.tree).await.unwrap();
    let files: Vec<(String, bool, bool, Option<LineCount>)> = diff
        .files
        .iter()
        .map(|file| {
            (
                file.path.to_string(),
                file.before.is_some(),
                file.after.is_some(),
                file.lines,
            )
        })
        .collect();
    let lines = |added, removed| Some(LineCount { added, removed });
    assert_eq!(
        files,
        [
            ("a.txt".to_owned(), true, true, lines(1, 0)),
            ("bin".to_owned(), false, true, None),
            ("d/b.txt".to_owned(), true, false, lines(0, 1))
        ]
    );
    assert!(diff.patch.contains("+more"), "{}", diff.patch);
    assert_eq!(diff.summary(), "3 files changed, 1 line added, 1 removed");
    assert_eq!(clone.diff(&small.tree, &small.tree).await.unwrap().files, []);

    write(dir, "big.txt", &"a line of some length\n".repeat(200_000));
    let big = clone.snapshot().await.unwrap();
    let diff = clone.diff(&small.tree, &big.tree).await.unwrap();
    assert!(diff.patch.len() < 3 * 1024 * 1024 && diff.patch.contains("bytes not kept"));
    assert_eq!(diff.lines().added, 200_000);
}

#[tokio::test]
async fn uncommitted_work_is_restored_into_a_new_clone() {
    let world = World::new().await;
    let clone = world.plant().await;
    write(clone.dir(), "committed", "x\n");
    clone.commit("one", &[]).await.unwrap();
    write(clone.dir(), "a.txt", "changed\n");
    std::fs::remove_file(clone.dir().join("d/b.txt")).unwrap();
    write(clone.dir(), "new", "n\n");
    let before = clone.snapshot().await.unwrap();
    let back = world.take(&clone, &[]).await.unwrap();

    let seed = SeedPack::create(
        &world.repository,
        &[&back.tip, &back.work_tree],
        &[],
        &world.dir.path().join("seed2"),
    )
    .await
    .unwrap();
    let mut start = world.start();
    start.commit = back.tip.clone();
    let again = PrivateClone::create(&world.sandbox, world.sandbox_root().join("again"), &[seed], start)
        .await
        .unwrap();
    again.restore(&back.work_tree).await.unwrap();
    let after = again.snapshot().await.unwrap();
    assert_eq!(
        (&after.tip, &after.tree, &after.dirty),
        (&before.tip, &before.tree, &before.dirty)
    );
}

#[tokio::test]
async fn a_reset_puts_branch_and_files_back() {
    let world = World::new().await;
    let clone = world.plant().await;
    write(clone.dir(), "new", "n\n");
    clone.commit("one", &[]).await.unwrap();
    git(clone.dir(), &["checkout", "--quiet", "-b", "elsewhere"]);
    write(clone.dir(), "a.txt", "changed\n");
    write(clone.dir(), "junk/x", "x");
    write(clone.dir(), ".ralph/notes.md", "kept");
    clone.reset_to(&world.base).await.unwrap();
    let snapshot = clone.snapshot().await.unwrap();
    assert_eq!(
        (snapshot.tip, snapshot.branch, snapshot.dirty),
        (world.base.clone(), Some(BRANCH.to_owned()), vec![])
    );
    assert!(clone.dir().join(".ralph/notes.md").exists());
}
