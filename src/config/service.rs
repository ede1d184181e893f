//! What `ralph serve` does besides answering requests.

use std::num::NonZeroU32;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::read;

/// `[service]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceSettings {
    /// How many runs of the queue are worked on at the same time; none with 0.
    #[serde(deserialize_with = "read::workers")]
    #[schemars(extend("maximum" = 1000))]
    pub workers: u16,
    /// Whether issues are worked on too.
    pub poll: bool,
    /// The time from one look at the issues to the next.
    #[serde(rename = "poll_seconds", deserialize_with = "read::seconds")]
    #[schemars(with = "NonZeroU32")]
    pub poll_interval: Duration,
    /// How long a run that ended stays in the queue.
    #[serde(rename = "keep_ended_days", deserialize_with = "read::days")]
    #[schemars(with = "NonZeroU32")]
    pub keep_ended: Duration,
}
