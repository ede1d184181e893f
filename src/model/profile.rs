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

/// The most tokens of one answer where nobody says otherwise.
const MAX_OUTPUT_TOKENS: u32 = 4096;

impl Profile {
    /// A profile of that name for a model. Its answers have at most 4096 tokens; its price is unknown.
    #[must_use]
    pub fn new(name: impl Into<String>, litellm_model: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            litellm_model: litellm_model.into(),
            max_output_tokens: MAX_OUTPUT_TOKENS,
            temperature: None,
            price: None,
            tags: Vec::new(),
        }
    }

    /// What these tokens cost at the profile's own price; `None` when it has none.
    #[must_use]
    pub fn cost_of(&self, tokens: Tokens) -> Option<Usd> {
        self.price.map(|price| price.of(tokens))
    }
}
