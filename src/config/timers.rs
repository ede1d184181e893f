//! Timeouts.

use std::num::NonZeroU32;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::read;

/// `[timers]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimerSettings {
    /// How long to wait for a child process that keeps the output of an ended command open.
    #[serde(rename = "completion_grace_seconds", deserialize_with = "read::seconds")]
    #[schemars(with = "NonZeroU32")]
    pub completion_grace: Duration,
    /// How long an agent may print nothing.
    #[serde(rename = "idle_minutes", deserialize_with = "read::minutes")]
    #[schemars(with = "NonZeroU32")]
    pub idle: Duration,
    /// How long a virtual machine may take to boot.
    #[serde(rename = "boot_seconds", deserialize_with = "read::seconds")]
    #[schemars(with = "NonZeroU32")]
    pub boot: Duration,
}
