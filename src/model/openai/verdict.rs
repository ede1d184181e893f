//! What a refusal means for the call.

use reqwest::StatusCode;
use reqwest::header::HeaderMap;

use super::wire::ErrorBody;

/// What a refusal means for the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Wait; the request itself is fine.
    Wait,
    /// The credential is missing, wrong or not allowed to do this.
    BadCredential,
    /// Asking again would not help.
    Refused,
    /// Asking again may help.
    TryAgain,
}

/// Judges a refusal by its status, its headers and the error in its body.
pub(super) fn verdict(status: StatusCode, headers: &HeaderMap, error: Option<&ErrorBody>) -> Verdict {
    let is = |word| error.is_some_and(|error| error.is(word));
    match status.as_u16() {
        // OpenAI's word for an account without money: no wait mends that.
        429 if is("insufficient_quota") => Verdict::Refused,
        429 | 529 => Verdict::Wait,
        503 if headers.contains_key("retry-after") => Verdict::Wait,
        401 | 403 => Verdict::BadCredential,
        // LiteLLM without a database, when it does not know the key: it would look it up there.
        400 if is("no_db_connection") => Verdict::BadCredential,
        408 | 500..=599 => Verdict::TryAgain,
        _ => Verdict::Refused,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(429, "", Verdict::Wait)]
    #[case(529, "", Verdict::Wait)]
    #[case(429, r#"{"error": {"code": "insufficient_quota"}}"#, Verdict::Refused)]
    #[case(401, "", Verdict::BadCredential)]
    #[case(403, "", Verdict::BadCredential)]
    #[case(
        400,
        r#"{"error": {"type": "no_db_connection", "code": "400"}}"#,
        Verdict::BadCredential
    )]
    #[case(
        400,
        r#"{"error": {"type": "invalid_request_error", "code": "400"}}"#,
        Verdict::Refused
    )]
    #[case(400, r#"{"error": "no such model"}"#, Verdict::Refused)]
    #[case(404, "<html>", Verdict::Refused)]
    #[case(302, "", Verdict::Refused)]
    #[case(408, "", Verdict::TryAgain)]
    #[case(500, "", Verdict::TryAgain)]
    #[case(503, "", Verdict::TryAgain)]
    fn a_refusal_is_judged(#[case] status: u16, #[case] body: &str, #[case] expected: Verdict) {
        let error = ErrorBody::from_refusal(body.as_bytes());
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(verdict(status, &HeaderMap::new(), error.as_ref()), expected);
    }

    #[test]
    fn a_service_that_names_its_return_asks_to_wait() {
        let headers = HeaderMap::from_iter([("retry-after".parse().unwrap(), "5".parse().unwrap())]);
        assert_eq!(
            verdict(StatusCode::SERVICE_UNAVAILABLE, &headers, None),
            Verdict::Wait
        );
    }
}
