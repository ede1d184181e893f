//! How the broker is.

use std::io;
use std::sync::atomic::Ordering;

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::upstream::Upstream;
use super::{Broker, Stream};
use crate::credential::AuthMethod;

/// What `GET /health` says. It needs no phantom and holds nothing confidential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Always `ok`: a broker that is not does not answer.
    pub status: &'static str,
    /// The version of ralph.
    pub version: &'static str,
    /// How the service of this name authenticates.
    pub mode: AuthMethod,
    /// How many runs the broker serves.
    pub runs: usize,
}

impl Health {
    pub(super) fn of(broker: &Broker, upstream: &Upstream) -> Self {
        Self {
            status: "ok",
            version: env!("CARGO_PKG_VERSION"),
            mode: upstream.auth(),
            runs: broker.runs.load(Ordering::Relaxed),
        }
    }
}

/// The longest answer to the question how a broker is.
const LONGEST: u64 = 4 * 1024;

/// Asks over a new connection to a broker how it is, as a sandbox could.
pub async fn ask_health(mut connection: impl Stream) -> io::Result<()> {
    connection
        .write_all(b"GET /health HTTP/1.1\r\nhost: broker\r\nconnection: close\r\n\r\n")
        .await?;
    let mut answer = Vec::new();
    connection.take(LONGEST).read_to_end(&mut answer).await?;
    if answer.starts_with(b"HTTP/1.1 200 ") {
        Ok(())
    } else {
        let first = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
        Err(io::Error::other(format!(
            "it answers `{}`",
            String::from_utf8_lossy(first)
        )))
    }
}
