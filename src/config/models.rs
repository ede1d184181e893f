//! `[models.NAME]`: model profiles.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::Deserialize;

use super::read;
use crate::agent::KnownAgent;
use crate::model::Profile;
use crate::usage::{Price, Usd};

/// One `[models.NAME]`. Several files may each give a part of it.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    /// The name of the model at LiteLLM or the endpoint.
    #[serde(default, deserialize_with = "read::text")]
    pub litellm_model: Option<String>,
    /// The maximum number of tokens of one answer.
    #[serde(default)]
    pub max_output_tokens: Option<NonZeroU32>,
    /// The sampling temperature.
    #[serde(default, deserialize_with = "read::temperature")]
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
    /// The address of the model; `None` is `model_endpoint.base_url` or the service of the model, and for an agent program
    /// that of its vendor.
    #[serde(default, deserialize_with = "read::base_url")]
    pub base_url: Option<String>,
    /// The variable that holds the key of that address.
    #[serde(default, deserialize_with = "read::variable")]
    pub api_key_env: Option<String>,
    /// The agent that works with this profile; `None` is `agent.name`.
    #[serde(default)]
    pub agent: Option<KnownAgent>,
    /// The model of an agent program; `None` is `agent.model`.
    #[serde(default, deserialize_with = "read::text")]
    pub agent_model: Option<String>,
    /// Free labels for choosing among profiles.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The price of a million input tokens.
    #[serde(default, deserialize_with = "read::price")]
    #[schemars(with = "Option<f64>", range(min = 0.0))]
    pub input_usd_per_million: Option<Usd>,
    /// The price of a million output tokens.
    #[serde(default, deserialize_with = "read::price")]
    #[schemars(with = "Option<f64>", range(min = 0.0))]
    pub output_usd_per_million: Option<Usd>,
}

impl ModelSettings {
    /// The profile of this name, or what it lacks.
    pub(super) fn profile(&self, name: &str) -> Result<Profile, &'static str> {
        if name.trim().is_empty() {
            return Err("the profile has no name");
        }
        let price = match (self.input_usd_per_million, self.output_usd_per_million) {
            (None, None) => None,
            (Some(input_per_million), Some(output_per_million)) => Some(Price {
                input_per_million,
                output_per_million,
            }),
            _ => return Err("a price needs both `input_usd_per_million` and `output_usd_per_million`"),
        };
        let model = self.litellm_model.clone();
        let plain = Profile::new(name, model.ok_or("the profile has no `litellm_model`")?);
        let max_output_tokens = self.max_output_tokens.map(NonZeroU32::get);
        Ok(Profile {
            max_output_tokens: max_output_tokens.unwrap_or(plain.max_output_tokens),
            temperature: self.temperature,
            price,
            tags: self.tags.clone(),
            ..plain
        })
    }
}
