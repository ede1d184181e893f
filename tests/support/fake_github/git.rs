//! Git over HTTP, and the hook that refuses pushes.

use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Response;

use super::auth::Caller;
use super::world::{Protection, Repo, Role, Unseen, refs};
use super::{Asked, Shared};
use crate::git_http::{GitRequest, git, header, make_repository};

/// Refuses a push as a whole: to protected branches, and of workflows without the permission for them.
const HOOK: &str = r#"#!/bin/sh
zero=0000000000000000000000000000000000000000
failed=0
while read -r old new ref; do
  case " $FAKE_PULL_REQUEST_ONLY " in *" $ref "*)
    echo "error: GH006: Protected branch update failed for $ref." >&2
    echo "error: Changes must be made through a pull request." >&2
    failed=1 ;;
  esac
  case " $FAKE_NO_FORCE_PUSH " in *" $ref "*)
    if [ "$new" = $zero ] || { [ "$old" != $zero ] && ! git merge-base --is-ancestor "$old" "$new"; }; then
      echo "error: GH006: Protected branch update failed for $ref." >&2
      echo "error: Cannot force-push to this branch" >&2
      failed=1
    fi ;;
  esac
  case "$ref" in refs/pull/*)
    echo "error: deny updating a hidden ref" >&2
    failed=1 ;;
  esac
  if [ "$FAKE_WORKFLOWS" = no ] && [ "$new" != $zero ]; then
    for commit in $(git rev-list "$new" --not --all); do
      for file in $(git diff-tree --no-commit-id --name-only --root -m -r "$commit" -- .github/workflows); do
        echo "refusing to allow a $FAKE_KIND to create or update workflow \`$file\` without $FAKE_PERMISSION" >&2
        exit 1
      done
    done
  fi
done
exit $failed
"#;

/// Makes a repository with one commit on `main`, and its hook.
pub(super) fn create(dir: &Path) {
    make_repository(dir);
    let hook = dir.join("hooks/pre-receive");
    std::fs::create_dir_all(dir.join("hooks")).unwrap();
    std::fs::write(&hook, HOOK).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&hook, mode).unwrap();
    // GitHub refuses malformed objects.
    git(dir, &["config", "receive.fsckObjects", "true"], "");
    // Commits of the REST API are on no branch for a while.
    git(dir, &["config", "gc.auto", "0"], "");
}

/// The path of a request of git.
pub(super) struct RepositoryPath {
    /// `owner/name`.
    name: String,
    /// The part behind the repository, such as `/info/refs`.
    rest: String,
}

impl RepositoryPath {
    pub(super) fn parse(path: &str) -> Option<Self> {
        if path.starts_with("/repos/") || path.starts_with("/repositories/") {
            return None;
        }
        let ends = ["/info/refs", "/git-upload-pack", "/git-receive-pack"];
        let rest = ends.into_iter().find(|end| path.ends_with(end))?;
        let name = path.strip_suffix(rest)?.trim_start_matches('/');
        Some(Self {
            name: name.strip_suffix(".git").unwrap_or(name).to_owned(),
            rest: rest.to_owned(),
        })
    }
}

pub(super) async fn answer(shared: &Arc<Shared>, asked: &Asked, path: &RepositoryPath) -> Response<Body> {
    let query = asked.head.uri.query().unwrap_or_default();
    let is_push = path.rest == "/git-receive-pack" || query.contains("service=git-receive-pack");
    let (index, caller, variables) = match admit(shared, asked, path, is_push) {
        Ok(admitted) => admitted,
        Err(refusal) => return *refusal,
    };
    let (dir, id) = {
        let world = shared.world();
        (world.repos[index].dir.clone(), world.repos[index].id)
    };
    let login = caller.login();
    let is_write = path.rest == "/git-receive-pack";
    if is_write && let Err(refusal) = shared.world().limits.begin(login, true) {
        return refusal.into_response();
    }
    let before = refs(&dir);
    let request = GitRequest {
        root: shared.dir.path(),
        path: &format!("/{id}.git{}", path.rest),
        user: login,
        variables,
    };
    let response = request.answer(&asked.head, &asked.body).await;
    if is_write {
        let mut world = shared.world();
        world.limits.end_write(login);
        let (lag, now) = (world.push_lag, world.stamp());
        let repo = &mut world.repos[index];
        let after = refs(&dir);
        let names = before.keys().chain(after.keys());
        for name in names.filter(|name| before.get(*name) != after.get(*name)) {
            repo.unseen.retain(|unseen| unseen.reference != *name);
            repo.unseen.extend(lag.map(|lag| Unseen {
                reference: name.clone(),
                before: before.get(name).cloned(),
                lag: lag.begin(),
            }));
        }
        repo.close_orphans(&now);
    }
    response
}

type Admitted = (usize, Caller, Vec<(&'static str, String)>);

/// Checks the credential. The error is the refusal.
fn admit(
    shared: &Shared,
    asked: &Asked,
    path: &RepositoryPath,
    is_push: bool,
) -> Result<Admitted, Box<Response<Body>>> {
    let world = shared.world();
    let authorization = header(&asked.head, "authorization");
    let is_basic = authorization.is_empty() || authorization.to_ascii_lowercase().starts_with("basic ");
    let caller = world.accounts.caller(authorization, world.now());
    let caller = match caller {
        Ok(caller @ (Caller::Anonymous | Caller::Token(_))) if is_basic => caller,
        _ => return Err(Box::new(refuse(401, "Invalid username or token."))),
    };
    let is_anonymous = matches!(caller, Caller::Anonymous);
    let missing = || {
        Err(Box::new(refuse(
            if is_anonymous { 401 } else { 404 },
            "Repository not found.",
        )))
    };
    let Some(index) = world.find_repo(&path.name) else {
        return missing();
    };
    let repo = &world.repos[index];
    let role = caller.role(repo);
    if role == Role::None {
        return missing();
    }
    if !repo.name.eq_ignore_ascii_case(&path.name) {
        return Err(Box::new(moved(shared, asked, repo, path)));
    }
    let denied = |message: &str| Err(Box::new(refuse(403, message)));
    if is_push && is_anonymous {
        return Err(Box::new(refuse(401, "No anonymous write access.")));
    }
    if is_push && repo.archived {
        return denied("This repository was archived so it is read-only.");
    }
    if is_push && (role < Role::Write || !caller.has("contents", true)) {
        let message = format!("Permission to {}.git denied to {}.", repo.name, caller.login());
        return denied(&message);
    }
    if repo.private && !caller.has("contents", false) {
        return denied("Write access to repository not granted.");
    }
    let variables = hook_variables(repo, &caller);
    Ok((index, caller, variables))
}

fn hook_variables(repo: &Repo, caller: &Caller) -> Vec<(&'static str, String)> {
    let branches = |protection: Protection| {
        let protected = repo.protected.iter().filter(|(_, kind)| **kind == protection);
        let names: Vec<String> = protected
            .map(|(name, _)| {
                let prefix = if name.starts_with("refs/") {
                    ""
                } else {
                    "refs/heads/"
                };
                format!("{prefix}{name}")
            })
            .collect();
        names.join(" ")
    };
    let may_change_workflows = caller.has("workflows", true);
    let (kind, permission) = match caller.kind() {
        "integration" => ("GitHub App", "`workflows` permission"),
        _ => ("Personal Access Token", "`workflow` scope"),
    };
    vec![
        (
            "FAKE_WORKFLOWS",
            if may_change_workflows { "yes" } else { "no" }.to_owned(),
        ),
        ("FAKE_KIND", kind.to_owned()),
        ("FAKE_PERMISSION", permission.to_owned()),
        ("FAKE_PULL_REQUEST_ONLY", branches(Protection::PullRequestOnly)),
        ("FAKE_NO_FORCE_PUSH", branches(Protection::NoForcePush)),
    ]
}

fn moved(shared: &Shared, asked: &Asked, repo: &Repo, path: &RepositoryPath) -> Response<Body> {
    let query = asked.head.uri.query().map(|query| format!("?{query}"));
    let query = query.unwrap_or_default();
    let location = format!("{}/{}.git{}{query}", shared.url, repo.name, path.rest);
    let response = Response::builder().status(301).header("location", location);
    response.body(Body::empty()).unwrap()
}

/// Git shows a body of plain text as `remote:` lines.
fn refuse(status: u16, message: &str) -> Response<Body> {
    let mut response = Response::builder()
        .status(status)
        .header("content-type", "text/plain");
    if status == 401 {
        response = response.header("www-authenticate", "Basic realm=\"GitHub\"");
    }
    response.body(Body::from(message.to_owned())).unwrap()
}
