//! Why the model behind an agent program did not answer.

use jiff::Timestamp;
use thiserror::Error;

/// Why the model behind an agent program did not answer. It never counts against the agent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ModelFailure {
    /// The service limits the rate of calls.
    #[error("the model is rate limited: {message}")]
    RateLimited {
        /// When calls are accepted again, if the service says so.
        until: Option<Timestamp>,
        /// The program's error message.
        message: String,
    },
    /// The service cannot be reached, or reports an internal error.
    #[error("the model does not answer: {message}")]
    Unavailable {
        /// The program's error message.
        message: String,
    },
    /// The service refuses the credential.
    #[error("the credential was refused: {message}")]
    Unauthorized {
        /// The program's error message.
        message: String,
    },
    /// The service does not know the model.
    #[error("the model was refused: {message}")]
    NoSuchModel {
        /// The program's error message.
        message: String,
    },
}

impl ModelFailure {
    /// Classifies an HTTP status. Returns `None` for a status that is about the request and not about the model.
    #[must_use]
    pub fn from_status(status: u16, message: &str, until: Option<Timestamp>) -> Option<Self> {
        let message = message.to_owned();
        match status {
            401 | 403 => Some(Self::Unauthorized { message }),
            404 => Some(Self::NoSuchModel { message }),
            // Anthropic answers 529 when it is overloaded.
            429 | 529 => Some(Self::RateLimited { until, message }),
            408 | 500..=599 => Some(Self::Unavailable { message }),
            _ => None,
        }
    }
}

/// The status with which ralph's gateway refuses a call because the budget is spent.
pub(super) const OVER_BUDGET: u16 = 402;
