//! Serves one connection of a sandbox.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::rt::{Read, Write};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioTimer;
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;

use super::body::BrokerBody;
use super::forward::forward;
use super::refusal::BrokerRefusal;
use super::upstream::ModelUpstream;
use super::{BrokerHandle, BrokerRun, BrokerService, MEMORY_KB, health};
use crate::gateway::meter::MeterNotice;

/// The longest request body, in bytes. Anthropic accepts 32 MB.
const MAX_BODY: usize = 32 << 20;
/// Timeout for receiving a request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);
/// Timeout for receiving a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves a connection until it is closed.
pub(super) async fn connection<S>(handle: BrokerHandle, service: Arc<BrokerService>, stream: S)
where
    S: Read + Write + Unpin + Send + 'static,
{
    let run = &handle.0;
    let responding = service_fn(|request| {
        let service = service.clone();
        async move {
            Ok::<_, Infallible>(match service.as_ref() {
                BrokerService::Model(upstream) => respond(run, upstream, request).await,
                BrokerService::Repository(github) => github.respond(run, request).await,
            })
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(stream, responding);
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection to the broker failed");
    }
}

async fn respond(
    run: &BrokerRun,
    upstream: &ModelUpstream,
    request: Request<Incoming>,
) -> Response<BrokerBody> {
    let (method, path) = (request.method(), request.uri().path());
    let route = upstream.service.route(method.as_str(), path);
    if method == Method::GET && path == "/health" {
        return health::respond(&run.broker, upstream);
    }
    match forward(run, upstream, route, request).await {
        Ok(response) => response,
        Err(refusal) => {
            if refusal.status == StatusCode::UNAUTHORIZED {
                let reason = refusal.message(&upstream.host);
                run.meter.notify(MeterNotice::CredentialRefused { reason });
            }
            refusal.response(&upstream.host, upstream.error_format(route))
        }
    }
}

/// The body of a request, and its share of the memory limit of the run.
pub(super) async fn read_body(
    run: &BrokerRun,
    body: Incoming,
) -> Result<(Bytes, SemaphorePermit<'_>), BrokerRefusal> {
    let length = body.size_hint().upper().unwrap_or(MAX_BODY as u64);
    let refusal = || {
        BrokerRefusal::unreadable(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the request body is too large, or did not arrive in time",
        )
    };
    if length > MAX_BODY as u64 {
        return Err(refusal());
    }
    let kilobytes = usize::try_from(length)
        .unwrap_or(MAX_BODY)
        .div_ceil(1024)
        .min(MEMORY_KB);
    let reading = async {
        let memory = run
            .memory
            .acquire_many(u32::try_from(kilobytes).unwrap_or(u32::MAX))
            .await
            .ok()?;
        let collected = Limited::new(body, MAX_BODY).collect().await.ok()?;
        Some((collected.to_bytes(), memory))
    };
    let read = timeout(BODY_TIMEOUT, reading).await;
    read.ok().flatten().ok_or_else(refusal)
}
