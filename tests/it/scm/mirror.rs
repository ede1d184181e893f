//! A remote repository, played by a bare mirror.

use std::path::Path;

use ralph::scm::{Repository, ScmError, SeedPack};
use ralph::secret::{Redactor, Secret};

use super::{World, git, write};
use crate::support::dir_sandbox::host;

fn commit_file(dir: &Path, name: &str, text: &str) {
    write(dir, name, text);
    git(dir, &["add", "--all"]);
    git(dir, &["commit", "--quiet", "-m", name]);
}

#[tokio::test]
async fn a_mirror_is_made_once_and_then_brought_up_to_date() {
    let world = World::new().await;
    let user = world.dir.path().join("user");
    let url = format!("file://{}", user.display());
    let mirrors = world.dir.path().join("mirrors");

    let first = Repository::mirror(host(), &url, &mirrors, None).await.unwrap();
    assert_eq!(first.resolve("main").await.unwrap(), world.base);
    commit_file(&user, "new.txt", "new\n");
    let second = Repository::mirror(host(), &url, &mirrors, None).await.unwrap();

    let tip = world.repository.resolve("HEAD").await.unwrap();
    assert_eq!(second.resolve("main").await.unwrap(), tip);
    assert_eq!(first.common_dir(), second.common_dir());
    assert_eq!(std::fs::read_dir(&mirrors).unwrap().count(), 1);
}

#[tokio::test]
async fn a_mirror_keeps_the_branches_of_runs() {
    let world = World::new().await;
    let url = format!("file://{}", world.dir.path().join("user").display());
    let mirrors = world.dir.path().join("mirrors");
    let mirror = Repository::mirror(host(), &url, &mirrors, None).await.unwrap();
    let ours = ["refs/ralph/r2345/state", "refs/heads/ralph/t1/fix"];
    for name in ours {
        mirror.update_ref(name, &world.base, None).await.unwrap();
    }
    let again = Repository::mirror(host(), &url, &mirrors, None).await.unwrap();
    for name in ours {
        assert_eq!(
            again.read_ref(name).await.unwrap().as_ref(),
            Some(&world.base),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_mirror_follows_branches_and_tags_that_replace_each_other() {
    let world = World::new().await;
    let user = world.user();
    let url = format!("file://{}", user.display());
    let mirrors = world.dir.path().join("mirrors");
    for args in [["branch", "a"], ["branch", "b/c"], ["tag", "t"]] {
        git(&user, &args);
    }
    let mirror = Repository::mirror(host(), &url, &mirrors, None).await.unwrap();
    let own = "refs/heads/ralph/t1/fix";
    mirror.update_ref(own, &world.base, None).await.unwrap();
    git(&user, &["branch", "-D", "a", "b/c"]);
    git(&user, &["tag", "-d", "t"]);
    for args in [["branch", "a/b"], ["branch", "b"], ["tag", "t/u"]] {
        git(&user, &args);
    }
    let again = Repository::mirror(host(), &url, &mirrors, None).await.unwrap();
    for name in ["refs/heads/a/b", "refs/heads/b", "refs/tags/t/u", own] {
        let found = again.read_ref(name).await.unwrap();
        assert_eq!(found.as_ref(), Some(&world.base), "{name}");
    }
    for name in ["refs/heads/a", "refs/heads/b/c", "refs/tags/t"] {
        assert_eq!(again.read_ref(name).await.unwrap(), None, "{name}");
    }
}

#[tokio::test]
async fn a_remote_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}/nowhere", dir.path().display());
    let error = Repository::mirror(host(), &url, &dir.path().join("mirrors"), None)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, ScmError::Git { stderr, .. } if stderr.contains("nowhere")),
        "{error}"
    );
}

#[tokio::test]
async fn a_seed_leaves_out_what_the_clone_has() {
    let world = World::new().await;
    let user = world.dir.path().join("user");
    commit_file(&user, "new.txt", "new\n");
    let tip = world.repository.resolve("HEAD").await.unwrap();
    let dir = world.dir.path().join("increment");
    let seed = SeedPack::create(&world.repository, &[&tip], &[&world.base], &dir)
        .await
        .unwrap();
    let pack = seed.files().next().unwrap();
    let listed = git(
        &user,
        &["verify-pack", "-v", &pack.with_extension("idx").to_string_lossy()],
    );
    let objects = listed
        .lines()
        .filter(|line| line.split(' ').next().is_some_and(|id| id.len() == 40))
        .count();
    // The commit, its tree and the one new file.
    assert_eq!(objects, 3, "{listed}");
}

#[tokio::test]
async fn a_person_sees_what_differs() {
    let world = World::new().await;
    let user = world.dir.path().join("user");
    commit_file(&user, "new.txt", "new\n");
    let tip = world.repository.resolve("HEAD").await.unwrap();
    let all = Redactor::default();
    let patch = world
        .repository
        .diff_text(&world.base, &tip, false, 1000, &all)
        .await
        .unwrap();
    assert!(
        patch.text.contains("+++ b/new.txt\n") && patch.text.contains("+new\n"),
        "{patch:?}"
    );
    assert_eq!(patch.bytes, patch.text.len() as u64);
    let stat = world
        .repository
        .diff_text(&world.base, &tip, true, 1000, &all)
        .await;
    let stat = stat.unwrap().text;
    assert!(stat.contains("new.txt | 1 +"), "{stat}");
    let unknown = super::id(&"1".repeat(40));
    let error = world
        .repository
        .diff_text(&world.base, &unknown, false, 1000, &all)
        .await;
    let error = error.unwrap_err();
    assert!(
        matches!(&error, ScmError::Git { stderr, .. } if stderr.contains(unknown.as_str())),
        "{error}"
    );
    // A diff that is too long says what is missing.
    let cut = world
        .repository
        .diff_text(&world.base, &tip, false, 40, &all)
        .await
        .unwrap();
    assert_eq!(cut.bytes, patch.bytes);
    assert!(cut.text.contains(" bytes not kept "), "{cut:?}");
    // What is cut in two is a secret: no part of it is left.
    let (head, _) = cut.text.split_once("\n[... ").unwrap();
    let torn = &head[head.len() - 8..];
    let secret = Secret::new(format!("{torn} and more"));
    let redacted = world
        .repository
        .diff_text(&world.base, &tip, false, 40, &Redactor::new([secret]))
        .await
        .unwrap();
    assert!(!redacted.text.contains(torn), "{redacted:?}");
}
