//! Pushes the note of a commit, while other runs push theirs.

use std::time::Duration;

use tokio::time::sleep;

use super::forge::GitHubForge;
use crate::id::ObjectId;
use crate::scm::{ForgeError, ScmError};

/// How often a push is tried while others push notes.
const TRIES: u32 = 12;

/// What a server says if two pushes meet, and neither has moved the ref so far.
const RACES: [&str; 3] = ["cannot lock ref", "failed to update ref", "unable to create"];

/// What git says if the connection failed.
const LOST_CONNECTIONS: [&str; 9] = [
    "rpc failed",
    "hung up",
    "unexpected disconnect",
    "early eof",
    "could not resolve host",
    "failed to connect",
    "connection reset",
    "timed out",
    "returned error: 5",
];
/// What git says if the server refused the request. It also says that the server hung up then.
const REFUSED: &str = "returned error: 4";

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
            if tries == TRIES || !may_pass(&error) {
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
fn may_pass(error: &ForgeError) -> bool {
    match error {
        ForgeError::Scm(ScmError::RefMoved { .. }) => true,
        ForgeError::Scm(ScmError::PushRefused { reason, .. }) => {
            let reason = reason.to_lowercase();
            RACES.iter().any(|race| reason.contains(race)) || is_lost_connection(&reason)
        }
        ForgeError::Scm(ScmError::Git { stderr, .. }) => is_lost_connection(&stderr.to_lowercase()),
        _ => false,
    }
}

fn is_lost_connection(message: &str) -> bool {
    !message.contains(REFUSED) && LOST_CONNECTIONS.iter().any(|lost| message.contains(lost))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        "error: RPC failed; curl 52 Empty reply from server\nsend-pack: unexpected disconnect",
        true
    )]
    #[case("fatal: unable to access 'https://x/': Could not resolve host: x", true)]
    #[case(
        "fatal: unable to access 'https://x/': The requested URL returned error: 502",
        true
    )]
    #[case(
        "error: RPC failed; HTTP 403 curl 22 The requested URL returned error: 403\nfatal: the remote end hung up",
        false
    )]
    #[case("fatal: Authentication failed for 'https://x/'", false)]
    #[case("remote: error: GH006: Protected branch update failed", false)]
    fn a_lost_connection_is_no_refusal(#[case] message: &str, #[case] expected: bool) {
        assert_eq!(is_lost_connection(&message.to_lowercase()), expected);
    }
}
