//! What a test sets up, and what it looks at afterwards.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;

use super::FakeGitHub;
use super::auth::{App, Identity, permissions};
use super::fault::{Fault, Lag, PendingFault};
use super::limits::LimitSettings;
use super::world::{Comment, Issue, Protection, Recorded, Repo, Role, World};

/// An App and the key that signs its JWTs.
#[derive(Clone, Debug)]
pub struct AppKey {
    pub id: u64,
    pub installation: u64,
    /// The private key as GitHub gives it out: PKCS#1, in PEM.
    pub private_key: String,
}

/// A pull request as a test sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullView {
    pub number: u64,
    pub title: String,
    pub body: String,
    pub user: String,
    pub head: String,
    pub base: String,
    pub head_sha: String,
    pub open: bool,
    pub draft: bool,
    pub merged: bool,
    pub labels: Vec<String>,
}

/// Setting up.
impl FakeGitHub {
    /// Adds a private repository `owner/name` with one commit on `main`. Its owner may do everything.
    pub fn add_repo(&self, name: &str) {
        let mut world = self.world();
        let id = world.new_id();
        let dir = self.shared.dir.path().join(format!("{id}.git"));
        super::git::create(&dir);
        world.repos.push(Repo {
            id,
            name: name.to_owned(),
            former: Vec::new(),
            dir,
            private: true,
            archived: false,
            pulls_forbidden: false,
            drafts_forbidden: false,
            collaborators: BTreeMap::new(),
            protected: BTreeMap::new(),
            labels: BTreeMap::new(),
            issues: BTreeMap::new(),
            check_runs: Vec::new(),
            statuses: Vec::new(),
            runs: Vec::new(),
            jobs: Vec::new(),
            job_logs: BTreeMap::new(),
            unseen: Vec::new(),
            stacks: None,
        });
    }

    /// Adds a personal access token of a user with permissions such as `contents:write`. What it may do in a repository is
    /// also bound by the user's role there.
    pub fn add_pat(&self, token: &str, login: &str, words: &[&str]) {
        let identity = Identity {
            login: login.to_owned(),
            permissions: permissions(words),
            installation: None,
        };
        self.world().accounts.tokens.insert(token.to_owned(), identity);
    }

    /// Revokes a token.
    pub fn revoke(&self, token: &str) {
        self.world().accounts.tokens.remove(token);
    }

    /// Gives a user a role in a repository.
    pub fn add_collaborator(&self, repo: &str, login: &str, role: Role) {
        let mut world = self.world();
        world.repo_mut(repo).collaborators.insert(login.to_owned(), role);
    }

    /// Adds an App with a new key, and installs it in repositories. Makes the key with `openssl`.
    pub fn add_app(&self, slug: &str, words: &[&str], repos: &[&str]) -> AppKey {
        let private_key = openssl(&["genrsa", "-traditional", "2048"], "");
        let private_key = String::from_utf8(private_key).unwrap();
        let public_key = openssl(&["rsa", "-RSAPublicKey_out", "-outform", "DER"], &private_key);
        let mut world = self.world();
        let (id, installation) = (world.new_id(), world.new_id());
        world.accounts.apps.push(App {
            id,
            slug: slug.to_owned(),
            public_key,
            installation,
            permissions: permissions(words),
            repos: repos.iter().map(|repo| (*repo).to_owned()).collect(),
        });
        AppKey {
            id,
            installation,
            private_key,
        }
    }

    /// Removes an App from its repositories and installs it again, with another number. Its tokens end.
    pub fn reinstall(&self, app: &AppKey) -> u64 {
        let mut world = self.world();
        let number = world.new_id();
        let now = world.now();
        let known = world.accounts.apps.iter_mut().find(|known| known.id == app.id);
        let old = std::mem::replace(&mut known.unwrap().installation, number);
        world.accounts.expire_tokens(Some(old), now);
        number
    }

    /// Lets all tokens of installations expire now.
    pub fn expire_installation_tokens(&self) {
        let mut world = self.world();
        let now = world.now();
        world.accounts.expire_tokens(None, now);
    }

    /// Sets how far GitHub's clock is ahead of the host's.
    pub fn set_clock_offset(&self, offset: SignedDuration) {
        self.world().clock_offset = offset;
    }

    /// Makes it an old GitHub Enterprise, with REST below `/api/v3`, GraphQL at `/api/graphql`, and these versions of the API.
    pub fn become_enterprise(&self, versions: &[&'static str]) {
        self.world().enterprise = Some(versions.to_vec());
    }

    pub fn set_private(&self, repo: &str, private: bool) {
        self.world().repo_mut(repo).private = private;
    }

    pub fn set_archived(&self, repo: &str, archived: bool) {
        self.world().repo_mut(repo).archived = archived;
    }

    /// Lets a repository have stacks.
    pub fn enable_stacks(&self, repo: &str) {
        self.world().repo_mut(repo).stacks = Some(Vec::new());
    }

    /// Refuses new pull requests, as a policy of the organisation does.
    pub fn forbid_pull_requests(&self, repo: &str) {
        self.world().repo_mut(repo).pulls_forbidden = true;
    }

    /// Refuses drafts, as servers and plans without them do.
    pub fn forbid_drafts(&self, repo: &str) {
        self.world().repo_mut(repo).drafts_forbidden = true;
    }

    /// Protects a branch, or another reference by its full name.
    pub fn protect(&self, repo: &str, branch: &str, protection: Protection) {
        let mut world = self.world();
        world
            .repo_mut(repo)
            .protected
            .insert(branch.to_owned(), protection);
    }

    /// Renames a repository; requests to the old name are redirected.
    pub fn rename_repo(&self, repo: &str, new: &str) {
        let mut world = self.world();
        let repo = world.repo_mut(repo);
        let old = std::mem::replace(&mut repo.name, new.to_owned());
        repo.former.push(old);
        let (old, new) = (repo.former.last().cloned().unwrap_or_default(), repo.name.clone());
        let installed = world
            .accounts
            .apps
            .iter_mut()
            .flat_map(|app| app.repos.iter_mut());
        installed
            .filter(|name| **name == old)
            .for_each(|name| name.clone_from(&new));
    }

    /// Lets the next request with this method, whose path and query begin so, fail. Several faults are used in their order.
    pub fn fail_next(&self, method: &str, prefix: &str, fault: Fault) {
        self.world().faults.push(PendingFault {
            method: method.to_owned(),
            prefix: prefix.to_owned(),
            fault,
        });
    }

    /// How many injected faults no request has met yet.
    pub fn faults_left(&self) -> usize {
        self.world().faults.len()
    }

    /// Later pushes are not seen by REST for a while: a new branch does not exist, a pull request shows its old commit. Of
    /// requests, those count that name the repository.
    pub fn lag_pushes(&self, lag: Option<Lag>) {
        self.world().push_lag = lag;
    }

    /// Later pull requests are missing from lists for a while. Only lists count as requests.
    pub fn lag_new_pulls(&self, lag: Option<Lag>) {
        self.world().pull_lag = lag;
    }

    /// Changes the rate limits.
    pub fn set_limits(&self, settings: LimitSettings) {
        self.world().limits.settings = settings;
    }

    /// Like the default limits, but a minute takes this long, and an hour sixty times that.
    pub fn shorten_minutes(&self, minute: Duration) {
        let settings = &mut self.world().limits.settings;
        settings.minute = minute;
        settings.hour = minute * 60;
    }
}

/// Looking at it.
impl FakeGitHub {
    /// All requests so far, in the order in which they were answered.
    pub fn requests(&self) -> Vec<Recorded> {
        self.world().requests.clone()
    }

    /// Methods and paths of all requests so far.
    pub fn calls(&self) -> Vec<String> {
        let world = self.world();
        let requests = world.requests.iter();
        requests
            .map(|request| format!("{} {}", request.method, request.path))
            .collect()
    }

    /// Where a secret was sent other than in `Authorization`: `METHOD PATH` of each such request.
    pub fn forbid_canary(&self, secret: &str) -> Vec<String> {
        let world = self.world();
        let has_it = |request: &&Recorded| {
            let in_headers = request.headers.iter().any(|(_, value)| value.contains(secret));
            in_headers || request.path.contains(secret) || request.body.contains(secret)
        };
        let found = world.requests.iter().filter(has_it);
        found
            .map(|request| format!("{} {}", request.method, request.path))
            .collect()
    }

    /// All pull requests of a repository.
    pub fn pulls(&self, repo: &str) -> Vec<PullView> {
        let mut world = self.world();
        let repo = world.repo_mut(repo);
        repo.refresh_pulls();
        repo.issues
            .values()
            .filter_map(|issue| view(repo, issue))
            .collect()
    }

    /// The comments below an issue or pull request.
    pub fn comments(&self, repo: &str, number: u64) -> Vec<Comment> {
        issue(&mut self.world(), repo, number).comments.clone()
    }

    /// The answers in a thread of a pull request, whose first comment has this number: who wrote them, and what.
    pub fn replies(&self, repo: &str, thread: u64) -> Vec<(String, String)> {
        let mut world = self.world();
        let pulls = world.repo_mut(repo).issues.values();
        let comments = pulls
            .filter_map(|issue| issue.pull.as_ref())
            .flat_map(|pull| &pull.review_comments);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        comments
            .filter(|comment| comment["in_reply_to_id"] == thread)
            .map(|comment| (text(&comment["user"]["login"]), text(&comment["body"])))
            .collect()
    }

    /// The names of the labels of an issue or pull request.
    pub fn labels(&self, repo: &str, number: u64) -> Vec<String> {
        let mut world = self.world();
        let repo = world.repo_mut(repo);
        label_names(repo, &repo.issues[&number])
    }

    /// The text of an issue or pull request.
    pub fn body(&self, repo: &str, number: u64) -> String {
        issue(&mut self.world(), repo, number)
            .body
            .clone()
            .unwrap_or_default()
    }

    /// The numbers of the pull requests in each stack, the lowest first.
    pub fn stacks(&self, repo: &str) -> Vec<Vec<u64>> {
        let mut world = self.world();
        let stacks = world.repo_mut(repo).stacks.iter().flatten();
        stacks.map(|stack| stack.pulls.clone()).collect()
    }

    /// The commit statuses of a repository, oldest first, each with its commit in `sha`.
    pub fn statuses(&self, repo: &str) -> Vec<serde_json::Value> {
        self.world().repo_mut(repo).statuses.clone()
    }

    /// Whether an issue or pull request is open.
    pub fn is_open(&self, repo: &str, number: u64) -> bool {
        issue(&mut self.world(), repo, number).open
    }

    /// All references and their commits, as git has them.
    pub fn refs(&self, repo: &str) -> BTreeMap<String, String> {
        self.world().repo_mut(repo).refs()
    }

    /// Runs git in the repository itself; it must succeed.
    pub fn git(&self, repo: &str, args: &[&str]) -> String {
        let dir = self.world().repo_mut(repo).dir.clone();
        crate::git_http::git(&dir, args, "")
    }
}

fn issue<'a>(world: &'a mut World, repo: &str, number: u64) -> &'a mut Issue {
    let issue = world.repo_mut(repo).issues.get_mut(&number);
    issue.unwrap_or_else(|| panic!("{repo} has no issue {number}"))
}

fn label_names(repo: &Repo, issue: &Issue) -> Vec<String> {
    let labels = issue.labels.iter().filter_map(|key| repo.labels.get(key));
    labels.map(|label| label.name.clone()).collect()
}

fn view(repo: &Repo, issue: &Issue) -> Option<PullView> {
    let pull = issue.pull.as_ref()?;
    Some(PullView {
        number: issue.number,
        title: issue.title.clone(),
        body: issue.body.clone().unwrap_or_default(),
        user: issue.user.clone(),
        head: pull.head.clone(),
        base: pull.base.clone(),
        head_sha: pull.head_sha.clone(),
        open: issue.open,
        draft: pull.draft,
        merged: pull.merged_at.is_some(),
        labels: label_names(repo, issue),
    })
}

fn openssl(args: &[&str], input: &str) -> Vec<u8> {
    use std::io::Write;
    let mut child = Command::new("openssl")
        .args(args)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("openssl is installed");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "openssl {args:?}");
    output.stdout
}
