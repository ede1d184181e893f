//! Requests to models.

use serde::{Deserialize, Serialize};

use super::{ModelMessage, Profile};
use crate::usage::{Tokens, Usd};

/// One call: a conversation, with the iteration and number of the call, which select the answer of a scripted model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelRequest {
    /// The profile of the model.
    pub profile: Profile,
    /// The conversation so far.
    pub messages: Vec<ModelMessage>,
    /// The iteration of the call, from 1.
    pub iteration: u32,
    /// The number of the call in its iteration, from 0.
    pub call: u32,
    /// The purpose of the call.
    pub purpose: CallPurpose,
}

/// The purpose of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallPurpose {
    /// Work of the agent.
    Agent,
    /// The diagnosis of a stuck run.
    Doctor,
}

/// A lower bound. Prose, code and logs have three to four bytes per token in every common tokenizer.
const BYTES_PER_TOKEN: usize = 2;
/// The tokens of a message's role and separators.
const TOKENS_PER_MESSAGE: usize = 16;

impl ModelRequest {
    /// The tokens to reserve before the call: a high estimate for the input, `max_output_tokens` for the output.
    ///
    /// The estimate is one token per two bytes, about twice what prose and code need. Only text of digits or emoji can
    /// need more, at most one token a byte. The usage reported afterwards replaces the estimate.
    #[must_use]
    pub fn worst_case(&self) -> Tokens {
        let input: usize = self
            .messages
            .iter()
            .map(|message| message.content.len().div_ceil(BYTES_PER_TOKEN) + TOKENS_PER_MESSAGE)
            .sum();
        Tokens {
            input: u64::try_from(input).unwrap_or(u64::MAX),
            output: self.profile.max_output_tokens.into(),
        }
    }

    /// The highest possible cost of the call; `None` if the profile has no price.
    #[must_use]
    pub fn worst_cost(&self) -> Option<Usd> {
        self.profile.worst_cost(self.worst_case())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Price;

    #[test]
    fn the_worst_case_covers_the_prompt_and_the_whole_answer() {
        let dollar = Usd::from_dollars(1.0).unwrap();
        let request = ModelRequest {
            profile: Profile {
                name: "p".to_owned(),
                litellm_model: "m".to_owned(),
                max_output_tokens: 2048,
                temperature: None,
                price: None,
                list_price: None,
                tags: Vec::new(),
            },
            messages: vec![ModelMessage::user("abc"), ModelMessage::user("ü".repeat(500))],
            iteration: 1,
            call: 0,
            purpose: CallPurpose::Agent,
        };
        let worst = Tokens {
            input: 2 + 16 + 500 + 16,
            output: 2048,
        };
        assert_eq!((request.worst_case(), request.worst_cost()), (worst, None));

        let price = Price {
            input_per_million: dollar,
            output_per_million: dollar,
        };
        let profile = Profile {
            price: Some(price),
            ..request.profile.clone()
        };
        let priced = ModelRequest { profile, ..request };
        assert_eq!(priced.worst_cost(), Some(price.cost_of(worst)));
    }
}
