//! Pushes the note of a commit, while other runs push theirs.

use std::time::Duration;

use tokio::time::sleep;

use super::forge::GitHubForge;
use super::retry;
use crate::id::ObjectId;
use crate::scm::{ForgeError, ScmError};

/// How often a push is tried while others push notes.
const TRIES: u32 = 12;

impl GitHubForge {
    /// Adds the note of a commit to the notes of the repository. A push that another one came before is prepared again on
    /// top of it, so nothing is lost. So is one whose connection failed.
    pub(super) async fn push_note(&self, notes_ref: &str, commit: &ObjectId) -> Result<(), ForgeError> {
        let mut tries = 0;
        loop {
            let Err(error) = self.try_push_note(notes_ref, commit).await else {
                return Ok(());
            };
            tries += 1;
            if tries == TRIES || !is_transient(&error) {
                return Err(error);
            }
            let longest = self.client.pace().first_pause.max(Duration::from_millis(50)) * tries;
            sleep(longest.mul_f64(fastrand::f64())).await;
        }
    }

    async fn try_push_note(&self, notes_ref: &str, commit: &ObjectId) -> Result<(), ForgeError> {
        let _one_write_at_a_time = self.client.begin_push().await;
        let (repository, now) = (&self.repository, self.client.now());
        self.at_remote(|remote| async move {
            if let Some(push) = repository.prepare_note(&remote, notes_ref, commit, now).await? {
                let expected = push.expected.as_ref();
                repository
                    .push_ref(&remote, notes_ref, &push.commit, expected)
                    .await?;
            }
            Ok(())
        })
        .await
    }
}

/// Whether another attempt may succeed.
fn is_transient(error: &ForgeError) -> bool {
    match error {
        ForgeError::Scm(ScmError::RefMoved { .. }) => true,
        ForgeError::Scm(error) => retry::is_transient(error),
        _ => false,
    }
}
