//! Asks a service whether it accepts its key, for free.

use reqwest::StatusCode;

use super::OpenAiCompatible;
use super::refusal::{RefusalKind, classify, read_refusal};
use super::wire::ErrorBody;
use crate::model::{AttemptError, ModelError, only_listing_is_forbidden};

impl OpenAiCompatible {
    /// Makes a free request that needs a valid key, such as for the list of models. A 403 is an acceptance only if the service
    /// says so. `None` if the service has no such request.
    pub(crate) async fn verify(&self) -> Option<Result<(), ModelError>> {
        let path = self.service?.check_path?;
        let request = self.authorized(self.http.get(self.endpoint.sibling(path)));
        Some(match request.send().await {
            Ok(response) => self.judge(response).await,
            Err(error) => Err(ModelError::Unavailable {
                endpoint: self.endpoint.to_string(),
                attempts: 1,
                unmetered_attempts: 0,
                source: AttemptError::NoConnection(error.without_url()),
            }),
        })
    }

    async fn judge(&self, mut response: reqwest::Response) -> Result<(), ModelError> {
        let (status, headers) = (response.status(), response.headers().clone());
        if status.is_success() {
            return Ok(());
        }
        let body = read_refusal(&mut response).await;
        let is_forbidden = status == StatusCode::FORBIDDEN;
        if is_forbidden && only_listing_is_forbidden(&String::from_utf8_lossy(&body)) {
            return Ok(());
        }
        let error = ErrorBody::from_refusal(&body);
        let (endpoint, code) = (self.endpoint.to_string(), status.as_u16());
        Err(match classify(status, &headers, error.as_ref()) {
            // The message of a 403 says what to do: a region, an API that is not enabled, a key that leaked.
            RefusalKind::BadCredential if !is_forbidden => ModelError::Unauthorized {
                endpoint,
                status: code,
            },
            _ => ModelError::Refused {
                endpoint,
                status: code,
                message: self.quote(error.as_ref().map_or("no reason given", ErrorBody::message)),
            },
        })
    }
}
