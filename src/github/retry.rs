//! What a failure of git means: another attempt may succeed, a rate limit, or a refused token.

use super::client::GitHubClient;
use super::error::GitHubError;
use super::pace::LimitWaits;
use crate::scm::{Remote, ScmError};

/// What git says if two pushes meet. The ref may be back where it was since.
const RACES: [&str; 5] = [
    "stale info",
    "cannot lock ref",
    "failed to update ref",
    "incorrect old value",
    "unable to create",
];

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

/// What git says about a rate limit. Git shows no headers, and the text of an answer only before a push begins. A token without
/// the permission is refused then, so a push that is refused with 403 after that is over a limit.
const LIMITS: [&str; 3] = ["returned error: 429", "rate limit", "rpc failed; http 403"];

/// What git says about a token that is not accepted. It then wants to ask a person for another one.
const REFUSED_TOKENS: [&str; 3] = [
    "authentication failed",
    "could not read username",
    "returned error: 401",
];

/// Whether another attempt of the same push may succeed. A ref that was moved is not such a failure.
pub(super) fn is_transient(error: &ScmError) -> bool {
    match error {
        ScmError::PushRefused { reason, .. } => {
            let reason = reason.to_lowercase();
            RACES.iter().any(|race| reason.contains(race)) || is_lost_connection(&reason)
        }
        ScmError::Git { stderr, .. } => is_lost_connection(&stderr.to_lowercase()),
        _ => false,
    }
}

/// Attempts at the remote after failures of git that had no effect.
pub(super) struct RemoteRetry<'c> {
    client: &'c GitHubClient,
    waits: LimitWaits,
    has_replaced_token: bool,
}

impl<'c> RemoteRetry<'c> {
    pub(super) fn new(client: &'c GitHubClient) -> Self {
        Self {
            client,
            waits: LimitWaits::begin(),
            has_replaced_token: false,
        }
    }

    /// Prepares another attempt: begins the pause of a rate limit, or lets an App get another token, once. `false` if the
    /// failure is neither. Fails if the pause is too long.
    pub(super) async fn prepare(&mut self, remote: &Remote, error: &ScmError) -> Result<bool, GitHubError> {
        let message = match error {
            ScmError::Git { stderr, .. } => stderr.to_lowercase(),
            ScmError::PushRefused { reason, .. } => reason.to_lowercase(),
            _ => return Ok(false),
        };
        if is_rate_limit(&message) {
            self.client.begin_pause(&mut self.waits, "git", None).await?;
            return Ok(true);
        }
        if self.has_replaced_token || !REFUSED_TOKENS.iter().any(|sign| message.contains(sign)) {
            return Ok(false);
        }
        self.has_replaced_token = true;
        Ok(self.client.replace_token(&remote.token).await)
    }
}

fn is_rate_limit(message: &str) -> bool {
    LIMITS.iter().any(|sign| message.contains(sign))
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

    #[rstest]
    #[case(
        "error: RPC failed; HTTP 403 curl 22 The requested URL returned error: 403\nfatal: the remote end hung up",
        true
    )]
    #[case(
        "fatal: unable to access 'https://x/': The requested URL returned error: 429",
        true
    )]
    #[case(
        "remote: You have exceeded a secondary rate limit.\nfatal: unable to access 'https://x/': The requested URL returned error: 403",
        true
    )]
    #[case(
        "remote: Permission to o/r.git denied to ada.\nfatal: unable to access 'https://x/': The requested URL returned error: 403",
        false
    )]
    fn a_limit_is_no_missing_permission(#[case] message: &str, #[case] expected: bool) {
        assert_eq!(is_rate_limit(&message.to_lowercase()), expected);
    }
}
