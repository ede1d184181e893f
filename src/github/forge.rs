//! The forge `github`: pushes from the host, and a pull request that the runner owns.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{Mutex, OnceCell};

use super::ci;
use super::client::GitHubClient;
use super::error::GitHubError;
use super::pulls::Pulls;
use super::retry::RemoteRetry;
use super::reviews::Reviews;
use super::stacks::BaseChange;
use super::wire::{BranchRule, BranchTip, Pull, PullState, RepositoryInfo};
use crate::id::{ObjectId, RepositoryName};
use crate::scm::{
    CiReport, CommitStatus, Forge, ForgeError, OpenedPullRequest, PlannedPullRequest, PullRequest,
    PullRequestBase, PullRequestOverlap, RefMove, Remote, Repository, ReviewAnswer, ScmError,
};
use crate::secret::Redactor;
use crate::text::url_part;

/// The longest title in characters. GitHub refuses more than 256.
const MAX_TITLE: usize = 250;

/// Rules that forbid what ralph does with its branches.
const FORBIDDING_RULES: [(&str, &str); 3] = [
    ("creation", "forbids to create"),
    ("update", "forbids to push to"),
    ("pull_request", "requires a pull request for every push to"),
];

/// Pull requests in one repository on GitHub.
pub struct GitHubForge {
    pub(super) client: Arc<GitHubClient>,
    name: RepositoryName,
    /// The address of git, for example `https://github.com`.
    url: String,
    pub(super) repository: Repository,
    redactor: Redactor,
    /// The repository as GitHub describes it. It may have another name by now.
    info: OnceCell<(RepositoryName, RepositoryInfo)>,
    /// The changes of a base that GitHub refused, so that they are not tried again and again.
    pub(super) refused_bases: Mutex<BTreeSet<BaseChange>>,
}

impl GitHubForge {
    /// The forge for a repository on GitHub. `repository` is the one on this host that has the commits.
    #[must_use]
    pub fn new(
        client: Arc<GitHubClient>,
        name: RepositoryName,
        url: &str,
        repository: Repository,
        redactor: Redactor,
    ) -> Self {
        Self {
            client,
            name,
            url: url.trim_end_matches('/').to_owned(),
            repository,
            redactor,
            info: OnceCell::new(),
            refused_bases: Mutex::default(),
        }
    }

    pub(super) async fn info(&self) -> Result<&(RepositoryName, RepositoryInfo), GitHubError> {
        let ask = async || {
            let info: RepositoryInfo = self.client.get(&format!("repos/{}", self.name)).await?;
            let name = RepositoryName::parse(&info.full_name).map_err(|error| GitHubError::Response {
                call: format!("GET /repos/{}", self.name),
                source: error.into(),
            })?;
            Ok((name, info))
        };
        self.info.get_or_try_init(ask).await
    }

    pub(super) async fn pulls(&self) -> Result<Pulls<'_>, ForgeError> {
        let (repository, _) = self.info().await?;
        Ok(Pulls {
            client: &self.client,
            repository,
        })
    }

    /// The remote with a token that is valid now: tokens of an App expire during a run. Waits while a rate limit forbids calls.
    pub(super) async fn remote(&self) -> Result<Remote, GitHubError> {
        self.client.wait_for_limits().await?;
        let (name, _) = self.info().await?;
        let remote = Remote {
            url: format!("{}/{name}.git", self.url),
            token: self.client.token().await?,
        };
        self.redactor
            .learn([remote.token.clone(), remote.authorization()]);
        Ok(remote)
    }

    /// Does something at the remote: again after a rate limit, and once more with another token if GitHub has ended that of an
    /// App early. A request that was refused for one of these had no effect.
    pub(super) async fn at_remote<T, F>(&self, act: impl Fn(Remote) -> F) -> Result<T, ForgeError>
    where
        F: Future<Output = Result<T, ForgeError>>,
    {
        let mut retry = RemoteRetry::new(&self.client);
        loop {
            let remote = self.remote().await?;
            match act(remote.clone()).await {
                Err(ForgeError::Scm(error)) if retry.prepare(&remote, &error).await? => {}
                done => return done,
            }
        }
    }

    /// Pushes the commit. A branch that is not where this run left it has commits of a person: it is not changed.
    async fn push(&self, request: &PullRequest) -> Result<(), ForgeError> {
        self.at_remote(|remote| self.push_to(remote, request)).await
    }

    async fn push_to(&self, remote: Remote, request: &PullRequest) -> Result<(), ForgeError> {
        let Some(push) = self.due_push(&remote, request).await? else {
            return Ok(());
        };
        let _one_write_at_a_time = self.client.begin_push().await;
        // A token of an App may have expired while this waited.
        let remote = self.remote().await?;
        let results = self.repository.move_refs(&remote, &[push]).await?;
        Ok(results.into_iter().collect::<Result<(), _>>()?)
    }

    /// The push of the request's commit. `None` if the branch is there already. Refuses a branch that is not where this run
    /// left it.
    pub(super) async fn due_push(
        &self,
        remote: &Remote,
        request: &PullRequest,
    ) -> Result<Option<RefMove>, ForgeError> {
        let found = self.repository.remote_branch(remote, &request.branch).await?;
        if found.as_ref() == Some(&request.commit) {
            return Ok(None);
        }
        let name = format!("refs/heads/{}", request.branch);
        if found.as_ref().is_some_and(|found| !request.ours.contains(found)) {
            let expected = request.ours.last().cloned();
            return Err(ForgeError::Scm(ScmError::RefMoved {
                name,
                expected,
                found,
            }));
        }
        Ok(Some(RefMove {
            name,
            from: found,
            to: Some(request.commit.clone()),
        }))
    }

    /// Why a closed pull request cannot be used.
    async fn ended(&self, pulls: &Pulls<'_>, pull: Pull) -> Result<ForgeError, ForgeError> {
        if pull.merged_at.is_some() {
            return Ok(ForgeError::Ended {
                location: pull.html_url,
                how: "merged",
            });
        }
        let path = pulls.path(&format!("branches/{}", url_part(&pull.base.name)));
        let base: Option<BranchTip> = self.client.find(&path).await?;
        let (location, base_name) = (pull.html_url, pull.base.name);
        Ok(match base {
            Some(_) => ForgeError::Ended {
                location,
                how: "closed",
            },
            None => ForgeError::BaseDeleted {
                location,
                base: base_name,
            },
        })
    }

    /// The commit of a branch, from git, which answers at once: the API may show the old commit for some seconds.
    async fn branch_tip(&self, branch: &str) -> Result<Option<ObjectId>, ForgeError> {
        let look = |remote: Remote| async move { Ok(self.repository.remote_branch(&remote, branch).await?) };
        self.at_remote(look).await
    }

    /// Fails if the branch is at another commit by now: a pull request would claim of that one what is true of ours.
    async fn expect_pushed(&self, request: &PullRequest) -> Result<(), ForgeError> {
        let found = self.branch_tip(&request.branch).await?;
        if found.as_ref() == Some(&request.commit) {
            return Ok(());
        }
        Err(ForgeError::Scm(ScmError::RefMoved {
            name: format!("refs/heads/{}", request.branch),
            expected: Some(request.commit.clone()),
            found,
        }))
    }

    /// The pull request with everything that was asked for, and what was done otherwise.
    async fn open_pull(
        &self,
        pulls: &Pulls<'_>,
        request: &PullRequest,
    ) -> Result<(Pull, Vec<String>), ForgeError> {
        let found = match pulls.find(&request.branch, request.runs()).await? {
            Some(pull) if pull.state == PullState::Closed => return Err(self.ended(pulls, pull).await?),
            Some(pull) => pull,
            None => {
                self.expect_pushed(request).await?;
                pulls.create(request).await?
            }
        };
        let updated = pulls.update(found, request).await?;
        let pull = updated.pull;
        let mut warnings = self.keep_stacked(pulls, &pull).await?;
        if updated.kept_text {
            warnings.push(format!(
                "a person wrote or edited the text of {}, so ralph leaves it; the run's own text is in its directory",
                pull.html_url
            ));
        }
        if pull.draft && !request.draft {
            self.expect_pushed(request).await?;
            self.client.mark_ready(&pull.node_id).await?;
        }
        if let Err(error) = pulls.add_labels(&pull, &request.labels).await {
            warnings.push(format!("the labels of {} were not set: {error}", pull.html_url));
        }
        Ok((pull, warnings))
    }
}

#[async_trait]
impl Forge for GitHubForge {
    async fn check(&self, planned: &PlannedPullRequest) -> Result<Option<String>, ForgeError> {
        let (name, info) = self.info().await?;
        if info.archived {
            return Err(not_possible(
                format!("the repository {name} is archived, so nothing can be pushed to it"),
                "unarchive it, or set `[forge] type = \"local\"`",
            ));
        }
        let Some(base) = &planned.base_branch else {
            return Err(not_possible(
                "the run started from a detached HEAD, and a pull request needs a base branch".to_owned(),
                "check out a branch, or set `base_branch` in the task",
            ));
        };
        // The branch of a run below may be merged and deleted by now.
        let base = &self.base(base).await?.branch;
        self.check_base(name, base).await?;
        self.check_rules(name, &planned.branch).await?;
        self.check_writes(name, base, planned).await?;
        if planned.waits_for_ci {
            // A token that cannot read checks would leave the run waiting.
            ci::report(&self.client, name, &planned.base, &self.redactor).await?;
        }
        let renamed = if name == &self.name {
            String::new()
        } else {
            format!(" (renamed from {})", self.name)
        };
        Ok(Some(format!(
            "{name}{renamed} accepts pushes and pull requests into `{base}`"
        )))
    }

    async fn base(&self, base_branch: &str) -> Result<PullRequestBase, ForgeError> {
        let (_, info) = self.info().await?;
        let pulls = self.pulls().await?;
        let place = pulls.stack_place(base_branch, &info.default_branch).await?;
        Ok(PullRequestBase {
            branch: place.base,
            below: place.below.map(|below| format!("#{}", below.number)),
        })
    }

    async fn open(&self, request: &PullRequest) -> Result<OpenedPullRequest, ForgeError> {
        self.push(request).await?;
        self.open_pushed(request).await
    }

    async fn share_note(&self, notes_ref: &str, commit: &ObjectId) -> Result<bool, ForgeError> {
        self.push_note(notes_ref, commit).await?;
        Ok(true)
    }

    async fn ci(&self, commit: &ObjectId) -> Result<CiReport, ForgeError> {
        let (name, _) = self.info().await?;
        Ok(ci::report(&self.client, name, commit, &self.redactor).await?)
    }

    async fn overlaps(
        &self,
        branch: &str,
        base_branch: &str,
        files: &[String],
    ) -> Result<Vec<PullRequestOverlap>, ForgeError> {
        let pulls = self.pulls().await?;
        Ok(pulls.overlaps(branch, base_branch, files).await?)
    }

    async fn answer(&self, answer: &ReviewAnswer) -> Result<Option<String>, ForgeError> {
        let (name, _) = self.info().await?;
        let reviews = Reviews::new(self.client.clone(), name.clone());
        Ok(reviews.answer(answer).await?)
    }

    async fn set_status(
        &self,
        commit: &ObjectId,
        status: &CommitStatus,
        location: &str,
    ) -> Result<(), ForgeError> {
        let pulls = self.pulls().await?;
        Ok(pulls.set_status(commit, status, location).await?)
    }

    async fn is_at(&self, branch: &str, commit: &ObjectId) -> Result<bool, ForgeError> {
        let found = self.branch_tip(branch).await?;
        Ok(found.as_ref() == Some(commit))
    }
}

impl GitHubForge {
    /// Opens the pull request of a branch that is pushed, or updates the open one.
    pub(crate) async fn open_pushed(&self, request: &PullRequest) -> Result<OpenedPullRequest, ForgeError> {
        let request = &PullRequest {
            title: request.title.trim().chars().take(MAX_TITLE).collect(),
            ..request.clone()
        };
        let (_, info) = self.info().await?;
        let pulls = self.pulls().await?;
        let mut opened = match self.open_pull(&pulls, request).await {
            Ok((pull, warnings)) => OpenedPullRequest {
                location: pull.html_url,
                is_pull_request: true,
                warnings,
            },
            Err(ForgeError::Server { source, .. }) if is_forbidden(source.as_ref()) => OpenedPullRequest {
                location: format!("{}/tree/{}", info.html_url, request.branch),
                is_pull_request: false,
                warnings: vec![format!(
                    "the branch is pushed, but this account may not open the pull request ({source}): open it at \
                     {}/compare/{}...{}",
                    info.html_url, request.base_branch, request.branch
                )],
            },
            Err(error) => return Err(error),
        };
        if let Some(status) = &request.status
            && let Err(error) = pulls.set_status(&request.commit, status, &opened.location).await
        {
            let (commit, problem) = (&request.commit, error.with_hint());
            let warning = format!("the commit status of {commit} was not set: {problem}");
            opened.warnings.push(warning);
        }
        Ok(opened)
    }

    async fn check_base(&self, name: &RepositoryName, base: &str) -> Result<(), ForgeError> {
        let path = format!("repos/{name}/branches/{}", url_part(base));
        let found: Option<BranchTip> = self.client.find(&path).await?;
        match found {
            Some(_) => Ok(()),
            None => Err(not_possible(
                format!("the base branch `{base}` is not on {name}"),
                "push it first, or set another `base_branch` in the task",
            )),
        }
    }

    /// Refuses a branch that rulesets or protections forbid. GitHub does not say whether this account is exempt.
    async fn check_rules(&self, name: &RepositoryName, branch: &str) -> Result<(), ForgeError> {
        let path = format!("repos/{name}/rules/branches/{}", url_part(branch));
        let rules: Vec<BranchRule> = match self.client.list(&path).await {
            // Old servers and some plans have no rulesets.
            Err(error) if matches!(error.status(), Some(403 | 404)) => return Ok(()),
            rules => rules?,
        };
        let forbidding = FORBIDDING_RULES
            .iter()
            .find(|(kind, _)| rules.iter().any(|rule| rule.kind == *kind));
        match forbidding {
            Some((_, what)) => Err(not_possible(
                format!("a ruleset of {name} {what} the branch `{branch}`"),
                "exempt the branches of ralph in the ruleset, or set another `git.branch_prefix`",
            )),
            None => Ok(()),
        }
    }

    /// Tries a push and a pull request that cannot be made, for their permissions.
    async fn check_writes(
        &self,
        name: &RepositoryName,
        base: &str,
        planned: &PlannedPullRequest,
    ) -> Result<(), ForgeError> {
        let check = |remote: Remote| async move {
            let checked = self
                .repository
                .check_push(&remote, &planned.branch, &planned.base);
            Ok(checked.await?)
        };
        let pushed = self.at_remote(check).await;
        pushed.map_err(|error| {
            not_possible(
                format!("the token may not push to {name}: {error}"),
                "give the token or the App the permission `contents: write` for this repository",
            )
        })?;
        Ok(self.check_pulls(name, base).await?)
    }

    /// Tries a pull request that cannot be opened, once for all runs of the process.
    async fn check_pulls(&self, name: &RepositoryName, base: &str) -> Result<(), GitHubError> {
        // Locked meanwhile, so that runs that start together try it once.
        let mut allowed = self.client.pull_repositories.lock().await;
        if allowed.contains(name) {
            return Ok(());
        }
        // A branch has no changes against itself, so GitHub refuses this after it has checked the permission.
        let body = serde_json::json!({"title": "ralph", "head": base, "base": base});
        let path = format!("repos/{name}/pulls");
        match self.client.post::<serde_json::Value>(&path, body).await {
            Err(error) if error.status() != Some(422) => return Err(error),
            Err(_) | Ok(_) => {}
        }
        allowed.insert(name.clone());
        Ok(())
    }
}

impl From<GitHubError> for ForgeError {
    fn from(error: GitHubError) -> Self {
        Self::Server {
            hint: error.hint(),
            source: Box::new(error),
        }
    }
}

fn not_possible(reason: String, hint: &str) -> ForgeError {
    ForgeError::NotPossible {
        reason,
        hint: hint.to_owned(),
    }
}

/// Whether an account may not open pull requests: its token lacks the permission, or the organisation forbids it.
fn is_forbidden(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<GitHubError>().is_some_and(|error| {
        matches!(error, GitHubError::Refused { status: 403, call, .. } if call.starts_with("POST") && call.ends_with("/pulls"))
            || error.says(422, "not permitted to create")
    })
}
