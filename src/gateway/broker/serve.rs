//! One connection of a sandbox's, and its requests one after another.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::CONTENT_ENCODING;
use hyper::rt::{Read, Write};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioTimer;
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;

use super::answer::{Answer, json};
use super::forward::{self, Outgoing};
use super::health::Health;
use super::refusal::Refusal;
use super::route::Route;
use super::service::Service;
use super::strip;
use super::upstream::Upstream;
use super::{Entrance, Guest, ROOM_KB};
use crate::gateway::meter::Notice;

/// The longest call. Anthropic takes 32 MB.
const LONGEST_CALL: usize = 32 << 20;
/// How long a call may take to come.
const SENDING: Duration = Duration::from_secs(120);
/// How long the head of a request may take to come.
const HEAD: Duration = Duration::from_secs(30);

/// Serves a connection to its end.
pub(super) async fn connection<S>(entrance: Entrance, service: Arc<Service>, stream: S)
where
    S: Read + Write + Unpin + Send + 'static,
{
    let guest = &entrance.0;
    let responding = service_fn(|request| {
        let service = service.clone();
        async move {
            Ok::<_, Infallible>(match service.as_ref() {
                Service::Model(upstream) => respond(guest, upstream, request).await,
                Service::Repository(github) => github.respond(guest, request).await,
            })
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(stream, responding);
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection to the broker broke");
    }
}

async fn respond(guest: &Guest, upstream: &Upstream, request: Request<Incoming>) -> Response<Answer> {
    let route = Route::of(request.method(), request.uri().path());
    if route == Some(Route::Health) {
        return json(StatusCode::OK, &Health::of(&guest.broker, upstream));
    }
    match call(guest, upstream, route, request).await {
        Ok(response) => response,
        Err(refusal) => {
            if refusal.status() == StatusCode::UNAUTHORIZED {
                let reason = refusal.message(upstream);
                guest.meter.tell(Notice::CredentialRefused { reason });
            }
            json(refusal.status(), &refusal.body(upstream, route))
        }
    }
}

async fn call(
    guest: &Guest,
    upstream: &Upstream,
    route: Option<Route>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Refusal> {
    let (head, body) = request.into_parts();
    strip::check(&head.headers, &guest.phantom)?;
    let route = route
        .filter(|route| upstream.takes(*route))
        .ok_or_else(|| Refusal::Path {
            method: head.method.to_string(),
            path: head.uri.path().to_owned(),
        })?;
    if head.headers.contains_key(CONTENT_ENCODING) {
        return Err(Refusal::Compressed);
    }
    let (body, _room) = read(guest, body).await?;
    let outgoing = Outgoing {
        method: head.method,
        url: upstream.url(head.uri.path(), strip::query(head.uri.query()).as_deref()),
        headers: strip::forwarded(&head.headers),
        body,
    };
    forward::forward(guest, upstream, route, outgoing).await
}

/// The whole body of a call, and the room that it takes.
pub(super) async fn read(guest: &Guest, body: Incoming) -> Result<(Bytes, SemaphorePermit<'_>), Refusal> {
    let length = body.size_hint().upper().unwrap_or(LONGEST_CALL as u64);
    if length > LONGEST_CALL as u64 {
        return Err(Refusal::Body);
    }
    let kilobytes = usize::try_from(length)
        .unwrap_or(LONGEST_CALL)
        .div_ceil(1024)
        .min(ROOM_KB);
    let reading = async {
        let room = guest
            .room
            .acquire_many(u32::try_from(kilobytes).unwrap_or(u32::MAX))
            .await
            .ok()?;
        let collected = Limited::new(body, LONGEST_CALL).collect().await.ok()?;
        Some((collected.to_bytes(), room))
    };
    timeout(SENDING, reading)
        .await
        .ok()
        .flatten()
        .ok_or(Refusal::Body)
}
