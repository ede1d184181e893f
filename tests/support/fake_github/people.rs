//! What people and other programs do on GitHub meanwhile. Their permissions are not checked.

use serde_json::{Value, json};

use super::FakeGitHub;
use super::api::{NewIssue, add_label, record_event, remove_label};
use super::contract::complete_as;
use super::world::{Comment, JobLog, World, user};
use crate::git_http::{git, git_as, git_with};

/// How a pull request is merged.
#[derive(Clone, Copy)]
enum MergeMethod {
    Merge,
    Squash,
    Rebase,
}

impl FakeGitHub {
    /// A person commits one file to a branch, which is made from `main` if it is not there. Returns the commit.
    pub fn push_as(&self, login: &str, repo: &str, branch: &str, path: &str, content: &str) -> String {
        let mut world = self.world();
        let dir = world.repo_mut(repo).dir.clone();
        let reference = format!("refs/heads/{branch}");
        let parent = world.repo_mut(repo).real_ref(&reference);
        let parent = parent.unwrap_or_else(|| git(&dir, &["rev-parse", "refs/heads/main"], ""));
        let index = tempfile::tempdir().unwrap();
        let index = index.path().join("index");
        let variables = [("GIT_INDEX_FILE", index.to_str().unwrap())];
        let with_index = |args: &[&str]| git_with(&variables, &dir, args, "").unwrap();
        let blob = git_with(&[], &dir, &["hash-object", "-w", "--stdin"], content).unwrap();
        with_index(&["read-tree", &parent]);
        with_index(&[
            "update-index",
            "--add",
            "--cacheinfo",
            &format!("100644,{blob},{path}"),
        ]);
        let tree = with_index(&["write-tree"]);
        let message = format!("Change {path}");
        let commit = git_as(
            login,
            &dir,
            &["commit-tree", &tree, "-p", &parent, "-m", &message],
            "",
        );
        let commit = commit.unwrap();
        git(&dir, &["update-ref", &reference, &commit], "");
        commit
    }

    /// A person deletes a branch, which closes the pull requests from it and to it.
    pub fn delete_branch(&self, repo: &str, branch: &str) {
        let mut world = self.world();
        let now = world.stamp();
        let repo = world.repo_mut(repo);
        git(
            &repo.dir,
            &["update-ref", "-d", &format!("refs/heads/{branch}")],
            "",
        );
        repo.close_orphans(&now);
    }

    /// A person opens an issue. Returns its number.
    pub fn open_issue_as(&self, login: &str, repo: &str, title: &str, body: &str) -> u64 {
        let mut world = self.world();
        let repo = place(&world, repo);
        let new = NewIssue {
            title: title.to_owned(),
            body: Some(body.to_owned()),
            user: login.to_owned(),
        };
        new.add(&mut world, repo)
    }

    /// A person changes the text of an issue. As on GitHub, no event says who it was.
    pub fn edit_issue_as(&self, _login: &str, repo: &str, number: u64, body: &str) {
        let mut world = self.world();
        let now = world.stamp();
        let issue = world.repo_mut(repo).issues.get_mut(&number).unwrap();
        issue.body = Some(body.to_owned());
        issue.updated_at = now;
    }

    pub fn label_as(&self, login: &str, repo: &str, number: u64, label: &str) {
        let mut world = self.world();
        let repo = place(&world, repo);
        add_label(&mut world, repo, number, login, label);
    }

    pub fn unlabel_as(&self, login: &str, repo: &str, number: u64, label: &str) {
        let mut world = self.world();
        let repo = place(&world, repo);
        assert!(
            remove_label(&mut world, repo, number, login, label),
            "no label {label}"
        );
    }

    pub fn close_as(&self, login: &str, repo: &str, number: u64) {
        let mut world = self.world();
        let (repo, now) = (place(&world, repo), world.stamp());
        world.repos[repo].issues.get_mut(&number).unwrap().close(&now);
        record_event(&mut world, repo, number, login, "closed", Value::Null);
    }

    pub fn reopen_as(&self, login: &str, repo: &str, number: u64) {
        let mut world = self.world();
        let (repo, now) = (place(&world, repo), world.stamp());
        world.repos[repo].issues.get_mut(&number).unwrap().reopen(&now);
        record_event(&mut world, repo, number, login, "reopened", Value::Null);
    }

    /// One issue waits for another.
    pub fn block(&self, repo: &str, number: u64, waits_for: u64) {
        let mut world = self.world();
        let issue = world.repo_mut(repo).issues.get_mut(&number).unwrap();
        issue.blocked_by.insert(waits_for);
    }

    /// A person comments on an issue or pull request. Returns the comment's number.
    pub fn comment_as(&self, login: &str, repo: &str, number: u64, body: &str) -> u64 {
        let mut world = self.world();
        let (id, now) = (world.new_id(), world.stamp());
        let issue = world.repo_mut(repo).issues.get_mut(&number).unwrap();
        issue.comments.push(Comment {
            id,
            user: login.to_owned(),
            body: body.to_owned(),
            created_at: now.clone(),
            updated_at: now.clone(),
        });
        issue.updated_at = now;
        id
    }

    /// A person reviews a pull request with a state such as `CHANGES_REQUESTED`. Returns the review's number.
    pub fn review_as(&self, login: &str, repo: &str, number: u64, state: &str, body: &str) -> u64 {
        let mut world = self.world();
        let (id, now) = (world.new_id(), world.stamp());
        let repo = world.repo_mut(repo);
        repo.refresh_pulls();
        let pull = repo
            .issues
            .get_mut(&number)
            .and_then(|issue| issue.pull.as_mut())
            .unwrap();
        let review = json!({
            "id": id, "node_id": format!("PRR_{id}"), "user": user(login), "body": body,
            "state": state, "commit_id": pull.head_sha, "submitted_at": now,
        });
        pull.reviews.push(review);
        id
    }

    /// A person comments on a line of a pull request, as part of a review. Returns the comment's number.
    pub fn review_comment_as(
        &self,
        login: &str,
        repo: &str,
        review: u64,
        path: &str,
        line: u64,
        body: &str,
    ) -> u64 {
        let mut world = self.world();
        let (id, now) = (world.new_id(), world.stamp());
        let pulls = world.repo_mut(repo).issues.values_mut();
        let mut pulls = pulls.filter_map(|issue| issue.pull.as_mut());
        let is_of_review = |known: &Value| known["id"] == review;
        let pull = pulls.find(|pull| pull.reviews.iter().any(is_of_review)).unwrap();
        let comment = json!({
            "id": id, "node_id": format!("PRRC_{id}"), "user": user(login), "body": body, "path": path, "line": line,
            "commit_id": pull.head_sha, "original_commit_id": pull.head_sha, "diff_hunk": "@@",
            "pull_request_review_id": review, "created_at": now, "updated_at": now,
        });
        pull.review_comments
            .push(complete_as("pull-request-review-comment", comment));
        id
    }

    /// A person answers in a thread of a pull request, whose first comment has this number. Returns the answer's number.
    pub fn reply_as(&self, login: &str, repo: &str, thread: u64, body: &str) -> u64 {
        let mut world = self.world();
        let (id, now) = (world.new_id(), world.stamp());
        let pulls = world.repo_mut(repo).issues.values_mut();
        let mut threads = pulls
            .filter_map(|issue| issue.pull.as_mut())
            .map(|pull| &mut pull.review_comments);
        let is_first = |known: &Value| known["id"] == thread;
        let comments = threads.find(|comments| comments.iter().any(is_first)).unwrap();
        let mut answer = comments.iter().find(|known| is_first(known)).unwrap().clone();
        answer["id"] = json!(id);
        answer["node_id"] = json!(format!("PRRC_{id}"));
        answer["in_reply_to_id"] = json!(thread);
        answer["user"] = user(login);
        answer["body"] = json!(body);
        answer["created_at"] = json!(now);
        answer["updated_at"] = json!(now);
        comments.push(answer);
        id
    }

    /// The branch of a pull request is that of a fork with this name.
    pub fn fork_pull(&self, repo: &str, number: u64, fork: &str) {
        let mut world = self.world();
        let issue = world.repo_mut(repo).issues.get_mut(&number).unwrap();
        issue.pull.as_mut().unwrap().fork = Some(fork.to_owned());
    }

    /// A person resolves a thread of a pull request, whose first comment has this number.
    pub fn resolve_thread(&self, repo: &str, thread: u64) {
        let mut world = self.world();
        let pulls = world.repo_mut(repo).issues.values_mut();
        let is_first = |known: &Value| known["id"] == thread;
        let mut pulls = pulls.filter_map(|issue| issue.pull.as_mut());
        let pull = pulls.find(|pull| pull.review_comments.iter().any(is_first));
        pull.unwrap().resolved.insert(thread);
    }

    /// A person merges a pull request with a merge commit.
    pub fn merge_as(&self, login: &str, repo: &str, number: u64) {
        self.end_by_merge(login, repo, number, MergeMethod::Merge);
    }

    /// A person merges a pull request as one new commit.
    pub fn squash_as(&self, login: &str, repo: &str, number: u64) {
        self.end_by_merge(login, repo, number, MergeMethod::Squash);
    }

    /// A person merges a pull request as new commits, one for each of its own. They are others even if the base has not moved:
    /// GitHub sets their committer.
    pub fn rebase_as(&self, login: &str, repo: &str, number: u64) {
        self.end_by_merge(login, repo, number, MergeMethod::Rebase);
    }

    fn end_by_merge(&self, login: &str, repo: &str, number: u64, method: MergeMethod) {
        let mut world = self.world();
        let now = world.stamp();
        let repo = world.repo_mut(repo);
        repo.refresh_pulls();
        let (_, pull) = repo.pull(number).unwrap();
        let (dir, base, head) = (&repo.dir, &pull.base_sha, &pull.head_sha);
        let message = format!("Merge pull request #{number}");
        let merged = |onto: &str, theirs: &str, message: &str, second: Option<&str>| {
            let tree = git(dir, &["merge-tree", "--write-tree", onto, theirs], "");
            let mut args = vec!["commit-tree", &tree, "-m", message, "-p", onto];
            args.extend(second.into_iter().flat_map(|second| ["-p", second]));
            git_as(login, dir, &args, "").unwrap()
        };
        let commit = match method {
            MergeMethod::Merge => merged(base, head, &message, Some(head)),
            MergeMethod::Squash => merged(base, head, &message, None),
            MergeMethod::Rebase => {
                let range = format!("{base}..{head}");
                let commits = git(dir, &["rev-list", "--reverse", &range], "");
                commits.lines().fold(base.clone(), |onto, one| {
                    let subject = git(dir, &["log", "-1", "--format=%s", one], "");
                    merged(&onto, one, &subject, None)
                })
            }
        };
        git(
            &repo.dir,
            &["update-ref", &format!("refs/heads/{}", pull.base), &commit],
            "",
        );
        let issue = repo.issues.get_mut(&number).unwrap();
        issue.close(&now);
        let pull = issue.pull.as_mut().unwrap();
        (pull.merged_at, pull.merge_commit) = (Some(now), Some(commit));
    }

    /// A check run reports for a commit. `conclusion` is for a status of `completed` only. Returns its number.
    pub fn set_check_run(
        &self,
        repo: &str,
        sha: &str,
        name: &str,
        status: &str,
        conclusion: Option<&str>,
    ) -> u64 {
        let mut world = self.world();
        let (id, now) = (world.new_id(), world.stamp());
        let run = json!({
            "id": id, "node_id": format!("CR_{id}"), "head_sha": sha, "name": name, "status": status,
            "conclusion": conclusion, "started_at": now, "completed_at": conclusion.map(|_| now.clone()),
            "app": complete_as("integration", json!({ "id": 1, "slug": "github-actions", "name": "GitHub Actions" })),
        });
        world.repo_mut(repo).check_runs.push(run);
        id
    }

    /// Like [`FakeGitHub::set_check_run`], completed, in a suite of this number.
    pub fn set_check_run_of(&self, repo: &str, sha: &str, suite: u64, name: &str, conclusion: Option<&str>) {
        let id = self.set_check_run(repo, sha, name, "completed", conclusion);
        let mut world = self.world();
        let runs = world.repo_mut(repo).check_runs.iter_mut();
        for run in runs.filter(|run| run["id"] == id) {
            run["check_suite"] = json!({ "id": suite });
        }
    }

    /// A program reports a commit status.
    pub fn set_status(&self, repo: &str, sha: &str, context: &str, state: &str) {
        let mut world = self.world();
        let (id, now) = (world.new_id(), world.stamp());
        let status = json!({
            "id": id, "node_id": format!("SC_{id}"), "avatar_url": null, "state": state, "description": null,
            "target_url": null, "context": context, "created_at": now, "updated_at": now,
            "creator": user("ci[bot]"), "sha": sha,
        });
        world.repo_mut(repo).statuses.push(status);
    }

    /// A workflow runs for a commit. Returns its number.
    pub fn add_workflow_run(&self, repo: &str, sha: &str, branch: &str, conclusion: Option<&str>) -> u64 {
        let mut world = self.world();
        let (id, now) = (world.new_id(), world.stamp());
        let status = if conclusion.is_some() {
            "completed"
        } else {
            "in_progress"
        };
        let run = json!({
            "id": id, "node_id": format!("WFR_{id}"), "head_sha": sha, "head_branch": branch, "event": "push",
            "status": status, "conclusion": conclusion, "run_number": 1, "path": ".github/workflows/ci.yml",
            "name": "ci", "display_title": "ci", "created_at": now, "updated_at": now, "workflow_id": 1,
        });
        world.repo_mut(repo).runs.push(run);
        id
    }

    /// A job of a workflow run, and its log. Returns its number.
    pub fn add_job(&self, repo: &str, run: u64, name: &str, conclusion: Option<&str>, log: JobLog) -> u64 {
        let mut world = self.world();
        let (id, now) = (world.new_id(), world.stamp());
        let repo = world.repo_mut(repo);
        let known = repo
            .runs
            .iter()
            .find(|known| known["id"] == run)
            .cloned()
            .unwrap();
        let status = if conclusion.is_some() {
            "completed"
        } else {
            "in_progress"
        };
        let job = json!({
            "id": id, "node_id": format!("JOB_{id}"), "run_id": run, "head_sha": known["head_sha"],
            "head_branch": known["head_branch"], "workflow_name": "ci", "name": name, "status": status,
            "conclusion": conclusion, "created_at": now, "started_at": now,
            "completed_at": conclusion.map(|_| now.clone()),
        });
        repo.jobs.push(job);
        repo.job_logs.insert(id, log);
        id
    }

    /// Changes the log of a job.
    pub fn set_job_log(&self, repo: &str, job: u64, log: JobLog) {
        self.world().repo_mut(repo).job_logs.insert(job, log);
    }
}

fn place(world: &World, repo: &str) -> usize {
    world
        .find_repo(repo)
        .unwrap_or_else(|| panic!("there is no repository {repo}"))
}
