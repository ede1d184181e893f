//! Why the model behind an agent program did not answer.

use jiff::Timestamp;
use thiserror::Error;

/// Why the model behind an agent program did not answer. None of it is the agent's doing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Trouble {
    /// It answers later.
    #[error("the model is rate limited: {said}")]
    RateLimited {
        /// From when on, where it says so.
        until: Option<Timestamp>,
        /// What the program said.
        said: String,
    },
    /// It cannot be reached, or fails by itself.
    #[error("the model does not answer: {said}")]
    Unavailable {
        /// What the program said.
        said: String,
    },
    /// It refuses the credential.
    #[error("the credential was refused: {said}")]
    Unauthorized {
        /// What the program said.
        said: String,
    },
    /// There is no such model.
    #[error("the model was refused: {said}")]
    NoSuchModel {
        /// What the program said.
        said: String,
    },
}

impl Trouble {
    /// What an HTTP status means; `None` for one that is about the request and not about the model.
    #[must_use]
    pub fn of_status(status: u16, said: &str, until: Option<Timestamp>) -> Option<Self> {
        let said = said.to_owned();
        match status {
            401 | 403 => Some(Self::Unauthorized { said }),
            404 => Some(Self::NoSuchModel { said }),
            // 529 is how Anthropic says that it is overloaded.
            429 | 529 => Some(Self::RateLimited { until, said }),
            408 | 500..=599 => Some(Self::Unavailable { said }),
            _ => None,
        }
    }
}

/// The status with which a gateway says that the budget is spent.
pub(super) const OVER_BUDGET: u16 = 402;
