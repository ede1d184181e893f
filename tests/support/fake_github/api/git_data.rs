//! References, commits and trees, in the real repository.

use serde_json::{Value, json};

use super::Call;
use crate::fake_github::reply::{Handled, Reply};
use crate::fake_github::world::{Protection, Repo};
use crate::git_http::{git_with, try_git};

/// The hash that stands for nothing.
const NOTHING: &str = "0000000000000000000000000000000000000000";

pub(super) fn handle(call: &mut Call<'_>) -> Handled {
    match call.operation.id {
        "git/get-ref" => get_ref(call),
        "git/list-matching-refs" => list_refs(call),
        "git/create-ref" => create_ref(call),
        "git/update-ref" => update_ref(call),
        "git/delete-ref" => delete_ref(call),
        "git/create-commit" => create_commit(call),
        "git/get-commit" => get_commit(call),
        "git/create-tree" => create_tree(call),
        _ => call.not_implemented(),
    }
}

fn ref_json(call: &Call<'_>, reference: &str, sha: &str) -> Value {
    json!({
        "ref": reference,
        "node_id": format!("REF_{reference}"),
        "url": call.repo_url(&format!("/git/{reference}")),
        "object": {
            "type": "commit",
            "sha": sha,
            "url": call.repo_url(&format!("/git/commits/{sha}")),
        },
    })
}

fn full_name(call: &Call<'_>) -> String {
    format!("refs/{}", call.operation.parameter("ref"))
}

fn get_ref(call: &Call<'_>) -> Handled {
    let name = full_name(call);
    let sha = call.repo().seen_ref(&name).ok_or_else(Reply::not_found)?;
    Reply::ok(ref_json(call, &name, &sha))
}

fn list_refs(call: &Call<'_>) -> Handled {
    let prefix = full_name(call);
    let repo = call.repo();
    let names = repo.refs().into_keys().filter(|name| name.starts_with(&prefix));
    let seen = names.filter_map(|name| Some((repo.seen_ref(&name)?, name)));
    Reply::ok(seen.map(|(sha, name)| ref_json(call, &name, &sha)).collect())
}

fn create_ref(call: &mut Call<'_>) -> Handled {
    let (name, sha) = (call.text("ref").to_owned(), call.text("sha").to_owned());
    let repo = call.repo();
    if !name.starts_with("refs/") || name.matches('/').count() < 2 {
        return Err(Reply::refuse(
            422,
            "Reference name must start with 'refs/' and have at least two slashes",
        ));
    }
    if repo.git(&["check-ref-format", &name]).is_err() {
        return Err(Reply::refuse(422, &format!("{name} is not a valid ref name")));
    }
    has_object(repo, &sha)?;
    may_change_workflows(call, &sha)?;
    move_ref(call.repo(), &name, &sha, NOTHING, "Reference already exists")?;
    Reply::created(ref_json(call, &name, &sha))
}

fn update_ref(call: &mut Call<'_>) -> Handled {
    let name = full_name(call);
    let sha = call.text("sha").to_owned();
    let force = call.body["force"] == true;
    let repo = call.repo();
    let old = repo
        .real_ref(&name)
        .ok_or_else(|| Reply::refuse(422, "Reference does not exist"))?;
    has_object(repo, &sha)?;
    let is_fast_forward = repo.is_fast_forward(&old, &sha);
    if !is_fast_forward && !force {
        return Err(Reply::refuse(422, "Update is not a fast forward"));
    }
    match protection(repo, &name) {
        Some(Protection::PullRequestOnly) => {
            return Err(Reply::refuse(422, "Changes must be made through a pull request."));
        }
        Some(Protection::NoForcePush) if !is_fast_forward => {
            return Err(Reply::refuse(422, "Cannot force-push to this branch"));
        }
        _ => {}
    }
    may_change_workflows(call, &sha)?;
    move_ref(call.repo(), &name, &sha, &old, "Update is not a fast forward")?;
    call.repo_mut().unseen.retain(|unseen| unseen.reference != name);
    Reply::ok(ref_json(call, &name, &sha))
}

fn delete_ref(call: &mut Call<'_>) -> Handled {
    let name = full_name(call);
    let repo = call.repo();
    if repo.real_ref(&name).is_none() {
        return Err(Reply::refuse(422, "Reference does not exist"));
    }
    if protection(repo, &name).is_some() {
        return Err(Reply::refuse(422, "Cannot delete a protected branch"));
    }
    repo.git(&["update-ref", "-d", &name])
        .map_err(|error| Reply::refuse(422, &error))?;
    let now = call.world.stamp();
    let repo = call.repo_mut();
    repo.unseen.retain(|unseen| unseen.reference != name);
    repo.close_orphans(&now);
    Reply::no_content()
}

fn protection(repo: &Repo, reference: &str) -> Option<Protection> {
    let branch = reference.strip_prefix("refs/heads/")?;
    repo.protected.get(branch).copied()
}

/// Moves a reference, if it still is what it was.
fn move_ref(repo: &Repo, name: &str, new: &str, old: &str, problem: &str) -> Result<(), Reply> {
    let moved = repo.git(&["update-ref", name, new, old]);
    moved.map(drop).map_err(|_| Reply::refuse(422, problem))
}

fn has_object(repo: &Repo, sha: &str) -> Result<(), Reply> {
    let commit = format!("{sha}^{{commit}}");
    match repo.git(&["cat-file", "-e", &commit]) {
        Ok(_) if sha.len() == 40 => Ok(()),
        _ => Err(Reply::refuse(422, "Object does not exist")),
    }
}

/// Refuses commits that change workflows, unless the token may.
fn may_change_workflows(call: &Call<'_>, sha: &str) -> Result<(), Reply> {
    if call.caller.has("workflows", true) {
        return Ok(());
    }
    let repo = call.repo();
    let new = repo.git(&["rev-list", sha, "--not", "--all"]).unwrap_or_default();
    let changes_workflows = new.lines().any(|commit| {
        let listed = [
            "diff-tree",
            "--no-commit-id",
            "--name-only",
            "--root",
            "-m",
            "-r",
            commit,
        ];
        let changed = repo.git(&listed).unwrap_or_default();
        changed.lines().any(|path| path.starts_with(".github/workflows/"))
    });
    if changes_workflows {
        let message = format!("Resource not accessible by {}", call.caller.kind());
        return Err(Reply::refuse(403, &message).with(
            "x-accepted-github-permissions",
            "contents=write; contents=write,workflows=write".to_owned(),
        ));
    }
    Ok(())
}

fn create_commit(call: &mut Call<'_>) -> Handled {
    let repo = call.repo();
    let tree = call.text("tree");
    if repo
        .git(&["cat-file", "-e", &format!("{tree}^{{tree}}")])
        .is_err()
    {
        return Err(Reply::refuse(422, "Tree SHA does not exist"));
    }
    let mut args = vec!["commit-tree", tree, "-F", "-"];
    for parent in call.body["parents"].as_array().into_iter().flatten() {
        let parent = parent.as_str().unwrap_or_default();
        let missing = "Parent SHA does not exist or is not a commit object";
        has_object(repo, parent).map_err(|_| Reply::refuse(422, missing))?;
        args.extend(["-p", parent]);
    }
    let login = call.caller.login();
    let author = &call.body["author"];
    let email = format!("{login}@users.noreply.github.com");
    let name = author["name"].as_str().unwrap_or(login);
    let mut variables = vec![
        ("GIT_AUTHOR_NAME", name),
        ("GIT_AUTHOR_EMAIL", author["email"].as_str().unwrap_or(&email)),
        ("GIT_COMMITTER_NAME", name),
        ("GIT_COMMITTER_EMAIL", &email),
    ];
    variables.extend(author["date"].as_str().map(|date| ("GIT_AUTHOR_DATE", date)));
    let made = git_with(&variables, &repo.dir, &args, call.text("message"));
    let sha = made.map_err(|error| Reply::refuse(422, &error))?;
    let commit = commit_json(call, &sha).ok_or_else(Reply::not_found)?;
    Reply::created(commit)
}

fn get_commit(call: &Call<'_>) -> Handled {
    let commit = commit_json(call, call.operation.parameter("commit_sha"));
    Reply::ok(commit.ok_or_else(Reply::not_found)?)
}

/// A commit as the operations of git show it.
pub(super) fn commit_json(call: &Call<'_>, sha: &str) -> Option<Value> {
    let repo = call.repo();
    has_object(repo, sha).ok()?;
    let format = "--format=%an%x00%ae%x00%aI%x00%cn%x00%ce%x00%cI%x00%T%x00%P%x00%B";
    let shown = repo.git(&["log", "-1", format, sha]).ok()?;
    let parts: Vec<&str> = shown.splitn(9, '\0').collect();
    let [
        author,
        email,
        date,
        committer,
        committer_email,
        committed,
        tree,
        parents,
        message,
    ] = parts[..]
    else {
        return None;
    };
    let url = |kind: &str, sha: &str| call.repo_url(&format!("/git/{kind}/{sha}"));
    let parents = parents
        .split(' ')
        .filter(|parent| !parent.is_empty())
        .map(|parent| {
            let page = format!("{}/{}/commit/{parent}", call.url, repo.name);
            json!({ "sha": parent, "url": url("commits", parent), "html_url": page })
        });
    Some(json!({
        "sha": sha,
        "node_id": format!("C_{sha}"),
        "url": url("commits", sha),
        "html_url": format!("{}/{}/commit/{sha}", call.url, repo.name),
        "author": { "name": author, "email": email, "date": date },
        "committer": { "name": committer, "email": committer_email, "date": committed },
        "message": message.trim_end_matches('\n'),
        "tree": { "sha": tree, "url": url("trees", tree) },
        "parents": parents.collect::<Vec<_>>(),
        "verification": {
            "verified": false, "reason": "unsigned", "signature": null, "payload": null, "verified_at": null,
        },
    }))
}

fn create_tree(call: &mut Call<'_>) -> Handled {
    let repo = call.repo();
    let mut lines = String::new();
    for entry in call.body["tree"].as_array().into_iter().flatten() {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        let path = text("path");
        let line = match (entry.get("content"), entry.get("sha")) {
            (Some(Value::String(content)), None) => {
                let blob = try_git(&repo.dir, &["hash-object", "-w", "--stdin"], content);
                let blob = blob.map_err(|error| Reply::refuse(422, &error))?;
                format!("{} {blob}\t{path}\n", text("mode"))
            }
            (None, Some(Value::String(sha))) => format!("{} {sha}\t{path}\n", text("mode")),
            (None, Some(Value::Null)) => format!("0 {NOTHING}\t{path}\n"),
            _ => return Err(Reply::refuse(422, "Must supply either tree.sha or tree.content.")),
        };
        lines.push_str(&line);
    }
    let index = tempfile::tempdir().unwrap();
    let index = index.path().join("index");
    let git = |args: &[&str], input: &str| {
        let variables = [("GIT_INDEX_FILE", index.to_str().unwrap_or_default())];
        git_with(&variables, &repo.dir, args, input).map_err(|error| Reply::refuse(422, &error))
    };
    match call.text("base_tree") {
        "" => {}
        base => drop(git(&["read-tree", base], "")?),
    }
    git(&["update-index", "--add", "--index-info"], &lines)?;
    let sha = git(&["write-tree"], "")?;
    let listed = git(&["ls-tree", &sha], "")?;
    let entries = listed.lines().filter_map(|line| {
        let (description, path) = line.split_once('\t')?;
        let mut words = description.split(' ');
        let (mode, kind, sha) = (words.next()?, words.next()?, words.next()?);
        let url = call.repo_url(&format!("/git/{kind}s/{sha}"));
        Some(json!({ "path": path, "mode": mode, "type": kind, "sha": sha, "url": url }))
    });
    Reply::created(json!({
        "sha": sha,
        "url": call.repo_url(&format!("/git/trees/{sha}")),
        "tree": entries.collect::<Vec<_>>(),
        "truncated": false,
    }))
}
