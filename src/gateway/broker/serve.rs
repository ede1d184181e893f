//! Serves one connection of a sandbox.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::rt::{Read, Write};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioTimer;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::body::BrokerBody;
use super::forward::forward;
use super::refusal::BrokerRefusal;
use super::upstream::ModelUpstream;
use super::{BrokerHandle, BrokerRun, BrokerService, health};
use crate::gateway::meter::MeterNotice;

/// The longest request body, in bytes. Anthropic accepts 32 MB.
const MAX_BODY: usize = 32 << 20;
/// The longest request head, in bytes.
const MAX_HEAD: usize = 64 << 10;
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
        .max_buf_size(MAX_HEAD)
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
                let reason = refusal.message(&upstream.vendor_host);
                run.meter.notify(MeterNotice::CredentialRefused { reason });
            }
            refusal.response(&upstream.vendor_host, upstream.error_format(route))
        }
    }
}

/// The body of a request, and its share of the memory limit of the run (kilobytes).
pub(super) async fn read_body<B>(
    memory: &Semaphore,
    body: B,
) -> Result<(Bytes, SemaphorePermit<'_>), BrokerRefusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let too_large = || {
        let text = format!("the request body is larger than {} MiB", MAX_BODY >> 20);
        BrokerRefusal::unreadable(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let length = body.size_hint().upper().unwrap_or(MAX_BODY as u64);
    if length > MAX_BODY as u64 {
        return Err(too_large());
    }
    let kilobytes = u32::try_from(length.div_ceil(1024)).unwrap_or(u32::MAX);
    let deadline = Instant::now() + BODY_TIMEOUT;
    let Ok(Ok(share)) = timeout_at(deadline, memory.acquire_many(kilobytes)).await else {
        return Err(BrokerRefusal::out_of_memory());
    };
    match timeout_at(deadline, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(collected)) => Ok((collected.to_bytes(), share)),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => {
            let text = "the request body broke off";
            Err(BrokerRefusal::unreadable(StatusCode::BAD_REQUEST, text))
        }
        Err(_) => {
            let seconds = BODY_TIMEOUT.as_secs();
            let text = format!("the request body did not arrive within {seconds} s");
            Err(BrokerRefusal::unreadable(StatusCode::REQUEST_TIMEOUT, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures_util::{StreamExt, stream};
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::super::MEMORY_KB;
    use super::*;

    async fn check(
        memory: usize,
        body: impl Body<Data = Bytes, Error = io::Error>,
        expected: Result<usize, &str>,
    ) {
        let memory = Semaphore::new(memory);
        let read = read_body(&memory, body).await;
        let actual = read
            .map(|(bytes, _)| bytes.len())
            .map_err(|refusal| format!("{} {}", refusal.status.as_u16(), refusal.text));
        assert_eq!(actual, expected.map_err(str::to_owned));
    }

    /// A body of unknown length.
    fn pieces(pieces: Vec<io::Result<Bytes>>) -> impl Body<Data = Bytes, Error = io::Error> {
        StreamBody::new(stream::iter(pieces).map(|piece| piece.map(Frame::data)))
    }

    #[tokio::test(start_paused = true)]
    async fn every_cause_of_an_unreadable_body_has_its_own_answer() {
        let full = |length: usize| Full::new(Bytes::from(vec![0; length])).map_err(|never| match never {});
        let too_large = Err("413 the request body is larger than 32 MiB");
        check(MEMORY_KB, full(5), Ok(5)).await;
        check(MEMORY_KB, full(MAX_BODY + 1), too_large).await;
        let half = || Ok(Bytes::from(vec![0; MAX_BODY / 2 + 1]));
        check(MEMORY_KB, pieces(vec![half(), half()]), too_large).await;
        let broken = pieces(vec![Ok(Bytes::from("a")), Err(io::ErrorKind::BrokenPipe.into())]);
        check(MEMORY_KB, broken, Err("400 the request body broke off")).await;
        let silent = StreamBody::new(stream::pending());
        let late = Err("408 the request body did not arrive within 120 s");
        check(MEMORY_KB, silent, late).await;
        let busy = "503 other requests of the run use all memory for request bodies; try again";
        check(1, full(2000), Err(busy)).await;
    }
}
