//! Error responses of the broker, in the format of the service, so that agents show them.

use hyper::header::HeaderName;
use hyper::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::body::{self, BrokerBody};
use crate::credential::LoginError;
use crate::gateway::meter::ReserveError;
use crate::model::{ApiError, CallError};
use crate::network::HostName;
use crate::text::error_chain;

/// Why a request was not forwarded, or its response not passed back.
#[derive(Debug)]
pub(super) struct BrokerRefusal {
    /// The HTTP status. Known agents do not retry 403 and 402.
    pub(super) status: StatusCode,
    code: &'static str,
    /// What happened, and what to do.
    pub(super) text: String,
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
    fn new(status: StatusCode, code: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { status, code, text }
    }

    pub(super) fn wrong_phantom(text: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "not_the_phantom", text)
    }

    pub(super) fn not_allowed(text: String) -> Self {
        Self::new(StatusCode::FORBIDDEN, "path_not_allowed", text)
    }

    /// A path that the broker adds no credential to.
    pub(super) fn path(method: &Method, path: &str) -> Self {
        Self::not_allowed(format!("no credential is added to {method} {path}"))
    }

    /// A header that agents are not known to send.
    pub(super) fn header(name: &HeaderName) -> Self {
        Self::not_listed(format!(
            "the header `{name}` is not one that agents are known to send; if yours needs it, add it to allowed_headers \
             in [sandbox.model_calls]"
        ))
    }

    /// A parameter of the query that agents are not known to send.
    pub(super) fn parameter(name: &str) -> Self {
        Self::not_listed(format!(
            "the parameter `{name}` of the query is not one that agents are known to send"
        ))
    }

    fn not_listed(text: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "not_listed", text)
    }

    pub(super) fn unreadable(status: StatusCode, text: impl Into<String>) -> Self {
        Self::new(status, "unreadable_request", text)
    }

    pub(super) fn out_of_memory() -> Self {
        let text = "other requests of the run use all memory for request bodies; try again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "out_of_memory", text)
    }

    /// The stored credential cannot be used. `remedy` is what the user does on the host.
    fn credential(reason: &str, remedy: &str) -> Self {
        let text = format!("{reason}; on the host, {remedy}");
        Self::new(StatusCode::UNAUTHORIZED, "credential_refused", text)
    }

    pub(super) fn invalid_credential(remedy: &str) -> Self {
        Self::credential("the stored credential is not a valid header value", remedy)
    }

    pub(super) fn credential_refused(remedy: &str) -> Self {
        Self::credential("the service refused the stored credential", remedy)
    }

    /// The cause is only logged: it names addresses of the host's network.
    pub(super) fn unreachable(error: &reqwest::Error) -> Self {
        tracing::warn!(error = %error_chain(error), "a call cannot be forwarded");
        Self::unavailable(if error.is_timeout() {
            "the service did not respond in time"
        } else {
            "the service cannot be reached"
        })
    }

    pub(super) fn redirected() -> Self {
        Self::unavailable("the service redirects to another address, where the credential is not sent")
    }

    fn unavailable(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "upstream_unavailable", text)
    }

    /// What happened at this host, and what to do.
    pub(super) fn message(&self, host: &HostName) -> String {
        format!("ralph: {host}: {}", self.text)
    }

    /// The error as a response of this host.
    pub(super) fn response(&self, host: &HostName, format: ErrorFormat) -> Response<BrokerBody> {
        let message = self.message(host);
        // With 401 git would ask for a password.
        let no_prompt = match self.status {
            StatusCode::UNAUTHORIZED => StatusCode::FORBIDDEN,
            status => status,
        };
        match format {
            ErrorFormat::Model(error_body) => {
                let error = ApiError {
                    status: self.status.as_u16(),
                    kind: self.kind(),
                    code: self.code,
                    message,
                };
                body::json(self.status, &error_body(&error))
            }
            ErrorFormat::GitHubApi => body::json(no_prompt, &json!({ "message": message })),
            ErrorFormat::Text => {
                body::respond(no_prompt, "text/plain; charset=utf-8", format!("{message}\n"))
            }
        }
    }

    /// The error type that Anthropic and OpenAI use.
    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::PAYMENT_REQUIRED => "billing_error",
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::BAD_REQUEST | StatusCode::UNSUPPORTED_MEDIA_TYPE => "invalid_request_error",
            _ => "api_error",
        }
    }
}

impl From<CallError> for BrokerRefusal {
    fn from(error: CallError) -> Self {
        match &error {
            CallError::Unreadable(source) => {
                Self::unreadable(StatusCode::BAD_REQUEST, format!("{error}: {source}"))
            }
            CallError::LongName | CallError::Ambiguous { .. } => {
                Self::unreadable(StatusCode::BAD_REQUEST, error.to_string())
            }
            CallError::Field { .. } | CallError::Value { .. } | CallError::Address { .. } => {
                Self::not_listed(error.to_string())
            }
        }
    }
}

impl From<ReserveError> for BrokerRefusal {
    fn from(error: ReserveError) -> Self {
        let text = match &error {
            ReserveError::OverBudget(over) => format!("budget exceeded: {over}"),
            ReserveError::Unpriced { .. } => error.to_string(),
            ReserveError::File(error) => {
                // The error contains a path of the host, which the sandbox need not know.
                tracing::warn!(error = %error_chain(error), "a call was refused because its usage cannot be recorded");
                return Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "meter_unavailable",
                    "cannot record usage on the host",
                );
            }
        };
        Self::new(StatusCode::PAYMENT_REQUIRED, "budget_exceeded", text)
    }
}

impl From<LoginError> for BrokerRefusal {
    fn from(error: LoginError) -> Self {
        let text = match error.hint() {
            Some(hint) => format!("{error}; on the host, {hint}"),
            None => error.to_string(),
        };
        if let LoginError::Unavailable { .. } = error {
            tracing::warn!(error = %error_chain(&error), "a login cannot be renewed");
            return Self::unavailable(text);
        }
        Self::new(StatusCode::UNAUTHORIZED, "credential_refused", text)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::gateway::meter::{Allowance, Meter, MeterNotice, MeterSetup, PriceList};

    #[test]
    fn an_unwritable_meter_is_not_an_exceeded_budget() {
        let dir = tempfile::tempdir().unwrap();
        let opened = Meter::open(MeterSetup {
            file: dir.path().to_owned(),
            allowance: Allowance::default(),
            prices: PriceList::default(),
            sink: Arc::new(Mutex::<Vec<MeterNotice>>::default()),
            clock: crate::clock::system(),
        });
        let refusal = BrokerRefusal::from(ReserveError::File(opened.err().unwrap()));
        assert_eq!(
            (refusal.status.as_u16(), refusal.code),
            (500, "meter_unavailable")
        );
        assert_eq!(refusal.text, "cannot record usage on the host");
    }

    #[test]
    fn an_unavailable_token_server_did_not_refuse_the_credential() {
        let source = reqwest::Client::new().get("no address").build().unwrap_err();
        let kind = crate::model::ANTHROPIC_LOGIN;
        let refusal = BrokerRefusal::from(LoginError::Unavailable { kind, source });
        assert_eq!(
            (refusal.status.as_u16(), refusal.code),
            (502, "upstream_unavailable")
        );
    }
}
