//! Why a model did not answer.

use std::time::Duration;

use thiserror::Error;

use super::CallPurpose;
use crate::text::counted;

/// Why a model did not answer.
#[derive(Debug, Error)]
pub enum ModelError {
    /// The endpoint asks to wait. The run waits; the iteration does not count.
    #[error("the model `{model}` is rate limited{}", retry_after.map_or(String::new(), |wait| format!(" for {} s", wait.as_secs())))]
    RateLimited {
        /// The model of the profile.
        model: String,
        /// How long to wait, if the endpoint says so.
        retry_after: Option<Duration>,
        /// How many attempts may have been billed; see `ModelReply::unmetered_attempts`. The last one is among them if the
        /// answer had begun.
        unmetered_attempts: u32,
    },
    /// The endpoint refuses the credential.
    #[error("{endpoint} refused the credential (HTTP {status})")]
    Unauthorized {
        /// The base URL.
        endpoint: String,
        /// Usually 401 or 403. LiteLLM without a database answers 400 to a wrong key and 500 to no key.
        status: u16,
    },
    /// The endpoint refuses the request itself; a retry would not help.
    #[error("{endpoint} refused the request (HTTP {status}): {message}")]
    Refused {
        /// The base URL.
        endpoint: String,
        /// The HTTP status.
        status: u16,
        /// Its error message, shortened.
        message: String,
    },
    /// All attempts failed.
    #[error("{endpoint} did not answer after {}", counted(*attempts, "attempt"))]
    Unavailable {
        /// The base URL.
        endpoint: String,
        /// The number of attempts.
        attempts: u32,
        /// How many of them may have been billed; see `ModelReply::unmetered_attempts`.
        unmetered_attempts: u32,
        /// The error of the last attempt.
        source: AttemptError,
    },
    /// The configuration has no key or no service for the profile.
    #[error("the profile `{profile}` cannot be used: {reason}")]
    NotConfigured {
        /// The profile.
        profile: String,
        /// What is missing.
        reason: String,
    },
    /// A scripted model has no answer for this call.
    #[error("the script has no answer for call {} of {}", call + 1, match purpose {
        CallPurpose::Agent => format!("iteration {iteration}"),
        CallPurpose::Doctor => format!("the doctor, which was asked after iteration {iteration}"),
    })]
    ScriptExhausted {
        /// The iteration of the call.
        iteration: u32,
        /// The number of the call.
        call: u32,
        /// Who calls: the agent, or the doctor.
        purpose: CallPurpose,
    },
}

impl ModelError {
    /// How many attempts of the call may have been billed, although it failed.
    pub(crate) fn unmetered_attempts(&self) -> u32 {
        match self {
            Self::RateLimited {
                unmetered_attempts, ..
            }
            | Self::Unavailable {
                unmetered_attempts, ..
            } => *unmetered_attempts,
            _ => 0,
        }
    }

    /// What the user can do next. Rendered as `hint:` by the CLI only.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "wait, or set another profile as the fallback",
            Self::Unauthorized { .. } => {
                "check the variable that holds the key of this endpoint: `ralph models`"
            }
            Self::Refused { .. } => {
                "check the profile's `litellm_model` (`ralph models`) against the models of the endpoint"
            }
            Self::Unavailable { .. } => {
                "check the network of the host, and that the endpoint is running: `litellm --config FILE --port 4000` starts LiteLLM"
            }
            Self::NotConfigured { .. } => "`ralph models` shows the service and the key of each profile",
            Self::ScriptExhausted {
                purpose: CallPurpose::Agent,
                ..
            } => "add a reply to the script, or end it with `then: repeat`",
            Self::ScriptExhausted {
                purpose: CallPurpose::Doctor,
                ..
            } => "add `doctor:` to the script, with a list of answers of the doctor",
        }
    }
}

/// Why one attempt failed. Another attempt may succeed.
#[derive(Debug, Error)]
pub enum AttemptError {
    /// The connection failed.
    #[error("no connection")]
    NoConnection(#[source] reqwest::Error),
    /// The endpoint reported a server error.
    #[error("HTTP {status}: {message}")]
    Failed {
        /// The HTTP status.
        status: u16,
        /// Its error message, shortened.
        message: String,
    },
    /// The endpoint reported a server error without a message.
    #[error("HTTP {status} without a reason")]
    Unexplained {
        /// The HTTP status.
        status: u16,
    },
    /// The endpoint sent nothing for too long.
    #[error("no data for {after:?}")]
    Silent {
        /// The timeout.
        after: Duration,
    },
    /// The endpoint reported an error in the middle of the answer.
    #[error("error in the middle of the answer: {message}")]
    FailedMidway {
        /// Its error message, shortened.
        message: String,
    },
    /// The connection was closed in the middle of the answer.
    #[error("the connection was closed in the middle of the answer")]
    Interrupted(#[source] reqwest::Error),
    /// The answer ended before the model had finished.
    #[error("the answer ended before the model had finished")]
    Incomplete,
    /// The answer is not a chat completion.
    #[error("the answer is not a chat completion")]
    Malformed(#[source] serde_json::Error),
}

impl AttemptError {
    /// Whether the attempt may have been billed.
    pub(super) fn may_have_cost(&self) -> bool {
        match self {
            Self::NoConnection(_) | Self::Failed { .. } | Self::Unexplained { .. } => false,
            Self::Silent { .. }
            | Self::FailedMidway { .. }
            | Self::Interrupted(_)
            | Self::Incomplete
            | Self::Malformed(_) => true,
        }
    }
}
