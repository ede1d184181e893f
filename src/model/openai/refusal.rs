//! Reads and classifies refusals.

use reqwest::header::HeaderMap;
use reqwest::{Response, StatusCode};

use super::wire::ErrorBody;

/// How many bytes of a refusal are read.
const MAX_REFUSAL: usize = 64 << 10;

/// The start of the body of a refusal. One that does not arrive still has its status.
pub(crate) async fn read_refusal(response: &mut Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(bytes)) = response.chunk().await {
        body.extend_from_slice(&bytes);
        if body.len() > MAX_REFUSAL {
            body.truncate(MAX_REFUSAL);
            break;
        }
    }
    body
}

/// What a refusal means for the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalKind {
    /// Wait and repeat the request.
    Wait,
    /// The credential is missing, wrong or lacks a permission.
    BadCredential,
    /// A retry would not help.
    Refused,
    /// A retry may help.
    Retry,
}

/// Classifies a refusal by its status, headers and error body.
pub(super) fn classify(status: StatusCode, headers: &HeaderMap, error: Option<&ErrorBody>) -> RefusalKind {
    let is = |word| error.is_some_and(|error| error.is(word));
    match status.as_u16() {
        // OpenAI: the account has no credit left. Waiting does not help.
        429 if is("insufficient_quota") => RefusalKind::Refused,
        // The same at Z.ai.
        429 if is("1113") => RefusalKind::Refused,
        429 | 529 => RefusalKind::Wait,
        503 if headers.contains_key("retry-after") => RefusalKind::Wait,
        401 | 403 => RefusalKind::BadCredential,
        // LiteLLM without a database, for an unknown key.
        400 if is("no_db_connection") => RefusalKind::BadCredential,
        // Google, for an unknown key.
        400 if is("API_KEY_INVALID") => RefusalKind::BadCredential,
        408 | 500..=599 => RefusalKind::Retry,
        _ => RefusalKind::Refused,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(429, "", RefusalKind::Wait)]
    #[case(529, "", RefusalKind::Wait)]
    #[case(429, r#"{"error": {"code": "insufficient_quota"}}"#, RefusalKind::Refused)]
    #[case(
        429,
        r#"{"error": {"code": "1113", "message": "Insufficient balance or no resource package. Please recharge."}}"#,
        RefusalKind::Refused
    )]
    #[case(
        400,
        r#"[{"error": {"code": 400, "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}]"#,
        RefusalKind::BadCredential
    )]
    #[case(401, "", RefusalKind::BadCredential)]
    #[case(403, "", RefusalKind::BadCredential)]
    #[case(
        400,
        r#"{"error": {"type": "no_db_connection", "code": "400"}}"#,
        RefusalKind::BadCredential
    )]
    #[case(
        400,
        r#"{"error": {"type": "invalid_request_error", "code": "400"}}"#,
        RefusalKind::Refused
    )]
    #[case(400, r#"{"error": "no such model"}"#, RefusalKind::Refused)]
    #[case(404, "<html>", RefusalKind::Refused)]
    #[case(302, "", RefusalKind::Refused)]
    #[case(408, "", RefusalKind::Retry)]
    #[case(500, "", RefusalKind::Retry)]
    #[case(503, "", RefusalKind::Retry)]
    fn refusals_are_classified(#[case] status: u16, #[case] body: &str, #[case] expected: RefusalKind) {
        let error = ErrorBody::from_refusal(body.as_bytes());
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(classify(status, &HeaderMap::new(), error.as_ref()), expected);
    }

    #[test]
    fn a_503_with_retry_after_asks_to_wait() {
        let headers = HeaderMap::from_iter([("retry-after".parse().unwrap(), "5".parse().unwrap())]);
        assert_eq!(
            classify(StatusCode::SERVICE_UNAVAILABLE, &headers, None),
            RefusalKind::Wait
        );
    }
}
