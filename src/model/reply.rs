//! What a model answers.

use crate::usage::{Tokens, Usd};

/// What a model answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The text.
    pub text: String,
    /// The model that answered, as the endpoint names it.
    pub model: String,
    /// Tokens used; `None` when the endpoint did not say.
    pub tokens: Option<Tokens>,
    /// What it cost; `None` when nobody knows. Unknown is never zero.
    pub cost: Option<Usd>,
    /// Whether the answer was cut off at `max_output_tokens`.
    pub cut_off: bool,
    /// Earlier attempts at this call that broke off once the request was on its way: perhaps billed, their usage
    /// unknown and not in `tokens` and `cost`. A budget charges its reservation for each.
    pub unmetered_attempts: u32,
}
