//! Asks a service whether it accepts its credential, without a cost.

use reqwest::StatusCode;
use serde_json::Value;
use thiserror::Error;

use super::upstream::ModelUpstream;
use crate::credential::LoginError;
use crate::model::{only_listing_is_forbidden, read_refusal};
use crate::secret::{Redactor, Secret};
use crate::text::{cut_middle, one_line};

impl ModelUpstream {
    /// Makes a free request, such as for the list of models. A 403 is an acceptance only if the service says so.
    pub async fn verify(&self, http: &reqwest::Client) -> Result<(), VerifyError> {
        let credential = self.source.current().await?;
        let Ok((name, value)) = self.header(&credential) else {
            return Err(VerifyError::InvalidCredential);
        };
        // Anthropic requires a version, and logins require their beta header. Other services ignore both.
        let request = http
            .get(self.url(self.service.check_path, None))
            .header(name, value)
            .header("anthropic-version", "2023-06-01")
            .header("anthropic-beta", "oauth-2025-04-20");
        let sent = request.send().await;
        let mut response = sent.map_err(|error| VerifyError::Unreachable(error.without_url()))?;
        let (host, status) = (self.vendor_host.to_string(), response.status());
        match status {
            _ if status.is_success() => Ok(()),
            StatusCode::FORBIDDEN => {
                let body = read_refusal(&mut response).await;
                let body = String::from_utf8_lossy(&body);
                if only_listing_is_forbidden(&body) {
                    return Ok(());
                }
                let message = quote(&body, &credential);
                Err(VerifyError::Forbidden { host, message })
            }
            // LiteLLM without a database answers 400 to an unknown key.
            StatusCode::UNAUTHORIZED | StatusCode::BAD_REQUEST => Err(VerifyError::Refused {
                host,
                status: status.as_u16(),
            }),
            _ => Err(VerifyError::UnexpectedStatus {
                host,
                status: status.as_u16(),
            }),
        }
    }
}

/// The message of a refusal on one line, shortened, without the credential.
fn quote(body: &str, credential: &Secret) -> String {
    let json: Value = serde_json::from_str(body).unwrap_or_default();
    let error = if json.is_array() {
        &json[0]["error"]
    } else {
        &json["error"]
    };
    let message = [&error["message"], error, &json["detail"]]
        .into_iter()
        .find_map(Value::as_str)
        .unwrap_or("no reason given");
    let message = Redactor::new([credential.clone()]).redact(message);
    cut_middle(&one_line(&message), LONGEST_MESSAGE).into_owned()
}

/// How many characters of a service's message are quoted.
const LONGEST_MESSAGE: usize = 300;

/// A credential could not be verified.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// There is no credential.
    #[error(transparent)]
    NoCredential(#[from] LoginError),
    /// The credential contains characters that no header may have.
    #[error("the stored credential is not a valid header value")]
    InvalidCredential,
    /// The broker has no service of this name.
    #[error("the broker has no credential for {host}")]
    NoService {
        /// The host name.
        host: String,
    },
    /// The service refused the credential.
    #[error("{host} refused the credential (HTTP {status})")]
    Refused {
        /// Its host name.
        host: String,
        /// The HTTP status.
        status: u16,
    },
    /// The service recognized the credential or the caller, and refuses the calls.
    #[error("{host} refused the credential (HTTP 403): {message}")]
    Forbidden {
        /// Its host name.
        host: String,
        /// Its reason, shortened.
        message: String,
    },
    /// The response does not say whether the credential is valid.
    #[error("unexpected response of {host} to the credential (HTTP {status})")]
    UnexpectedStatus {
        /// Its host name.
        host: String,
        /// The HTTP status.
        status: u16,
    },
    /// The service cannot be reached.
    #[error("the service cannot be reached")]
    Unreachable(#[source] reqwest::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::CredentialSource;

    #[tokio::test]
    async fn a_credential_that_cannot_be_sent_is_not_called_refused() {
        let source = CredentialSource::Fixed(Secret::new("two\nlines"));
        let address = Some("http://127.0.0.1:9");
        let upstream = ModelUpstream::new(crate::model::GATEWAY_KEY, source, address).unwrap();
        let http = crate::gateway::broker::client(Vec::new()).unwrap();
        let error = upstream.verify(&http).await.unwrap_err();
        assert!(matches!(error, VerifyError::InvalidCredential), "{error}");
    }
}
