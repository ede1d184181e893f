//! Pushes that failed for a reason that may pass.

use crate::scm::ScmError;

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

/// Whether another attempt of the same push may succeed. A ref that was moved is not such a failure.
pub(super) fn may_pass(error: &ScmError) -> bool {
    match error {
        ScmError::PushRefused { reason, .. } => {
            let reason = reason.to_lowercase();
            RACES.iter().any(|race| reason.contains(race)) || is_lost_connection(&reason)
        }
        ScmError::Git { stderr, .. } => is_lost_connection(&stderr.to_lowercase()),
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
