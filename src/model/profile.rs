//! Model profiles.

use crate::usage::{Price, Tokens, Usd};

/// A name for a model and its limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The profile's own name, for example `default-cheap`.
    pub name: String,
    /// The model as LiteLLM or the endpoint knows it, for example `zai/glm-4.7`.
    pub litellm_model: String,
    /// The most tokens one answer may have.
    pub max_output_tokens: u32,
    /// How freely the model answers.
    pub temperature: Option<f64>,
    /// What it costs, where the endpoint does not say so itself.
    pub price: Option<Price>,
    /// Free words for choosing among profiles.
    pub tags: Vec<String>,
}

impl Profile {
    /// What these tokens cost at the profile's own price; `None` when it has none.
    #[must_use]
    pub fn cost_of(&self, tokens: Tokens) -> Option<Usd> {
        self.price.map(|price| price.of(tokens))
    }
}
