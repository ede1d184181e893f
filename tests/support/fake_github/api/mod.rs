//! The REST API: who may call what, and the parts that all answers share.

mod accounts;
mod ci;
mod comments;
mod git_data;
mod graphql;
mod issues;
mod labels;
mod pulls;
mod repos;
mod reviews;
mod shapes;
mod stacks;

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::body::Body;
use axum::http::Response;
use serde_json::{Value, json};

pub(super) use graphql::error as graphql_error;
pub(super) use issues::{NewIssue, record_event};
pub(super) use labels::{add_label, remove_label};
pub(super) use pulls::reopen_refusal;

use super::auth::Caller;
use super::contract::{self, Operation};
use super::reply::{Handled, Reply};
use super::world::{Issue, Pull, Repo, Role, World};
use super::{Asked, Shared};
use crate::git_http::header;

/// The versions of the API that it speaks.
const VERSIONS: [&str; 2] = ["2022-11-28", "2026-03-10"];

/// A call of an operation.
struct Call<'a> {
    world: &'a mut World,
    operation: &'a Operation,
    path: &'a str,
    query: Vec<(String, String)>,
    body: Value,
    caller: Caller,
    url: &'a str,
    blob_url: &'a str,
    /// Where the repository is in the list of all; 0 for operations without one.
    repo: usize,
}

/// Answers a request.
pub(super) async fn answer(shared: &Shared, asked: &Asked) -> Response<Body> {
    let is_write = !matches!(asked.head.method.as_str(), "GET" | "HEAD");
    let (caller, pause) = {
        let mut world = shared.world();
        let now = world.now();
        let caller = world.accounts.caller(header(&asked.head, "authorization"), now);
        let caller = match caller {
            Ok(caller) => caller,
            Err(refusal) => return refusal.into_response(),
        };
        if let Err(refusal) = world.limits.begin(caller.login(), is_write) {
            return with_limits(&world, &caller, refusal).into_response();
        }
        (caller, world.limits.settings.write_takes)
    };
    if is_write && !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
    let mut world = shared.world();
    let reply = run(shared, &mut world, asked, caller.clone());
    let reply = if is_write {
        reply
    } else {
        conditional(asked, reply)
    };
    if is_write {
        world.limits.end_write(caller.login());
    }
    if reply.status != 304 && asked.head.uri.path() != "/rate_limit" {
        world.limits.count(caller.login());
    }
    with_limits(&world, &caller, reply).into_response()
}

/// Runs an operation and completes its answer.
fn run(shared: &Shared, world: &mut World, asked: &Asked, caller: Caller) -> Reply {
    if header(&asked.head, "user-agent").is_empty() {
        return Reply::refuse(
            403,
            "Request forbidden by administrative rules. Please make sure your request has a User-Agent header",
        );
    }
    let version = header(&asked.head, "x-github-api-version");
    if !version.is_empty() && !versions(world).contains(&version) {
        return Reply::refuse(400, &format!("{version} is not a supported API version"));
    }
    let body = match asked.body.as_ref() {
        b"" => Ok(Value::Null),
        body => serde_json::from_slice(body),
    };
    let Ok(body) = body else {
        return Reply::refuse(400, "Problems parsing JSON");
    };
    let path = by_name(world, asked.head.uri.path());
    let Some(operation) = Operation::find(asked.head.method.as_str(), &path) else {
        return Reply::not_found();
    };
    let query = asked.head.uri.query().unwrap_or_default();
    let mut call = Call {
        world,
        operation: &operation,
        path: &path,
        query: contract::query(query),
        body,
        caller,
        url: &shared.url,
        blob_url: &shared.blob_url,
        repo: 0,
    };
    let is_write = !matches!(asked.head.method.as_str(), "GET" | "HEAD");
    let admitted = call.admit(is_write, query);
    let handled = admitted.and_then(|()| {
        operation
            .check(&call.query, &call.body)
            .map_err(|problem| Reply::refuse(422, &format!("Invalid request.\n\n{problem}")))?;
        call.handle()
    });
    let mut reply = handled.unwrap_or_else(|refusal| refusal);
    if let Some(body) = &mut reply.body {
        operation.complete(reply.status, body);
    }
    reply
}

fn versions(world: &World) -> Vec<&'static str> {
    world.enterprise.clone().unwrap_or_else(|| VERSIONS.to_vec())
}

/// Turns `/repositories/ID/...`, where redirects lead, into the usual path.
fn by_name(world: &World, path: &str) -> String {
    let Some(rest) = path.strip_prefix("/repositories/") else {
        return path.to_owned();
    };
    let (id, rest) = rest
        .split_once('/')
        .map_or((rest, String::new()), |(id, rest)| (id, format!("/{rest}")));
    let repo = world.repos.iter().find(|repo| repo.id.to_string() == id);
    repo.map_or_else(|| path.to_owned(), |repo| format!("/repos/{}{rest}", repo.name))
}

/// Adds the `ETag`, or answers 304 when the client has this answer already.
fn conditional(asked: &Asked, reply: Reply) -> Reply {
    let (200, Some(body)) = (reply.status, &reply.body) else {
        return reply;
    };
    let mut hasher = DefaultHasher::new();
    body.to_string().hash(&mut hasher);
    let tag = format!("W/\"{:016x}\"", hasher.finish());
    let mut reply = reply.with("etag", tag.clone());
    if header(&asked.head, "if-none-match")
        .split(',')
        .any(|known| known.trim() == tag)
    {
        reply.status = 304;
        reply.body = None;
    }
    reply
}

fn with_limits(world: &World, caller: &Caller, reply: Reply) -> Reply {
    let (limit, left) = world.limits.primary(caller.login());
    reply
        .with("x-ratelimit-limit", limit.to_string())
        .with("x-ratelimit-remaining", left.to_string())
        .with("x-ratelimit-used", (limit - left).to_string())
        .with("x-ratelimit-reset", (world.now().as_second() + 3600).to_string())
        .with("x-ratelimit-resource", "core".to_owned())
}

impl Call<'_> {
    fn handle(&mut self) -> Handled {
        match self.operation.id.split('/').next().unwrap_or_default() {
            "apps" | "rate-limit" | "users" => accounts::handle(self),
            "repos" => repos::handle(self),
            "git" => git_data::handle(self),
            "pulls" => pulls::handle(self),
            "issues" => issues::handle(self),
            "checks" | "actions" => ci::handle(self),
            "graphql" => graphql::handle(self),
            "meta" => Reply::ok(json!(versions(self.world))),
            "pull-request-stacks" => stacks::handle(self),
            _ => self.not_implemented(),
        }
    }

    fn not_implemented(&self) -> Handled {
        let message = format!("the fake does not implement {}", self.operation.id);
        Err(Reply::refuse(501, &message))
    }

    /// Finds the repository, and refuses what the caller may not do with it.
    fn admit(&mut self, is_write: bool, query: &str) -> Result<(), Reply> {
        let (owner, name) = (
            self.operation.parameter("owner"),
            self.operation.parameter("repo"),
        );
        if owner.is_empty() {
            return Ok(());
        }
        let name = format!("{owner}/{name}");
        self.repo = self.world.find_repo(&name).ok_or_else(Reply::not_found)?;
        let repo = &mut self.world.repos[self.repo];
        repo.age_unseen();
        if self.operation.id == "apps/get-repo-installation" {
            return Ok(());
        }
        let role = self.caller.role(repo);
        if role == Role::None {
            return Err(Reply::not_found());
        }
        if !repo.name.eq_ignore_ascii_case(&name) {
            return Err(self.moved(&name, is_write, query));
        }
        if !is_write {
            return if repo.private { self.permit(false) } else { Ok(()) };
        }
        if matches!(self.caller, Caller::Anonymous) {
            return Err(Reply::refuse(401, "Requires authentication"));
        }
        if repo.archived {
            return Err(Reply::refuse(403, "Repository was archived so is read-only."));
        }
        if role < Role::Write && !is_open_to_readers(self.operation.id) {
            return Err(self.forbidden());
        }
        self.permit(true)
    }

    fn moved(&self, name: &str, is_write: bool, query: &str) -> Reply {
        let rest = self.path.get("/repos/".len() + name.len()..).unwrap_or_default();
        let query = if query.is_empty() {
            String::new()
        } else {
            format!("?{query}")
        };
        let location = format!("{}/repositories/{}{rest}{query}", self.url, self.repo().id);
        let (status, message) = if is_write {
            (307, "Temporary Redirect")
        } else {
            (301, "Moved Permanently")
        };
        let mut reply = Reply::refuse(status, message);
        if let Some(body) = &mut reply.body {
            body["url"] = json!(location);
        }
        reply.with("location", location)
    }

    /// Checks the permissions of the token. Those of issues and of pull requests both allow what pull requests share with
    /// issues.
    fn permit(&self, write: bool) -> Result<(), Reply> {
        let number = self.operation.parameter("issue_number").parse();
        let is_pull = number.is_ok_and(|number| self.repo().pull(number).is_some());
        let permitted = match needed_permission(self.operation.id) {
            None => true,
            Some("issues") if is_pull && self.caller.has("pull_requests", write) => true,
            Some(permission) => self.caller.has(permission, write),
        };
        if permitted { Ok(()) } else { Err(self.forbidden()) }
    }

    fn forbidden(&self) -> Reply {
        let permission = needed_permission(self.operation.id).unwrap_or("metadata");
        let level = if self.operation.is_read() { "read" } else { "write" };
        let message = format!("Resource not accessible by {}", self.caller.kind());
        Reply::refuse(403, &message).with("x-accepted-github-permissions", format!("{permission}={level}"))
    }

    fn repo(&self) -> &Repo {
        &self.world.repos[self.repo]
    }

    fn repo_mut(&mut self) -> &mut Repo {
        &mut self.world.repos[self.repo]
    }

    /// The number that a variable part of the path is.
    fn number(&self, parameter: &str) -> Result<u64, Reply> {
        let number = self.operation.parameter(parameter).parse();
        number.map_err(|_| Reply::not_found())
    }

    fn issue(&self) -> Result<&Issue, Reply> {
        let number = self.number("issue_number")?;
        self.repo().issues.get(&number).ok_or_else(Reply::not_found)
    }

    fn issue_mut(&mut self) -> Result<&mut Issue, Reply> {
        let number = self.number("issue_number")?;
        self.repo_mut()
            .issues
            .get_mut(&number)
            .ok_or_else(Reply::not_found)
    }

    fn pull(&self) -> Result<(&Issue, &Pull), Reply> {
        let number = self.number("pull_number")?;
        self.repo().pull(number).ok_or_else(Reply::not_found)
    }

    fn pull_mut(&mut self) -> Result<&mut Pull, Reply> {
        let number = self.number("pull_number")?;
        let issue = self.repo_mut().issues.get_mut(&number);
        issue
            .and_then(|issue| issue.pull.as_mut())
            .ok_or_else(Reply::not_found)
    }

    /// A text in the body; empty when it is not there.
    fn text(&self, field: &str) -> &str {
        self.body[field].as_str().unwrap_or_default()
    }

    /// A value in the query.
    fn asked_for(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// One page of a list.
    fn page(&self, items: Vec<Value>) -> Handled {
        let (items, link) = self.cut(items);
        Reply::ok(json!(items)).map(|reply| with_link(reply, link))
    }

    /// One page of a list that stands below a name, beside the number of all.
    fn page_of(&self, name: &str, items: Vec<Value>) -> Handled {
        let total = items.len();
        let (items, link) = self.cut(items);
        Reply::ok(json!({ "total_count": total, name: items })).map(|reply| with_link(reply, link))
    }

    fn cut(&self, items: Vec<Value>) -> (Vec<Value>, Option<String>) {
        let number = |name: &str| self.asked_for(name).and_then(|value| value.parse::<usize>().ok());
        let size = number("per_page").unwrap_or(30).clamp(1, 100);
        let page = number("page").unwrap_or(1).max(1);
        let pages = items.len().div_ceil(size).max(1);
        let link = |page: usize, relation: &str| {
            let others = self.query.iter().filter(|(name, _)| name != "page");
            let query: String = others
                .map(|(name, value)| format!("{name}={}&", encode(value)))
                .collect();
            format!(
                "<{}{}?{query}page={page}>; rel=\"{relation}\"",
                self.url, self.path
            )
        };
        let mut links = Vec::new();
        if page > 1 {
            links.extend([link(page - 1, "prev"), link(1, "first")]);
        }
        if page < pages {
            links.extend([link(page + 1, "next"), link(pages, "last")]);
        }
        let items = items.into_iter().skip((page - 1) * size).take(size);
        (items.collect(), (!links.is_empty()).then(|| links.join(", ")))
    }
}

fn with_link(reply: Reply, link: Option<String>) -> Reply {
    match link {
        Some(link) => reply.with("link", link),
        None => reply,
    }
}

fn encode(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: u8| {
        if is_plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(encode).collect()
}

/// The permission that an operation needs; none for what everybody may see.
fn needed_permission(operation: &str) -> Option<&'static str> {
    let (family, name) = operation.split_once('/').unwrap_or_default();
    match family {
        "pulls" | "pull-request-stacks" => Some("pull_requests"),
        "issues" => Some("issues"),
        "git" => Some("contents"),
        "checks" => Some("checks"),
        "actions" => Some("actions"),
        "repos" if name.contains("status") => Some("statuses"),
        "repos" if name.contains("protection") => Some("administration"),
        "repos" if name.contains("content") || name == "get-branch" || name == "delete-file" => {
            Some("contents")
        }
        _ => None,
    }
}

/// Whether people without write access may do it too.
fn is_open_to_readers(operation: &str) -> bool {
    [
        "issues/create",
        "issues/create-comment",
        "issues/update-comment",
        "issues/delete-comment",
        "pulls/create-review",
        "pulls/create-review-comment",
        "pulls/create-reply-for-review-comment",
    ]
    .contains(&operation)
}
