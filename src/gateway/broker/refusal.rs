//! Error responses of the broker, in the format of the service, so that agents show them.

use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use thiserror::Error;

use super::body::{self, BrokerBody};
use crate::credential::LoginError;
use crate::gateway::meter::ReserveError;
use crate::id::RepositoryName;
use crate::model::{ApiError, CallError};
use crate::network::HostName;

/// Why a request was not forwarded, or its response not passed back.
#[derive(Debug, Error)]
pub(super) enum BrokerRefusal {
    #[error("the request does not contain the phantom of this run")]
    NoPhantom,
    #[error(
        "the request contains a credential that is not the phantom of this run; credentials of a sandbox are not \
         forwarded"
    )]
    NotThePhantom,
    #[error("no credential is added to {method} {path}")]
    Path { method: String, path: String },
    #[error("the credential is only for {0}")]
    OtherRepository(RepositoryName),
    #[error("{0} is read-only; ralph publishes the work itself")]
    ReadOnly(RepositoryName),
    #[error("the request body is compressed, so it cannot be metered")]
    Compressed,
    #[error("the request body is too large, or did not arrive in time")]
    Body,
    #[error("{}", call_message(.0))]
    Call(CallError),
    #[error("{}", budget_message(.0))]
    Budget(ReserveError),
    #[error("{}", login_message(.0))]
    NoCredential(LoginError),
    #[error("the stored credential is not a valid header value; on the host, {remedy}")]
    InvalidCredential { remedy: String },
    #[error("the service refused the stored credential; on the host, {remedy}")]
    CredentialRefused { remedy: String },
    #[error("the service {}", if .0.is_timeout() { "did not respond in time" } else { "cannot be reached" })]
    Unreachable(reqwest::Error),
    #[error("the service redirects to another address, where the credential is not sent")]
    Redirected,
}

/// The format of an error response.
#[derive(Clone, Copy)]
pub(super) enum ErrorFormat {
    /// The format of a model service.
    Model(fn(&ApiError) -> Value),
    GitHubApi,
    /// Plain text, which git shows.
    Text,
}

impl BrokerRefusal {
    /// The HTTP status. Known agents do not retry 403 and 402.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NoPhantom
            | Self::NotThePhantom
            | Self::Path { .. }
            | Self::OtherRepository(_)
            | Self::ReadOnly(_) => StatusCode::FORBIDDEN,
            Self::Compressed => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Body => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Call(_) => StatusCode::BAD_REQUEST,
            Self::Budget(ReserveError::File(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Budget(_) => StatusCode::PAYMENT_REQUIRED,
            Self::NoCredential(LoginError::Unavailable { .. }) | Self::Unreachable(_) | Self::Redirected => {
                StatusCode::BAD_GATEWAY
            }
            Self::NoCredential(_) | Self::InvalidCredential { .. } | Self::CredentialRefused { .. } => {
                StatusCode::UNAUTHORIZED
            }
        }
    }

    /// What happened at this host, and what to do.
    pub(super) fn message(&self, host: &HostName) -> String {
        format!("ralph: {host}: {self}")
    }

    /// The error as a response of this host.
    pub(super) fn response(&self, host: &HostName, format: ErrorFormat) -> Response<BrokerBody> {
        let message = self.message(host);
        // With 401 git would ask for a password.
        let no_prompt = match self.status() {
            StatusCode::UNAUTHORIZED => StatusCode::FORBIDDEN,
            status => status,
        };
        match format {
            ErrorFormat::Model(error_body) => {
                let error = ApiError {
                    status: self.status().as_u16(),
                    kind: self.kind(),
                    code: self.code(),
                    message,
                };
                body::json(self.status(), &error_body(&error))
            }
            ErrorFormat::GitHubApi => body::json(no_prompt, &json!({ "message": message })),
            ErrorFormat::Text => {
                body::respond(no_prompt, "text/plain; charset=utf-8", format!("{message}\n"))
            }
        }
    }

    /// The error type that Anthropic and OpenAI use.
    fn kind(&self) -> &'static str {
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
            Self::Path { .. } | Self::OtherRepository(_) | Self::ReadOnly(_) => "path_not_allowed",
            Self::Compressed | Self::Body | Self::Call(_) => "unreadable_request",
            Self::Budget(_) => "budget_exceeded",
            Self::NoCredential(_) | Self::InvalidCredential { .. } | Self::CredentialRefused { .. } => {
                "credential_refused"
            }
            Self::Unreachable(_) | Self::Redirected => "upstream_unavailable",
        }
    }
}

fn call_message(error: &CallError) -> String {
    match error {
        CallError::Unreadable(source) => format!("{error}: {source}"),
        _ => error.to_string(),
    }
}

fn budget_message(error: &ReserveError) -> String {
    match error {
        ReserveError::OverBudget(over) => format!("budget exceeded: {over}"),
        _ => error.to_string(),
    }
}

fn login_message(error: &LoginError) -> String {
    match error.hint() {
        Some(hint) => format!("{error}; on the host, {hint}"),
        None => error.to_string(),
    }
}
