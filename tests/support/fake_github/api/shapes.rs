//! How repositories, issues and pull requests look in answers.

use serde_json::{Value, json};

use super::Call;
use crate::fake_github::world::{Comment, Issue, Pull, Repo, Role, user};

impl Call<'_> {
    /// The address of something in the repository.
    pub(super) fn repo_url(&self, rest: &str) -> String {
        format!("{}/repos/{}{rest}", self.url, self.repo().name)
    }

    pub(super) fn repo_json(&self) -> Value {
        repo_json(self.repo(), self.url, self.caller.role(self.repo()))
    }

    pub(super) fn issue_json(&self, issue: &Issue) -> Value {
        let repo = self.repo();
        let number = issue.number;
        let url = self.repo_url(&format!("/issues/{number}"));
        let kind = if issue.pull.is_some() { "pull" } else { "issues" };
        let html_url = format!("{}/{}/{kind}/{number}", self.url, repo.name);
        let mut shape = json!({
            "id": issue.id,
            "node_id": format!("I_{}", issue.id),
            "number": number,
            "title": issue.title,
            "body": issue.body,
            "state": if issue.open { "open" } else { "closed" },
            "user": user(&issue.user),
            "labels": self.labels_json(&issue.labels),
            "comments": issue.comments.len(),
            "comments_url": format!("{url}/comments"),
            "events_url": format!("{url}/events"),
            "labels_url": format!("{url}/labels{{/name}}"),
            "repository_url": self.repo_url(""),
            "html_url": html_url,
            "url": url,
            "author_association": association(repo.role(&issue.user)),
            "created_at": issue.created_at,
            "updated_at": issue.updated_at,
            "closed_at": issue.closed_at,
            "issue_dependencies_summary": dependencies(repo, issue),
        });
        if issue.pull.is_some() {
            let pull_url = self.repo_url(&format!("/pulls/{number}"));
            shape["pull_request"] = json!({
                "url": pull_url, "html_url": html_url,
                "diff_url": format!("{html_url}.diff"), "patch_url": format!("{html_url}.patch"),
            });
        }
        shape
    }

    pub(super) fn labels_json(&self, keys: &[String]) -> Vec<Value> {
        let labels = keys.iter().filter_map(|key| self.repo().labels.get(key));
        labels
            .map(|label| {
                json!({
                    "id": label.id,
                    "node_id": format!("LA_{}", label.id),
                    "url": self.repo_url(&format!("/labels/{}", super::encode(&label.name))),
                    "name": label.name,
                    "color": label.color,
                    // GitHub's document wants a text in pull requests.
                    "description": label.description.clone().unwrap_or_default(),
                    "default": false,
                })
            })
            .collect()
    }

    pub(super) fn comment_json(&self, number: u64, comment: &Comment) -> Value {
        let page = format!("{}/{}/issues/{number}", self.url, self.repo().name);
        json!({
            "id": comment.id,
            "node_id": format!("IC_{}", comment.id),
            "url": self.repo_url(&format!("/issues/comments/{}", comment.id)),
            "html_url": format!("{page}#issuecomment-{}", comment.id),
            "issue_url": self.repo_url(&format!("/issues/{number}")),
            "body": comment.body,
            "user": user(&comment.user),
            "author_association": association(self.repo().role(&comment.user)),
            "created_at": comment.created_at,
            "updated_at": comment.updated_at,
        })
    }

    /// A pull request as lists have it.
    pub(super) fn pull_json(&self, issue: &Issue, pull: &Pull) -> Value {
        let mut shape = self.issue_json(issue);
        let fields = shape.as_object_mut().expect("it is an object");
        for only_of_issues in [
            "comments",
            "events_url",
            "issue_dependencies_summary",
            "labels_url",
            "repository_url",
            "pull_request",
        ] {
            fields.remove(only_of_issues);
        }
        let url = self.repo_url(&format!("/pulls/{}", issue.number));
        let statuses_url = self.repo_url(&format!("/statuses/{}", pull.head_sha));
        shape["id"] = json!(issue.id);
        shape["node_id"] = json!(node_id(issue));
        shape["issue_url"] = shape["url"].clone();
        shape["url"] = json!(url);
        shape["statuses_url"] = json!(statuses_url);
        shape["draft"] = json!(pull.draft);
        shape["head"] = self.side_json(&pull.head, &pull.head_sha);
        if let Some(fork) = &pull.fork {
            shape["head"]["repo"]["full_name"] = json!(fork);
        }
        shape["base"] = self.side_json(&pull.base, &pull.base_sha);
        shape["merged_at"] = json!(pull.merged_at);
        shape["merge_commit_sha"] = json!(pull.merge_commit);
        shape["requested_reviewers"] = pull.reviewers.iter().map(|login| user(login)).collect();
        shape["_links"] = json!({
            "self": { "href": url }, "html": { "href": shape["html_url"] }, "issue": { "href": shape["issue_url"] },
            "comments": { "href": shape["comments_url"] }, "review_comments": { "href": format!("{url}/comments") },
            "review_comment": { "href": self.repo_url("/pulls/comments{/number}") },
            "commits": { "href": format!("{url}/commits") }, "statuses": { "href": statuses_url },
        });
        shape
    }

    /// A pull request as it is shown alone.
    pub(super) fn full_pull_json(&self, issue: &Issue, pull: &Pull) -> Value {
        let repo = self.repo();
        let mut shape = self.pull_json(issue, pull);
        let range = format!("{}...{}", pull.base_sha, pull.head_sha);
        let numbers = repo.git(&["diff", "--numstat", &range]).unwrap_or_default();
        let column = |index: usize| -> u64 {
            let values = numbers.lines().filter_map(|line| line.split('\t').nth(index));
            values.filter_map(|value| value.parse::<u64>().ok()).sum()
        };
        let count = repo.git(&[
            "rev-list",
            "--count",
            &format!("{}..{}", pull.base_sha, pull.head_sha),
        ]);
        let merges = repo.git(&["merge-tree", "--write-tree", &pull.base_sha, &pull.head_sha]);
        let merged = pull.merged_at.is_some();
        shape["additions"] = json!(column(0));
        shape["deletions"] = json!(column(1));
        shape["changed_files"] = json!(numbers.lines().count());
        shape["commits"] = json!(
            count
                .ok()
                .and_then(|count| count.parse::<u64>().ok())
                .unwrap_or(0)
        );
        shape["comments"] = json!(issue.comments.len());
        shape["review_comments"] = json!(pull.review_comments.len());
        shape["merged"] = json!(merged);
        shape["mergeable"] = json!((issue.open).then_some(merges.is_ok()));
        shape["mergeable_state"] = json!(match () {
            () if !issue.open => "unknown",
            () if merges.is_err() => "dirty",
            () if pull.draft => "draft",
            () => "clean",
        });
        shape
    }

    fn side_json(&self, branch: &str, sha: &str) -> Value {
        let repo = self.repo();
        json!({
            "label": format!("{}:{branch}", repo.owner()),
            "ref": branch,
            "sha": sha,
            "user": user(repo.owner()),
            "repo": self.repo_json(),
        })
    }
}

/// How GraphQL names a pull request.
pub(super) fn node_id(issue: &Issue) -> String {
    format!("PR_{}", issue.id)
}

pub(super) fn repo_json(repo: &Repo, url: &str, role: Role) -> Value {
    let short = repo.name.split('/').nth(1).unwrap_or_default();
    let page = format!("{url}/{}", repo.name);
    json!({
        "id": repo.id,
        "node_id": format!("R_{}", repo.id),
        "name": short,
        "full_name": repo.name,
        "owner": user(repo.owner()),
        "private": repo.private,
        "visibility": if repo.private { "private" } else { "public" },
        "html_url": page,
        "url": format!("{url}/repos/{}", repo.name),
        "clone_url": format!("{page}.git"),
        "default_branch": "main",
        "archived": repo.archived,
        "has_issues": true,
        "permissions": {
            "admin": role == Role::Admin,
            "maintain": role == Role::Admin,
            "push": role >= Role::Write,
            "triage": role >= Role::Write,
            "pull": role >= Role::Read,
        },
    })
}

/// How GitHub calls the relation of a writer to the repository.
pub(super) fn association(role: Role) -> &'static str {
    match role {
        Role::Admin => "OWNER",
        Role::Write => "COLLABORATOR",
        Role::None | Role::Read => "NONE",
    }
}

/// How many issues an issue waits for, and how many wait for it; the open ones and all.
fn dependencies(repo: &Repo, issue: &Issue) -> Value {
    let is_open = |number: &&u64| repo.issues.get(number).is_some_and(|other| other.open);
    let waiting = |other: &&Issue| other.blocked_by.contains(&issue.number);
    json!({
        "blocked_by": issue.blocked_by.iter().filter(is_open).count(),
        "total_blocked_by": issue.blocked_by.len(),
        "blocking": repo.issues.values().filter(waiting).filter(|other| other.open).count(),
        "total_blocking": repo.issues.values().filter(waiting).count(),
    })
}
