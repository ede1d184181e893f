//! What the broker says in place of a service, in that service's own form, so that agents show it.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::route::Route;
use super::upstream::Upstream;
use crate::credential::{CredentialKind, LoginError};
use crate::gateway::meter::{CallError, ReserveError};

/// Why a request was not forwarded, or its answer not passed back.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It shows no phantom.
    NoPhantom,
    /// It shows something else: another run's phantom, or a key.
    NotThePhantom,
    /// The credential is not for this path.
    Path { method: String, path: String },
    /// The body is compressed.
    Compressed,
    /// The body is too large, or did not come.
    Body,
    /// The call cannot be read.
    Call(CallError),
    /// It could cost more than is left.
    Budget(ReserveError),
    /// There is no credential to add.
    NoCredential(LoginError),
    /// The stored credential cannot be sent.
    BadCredential,
    /// The service refused the stored credential.
    Refused,
    /// The service cannot be reached, or broke off.
    Unreachable(reqwest::Error),
    /// The service points elsewhere, where the credential does not go.
    Redirected,
}

impl Refusal {
    /// The status. 403 and 402 are not tried again by the agents that are known.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NoPhantom | Self::NotThePhantom | Self::Path { .. } => StatusCode::FORBIDDEN,
            Self::Compressed => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Body => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Call(_) => StatusCode::BAD_REQUEST,
            Self::Budget(ReserveError::Book(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Budget(_) => StatusCode::PAYMENT_REQUIRED,
            Self::NoCredential(LoginError::Unavailable { .. }) | Self::Unreachable(_) | Self::Redirected => {
                StatusCode::BAD_GATEWAY
            }
            Self::NoCredential(_) | Self::BadCredential | Self::Refused => StatusCode::UNAUTHORIZED,
        }
    }

    /// What happened, and what to do about it.
    pub(super) fn message(&self, upstream: &Upstream) -> String {
        let host = &upstream.host;
        let store = upstream.kind.store_command();
        let what = match self {
            Self::NoPhantom => format!("{host}: the request does not show the phantom of this run"),
            Self::NotThePhantom => format!(
                "{host}: the request shows a credential that is not the phantom of this run; keys of a sandbox's own \
                 are not passed on"
            ),
            Self::Path { method, path } => format!("{host}: no credential is added to {method} {path}"),
            Self::Compressed => "the body of the request is compressed, so it cannot be metered".to_owned(),
            Self::Body => "the body of the request is too large, or did not come in time".to_owned(),
            Self::Call(CallError::Unreadable(error)) => {
                format!("the body of the request cannot be read: {error}")
            }
            Self::Call(error) => error.to_string(),
            Self::Budget(error @ ReserveError::Overdrawn(_)) => format!("budget exceeded: {error}"),
            Self::Budget(error) => error.to_string(),
            Self::NoCredential(error) => match error.hint() {
                Some(hint) => format!("{error}; on the host, {hint}"),
                None => error.to_string(),
            },
            Self::BadCredential => format!("{} cannot be sent; on the host, run `{store}`", upstream.kind),
            Self::Refused => {
                format!("the stored credential was refused by {host}; on the host, run `{store}`")
            }
            Self::Unreachable(error) if error.is_timeout() => format!("{host} did not answer in time"),
            Self::Unreachable(_) => format!("{host} cannot be reached"),
            Self::Redirected => format!("{host} points to another address, where the credential does not go"),
        };
        format!("ralph: {what}")
    }

    /// The whole error as the service would say it.
    pub(super) fn body(&self, upstream: &Upstream, route: Option<Route>) -> Value {
        let message = self.message(upstream);
        match Form::of(upstream, route) {
            Form::Anthropic => json!({"type": "error", "error": {"type": self.word(), "message": message}}),
            Form::OpenAi => json!({"error": {
                "message": message, "type": self.word(), "param": null, "code": self.code(),
            }}),
        }
    }

    /// The kind of error in the words of both services.
    fn word(&self) -> &'static str {
        match self.status() {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::PAYMENT_REQUIRED => "billing_error",
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::BAD_REQUEST | StatusCode::UNSUPPORTED_MEDIA_TYPE => "invalid_request_error",
            _ => "api_error",
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::NoPhantom | Self::NotThePhantom => "not_the_phantom",
            Self::Path { .. } => "path_not_allowed",
            Self::Compressed | Self::Body | Self::Call(_) => "unreadable_request",
            Self::Budget(_) => "budget_exceeded",
            Self::NoCredential(_) | Self::BadCredential | Self::Refused => "credential_refused",
            Self::Unreachable(_) | Self::Redirected => "upstream_unavailable",
        }
    }
}

/// Whose form an error takes.
enum Form {
    Anthropic,
    OpenAi,
}

impl Form {
    fn of(upstream: &Upstream, route: Option<Route>) -> Self {
        match (route, upstream.kind) {
            (Some(Route::Messages | Route::CountTokens), _)
            | (_, CredentialKind::AnthropicOAuth | CredentialKind::AnthropicKey) => Self::Anthropic,
            _ => Self::OpenAi,
        }
    }
}
