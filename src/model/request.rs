//! What a model is asked.

use serde::{Deserialize, Serialize};

use super::{Message, Profile};
use crate::usage::{Tokens, Usd};

/// One call: a conversation, and which call of which iteration it is (a scripted model answers by that).
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The profile to call.
    pub profile: Profile,
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// The iteration this call belongs to, from 1.
    pub iteration: u32,
    /// Which call of the iteration it is, from 0.
    pub call: u32,
    /// What the call is for.
    pub purpose: Purpose,
}

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// The agent's own work.
    Agent,
    /// A diagnosis of a stuck run.
    Doctor,
}

/// Bytes of a prompt per token, at the least. Prose, code and logs have three to four in every common tokenizer.
const BYTES_PER_TOKEN: usize = 2;
/// What a message costs besides its text: role and separators.
const TOKENS_PER_MESSAGE: usize = 16;

impl Request {
    /// The tokens to reserve before the call: a high guess for the input, all of `max_output_tokens` for the output.
    ///
    /// The guess is half the bytes of the prompt, about twice what prose or code really needs. Only text made of
    /// little but digits or emoji can need more, at most one token a byte; the usage reported afterwards counts.
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
    /// What the call costs at the most; `None` when the profile has no price.
    #[must_use]
    pub fn worst_cost(&self) -> Option<Usd> {
        self.profile.cost_of(self.worst_case())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Price;

    #[test]
    fn the_worst_case_covers_the_prompt_and_the_whole_answer() {
        let dollar = Usd::from_dollars(1.0).unwrap();
        let request = Request {
            profile: Profile {
                name: "p".to_owned(),
                litellm_model: "m".to_owned(),
                max_output_tokens: 2048,
                temperature: None,
                price: None,
                tags: Vec::new(),
            },
            messages: vec![Message::user("abc"), Message::user("ü".repeat(500))],
            iteration: 1,
            call: 0,
            purpose: Purpose::Agent,
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
        let priced = Request { profile, ..request };
        assert_eq!(priced.worst_cost(), Some(price.of(worst)));
    }
}
