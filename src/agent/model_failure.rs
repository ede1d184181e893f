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
