//! Replies of models.

use crate::usage::{Tokens, Usd};

/// The answer to one request.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelReply {
    /// The text.
    pub text: String,
    /// The name of the model according to the endpoint.
    pub model: String,
    /// The tokens used; `None` if the endpoint did not report them.
    pub tokens: Option<Tokens>,
    /// The cost; `None` if it is unknown. Zero only if the model is free.
    pub cost: Option<Usd>,
    /// Whether the answer was cut off at `max_output_tokens`.
    pub cut_off: bool,
    /// Earlier attempts that failed after the request was sent. They may have been billed, but their usage is unknown and
    /// not in `tokens` and `cost`. A budget charges its reservation for each.
    pub unmetered_attempts: u32,
}
