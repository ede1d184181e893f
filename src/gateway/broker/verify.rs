//! Asking a service whether it takes its credential, without paying for it.

use reqwest::StatusCode;
use thiserror::Error;

use super::upstream::Upstream;
use crate::credential::LoginError;

impl Upstream {
    /// Asks for the list of models, which every service has and nobody pays for. A service that knows the credential
    /// and shows it no list (403) takes it.
    pub async fn verify(&self, http: &reqwest::Client) -> Result<(), VerifyError> {
        let credential = self.source.current().await?;
        let host = self.host.to_string();
        let Ok((name, value)) = self.header(&credential) else {
            return Err(VerifyError::Refused { host, status: 400 });
        };
        // Anthropic wants to be told a version, and logins need their beta; others do not mind.
        let request = http
            .get(self.url("/v1/models", None))
            .header(name, value)
            .header("anthropic-version", "2023-06-01")
            .header("anthropic-beta", "oauth-2025-04-20");
        let answered = request.send().await;
        let response = answered.map_err(|error| VerifyError::Unreachable(error.without_url()))?;
        let status = response.status();
        match status {
            _ if status.is_success() => Ok(()),
            StatusCode::FORBIDDEN => Ok(()),
            // LiteLLM without a database says 400 to a key that it does not know.
            StatusCode::UNAUTHORIZED | StatusCode::BAD_REQUEST => Err(VerifyError::Refused {
                host,
                status: status.as_u16(),
            }),
            _ => Err(VerifyError::Unclear {
                host,
                status: status.as_u16(),
            }),
        }
    }
}

/// Why a credential is not known to be good.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// There is none to ask about.
    #[error(transparent)]
    NoCredential(#[from] LoginError),
    /// There is no service of this name.
    #[error("no credential is for {host}")]
    NoService {
        /// The name.
        host: String,
    },
    /// The service refused it.
    #[error("{host} refused the credential (HTTP {status})")]
    Refused {
        /// The service.
        host: String,
        /// The status.
        status: u16,
    },
    /// The service did not say.
    #[error("{host} did not say whether it takes the credential (HTTP {status})")]
    Unclear {
        /// The service.
        host: String,
        /// The status.
        status: u16,
    },
    /// The service cannot be reached.
    #[error("the service cannot be reached")]
    Unreachable(#[source] reqwest::Error),
}
