//! Git, for real: the user's repository, a private clone in a sandbox, and what comes back.

mod checkpoint;
mod clone;
mod forge;
mod handback;
mod hostile;
mod mirror;
mod notes;
mod repository;

use std::path::{Path, PathBuf};

use ralph::id::ObjectId;
use ralph::scm::{
    ChangeFlag, CloneStart, CommitIdentity, HandBack, HandBackRequest, PrivateClone, Repository, ScmError,
    SeedPack, flags_between, hand_back,
};
use ralph::secret::Redactor;
use tempfile::TempDir;

use crate::support::dir_sandbox::{DirSandbox, host};

const BRANCH: &str = "ralph/t1/fix";

/// A user's repository with one commit, a sandbox beside it and a clone planted in there.
struct World {
    dir: TempDir,
    repository: Repository,
    base: ObjectId,
    sandbox: DirSandbox,
    seed: SeedPack,
}

impl World {
    /// With these files in the first commit.
    async fn with(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let user = dir.path().join("user");
        init(&user, files);
        let repository = Repository::open(host(), &user).await.unwrap();
        let base = repository.resolve("HEAD").await.unwrap();
        let seed = SeedPack::create(&repository, &[&base], &[], &dir.path().join("seed"))
            .await
            .unwrap();
        let root = dir.path().join("sandbox");
        std::fs::create_dir(&root).unwrap();
        Self {
            sandbox: DirSandbox::new(&root),
            dir,
            repository,
            base,
            seed,
        }
    }

    async fn new() -> Self {
        Self::with(&[("a.txt", "one\n"), ("d/b.txt", "two\n"), ("d/e/c.txt", "three\n")]).await
    }

    fn start(&self) -> CloneStart {
        CloneStart {
            branch: BRANCH.to_owned(),
            commit: self.base.clone(),
            identity: CommitIdentity::new("Ralph", "ralph@example.org").unwrap(),
            format: self.repository.object_format(),
        }
    }

    async fn plant(&self) -> PrivateClone<'_> {
        let dir = self.sandbox_root().join("work");
        PrivateClone::create(&self.sandbox, dir, std::slice::from_ref(&self.seed), self.start())
            .await
            .unwrap()
    }

    async fn take(&self, clone: &PrivateClone<'_>, known: &[ObjectId]) -> Result<HandBack, ScmError> {
        let snapshot = clone.snapshot().await?;
        let request = HandBackRequest {
            base: &self.base,
            snapshot: &snapshot,
            known,
            limit: 1024 * 1024,
            redactor: &Redactor::default(),
        };
        hand_back(&self.repository, clone, &request, &self.dir.path().join("run")).await
    }

    /// What a person has to check in the work that came back.
    async fn flags(&self, back: &HandBack) -> Vec<ChangeFlag> {
        flags_between(&self.repository, &self.base, &back.commit)
            .await
            .unwrap()
    }

    fn user(&self) -> PathBuf {
        self.dir.path().join("user")
    }

    fn sandbox_root(&self) -> PathBuf {
        self.dir.path().join("sandbox")
    }

    /// Everything of the user's that a run must not change.
    fn untouched(&self) -> String {
        let user = self.user();
        [
            git(&user, &["for-each-ref", "refs/heads", "refs/tags"]),
            git(&user, &["--no-optional-locks", "status", "--porcelain"]),
            git(&user, &["ls-files", "--stage"]),
            std::fs::read_to_string(user.join(".git/HEAD")).unwrap(),
            std::fs::read_to_string(user.join(".git/config")).unwrap(),
        ]
        .join("\n")
    }

    fn fsck(&self) {
        git(&self.user(), &["fsck", "--full", "--strict"]);
    }
}

/// A repository with these files in one commit.
fn init(dir: &Path, files: &[(&str, &str)]) {
    std::fs::create_dir_all(dir).unwrap();
    git(dir, &["init", "--quiet", "--initial-branch=main"]);
    for (path, text) in files {
        write(dir, path, text);
    }
    git(dir, &["add", "--all"]);
    git(dir, &["commit", "--quiet", "--allow-empty", "-m", "first"]);
}

fn write(dir: &Path, path: &str, text: &str) {
    let path = dir.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Git as a user or an agent would run it.
fn git(dir: &Path, args: &[&str]) -> String {
    git_with_input(dir, args, b"")
}

fn git_with_input(dir: &Path, args: &[&str], input: &[u8]) -> String {
    let mut child = std::process::Command::new("git")
        .current_dir(dir)
        .args(["-c", "user.name=User", "-c", "user.email=user@example.org"])
        .args(["-c", "protocol.file.allow=always"])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input).unwrap();
    let output = child.wait_with_output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "git {args:?}: {out}{err}");
    out.into_owned()
}

fn id(text: &str) -> ObjectId {
    ObjectId::parse(text.trim()).unwrap()
}
