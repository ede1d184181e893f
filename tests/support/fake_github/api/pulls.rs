//! Pull requests.

use serde_json::{Value, json};

use super::issues::{NewIssue, check_body};
use super::{Call, reviews};
use crate::fake_github::reply::{Handled, Reply};
use crate::fake_github::world::{Issue, Pull, Repo};

pub(super) fn handle(call: &mut Call<'_>) -> Handled {
    call.repo_mut().refresh_pulls();
    match call.operation.id {
        "pulls/list" => list(call),
        "pulls/create" => create(call),
        "pulls/get" => get(call),
        "pulls/update" => update(call),
        "pulls/list-files" => list_files(call),
        "pulls/list-commits" => list_commits(call),
        "pulls/update-branch" => update_branch(call),
        _ => reviews::handle(call),
    }
}

fn list(call: &mut Call<'_>) -> Handled {
    let state = call.asked_for("state").unwrap_or("open").to_owned();
    let head = call.asked_for("head").map(str::to_owned);
    let base = call.asked_for("base").map(str::to_owned);
    let owner = call.repo().owner().to_owned();
    let is_asked_for = |issue: &Issue, pull: &Pull| {
        let label = format!("{owner}:{}", pull.head);
        // A head without an owner filters nothing, as on GitHub.
        let has_head = head
            .as_ref()
            .is_none_or(|head| !head.contains(':') || *head == label);
        let has_state = state == "all" || (state == "open") == issue.open;
        has_head && has_state && base.as_ref().is_none_or(|base| *base == pull.base)
    };
    let mut numbers = Vec::new();
    for issue in call.repo_mut().issues.values_mut() {
        let Some(mut pull) = issue.pull.take() else {
            continue;
        };
        let is_hidden = pull.unlisted.as_mut().is_some_and(|lag| lag.still_holds());
        if !is_hidden && is_asked_for(issue, &pull) {
            numbers.push(issue.number);
        }
        issue.pull = Some(pull);
    }
    if call.asked_for("direction") != Some("asc") {
        numbers.reverse();
    }
    let pulls = numbers.into_iter().filter_map(|number| call.repo().pull(number));
    call.page(pulls.map(|(issue, pull)| call.pull_json(issue, pull)).collect())
}

fn get(call: &Call<'_>) -> Handled {
    let (issue, pull) = call.pull()?;
    Reply::ok(call.full_pull_json(issue, pull))
}

fn create(call: &mut Call<'_>) -> Handled {
    let repo = call.repo();
    if repo.pulls_forbidden {
        return Err(Reply::refuse(
            403,
            "Pull request creation is forbidden by an organization policy.",
        ));
    }
    let head = call.text("head").to_owned();
    let branch = match head.split_once(':') {
        Some((owner, branch)) if owner == repo.owner() => branch.to_owned(),
        Some(_) => return Err(Reply::invalid("PullRequest", "head", "invalid", "")),
        None => head.clone(),
    };
    let base = call.text("base").to_owned();
    let (head_sha, base_sha) = ends(repo, &branch, &base)?;
    let exists = repo.issues.values().any(|issue| {
        let same = |pull: &Pull| pull.head == branch && pull.base == base;
        issue.open && issue.pull.as_ref().is_some_and(same)
    });
    if exists {
        let message = format!("A pull request already exists for {}:{branch}.", repo.owner());
        return Err(Reply::invalid("PullRequest", "", "custom", &message));
    }
    let title = call.text("title").to_owned();
    if title.is_empty() {
        return Err(Reply::invalid("PullRequest", "title", "missing_field", ""));
    }
    check_body("PullRequest", &call.body)?;
    let (body, draft) = (
        call.body["body"].as_str().map(str::to_owned),
        call.body["draft"] == true,
    );
    if draft && call.repo().drafts_forbidden {
        let message = "Draft pull requests are not supported in this repository.";
        return Err(Reply::refuse(422, message));
    }
    let user = call.caller.login().to_owned();
    let number = NewIssue { title, body, user }.add(call.world, call.repo);
    let unlisted = call.world.pull_lag.map(|lag| lag.begin());
    let issue = call
        .repo_mut()
        .issues
        .get_mut(&number)
        .ok_or_else(Reply::not_found)?;
    issue.pull = Some(Pull {
        head: branch,
        fork: None,
        base,
        draft,
        head_sha,
        base_sha,
        reviews: Vec::new(),
        review_comments: Vec::new(),
        resolved: std::collections::BTreeSet::new(),
        reviewers: std::collections::BTreeSet::new(),
        merged_at: None,
        merge_commit: None,
        unlisted,
    });
    let (issue, pull) = call.repo().pull(number).ok_or_else(Reply::not_found)?;
    Reply::created(call.full_pull_json(issue, pull))
}

/// The last commits of both branches. There must be something between them.
fn ends(repo: &Repo, head: &str, base: &str) -> Result<(String, String), Reply> {
    let commit = |branch: &str, field: &str| {
        let sha = repo.seen_ref(&format!("refs/heads/{branch}"));
        sha.ok_or_else(|| Reply::invalid("PullRequest", field, "invalid", ""))
    };
    let base_sha = commit(base, "base")?;
    let head_sha = commit(head, "head")?;
    let count = repo.git(&["rev-list", "--count", &format!("{base_sha}..{head_sha}")]);
    if count.as_deref() == Ok("0") {
        let message = format!("No commits between {base} and {head}");
        return Err(Reply::invalid("PullRequest", "", "custom", &message));
    }
    Ok((head_sha, base_sha))
}

fn update(call: &mut Call<'_>) -> Handled {
    call.pull()?;
    check_body("PullRequest", &call.body)?;
    let number = call.number("pull_number")?;
    if let Some(base) = call.body["base"].as_str() {
        let base = base.to_owned();
        let (issue, pull) = call.pull()?;
        if !issue.open {
            let message = "Cannot change the base branch of a closed pull request.";
            return Err(Reply::invalid("PullRequest", "base", "invalid", message));
        }
        let (_, base_sha) = ends(call.repo(), &pull.head.clone(), &base)?;
        let pull = call.pull_mut()?;
        (pull.base, pull.base_sha) = (base, base_sha);
    }
    if call.text("state") == "open"
        && let Some(refusal) = reopen_refusal(call.repo(), number)
    {
        return Err(refusal);
    }
    super::issues::change(call, number)?;
    call.repo_mut().refresh_pulls();
    get(call)
}

/// Why a pull request cannot be opened again.
pub(in crate::fake_github) fn reopen_refusal(repo: &Repo, number: u64) -> Option<Reply> {
    let (issue, pull) = repo.pull(number)?;
    if issue.open {
        return None;
    }
    let gone = |branch: &str| repo.real_ref(&format!("refs/heads/{branch}")).is_none();
    let problem = match () {
        () if pull.merged_at.is_some() => "The pull request was merged".to_owned(),
        () if gone(&pull.base) => format!("The {} branch was deleted.", pull.base),
        () if gone(&pull.head) => format!("The {} branch was deleted.", pull.head),
        () => return None,
    };
    let message = format!("state cannot be changed. {problem}");
    Some(Reply::invalid("PullRequest", "state", "invalid", &message))
}

fn list_files(call: &Call<'_>) -> Handled {
    let (_, pull) = call.pull()?;
    let repo = call.repo();
    let range = format!("{}...{}", pull.base_sha, pull.head_sha);
    let git = |args: &[&str]| repo.git(&[&["diff", "--no-renames", range.as_str()], args].concat());
    let names = git(&["--name-status"]).unwrap_or_default();
    let numbers = git(&["--numstat"]).unwrap_or_default();
    let files = names.lines().zip(numbers.lines()).filter_map(|(name, numbers)| {
        let (letter, path) = name.split_once('\t')?;
        let mut numbers = numbers
            .split('\t')
            .map(|number| number.parse::<u64>().unwrap_or(0));
        let (added, deleted) = (numbers.next()?, numbers.next()?);
        let status = match letter {
            "A" => "added",
            "D" => "removed",
            _ => "modified",
        };
        let patch = git(&["--", path]).unwrap_or_default();
        let patch = patch.find("@@").map(|begin| patch[begin..].to_owned());
        let blob = repo.git(&["rev-parse", &format!("{}:{path}", pull.head_sha)]);
        let mut file = json!({
            "sha": blob.ok(), "filename": path, "status": status,
            "additions": added, "deletions": deleted, "changes": added + deleted,
        });
        if let Some(patch) = patch {
            file["patch"] = Value::String(patch);
        }
        Some(file)
    });
    call.page(files.collect())
}

fn list_commits(call: &Call<'_>) -> Handled {
    let (_, pull) = call.pull()?;
    let range = format!("{}..{}", pull.base_sha, pull.head_sha);
    let commits = call
        .repo()
        .git(&["rev-list", "--reverse", &range])
        .unwrap_or_default();
    call.page(
        commits
            .lines()
            .map(|sha| super::repos::commit_json(call, sha))
            .collect(),
    )
}

/// Merges the base into the branch.
fn update_branch(call: &mut Call<'_>) -> Handled {
    let (_, pull) = call.pull()?;
    let repo = call.repo();
    let expected = call.text("expected_head_sha");
    if !expected.is_empty() && expected != pull.head_sha {
        return Err(Reply::refuse(
            422,
            "expected head sha didn't match current head ref.",
        ));
    }
    let conflict = |_| Reply::refuse(422, "merge conflict between base and head");
    let tree = repo
        .git(&["merge-tree", "--write-tree", &pull.head_sha, &pull.base_sha])
        .map_err(conflict)?;
    let message = format!("Merge branch '{}' into {}", pull.base, pull.head);
    let args = [
        "commit-tree",
        &tree,
        "-p",
        &pull.head_sha,
        "-p",
        &pull.base_sha,
        "-m",
        &message,
    ];
    let commit = crate::git_http::git_as(call.caller.login(), &repo.dir, &args, "").map_err(conflict)?;
    let reference = format!("refs/heads/{}", pull.head);
    repo.git(&["update-ref", &reference, &commit, &pull.head_sha])
        .map_err(conflict)?;
    Ok(Reply::new(
        202,
        json!({ "message": "Updating pull request branch.", "url": call.repo_url("") }),
    ))
}
