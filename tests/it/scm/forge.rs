use ralph::id::RunId;
use ralph::scm::{Forge, ForgeError, LocalForge, PullRequest};

use super::*;

struct Desk {
    world: World,
    forge: LocalForge,
    first: ObjectId,
    second: ObjectId,
}

impl Desk {
    async fn new() -> Self {
        let world = World::new().await;
        let clone = world.plant().await;
        write(clone.dir(), "a.txt", "1\n");
        let first = clone.commit("one", &[]).await.unwrap().unwrap();
        write(clone.dir(), "a.txt", "2\n");
        let second = clone.commit("two", &[]).await.unwrap().unwrap();
        world.take(&clone, &[]).await.unwrap();
        let forge = LocalForge::new(
            world.repository.clone(),
            world.dir.path().join("run/pull-request.md"),
        );
        drop(clone);
        Self {
            world,
            forge,
            first,
            second,
        }
    }

    fn request(&self, commit: &ObjectId) -> PullRequest {
        PullRequest {
            run: RunId::parse("r23456789").unwrap(),
            earlier_runs: Vec::new(),
            branch: BRANCH.to_owned(),
            base_branch: "main".to_owned(),
            commit: commit.clone(),
            ours: vec![self.first.clone(), self.second.clone()],
            title: "Fix it".to_owned(),
            body: "All tests pass.".to_owned(),
            draft: true,
            is_done: false,
            labels: vec!["ralph".to_owned()],
            status: None,
        }
    }
}

#[tokio::test]
async fn a_pull_request_is_a_branch_and_a_file_and_can_be_updated() {
    let desk = Desk::new().await;
    assert!(!desk.forge.is_at(BRANCH, &desk.first).await.unwrap());
    let location = desk
        .forge
        .open(&desk.request(&desk.first))
        .await
        .unwrap()
        .location;
    assert!(desk.forge.is_at(BRANCH, &desk.first).await.unwrap());
    let text = std::fs::read_to_string(&location).unwrap();
    for part in [
        "# Fix it\n",
        "All tests pass.",
        "draft",
        "Labels: ralph",
        desk.first.as_str(),
        "into `main`",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    for _ in 0..2 {
        desk.forge.open(&desk.request(&desk.second)).await.unwrap();
    }
    assert!(desk.forge.is_at(BRANCH, &desk.second).await.unwrap());
    assert!(!desk.forge.is_at(BRANCH, &desk.first).await.unwrap());
    assert_eq!(git(&desk.world.user(), &["status", "--porcelain"]), "");
    desk.world.fsck();
}

#[tokio::test]
async fn a_branch_that_someone_else_moved_is_left_alone() {
    let desk = Desk::new().await;
    desk.forge.open(&desk.request(&desk.first)).await.unwrap();
    git(&desk.world.user(), &["branch", "--force", BRANCH, "main"]);
    let error = desk.forge.open(&desk.request(&desk.second)).await.unwrap_err();
    assert!(
        matches!(error, ForgeError::Scm(ScmError::RefMoved { .. })),
        "{error:?}"
    );
    assert!(desk.forge.is_at(BRANCH, &desk.world.base).await.unwrap());
}

#[tokio::test]
async fn a_branch_that_is_checked_out_is_not_moved_under_its_user() {
    let desk = Desk::new().await;
    desk.forge.open(&desk.request(&desk.first)).await.unwrap();
    git(
        &desk.world.user(),
        &["worktree", "add", "--quiet", "../review", BRANCH],
    );
    desk.forge.open(&desk.request(&desk.first)).await.unwrap();
    let error = desk.forge.open(&desk.request(&desk.second)).await.unwrap_err();
    assert!(
        matches!(&error, ForgeError::CheckedOut { worktree, .. } if worktree.ends_with("review")),
        "{error:?}"
    );
    assert!(error.hint().is_some());
    assert!(desk.forge.is_at(BRANCH, &desk.first).await.unwrap());
}
