//! Model profiles.

use super::prices::{BilledTokens, ListPrice};
use crate::usage::{Price, Tokens, Usd};

/// A named model with its limits and price.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The profile's name, for example `default-cheap`.
    pub name: String,
    /// The model name at the endpoint, for example `zai/glm-4.7`.
    pub litellm_model: String,
    /// The limit of one answer.
    pub max_output_tokens: u32,
    /// The sampling temperature; `None` leaves it to the endpoint.
    pub temperature: Option<f64>,
    /// The price, for endpoints that do not report the cost of a call.
    pub price: Option<Price>,
    /// The list price of `litellm_model` at its service, for calls that ralph makes there itself. `price` wins.
    pub list_price: Option<ListPrice>,
    /// Free tags that commands can select profiles by.
    pub tags: Vec<String>,
}

/// The default limit of one answer.
const MAX_OUTPUT_TOKENS: u32 = 4096;

impl Profile {
    /// A profile whose answers have at most 4096 tokens and whose price is unknown.
    #[must_use]
    pub fn new(name: impl Into<String>, litellm_model: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            litellm_model: litellm_model.into(),
            max_output_tokens: MAX_OUTPUT_TOKENS,
            temperature: None,
            price: None,
            list_price: None,
            tags: Vec::new(),
        }
    }

    /// The cost of these tokens of an agent program; `None` if the profile has no price.
    #[must_use]
    pub fn cost_of(&self, tokens: Tokens) -> Option<Usd> {
        self.price.map(|price| price.cost_of(tokens))
    }

    /// The cost of a call to its model; `None` if there is neither a price nor a list price.
    #[must_use]
    pub fn call_cost(&self, tokens: BilledTokens) -> Option<Usd> {
        let listed = || self.list_price.map(|price| price.cost_of(tokens));
        self.cost_of(tokens.all).or_else(listed)
    }

    /// The most that a call with these tokens can cost; `None` if there is neither a price nor a list price.
    #[must_use]
    pub fn worst_cost(&self, tokens: Tokens) -> Option<Usd> {
        let listed = || self.list_price.map(|price| price.worst_cost(tokens));
        self.cost_of(tokens).or_else(listed)
    }
}
