//! What the fake keeps: users, repositories, issues and pull requests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::auth::Accounts;
use super::fault::{Lag, LagLeft, PendingFault};
use super::limits::Limits;
use crate::git_http::{git, try_git};

/// Everything that changes while the fake runs.
#[derive(Default)]
pub struct World {
    /// How far the fake's clock is ahead of the host's.
    pub clock_offset: SignedDuration,
    pub accounts: Accounts,
    pub repos: Vec<Repo>,
    pub limits: Limits,
    pub faults: Vec<PendingFault>,
    pub requests: Vec<Recorded>,
    /// The versions of the API that it lists, if it is an old GitHub Enterprise.
    pub enterprise: Option<Vec<&'static str>>,
    /// How long REST does not see pushes, and lists do not show new pull requests.
    pub push_lag: Option<Lag>,
    pub pull_lag: Option<Lag>,
    last_id: u64,
}

/// A request that was answered, or dropped on purpose.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// When it arrived, and when its answer was ready.
    pub began: Instant,
    pub ended: Instant,
    pub method: String,
    /// The path and the query.
    pub path: String,
    /// The login behind the credential; empty without one.
    pub identity: String,
    /// The status of the answer; 0 when the connection was closed instead.
    pub status: u16,
    /// Whether it counts against the primary limit. A 304 does not.
    pub counted: bool,
    /// Whether it was sent while the identity had to wait.
    pub while_limited: bool,
    /// The headers besides `Authorization`.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl World {
    /// The fake's time.
    pub fn now(&self) -> Timestamp {
        Timestamp::now() + self.clock_offset
    }

    /// The fake's time as GitHub writes it.
    pub fn stamp(&self) -> String {
        stamp(self.now())
    }

    /// A number that was not used before.
    pub fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// The repository with this name now, or the one that once had it.
    pub fn find_repo(&self, name: &str) -> Option<usize> {
        let now = |repo: &Repo| repo.name.eq_ignore_ascii_case(name);
        let once = |repo: &Repo| repo.former.iter().any(|former| former.eq_ignore_ascii_case(name));
        let position = |test: &dyn Fn(&Repo) -> bool| self.repos.iter().position(test);
        position(&now).or_else(|| position(&once))
    }

    /// The repository with this name, which must exist.
    pub fn repo_mut(&mut self, name: &str) -> &mut Repo {
        let index = self.find_repo(name);
        &mut self.repos[index.unwrap_or_else(|| panic!("there is no repository {name}"))]
    }
}

/// A time as GitHub writes it.
pub fn stamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What a user may do in a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    None,
    Read,
    Write,
    Admin,
}

impl Role {
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

/// What a protected branch refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Pushes that are not a fast-forward, and deletion.
    NoForcePush,
    /// Every push: changes need a pull request.
    PullRequestOnly,
}

/// A push that REST does not see yet.
pub struct Unseen {
    pub reference: String,
    /// What REST sees.
    pub before: Option<String>,
    pub lag: LagLeft,
}

/// A repository.
pub struct Repo {
    pub id: u64,
    /// `owner/name`.
    pub name: String,
    pub former: Vec<String>,
    pub dir: PathBuf,
    pub private: bool,
    pub archived: bool,
    /// Pull requests are refused, as by the policy of an organisation.
    pub pulls_forbidden: bool,
    pub drafts_forbidden: bool,
    pub collaborators: BTreeMap<String, Role>,
    pub protected: BTreeMap<String, Protection>,
    pub labels: BTreeMap<String, RepoLabel>,
    pub issues: BTreeMap<u64, Issue>,
    pub check_runs: Vec<Value>,
    pub statuses: Vec<Value>,
    pub runs: Vec<Value>,
    pub jobs: Vec<Value>,
    pub job_logs: BTreeMap<u64, JobLog>,
    pub unseen: Vec<Unseen>,
    /// Stacks and the pull requests in them, the lowest first. `None` where the account does not have stacks.
    pub stacks: Option<Vec<Stack>>,
}

/// Pull requests on top of each other.
#[derive(Clone, Debug)]
pub struct Stack {
    pub number: u64,
    pub pulls: Vec<u64>,
}

/// A label of a repository. Its key is the name in lower case.
#[derive(Clone)]
pub struct RepoLabel {
    pub id: u64,
    pub name: String,
    pub color: String,
    pub description: Option<String>,
}

/// The log of a job.
#[derive(Clone, Debug)]
pub enum JobLog {
    /// It cannot be read before the job has ended, or never if its runner died.
    NotWritten,
    Text(String),
    /// It was deleted after its retention time.
    Expired,
}

/// An issue; a pull request is one too.
pub struct Issue {
    pub id: u64,
    pub number: u64,
    pub title: String,
    pub body: Option<String>,
    pub open: bool,
    pub user: String,
    /// Keys of the repository's labels, in the order in which they were added.
    pub labels: Vec<String>,
    pub comments: Vec<Comment>,
    pub events: Vec<Value>,
    /// Numbers of the issues that this one waits for.
    pub blocked_by: BTreeSet<u64>,
    pub created_at: String,
    pub updated_at: String,
    pub closed_at: Option<String>,
    pub pull: Option<Pull>,
}

/// A comment below an issue.
#[derive(Clone, Debug)]
pub struct Comment {
    pub id: u64,
    pub user: String,
    pub body: String,
    pub created_at: String,
    pub updated_at: String,
}

/// What a pull request has besides an issue.
pub struct Pull {
    /// The branch with the changes, in the same repository.
    pub head: String,
    /// The fork that is said to have that branch.
    pub fork: Option<String>,
    pub base: String,
    pub draft: bool,
    /// The last commits of both branches that REST showed; they stay when a branch is deleted.
    pub head_sha: String,
    pub base_sha: String,
    pub reviews: Vec<Value>,
    pub review_comments: Vec<Value>,
    /// The first comments of the threads that are resolved.
    pub resolved: BTreeSet<u64>,
    pub reviewers: BTreeSet<String>,
    /// When it was merged.
    pub merged_at: Option<String>,
    /// The commit that merged it.
    pub merge_commit: Option<String>,
    /// Lists do not show it yet.
    pub unlisted: Option<LagLeft>,
}

impl Repo {
    pub fn owner(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    /// The role of a user.
    pub fn role(&self, login: &str) -> Role {
        let granted = self.collaborators.get(login).copied().unwrap_or(Role::None);
        match () {
            () if login == self.owner() => Role::Admin,
            () if self.private => granted,
            () => granted.max(Role::Read),
        }
    }

    /// All references and their commits.
    pub fn refs(&self) -> BTreeMap<String, String> {
        refs(&self.dir)
    }

    /// The commit that REST sees behind a full reference.
    pub fn seen_ref(&self, reference: &str) -> Option<String> {
        match self.unseen.iter().find(|unseen| unseen.reference == reference) {
            Some(unseen) => unseen.before.clone(),
            None => self.real_ref(reference),
        }
    }

    /// The commit behind a full reference.
    pub fn real_ref(&self, reference: &str) -> Option<String> {
        let known = try_git(&self.dir, &["show-ref", "--verify", "--hash", reference], "");
        known.ok()
    }

    /// A commit by its hash, or the last one of a branch or tag.
    pub fn commit_of(&self, name: &str) -> Option<String> {
        let short = name.trim_start_matches("refs/");
        let mut candidates = vec![format!("refs/{short}")];
        candidates.extend(["heads", "tags"].map(|kind| format!("refs/{kind}/{short}")));
        let reference = candidates.iter().find_map(|name| self.seen_ref(name));
        reference.or_else(|| {
            let is_hash = name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            let commit = format!("{name}^{{commit}}");
            let known = try_git(&self.dir, &["rev-parse", "--verify", "--quiet", &commit], "");
            known.ok().filter(|_| is_hash)
        })
    }

    /// Runs git in it; the error is what git printed.
    pub fn git(&self, args: &[&str]) -> Result<String, String> {
        try_git(&self.dir, args, "")
    }

    /// Whether the second commit is the first or comes after it.
    pub fn is_fast_forward(&self, old: &str, new: &str) -> bool {
        self.git(&["merge-base", "--is-ancestor", old, new]).is_ok()
    }

    /// Lets open pull requests show the commits of their branches, as far as REST sees them.
    pub fn refresh_pulls(&mut self) {
        let mut refs = self.refs();
        for unseen in &self.unseen {
            match &unseen.before {
                Some(before) => refs.insert(unseen.reference.clone(), before.clone()),
                None => refs.remove(&unseen.reference),
            };
        }
        for issue in self.issues.values_mut().filter(|issue| issue.open) {
            let Some(pull) = &mut issue.pull else { continue };
            let commit = |branch: &str| refs.get(&format!("refs/heads/{branch}")).cloned();
            pull.head_sha = commit(&pull.head).unwrap_or_else(|| pull.head_sha.clone());
            pull.base_sha = commit(&pull.base).unwrap_or_else(|| pull.base_sha.clone());
        }
    }

    /// Counts a REST request towards the lag of pushes.
    pub fn age_unseen(&mut self) {
        self.unseen.retain_mut(|unseen| unseen.lag.still_holds());
    }

    /// Closes the pull requests whose branch is gone. A closed base closes too, which people do not expect.
    pub fn close_orphans(&mut self, now: &str) {
        let refs = self.refs();
        for issue in self.issues.values_mut().filter(|issue| issue.open) {
            let Some(pull) = &issue.pull else { continue };
            let exists = |branch: &str| refs.contains_key(&format!("refs/heads/{branch}"));
            if !exists(&pull.head) || !exists(&pull.base) {
                issue.close(now);
            }
        }
    }

    /// The pull request with this number.
    pub fn pull(&self, number: u64) -> Option<(&Issue, &Pull)> {
        let issue = self.issues.get(&number)?;
        Some((issue, issue.pull.as_ref()?))
    }
}

impl Issue {
    pub fn close(&mut self, now: &str) {
        self.open = false;
        now.clone_into(&mut self.updated_at);
        self.closed_at = Some(now.to_owned());
    }

    pub fn reopen(&mut self, now: &str) {
        self.open = true;
        now.clone_into(&mut self.updated_at);
        self.closed_at = None;
    }
}

/// All references of a git repository and their commits.
pub fn refs(dir: &Path) -> BTreeMap<String, String> {
    let listed = git(dir, &["for-each-ref", "--format=%(refname) %(objectname)"], "");
    let lines = listed.lines().filter_map(|line| line.split_once(' '));
    lines
        .map(|(name, hash)| (name.to_owned(), hash.to_owned()))
        .collect()
}

/// A user in the short form that most answers have.
pub fn user(login: &str) -> Value {
    let id = login
        .bytes()
        .fold(7_u64, |sum, byte| (sum * 31 + u64::from(byte)) % 1_000_000_007);
    let kind = if login.ends_with("[bot]") { "Bot" } else { "User" };
    json!({
        "login": login,
        "id": id,
        "node_id": format!("U_{id}"),
        "type": kind,
        "site_admin": false,
    })
}
