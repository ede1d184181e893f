//! GitHub: a thin client for its API, and the forge that pushes a run's branch and owns its pull request.
//!
//! Calls that create something are repeated only if they surely had no effect; after a lost answer the object is looked up
//! first. Tokens are given to git in its environment, bound to one host.

mod address;
mod answer;
mod ci;
mod claim_pushes;
mod claimed_push;
mod claims;
mod client;
mod credential;
mod error;
mod forge;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod graphql;
mod issue_change;
mod issues;
mod kept;
mod marker;
mod notes;
mod pace;
mod pulls;
mod retry;
mod reviews;
mod stacks;
mod statuses;
mod wire;

pub use address::repository_name;
pub use claims::{Claim, ClaimAttempt, ClaimRecord, Claims, PushedBranch};
pub use client::GitHubClient;
pub use credential::{GitHubApp, GitHubCredential};
pub use error::GitHubError;
pub use forge::GitHubForge;
pub use issues::{Issue, IssueStatus, Issues};
pub use pace::GitHubPace;
pub use reviews::{FoundReviews, OpenPull, ReviewedPull, Reviews};
pub use stacks::StackChange;
