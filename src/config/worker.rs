//! How workers claim runs from the queue.

use std::num::NonZeroU32;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::read;
use crate::usage::Usd;

/// `[worker]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerSettings {
    /// How long a claim on a run lasts after its last renewal.
    #[serde(rename = "lease_seconds", deserialize_with = "read::seconds")]
    #[schemars(with = "NonZeroU32")]
    pub lease: Duration,
    /// From this amount on, nothing more is claimed on a day.
    #[serde(
        default,
        rename = "max_cost_usd_per_day",
        deserialize_with = "read::limit_dollars"
    )]
    #[schemars(with = "Option<f64>", extend("exclusiveMinimum" = 0))]
    pub max_cost_per_day: Option<Usd>,
    /// The same for the runs of one repository.
    #[serde(
        default,
        rename = "max_cost_usd_per_project_per_day",
        deserialize_with = "read::limit_dollars"
    )]
    #[schemars(with = "Option<f64>", extend("exclusiveMinimum" = 0))]
    pub max_cost_per_project_per_day: Option<Usd>,
}
