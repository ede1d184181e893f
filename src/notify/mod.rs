//! Notifications about runs: webhooks, Slack, ntfy, and programs on the host.
//!
//! The journal of a run is the outbox. [`Notifier`] reads it when something happened, delivers what each [`NotifyChannel`] wants, and
//! records the delivery in a file of its own. So a crash loses no notification, and a resume sends what was not delivered.

mod channel;
mod deliveries;

mod notice;
mod notifier;
mod sender;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use channel::{ChannelAddress, NotifyChannel, WebhookKey, WebhookKeyError};
pub use notice::{Notice, notices};
pub use notifier::{Notifier, NotifierParts};

/// What can be notified about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotifyEvent {
    /// The run is done.
    Done,
    /// The run failed, or an error ended it.
    Failed,
    /// The run waits for a person, and no person asked for that.
    NeedsAttention,
    /// 80 % of a budget is used.
    Budget,
    /// A person paused the run.
    Paused,
    /// The pull request was opened.
    PullRequest,
    /// The CI of the forge failed.
    CiFailed,
}

impl NotifyEvent {
    /// Its name in the configuration and in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::NeedsAttention => "needs_attention",
            Self::Budget => "budget",
            Self::Paused => "paused",
            Self::PullRequest => "pull_request",
            Self::CiFailed => "ci_failed",
        }
    }

    /// The same for people.
    fn words(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::NeedsAttention => "needs attention",
            Self::Budget => "budget",
            Self::Paused => "paused",
            Self::PullRequest => "pull request",
            Self::CiFailed => "CI failed",
        }
    }
}
