//! Why a model did not answer.

use std::time::Duration;

use thiserror::Error;

/// Why a model did not answer.
#[derive(Debug, Error)]
pub enum ModelError {
    /// The endpoint asks to wait. The loop pauses; no iteration is spent.
    #[error("the model `{model}` is rate limited{}", retry_after.map_or(String::new(), |wait| format!(" for {} s", wait.as_secs())))]
    RateLimited {
        /// The profile's model.
        model: String,
        /// How long to wait, where the endpoint says so.
        retry_after: Option<Duration>,
    },
    /// The endpoint refuses the credential.
    #[error("{endpoint} refused the credential (HTTP {status})")]
    Unauthorized {
        /// Where the call went.
        endpoint: String,
        /// 401 or 403, as a rule; LiteLLM without a database says 400 to a wrong key and 500 to none.
        status: u16,
    },
    /// The endpoint refuses the request itself; asking again would not help.
    #[error("{endpoint} refused the request (HTTP {status}): {message}")]
    Refused {
        /// Where the call went.
        endpoint: String,
        /// The status.
        status: u16,
        /// What it said, shortened.
        message: String,
    },
    /// Nothing usable came back after all retries.
    #[error("{endpoint} did not answer after {attempts} attempts")]
    Unavailable {
        /// Where the call went.
        endpoint: String,
        /// How often it was tried.
        attempts: u32,
        /// How many of these may have been billed all the same; see `Reply::unmetered_attempts`.
        unmetered_attempts: u32,
        /// What happened the last time.
        source: Breakdown,
    },
    /// A scripted model has no answer for this call.
    #[error("the script has no answer for call {call} of iteration {iteration}")]
    ScriptExhausted {
        /// The iteration asked for.
        iteration: u32,
        /// The call asked for.
        call: u32,
    },
}

impl ModelError {
    /// What the user can do next. Rendered as `hint:` by the CLI only.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "wait, or set another profile as the fallback",
            Self::Unauthorized { .. } => {
                "check the variable that holds the key of this endpoint: `ralph config show`"
            }
            Self::Refused { .. } => "check the profile's `litellm_model` against the endpoint's `/v1/models`",
            Self::Unavailable { .. } => {
                "check that the endpoint is running: `litellm --config FILE --port 4000` starts LiteLLM"
            }
            Self::ScriptExhausted { .. } => "add a reply to the script, or end it with `then: repeat`",
        }
    }
}

/// What went wrong in one attempt that another attempt may mend.
#[derive(Debug, Error)]
pub enum Breakdown {
    /// Nobody answered at the address.
    #[error("no connection")]
    NoConnection(#[source] reqwest::Error),
    /// The endpoint failed by its own account.
    #[error("HTTP {status}: {message}")]
    Failed {
        /// The status.
        status: u16,
        /// What it said, shortened.
        message: String,
    },
    /// The endpoint failed and did not say why.
    #[error("HTTP {status} without a reason")]
    Unexplained {
        /// The status.
        status: u16,
    },
    /// The connection stood, and nothing came over it.
    #[error("nothing came for {after:?}")]
    Silent {
        /// How long was waited.
        after: Duration,
    },
    /// The endpoint began to answer, then failed by its own account.
    #[error("the answer broke off: {message}")]
    FailedLate {
        /// What it said, shortened.
        message: String,
    },
    /// The connection broke within the answer.
    #[error("the connection broke")]
    BrokenOff(#[source] reqwest::Error),
    /// The answer ended in good order, but before the model had finished.
    #[error("the answer ended before the model had finished")]
    Incomplete,
    /// The answer is not what an OpenAI-compatible endpoint sends.
    #[error("the answer is no chat completion")]
    NotUnderstood(#[source] serde_json::Error),
}

impl Breakdown {
    /// Whether the model may have worked, and be paid for, all the same.
    pub(super) fn may_have_cost(&self) -> bool {
        match self {
            Self::NoConnection(_) | Self::Failed { .. } | Self::Unexplained { .. } => false,
            Self::Silent { .. }
            | Self::FailedLate { .. }
            | Self::BrokenOff(_)
            | Self::Incomplete
            | Self::NotUnderstood(_) => true,
        }
    }
}
