//! The health check of a broker.

use std::io;
use std::sync::atomic::Ordering;

use hyper::{Response, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::body::{self, BrokerBody};
use super::upstream::ModelUpstream;
use super::{Broker, ByteStream};

/// The longest response that is read, in bytes.
const MAX_RESPONSE: u64 = 4 * 1024;

/// The response to `GET /health`. It needs no phantom and contains nothing confidential.
pub(super) fn respond(broker: &Broker, upstream: &ModelUpstream) -> Response<BrokerBody> {
    let health = json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "mode": upstream.kind.auth,
        "runs": broker.runs.load(Ordering::Relaxed),
    });
    body::json(StatusCode::OK, &health)
}

/// Sends `GET /health` over a new connection to a broker, as a sandbox could.
pub async fn check_health(mut connection: impl ByteStream) -> io::Result<()> {
    connection
        .write_all(b"GET /health HTTP/1.1\r\nhost: broker\r\nconnection: close\r\n\r\n")
        .await?;
    let mut response = Vec::new();
    connection.take(MAX_RESPONSE).read_to_end(&mut response).await?;
    if response.starts_with(b"HTTP/1.1 200 ") {
        return Ok(());
    }
    let status = response.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let status = String::from_utf8_lossy(status);
    Err(io::Error::other(format!("unexpected response `{status}`")))
}
