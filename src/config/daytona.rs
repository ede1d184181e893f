//! `[sandbox.daytona]`: sandboxes at Daytona.

use schemars::JsonSchema;
use serde::Deserialize;

use super::read;
use crate::usage::Usd;

/// `[sandbox.daytona]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DaytonaSettings {
    /// A Dockerfile that Daytona builds; `None` uses snapshots.
    #[serde(default, deserialize_with = "read::text")]
    pub dockerfile: Option<String>,
    /// The price of a processor for an hour.
    #[serde(deserialize_with = "read::price")]
    #[schemars(with = "f64", range(min = 0.0))]
    pub usd_per_cpu_hour: Usd,
    /// The price of a gigabyte of memory for an hour.
    #[serde(deserialize_with = "read::price")]
    #[schemars(with = "f64", range(min = 0.0))]
    pub usd_per_memory_gb_hour: Usd,
    /// The price of a gigabyte of disk for an hour.
    #[serde(deserialize_with = "read::price")]
    #[schemars(with = "f64", range(min = 0.0))]
    pub usd_per_disk_gb_hour: Usd,
}
