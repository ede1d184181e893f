//! Errors of GitHub's API.

use jiff::Timestamp;
use thiserror::Error;

use crate::scm::ScmError;

/// Why a call to GitHub failed.
#[derive(Debug, Error)]
pub enum GitHubError {
    /// GitHub could not be reached, or the connection broke. It is unknown whether a request arrived.
    #[error("cannot reach GitHub for `{call}`")]
    Unreachable {
        /// Method and path.
        call: String,
        /// The cause, without the URL.
        source: reqwest::Error,
    },
    /// GitHub refused the call.
    #[error("GitHub refused `{call}` with status {status}: {message}")]
    Refused {
        /// Method and path.
        call: String,
        /// The HTTP status.
        status: u16,
        /// GitHub's message.
        message: String,
        /// The permissions that the call needs, as GitHub names them, for example `pull_requests=write`.
        needed: Option<String>,
    },
    /// GitHub's rate limit lasts longer than ralph waits.
    #[error("GitHub's rate limit ended `{call}`; it lasts until {until}")]
    RateLimited {
        /// Method and path.
        call: String,
        /// When to try again.
        until: Timestamp,
    },
    /// GitHub's response could not be parsed.
    #[error("GitHub's response to `{call}` could not be read")]
    Response {
        /// Method and path.
        call: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The private key of the App cannot be used.
    #[error("the private key of the GitHub App cannot be used: {0}")]
    AppKey(String),
    /// GraphQL refused an operation, which it does with status 200.
    #[error("GitHub's GraphQL API refused `{operation}`: {message}")]
    GraphQl {
        /// The mutation, or the field that a query reads.
        operation: &'static str,
        /// GitHub's message.
        message: String,
    },
    /// A push failed.
    #[error(transparent)]
    Push(#[from] ScmError),
    /// The ref of a claim was moved each time before this process could.
    #[error("the claim on issue #{issue} changed with each attempt to get it")]
    ClaimContested {
        /// The number of the issue.
        issue: u64,
    },
    /// Another process has taken a claim over, or a person has deleted it.
    #[error("the claim on issue #{issue} was lost to {}", owner.as_deref().unwrap_or("a person who deleted it"))]
    ClaimLost {
        /// The number of the issue.
        issue: u64,
        /// The process that has it now.
        owner: Option<String>,
    },
}

impl GitHubError {
    /// The HTTP status of a refusal.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether GitHub refused the call with this status and a message that contains `part`, in any case.
    pub(super) fn says(&self, expected: u16, part: &str) -> bool {
        match self {
            Self::Refused { status, message, .. } => {
                *status == expected && message.to_lowercase().contains(&part.to_lowercase())
            }
            _ => false,
        }
    }

    /// Whether it is unknown if GitHub did what the call asks for.
    pub(super) fn is_ambiguous(&self) -> bool {
        match self {
            Self::Unreachable { source, .. } => !source.is_connect(),
            Self::Refused { status, .. } => *status >= 500,
            Self::Response { .. } => true,
            Self::RateLimited { .. }
            | Self::AppKey(_)
            | Self::GraphQl { .. }
            | Self::Push(_)
            | Self::ClaimContested { .. }
            | Self::ClaimLost { .. } => false,
        }
    }

    /// The error, and what the user can do next.
    pub(super) fn with_hint(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self} ({hint})"),
            None => self.to_string(),
        }
    }

    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unreachable { .. } => Some("check the network and `forge.github.api_url`".to_owned()),
            Self::Refused { status: 401, call, .. } if is_of_app(call) => Some(
                "check `GITHUB_APP_ID` and `GITHUB_APP_PRIVATE_KEY_PEM`, and the clock of this host".to_owned(),
            ),
            Self::Refused { status: 404, call, .. } if is_of_app(call) => Some(
                "the App is not installed, or was installed again: set `GITHUB_APP_INSTALLATION_ID` to its present number"
                    .to_owned(),
            ),
            Self::Refused { status: 401, .. } => {
                Some("the token is expired or revoked: set a new one in `GITHUB_PAT`, or log in again with `gh auth login`".to_owned())
            }
            Self::Refused { needed: Some(needed), status: 403 | 404, .. } => {
                Some(format!("give the token or the App these permissions: {}", permissions(needed)))
            }
            Self::Refused { status: 404, .. } => Some(
                "check the name of the repository, and that the token may see it: GitHub answers 404 for what a token cannot see".to_owned(),
            ),
            Self::AppKey(_) => Some(
                "set `GITHUB_APP_PRIVATE_KEY_PEM` to the whole file that GitHub gave you, from BEGIN to END".to_owned(),
            ),
            Self::RateLimited { .. } => Some("resume the run then; other programs may use the same account".to_owned()),
            Self::ClaimContested { .. } => Some("other processes want the same issue; try again in a minute".to_owned()),
            Self::ClaimLost { .. } => Some("the work of this process is not pushed any more; the other one goes on".to_owned()),
            Self::Push(ScmError::Git { stderr, .. }) if stderr.contains("returned error: 403") => {
                Some("give the token or the App the permission `contents: write` for this repository".to_owned())
            }
            Self::Push(error) => error.hint().map(str::to_owned),
            Self::Refused { .. } | Self::Response { .. } | Self::GraphQl { .. } => None,
        }
    }
}

/// Whether a call is made as the App itself, not with a token of its installation.
fn is_of_app(call: &str) -> bool {
    call == "GET /app" || call.ends_with("/access_tokens")
}

/// GitHub's header names alternatives with `;` and permissions that are needed together with `,`.
fn permissions(needed: &str) -> String {
    let alternatives = needed.split(';').map(|one| {
        let parts = one
            .split(',')
            .map(|part| format!("`{}`", part.trim().replace('=', ": ")));
        parts.collect::<Vec<_>>().join(" and ")
    });
    alternatives.collect::<Vec<_>>().join(", or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_named_for_people() {
        assert_eq!(permissions("pull_requests=write"), "`pull_requests: write`");
        assert_eq!(
            permissions("contents=read,issues=write; contents=write"),
            "`contents: read` and `issues: write`, or `contents: write`"
        );
    }
}
