use std::fmt::Write as _;

use jiff::Timestamp;

use super::*;

const NOTES: &str = "refs/notes/test";

async fn add(world: &World, commit: &ObjectId, line: &str) {
    let at = Timestamp::UNIX_EPOCH;
    world
        .repository
        .add_note_line(NOTES, commit, line, at)
        .await
        .unwrap();
}

fn shown(world: &World, commit: &ObjectId) -> String {
    git(&world.user(), &["notes", "--ref", NOTES, "show", commit.as_str()])
}

#[tokio::test]
async fn a_line_is_added_to_a_note_once() {
    let world = World::new().await;
    let base = &world.base;
    assert_eq!(world.repository.note(NOTES, base).await.unwrap(), None);
    for line in ["one", "two", "one", "two"] {
        add(&world, base, line).await;
    }
    assert_eq!(shown(&world, base), "one\ntwo\n");
    let read = world.repository.note(NOTES, base).await.unwrap();
    assert_eq!(read.unwrap(), b"one\ntwo\n");
    let commits = git(&world.user(), &["rev-list", "--count", NOTES]);
    assert_eq!(commits, "2\n", "what is there already changes nothing");

    // A note that git itself wrote, without and with what is added.
    let other = commit_of(&world, "other");
    git(
        &world.user(),
        &["notes", "--ref", NOTES, "add", "-m", "mine", other.as_str()],
    );
    add(&world, &other, "ours").await;
    assert_eq!(shown(&world, &other), "mine\nours\n");
    assert_eq!(shown(&world, base), "one\ntwo\n");
    git(&world.user(), &["fsck", "--strict"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_that_are_added_at_the_same_time_are_all_kept() {
    let world = std::sync::Arc::new(World::new().await);
    let commits: Vec<ObjectId> = (0..8).map(|n| commit_of(&world, &n.to_string())).collect();
    let added = commits.iter().cloned().map(|commit| {
        let world = world.clone();
        tokio::spawn(async move {
            add(&world, &commit, "its own").await;
            add(&world, &world.base, commit.as_str()).await;
        })
    });
    for task in added.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let mut lines: Vec<String> = commits.iter().map(ToString::to_string).collect();
    lines.sort();
    let shared = shown(&world, &world.base);
    let mut found: Vec<&str> = shared.lines().collect();
    found.sort_unstable();
    assert_eq!(found, lines);
    for commit in &commits {
        assert_eq!(shown(&world, commit), "its own\n");
    }
}

#[tokio::test]
async fn a_note_is_found_among_many() {
    let world = World::new().await;
    let base = &world.base;
    add(&world, base, "ours").await;
    // Enough for git to spread them over directories.
    let made = "committer a <a@b> 0 +0000\ndata 0\n";
    let mut stream = String::new();
    let mut notes = format!("commit {NOTES}\n{made}from {NOTES}^0\n");
    for n in 1..700 {
        write!(stream, "commit refs/heads/many\nmark :{n}\n{made}\n").unwrap();
        write!(notes, "N inline :{n}\ndata 1\nx\n").unwrap();
    }
    stream += &notes;
    git_with_input(&world.user(), &["fast-import", "--quiet"], stream.as_bytes());
    let spread = format!("{}/{}", &base.as_str()[..2], &base.as_str()[2..]);
    let names = git(&world.user(), &["ls-tree", "-r", "--name-only", NOTES]);
    assert!(names.contains(&spread), "{names}");
    add(&world, base, "again").await;
    assert_eq!(shown(&world, base), "ours\nagain\n");
    let names = git(&world.user(), &["ls-tree", "-r", "--name-only", NOTES]);
    assert_eq!(names.lines().count(), 700);
}

#[tokio::test]
async fn a_branch_leaves_the_base_where_it_was_forked() {
    let world = World::new().await;
    let (user, base) = (world.user(), &world.base);
    git(&user, &["branch", "-M", "main"]);
    git(&user, &["checkout", "-q", "-b", "work"]);
    let first = commit_of(&world, "first");
    let second = commit_of(&world, "second");
    git(&user, &["checkout", "-q", "main"]);
    let main = commit_of(&world, "main");
    let at =
        async |tip: &ObjectId, commit: &ObjectId| world.repository.fork_point(tip, commit).await.unwrap();
    let fork = async |tip: &ObjectId, commit: &ObjectId| at(tip, commit).await.map(|fork| fork.before);
    assert_eq!(fork(&main, &second).await.as_ref(), Some(base));
    assert_eq!(at(&main, &second).await.unwrap().merge, None);

    git(&user, &["merge", "-q", "--no-ff", "-m", "merge", "work"]);
    let merge = id(git(&user, &["rev-parse", "main"]).trim());
    commit_of(&world, "later");
    let merged = id(git(&user, &["rev-parse", "main"]).trim());
    for commit in [&first, &second] {
        let found = at(&merged, commit).await.unwrap();
        assert_eq!((&found.before, found.merge.as_ref()), (&main, Some(&merge)));
    }

    // After a fast-forward, only the commit itself is known not to be of the base.
    assert_eq!(fork(&second, &second).await.as_ref(), Some(&first));
    assert_eq!(fork(base, base).await, None);
    git(&user, &["checkout", "-q", "--orphan", "apart"]);
    let apart = commit_of(&world, "apart");
    assert_eq!(fork(&merged, &apart).await, None);
}

#[tokio::test]
async fn the_usual_base_is_that_of_origin_before_a_local_branch() {
    let world = World::new().await;
    let user = world.user();
    let usual = async || world.repository.usual_base().await.unwrap();
    git(&user, &["branch", "-M", "trunk"]);
    assert_eq!(usual().await, None, "what is checked out does not count");
    git(&user, &["branch", "master"]);
    assert_eq!(usual().await.as_deref(), Some("refs/heads/master"));
    git(&user, &["update-ref", "refs/remotes/origin/main", "trunk"]);
    assert_eq!(usual().await.as_deref(), Some("refs/remotes/origin/main"));
    git(&user, &["update-ref", "refs/remotes/origin/next", "trunk"]);
    let (head, next) = ("refs/remotes/origin/HEAD", "refs/remotes/origin/next");
    git(&user, &["symbolic-ref", head, next]);
    assert_eq!(usual().await.as_deref(), Some(next));
}

/// A new commit on what is checked out.
fn commit_of(world: &World, message: &str) -> ObjectId {
    git(&world.user(), &["commit", "-q", "--allow-empty", "-m", message]);
    id(git(&world.user(), &["rev-parse", "HEAD"]).trim())
}
