//! A repository on the host, its copy on the fake, and the forge between them.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ralph::clock;
use ralph::exec::Host;
use ralph::github::{GitHubApp, GitHubClient, GitHubCredential, GitHubForge, GitHubPace};
use ralph::id::{ObjectId, RepositoryName, RunId};
use ralph::scm::{PlannedPullRequest, PullRequest, Repository};
use ralph::secret::{Redactor, Secret};
use tempfile::TempDir;

use crate::support::fake_github::{AppKey, FakeGitHub, Recorded, Role};

pub const REPO: &str = "acme/widget";
pub const BRANCH: &str = "ralph/t1/say-hello";
pub const TOKEN: &str = "github_pat_CANARY_0123456789abcdef";
/// What a token needs for pull requests.
pub const PERMISSIONS: [&str; 2] = ["contents:write", "pull_requests:write"];

pub struct Desk {
    pub github: FakeGitHub,
    pub dir: TempDir,
    pub repository: Repository,
    pub base: ObjectId,
    /// Commits of the run, each on top of the one before.
    pub commits: Vec<ObjectId>,
}

/// No pauses worth waiting for.
pub fn quick() -> GitHubPace {
    GitHubPace {
        between_writes: Duration::ZERO,
        writes_per_hour: usize::MAX,
        secondary_pause: Duration::from_millis(100),
        first_pause: Duration::from_millis(5),
        ..GitHubPace::default()
    }
}

impl Desk {
    /// A fake with the repository and a token for it.
    pub async fn new() -> Self {
        Self::at(FakeGitHub::start()).await
    }

    /// Like [`Desk::new`], behind Prism, which takes seconds to start.
    pub async fn validated() -> Result<Self, String> {
        Ok(Self::at(FakeGitHub::start_validated()?).await)
    }

    pub async fn at(github: FakeGitHub) -> Self {
        github.add_repo(REPO);
        github.add_collaborator(REPO, "ralph-bot", Role::Write);
        github.add_pat(TOKEN, "ralph-bot", &PERMISSIONS);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("repo");
        let dir_on_fake = github.git(REPO, &["rev-parse", "--absolute-git-dir"]);
        git(dir.path(), &["clone", "--quiet", dir_on_fake.trim(), "repo"]);
        let base = commit_id(&git(&path, &["rev-parse", "HEAD"]));
        let commits = ["one", "two", "three"].map(|name| commit(&path, name, "text\n"));
        git(&path, &["checkout", "--quiet", "main"]);
        let host = Host::new(std::env::vars().filter(|(name, _)| name == "PATH").collect());
        let repository = Repository::open(host, &path).await.unwrap();
        Self {
            github,
            dir,
            repository,
            base,
            commits: commits.to_vec(),
        }
    }

    pub fn client(&self, credential: GitHubCredential, pace: GitHubPace) -> Arc<GitHubClient> {
        let client = GitHubClient::new(
            self.github.url(),
            credential,
            clock::system(),
            Redactor::default(),
            pace,
        );
        Arc::new(client.unwrap())
    }

    pub fn forge(&self) -> GitHubForge {
        self.forge_with(GitHubCredential::Token(Secret::new(TOKEN)), quick())
    }

    pub fn app_forge(&self, app: &AppKey) -> GitHubForge {
        let (id, installation) = (app.id.to_string(), app.installation.to_string());
        let app = GitHubApp::new(&id, &installation, &Secret::new(app.private_key.clone())).unwrap();
        self.forge_with(GitHubCredential::App(Box::new(app)), quick())
    }

    pub fn forge_with(&self, credential: GitHubCredential, pace: GitHubPace) -> GitHubForge {
        let name = RepositoryName::parse(REPO).unwrap();
        let client = self.client(credential, pace);
        GitHubForge::new(
            client,
            name,
            self.github.url(),
            self.repository.clone(),
            Redactor::default(),
        )
    }

    /// The pull request of the run at one of its commits.
    pub fn request(&self, commit: usize) -> PullRequest {
        PullRequest {
            run: RunId::parse("r23456789").unwrap(),
            earlier_runs: Vec::new(),
            branch: BRANCH.to_owned(),
            base_branch: "main".to_owned(),
            commit: self.commits[commit].clone(),
            ours: self.commits.clone(),
            title: "t1: Say hello".to_owned(),
            body: format!("All of it, at {}.", self.commits[commit]),
            draft: false,
            is_done: true,
            labels: vec!["ralph".to_owned()],
            status: None,
        }
    }

    pub fn planned(&self) -> PlannedPullRequest {
        PlannedPullRequest {
            branch: BRANCH.to_owned(),
            base_branch: Some("main".to_owned()),
            base: self.base.clone(),
            waits_for_ci: false,
        }
    }

    /// A person with the rights of the token changes a pull request.
    pub async fn patch_pull(&self, number: u64, body: &serde_json::Value) {
        let (status, text) = self.try_patch_pull(number, body).await;
        assert_eq!(status, 200, "{text}");
    }

    /// Like [`Desk::patch_pull`]. Returns the answer, which may be a refusal.
    pub async fn try_patch_pull(&self, number: u64, body: &serde_json::Value) -> (u16, String) {
        let url = format!("{}/repos/{REPO}/pulls/{number}", self.github.url());
        let call = reqwest::Client::new().patch(url).bearer_auth(TOKEN);
        let answer = call.header("user-agent", "ada").json(body).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    /// Where the branch is on GitHub.
    pub fn pushed(&self) -> Option<String> {
        self.github
            .refs(REPO)
            .get(&format!("refs/heads/{BRANCH}"))
            .cloned()
    }

    /// The only pull request, at this commit. Prism found nothing wrong, and the token went nowhere else.
    pub fn expect_one_pull(&self, commit: usize) {
        let pulls = self.github.pulls(REPO);
        assert_eq!(pulls.len(), 1, "{pulls:#?}");
        assert_eq!(pulls[0].head_sha, self.commits[commit].as_str());
        assert_eq!(
            pulls[0].body.matches("<!-- ralph-run: r23456789 ").count(),
            1,
            "{}",
            pulls[0].body
        );
        self.expect_clean();
    }

    pub fn expect_clean(&self) {
        assert_eq!(self.github.violations(), Vec::<String>::new());
        assert_eq!(self.github.forbid_canary("CANARY"), Vec::<String>::new());
        assert_eq!(merges(&self.github), Vec::<String>::new());
    }

    /// How many requests of this kind were made.
    pub fn count(&self, method_and_path: &str) -> usize {
        let calls = self.github.calls();
        calls
            .iter()
            .filter(|call| call.starts_with(method_and_path))
            .count()
    }
}

/// The requests that merge, queue or arm a merge, or delete a branch: ralph makes none of them (trap 15).
pub fn merges(github: &FakeGitHub) -> Vec<String> {
    let is_merge = |request: &&Recorded| {
        let path = request.path.split('?').next().unwrap_or_default();
        let body = request.body.to_lowercase();
        let merges = path
            .split('/')
            .any(|part| ["merge", "merges", "auto-merge", "merge-queue"].contains(&part));
        let deletes = request.method == "DELETE" && path.contains("/git/refs/heads");
        let mutates = path.ends_with("/graphql") && (body.contains("merge") || body.contains("enqueue"));
        merges || deletes || mutates
    };
    let requests = github.requests();
    let found = requests.iter().filter(is_merge);
    found
        .map(|request| format!("{} {} {}", request.method, request.path, request.body))
        .collect()
}

pub fn commit_id(text: &str) -> ObjectId {
    ObjectId::parse(text.trim()).unwrap()
}

/// Commits a file in a checkout.
pub fn commit(dir: &Path, name: &str, text: &str) -> ObjectId {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    git(dir, &["add", "--all"]);
    // A branch that is not on the fake.
    git(dir, &["checkout", "--quiet", "-B", "work"]);
    git(dir, &["commit", "--quiet", "--message", name]);
    commit_id(&git(dir, &["rev-parse", "HEAD"]))
}

pub fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=ralph", "-c", "user.email=ralph@localhost"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// An error with its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// The form in which git sends a token.
pub fn basic(token: &str) -> String {
    let remote = ralph::scm::Remote {
        url: String::new(),
        token: Secret::new(token),
    };
    remote.authorization().expose().to_owned()
}
