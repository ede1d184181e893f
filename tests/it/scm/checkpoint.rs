use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use ralph::id::RunId;
use ralph::scm::{CheckpointContent, Checkpoints, StateFile};

use super::*;

fn file(path: &str, text: &str) -> StateFile {
    StateFile {
        path: path.to_owned(),
        bytes: text.into(),
    }
}

struct Saver {
    world: World,
    checkpoints: Checkpoints,
    tree: ObjectId,
}

impl Saver {
    async fn new() -> Self {
        let world = World::new().await;
        let checkpoints = Checkpoints::new(world.repository.clone(), RunId::parse("r23456").unwrap());
        let tree = id(git(&world.user(), &["rev-parse", "HEAD^{tree}"]).trim());
        Self {
            world,
            checkpoints,
            tree,
        }
    }

    async fn save(
        &self,
        expected: Option<&ObjectId>,
        iteration: u64,
        files: &[StateFile],
    ) -> Result<ObjectId, ScmError> {
        let content = CheckpointContent {
            iteration,
            tip: &self.world.base,
            work_tree: &self.tree,
            files,
            at: Timestamp::UNIX_EPOCH,
        };
        self.checkpoints.save(expected, &content).await
    }
}

/// A killed process leaves them there, and the owner of the directory removes them.
#[tokio::test]
async fn temporary_files_are_in_the_scratch_directory() {
    let mut saver = Saver::new().await;
    let missing = saver.world.user().join("no-such-directory");
    let repository = saver.world.repository.clone().with_scratch(&missing);
    saver.checkpoints = Checkpoints::new(repository, RunId::parse("r23456").unwrap());
    let error = saver
        .save(None, 1, &[file("lease.json", "{}")])
        .await
        .unwrap_err();
    let message = error.to_string();
    assert!(message.contains(missing.to_str().unwrap()), "{message}");
}

/// As when the lease of a run ends: git must not be killed amid writing a pack.
#[tokio::test]
async fn a_save_that_is_dropped_leaves_no_half_a_pack() {
    let saver = Saver::new().await;
    let pack_dir = saver.world.user().join(".git/objects/pack");
    for step in 0..200 {
        let files = [file("ralph/progress.md", &format!("{step}\n"))];
        let save = saver.save(None, 1, &files);
        let _ = tokio::time::timeout(Duration::from_micros(50 * step), save).await;
    }
    let half_packs = || {
        let names = fs::read_dir(&pack_dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with("tmp_"))
            .count()
    };
    // Those that were dropped last may still be at work.
    for _ in 0..100 {
        if half_packs() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(half_packs(), 0);
}

#[tokio::test]
async fn what_was_saved_is_loaded_and_earlier_files_stay() {
    let saver = Saver::new().await;
    let checkpoints = &saver.checkpoints;
    assert_eq!(checkpoints.load().await.unwrap(), None);
    let progress = [
        file("ralph/progress.md", "one\n"),
        file("lease.json", "{\"owner\":1}"),
    ];
    let first = saver.save(None, 1, &progress).await.unwrap();
    let progress = [
        file("ralph/progress.md", "two\n"),
        file("ralph/odd \"name\".md", ""),
    ];
    let second = saver.save(Some(&first), 2, &progress).await.unwrap();

    let loaded = checkpoints.load().await.unwrap().unwrap();
    assert_eq!((&loaded.commit, loaded.iteration), (&second, 2));
    assert_eq!((&loaded.tip, &loaded.work_tree), (&saver.world.base, &saver.tree));
    let lease = checkpoints.file(&second, "lease.json").await.unwrap();
    assert_eq!(lease.unwrap(), b"{\"owner\":1}");
    assert_eq!(checkpoints.file(&second, "none").await.unwrap(), None);
    let [latest, odd] = progress;
    assert_eq!(
        checkpoints.files_in(&second, "ralph").await.unwrap(),
        [odd, latest]
    );
    assert_eq!(checkpoints.files_in(&second, "none").await.unwrap(), []);
}

#[tokio::test]
async fn a_missing_object_of_a_checkpoint_is_named() {
    let saver = Saver::new().await;
    let files = [
        file("journal/000001.jsonl", "one\n"),
        file("journal/000002.jsonl", "two\n"),
    ];
    let first = saver.save(None, 1, &files).await.unwrap();
    let checkpoints = &saver.checkpoints;
    assert_eq!(checkpoints.files_in(&first, "journal").await.unwrap(), files);
    let user = saver.world.user();
    let lost = git(&user, &["rev-parse", &format!("{first}:{}", files[1].path)]);
    let (dir, rest) = lost.trim().split_at(2);
    std::fs::remove_file(user.join(".git/objects").join(dir).join(rest)).unwrap();
    let error = checkpoints.files_in(&first, "journal").await.unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains(lost.trim()) && said.contains(&files[1].path),
        "{said}"
    );
}

#[tokio::test]
async fn a_checkpoint_is_one_commit_on_a_ref_of_its_own() {
    let saver = Saver::new().await;
    let before = saver.world.untouched();
    let first = saver.save(None, 1, &[]).await.unwrap();
    let second = saver.save(Some(&first), 2, &[]).await.unwrap();
    let user = saver.world.user();
    let parents = git(
        &user,
        &["rev-parse", &format!("{second}^1"), &format!("{second}^2")],
    );
    assert_eq!(parents, format!("{first}\n{}\n", saver.world.base));
    assert_eq!(git(&user, &["show", &format!("{second}:work/a.txt")]), "one\n");
    let refs = git(&user, &["for-each-ref", "--format=%(refname)", "refs/ralph"]);
    assert_eq!(refs, "refs/ralph/r23456/state\n");
    assert_eq!(saver.world.untouched(), before);
    saver.world.fsck();
}

#[tokio::test]
async fn of_two_saves_that_race_one_is_refused() {
    let saver = Saver::new().await;
    let first = saver.save(None, 1, &[]).await.unwrap();
    let (ours, theirs) = ([file("a", "1")], [file("a", "2")]);
    let (one, other) = tokio::join!(
        saver.save(Some(&first), 2, &ours),
        saver.save(Some(&first), 2, &theirs)
    );
    let (won, lost) = if one.is_ok() { (one, other) } else { (other, one) };
    let won = won.unwrap();
    let lost = lost.unwrap_err();
    assert!(
        matches!(&lost, ScmError::RefMoved { found: Some(found), .. } if *found == won),
        "{lost:?}"
    );
    assert!(matches!(
        saver.save(None, 1, &[]).await,
        Err(ScmError::RefMoved { .. })
    ));
    assert_eq!(saver.checkpoints.load().await.unwrap().unwrap().commit, won);
}

#[tokio::test]
async fn a_state_that_leaves_its_place_is_refused() {
    let saver = Saver::new().await;
    for path in ["work/x", "work", "../x", "/x", ".git/config", "a\nb", ""] {
        let error = saver.save(None, 1, &[file(path, "x")]).await.unwrap_err();
        assert!(
            matches!(&error, ScmError::StatePath(named) if named == path),
            "{path}: {error:?}"
        );
    }
}

#[tokio::test]
async fn everything_survives_garbage_collection_and_travels_with_the_ref() {
    let saver = Saver::new().await;
    let clone = saver.world.plant().await;
    write(clone.dir(), "done", "x\n");
    clone.commit("done", &[]).await.unwrap();
    write(clone.dir(), "draft", "y\n");
    let back = saver.world.take(&clone, &[]).await.unwrap();
    let content = CheckpointContent {
        iteration: 1,
        tip: &back.tip,
        work_tree: &back.work_tree,
        files: &[],
        at: Timestamp::UNIX_EPOCH,
    };
    let kept = saver.checkpoints.save(None, &content).await.unwrap();
    let user = saver.world.user();
    git(&user, &["gc", "--quiet", "--prune=now"]);
    git(&user, &["init", "--quiet", "--bare", "../elsewhere.git"]);
    git(
        &user,
        &["push", "--quiet", "../elsewhere.git", "refs/ralph/*:refs/ralph/*"],
    );
    let elsewhere = saver.world.dir.path().join("elsewhere.git");
    let repository = Repository::open(host(), &elsewhere).await.unwrap();
    let there = Checkpoints::new(repository, RunId::parse("r23456").unwrap());
    let loaded = there.load().await.unwrap().unwrap();
    assert_eq!(
        (loaded.commit, &loaded.tip, &loaded.work_tree),
        (kept, &back.tip, &back.work_tree)
    );
    assert_eq!(
        git(&elsewhere, &["show", &format!("{}:draft", back.work_tree)]),
        "y\n"
    );
}

#[tokio::test]
async fn an_empty_working_directory_can_be_saved() {
    let mut saver = Saver::new().await;
    saver.tree = id(git_with_input(&saver.world.user(), &["mktree"], b"").trim());
    saver.save(None, 1, &[file("run.json", "{}")]).await.unwrap();
    assert_eq!(
        saver.checkpoints.load().await.unwrap().unwrap().work_tree,
        saver.tree
    );
    saver.world.fsck();
}
