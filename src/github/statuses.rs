//! The commit status that shows the evidence of a commit.

use serde::Deserialize;
use serde_json::{Value, json};

use super::error::GitHubError;
use super::pulls::Pulls;
use crate::id::ObjectId;
use crate::scm::{CommitState, CommitStatus};

/// The name of ralph's own status. It is no check of CI.
pub(super) const CONTEXT: &str = "ralph/evidence";

/// The longest description in characters. GitHub refuses more than 140.
const MAX_DESCRIPTION: usize = 140;

/// A status of a commit.
#[derive(Deserialize)]
struct KnownStatus {
    context: String,
    state: String,
    description: Option<String>,
    target_url: Option<String>,
}

impl Pulls<'_> {
    /// Sets ralph's status of a commit, unless it is set already.
    pub(super) async fn set_status(
        &self,
        commit: &ObjectId,
        status: &CommitStatus,
        location: &str,
    ) -> Result<(), GitHubError> {
        let state = match status.state {
            CommitState::Pending => "pending",
            CommitState::Success => "success",
            CommitState::Failure => "failure",
            CommitState::Error => "error",
        };
        let description = short(&status.description);
        let known: Vec<KnownStatus> = self
            .client
            .list(&self.path(&format!("commits/{commit}/statuses")))
            .await?;
        // The newest one is first.
        let is_set = known
            .iter()
            .find(|known| known.context == CONTEXT)
            .is_some_and(|known| {
                known.state == state
                    && known.description.as_deref() == Some(&description)
                    && known.target_url.as_deref() == Some(location)
            });
        if is_set {
            return Ok(());
        }
        let body = json!({
            "state": state, "context": CONTEXT, "description": description, "target_url": location,
        });
        let path = self.path(&format!("statuses/{commit}"));
        // The newest one of a name counts, so a second one is harmless.
        self.client.add::<Value>(&path, body).await.map(drop)
    }
}

/// A description that GitHub accepts.
fn short(description: &str) -> String {
    if description.chars().count() <= MAX_DESCRIPTION {
        return description.to_owned();
    }
    let kept: String = description.chars().take(MAX_DESCRIPTION - 3).collect();
    format!("{kept}...")
}
