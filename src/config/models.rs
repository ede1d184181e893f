//! `[models.NAME]`: model profiles.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::Deserialize;

use super::read;
use crate::agent::AgentName;
use crate::model::Profile;
use crate::usage::{Price, Usd};

/// One `[models.NAME]`. Several files may each give a part of it.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    /// The name of the model at LiteLLM or the endpoint.
    #[serde(default, deserialize_with = "read::optional_text")]
    pub litellm_model: Option<String>,
    /// The maximum number of tokens of one answer.
    #[serde(default, deserialize_with = "read::optional_count")]
    pub max_output_tokens: Option<NonZeroU32>,
    /// The sampling temperature.
    #[serde(default, deserialize_with = "read::temperature")]
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
    /// The address of the model; `None` is `model_endpoint.base_url`, and for an agent program that of its vendor.
    #[serde(default, deserialize_with = "read::optional_base_url")]
    pub base_url: Option<String>,
    /// The variable that holds the key of that address.
    #[serde(default, deserialize_with = "read::optional_variable")]
    pub api_key_env: Option<String>,
    /// The agent that works with this profile; `None` is `agent.name`.
    #[serde(default)]
    pub agent: Option<AgentName>,
    /// The model of an agent program; `None` is `agent.model`.
    #[serde(default, deserialize_with = "read::optional_text")]
    pub agent_model: Option<String>,
    /// Free labels for choosing among profiles.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The price of a million input tokens.
    #[serde(default, deserialize_with = "read::optional_price")]
    #[schemars(with = "Option<f64>", range(min = 0.0))]
    pub input_usd_per_million: Option<Usd>,
    /// The price of a million output tokens.
    #[serde(default, deserialize_with = "read::optional_price")]
    #[schemars(with = "Option<f64>", range(min = 0.0))]
    pub output_usd_per_million: Option<Usd>,
}

/// A profile that lacks something.
pub(super) struct IncompleteProfile {
    pub(super) name: String,
    pub(super) reason: &'static str,
}

/// The profiles, and those that are incomplete.
pub(super) fn profiles(
    models: &BTreeMap<String, ModelSettings>,
) -> (BTreeMap<String, Profile>, Vec<IncompleteProfile>) {
    let mut profiles = BTreeMap::new();
    let mut incomplete = Vec::new();
    for (name, model) in models {
        match profile(name, model) {
            Ok(profile) => {
                profiles.insert(name.clone(), profile);
            }
            Err(reason) => incomplete.push(IncompleteProfile {
                name: name.clone(),
                reason,
            }),
        }
    }
    (profiles, incomplete)
}

fn profile(name: &str, model: &ModelSettings) -> Result<Profile, &'static str> {
    if name.trim().is_empty() {
        return Err("the profile has no name");
    }
    let price = match (model.input_usd_per_million, model.output_usd_per_million) {
        (None, None) => None,
        (Some(input_per_million), Some(output_per_million)) => Some(Price {
            input_per_million,
            output_per_million,
        }),
        _ => return Err("a price needs both `input_usd_per_million` and `output_usd_per_million`"),
    };
    let litellm_model = model
        .litellm_model
        .clone()
        .ok_or("the profile has no `litellm_model`")?;
    let plain = Profile::new(name, litellm_model);
    Ok(Profile {
        max_output_tokens: model
            .max_output_tokens
            .map_or(plain.max_output_tokens, NonZeroU32::get),
        temperature: model.temperature,
        price,
        tags: model.tags.clone(),
        ..plain
    })
}
