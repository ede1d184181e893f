//! How the broker is.

use std::sync::atomic::Ordering;

use serde::Serialize;

use super::Broker;
use super::upstream::Upstream;
use crate::credential::Auth;

/// What `GET /health` says. It needs no phantom and holds nothing confidential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Always `ok`: a broker that is not does not answer.
    pub status: &'static str,
    /// The version of ralph.
    pub version: &'static str,
    /// How the service of this name authenticates.
    pub mode: Auth,
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
