//! The outermost layer: records all requests, injects faults, and passes on.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{Response, Uri};
use futures_util::StreamExt;

use super::fault::Fault;
use super::limits::secondary_refusal;
use super::reply::Reply;
use super::world::Recorded;
use super::{Asked, Shared, api, git};
use crate::git_http::header;

/// Bodies are recorded up to this length; longer ones are packs of git.
const LONGEST_RECORDED: usize = 1 << 20;

/// Answers a client.
pub(super) async fn answer(shared: Arc<Shared>, mut asked: Asked) -> io::Result<Response<Body>> {
    let fault = take_fault(&shared, &asked);
    let mut recorded = recorded(&shared, &asked);
    if shared.world().enterprise.is_some() {
        asked.head.uri = without_prefix(&asked.head.uri);
    }
    let refused = match &fault {
        Some(Fault::DroppedBefore) => Some(None),
        Some(Fault::Status(status)) => Some(Some(Reply::refuse(*status, "Server Error"))),
        Some(Fault::SecondaryLimit { status, retry_after }) => {
            Some(Some(secondary_refusal(*status, retry_after.map(u64::from))))
        }
        Some(Fault::GraphQl(kind, message)) => Some(Some(Reply::new(200, api::graphql_error(kind, message)))),
        _ => None,
    };
    let response = match refused {
        Some(reply) => reply.map(Reply::into_response),
        None => Some(pass_on(&shared, &asked).await),
    };
    let response = match fault {
        Some(Fault::DroppedAfter) => None,
        Some(Fault::ExecutedThenStatus(status)) => {
            Some(Reply::refuse(status, "Server Error").into_response())
        }
        Some(Fault::Slow(time)) => {
            tokio::time::sleep(time).await;
            response
        }
        _ => response,
    };
    recorded.status = response.as_ref().map_or(0, |response| response.status().as_u16());
    recorded.counted = ![0, 304].contains(&recorded.status) && !recorded.path.starts_with("/rate_limit");
    recorded.ended = Instant::now();
    shared.world().requests.push(recorded);
    match response {
        Some(response) => Ok(response),
        None if git::RepositoryPath::parse(asked.head.uri.path()).is_some() => Ok(cut_off()),
        None => Err(dropped()),
    }
}

/// The address that github.com has for what GitHub Enterprise has below `/api`. Anything else of its API does not exist.
fn without_prefix(uri: &Uri) -> Uri {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    if git::RepositoryPath::parse(uri.path()).is_some() {
        return uri.clone();
    }
    let rest = path
        .strip_prefix("/api/v3")
        .or_else(|| path.strip_prefix("/api").filter(|rest| *rest == "/graphql"));
    rest.unwrap_or("/there-is-no-such-path").parse().unwrap()
}

fn dropped() -> io::Error {
    io::Error::other("the connection is dropped on purpose")
}

/// An answer whose connection closes within its body. When there is no answer at all, git's HTTP library may repeat the request
/// by itself, and the test would not see a fault.
fn cut_off() -> Response<Body> {
    let begin = futures_util::stream::once(async { Ok(Bytes::from_static(b"0")) });
    let end = futures_util::stream::once(async {
        // What was written before is sent meanwhile.
        tokio::time::sleep(Duration::from_millis(100)).await;
        Err(dropped())
    });
    let response = Response::builder().header("content-length", "1000");
    response.body(Body::from_stream(begin.chain(end))).unwrap()
}

/// Answers Prism.
pub(super) async fn answer_judged(shared: Arc<Shared>, asked: Asked) -> io::Result<Response<Body>> {
    Ok(api::answer(&shared, &asked).await)
}

async fn pass_on(shared: &Arc<Shared>, asked: &Asked) -> Response<Body> {
    let path = asked.head.uri.path();
    if let Some(request) = git::RepositoryPath::parse(path) {
        return git::answer(shared, asked, &request).await;
    }
    match shared.judge.get() {
        Some(judge) if !redirects(shared, path) => judge.ask(asked).await,
        _ => api::answer(shared, asked).await,
    }
}

/// Whether the answer is a redirect, which Prism would follow, or the place that one leads to, which GitHub's document does not
/// have.
fn redirects(shared: &Shared, path: &str) -> bool {
    let name = path.strip_prefix("/repos/").unwrap_or_default();
    let name: Vec<&str> = name.splitn(3, '/').take(2).collect();
    let is_former = |known: &String| known.eq_ignore_ascii_case(&name.join("/"));
    let has_moved = shared
        .world()
        .repos
        .iter()
        .any(|repo| repo.former.iter().any(is_former));
    has_moved || path.starts_with("/repositories/") || path.ends_with("/logs")
}

fn take_fault(shared: &Shared, asked: &Asked) -> Option<Fault> {
    let mut world = shared.world();
    let path = asked.head.uri.path_and_query()?.as_str();
    let method = asked.head.method.as_str();
    let position = world
        .faults
        .iter()
        .position(|pending| pending.method == method && path.starts_with(&pending.prefix))?;
    Some(world.faults.remove(position).fault)
}

fn recorded(shared: &Shared, asked: &Asked) -> Recorded {
    let world = shared.world();
    let caller = world
        .accounts
        .caller(header(&asked.head, "authorization"), world.now());
    let identity = caller.map_or_else(|_| "?".to_owned(), |caller| caller.login().to_owned());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = asked.head.headers.iter();
    let now = Instant::now();
    Recorded {
        began: now,
        ended: now,
        method: asked.head.method.to_string(),
        path: asked.head.uri.to_string(),
        while_limited: world.limits.must_wait(&identity),
        identity,
        status: 0,
        counted: false,
        headers: headers
            .filter(|(name, _)| *name != "authorization")
            .map(|(name, value)| (name.to_string(), text(value.as_bytes())))
            .collect(),
        body: text(&asked.body[..asked.body.len().min(LONGEST_RECORDED)]),
    }
}
