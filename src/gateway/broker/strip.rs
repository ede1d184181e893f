//! What a sandbox sent to authenticate with: checked, and never passed on.

use hyper::HeaderMap;
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue,
};

use super::refusal::Refusal;
use crate::gateway::phantom::Phantom;

/// Headers that hold a credential somewhere, or say who pays.
const AUTHENTICATE: [&str; 12] = [
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "x-litellm-api-key",
    "x-auth-token",
    "x-access-token",
    "ocp-apim-subscription-key",
    "cookie",
    "openai-organization",
    "openai-project",
];
/// Headers that concern one connection only.
const OF_THE_CONNECTION: [&str; 9] = [
    "connection",
    "expect",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Keys of a query that hold a credential somewhere.
const QUERY_KEYS: [&str; 7] = [
    "key",
    "api_key",
    "api-key",
    "apikey",
    "x-api-key",
    "access_token",
    "token",
];

/// Whether the request shows the phantom, and nothing in its place. A key of the sandbox's own is refused rather than
/// taken away in silence: whoever sent it believes that it is used.
pub(super) fn check(headers: &HeaderMap, phantom: &Phantom) -> Result<(), Refusal> {
    let bearer = headers.get_all(AUTHORIZATION).iter().map(bearer);
    let keys = headers
        .get_all("x-api-key")
        .iter()
        .map(|value| Some(value.as_bytes()));
    let mut shown = 0;
    for credential in bearer.chain(keys) {
        shown += 1;
        if !credential.is_some_and(|credential| *phantom == *credential) {
            return Err(Refusal::NotThePhantom);
        }
    }
    if shown == 0 {
        Err(Refusal::NoPhantom)
    } else {
        Ok(())
    }
}

/// The headers that are passed on to the service.
pub(super) fn forwarded(headers: &HeaderMap) -> HeaderMap {
    let named = connection_names(headers);
    let own = [HOST, CONTENT_LENGTH, ACCEPT_ENCODING];
    let dropped = |name: &HeaderName| {
        AUTHENTICATE.contains(&name.as_str())
            || is_of_the_connection(name)
            || own.contains(name)
            || named.contains(name)
    };
    let kept = headers.iter().filter(|(name, _)| !dropped(name));
    let mut kept: HeaderMap = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    // What is compressed cannot be counted.
    kept.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    kept
}

/// Whether a header concerns one connection only.
pub(super) fn is_of_the_connection(name: &HeaderName) -> bool {
    OF_THE_CONNECTION.contains(&name.as_str())
}

/// A query without the keys that hold a credential; `None` when nothing is left.
pub(super) fn query(query: Option<&str>) -> Option<String> {
    let is_key = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        // A name that is spelled with escapes could be any of them.
        name.contains('%') || QUERY_KEYS.iter().any(|key| name.eq_ignore_ascii_case(key))
    };
    let kept: Vec<&str> = query?.split('&').filter(|pair| !is_key(pair)).collect();
    (!kept.is_empty()).then(|| kept.join("&"))
}

fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, credential) = value.as_bytes().split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| credential.trim_ascii())
}

/// The headers that the Connection header names, which end here.
fn connection_names(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(CONNECTION).iter();
    let names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    names
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_str(value).unwrap(),
                )
            })
            .collect()
    }

    #[rstest]
    #[case::as_a_key(&[("x-api-key", "PHANTOM")], Ok(()))]
    #[case::as_a_bearer(&[("authorization", "bearer PHANTOM")], Ok(()))]
    #[case::twice(&[("authorization", "Bearer PHANTOM"), ("x-api-key", "PHANTOM")], Ok(()))]
    #[case::nothing(&[], Err(Refusal::NoPhantom))]
    #[case::in_another_header(&[("api-key", "PHANTOM")], Err(Refusal::NoPhantom))]
    #[case::own_key(&[("x-api-key", "sk-ant-api03-own")], Err(Refusal::NotThePhantom))]
    #[case::own_key_beside_it(&[("authorization", "Bearer PHANTOM"), ("x-api-key", "sk-own")], Err(Refusal::NotThePhantom))]
    #[case::two_keys(&[("x-api-key", "PHANTOM"), ("x-api-key", "sk-own")], Err(Refusal::NotThePhantom))]
    #[case::another_scheme(&[("authorization", "Basic PHANTOM")], Err(Refusal::NotThePhantom))]
    #[case::empty(&[("x-api-key", "")], Err(Refusal::NotThePhantom))]
    fn only_the_phantom_authenticates(
        #[case] sent: &[(&'static str, &str)],
        #[case] expected: Result<(), Refusal>,
    ) {
        let phantom = Phantom::random().unwrap();
        let sent: Vec<(&str, String)> = sent
            .iter()
            .map(|(name, value)| (*name, value.replace("PHANTOM", phantom.expose())))
            .collect();
        let sent: Vec<(&'static str, &str)> =
            sent.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let checked = check(&headers(&sent), &phantom);
        assert_eq!(format!("{checked:?}"), format!("{expected:?}"));
    }

    #[test]
    fn nothing_that_authenticates_is_passed_on() {
        let sent: Vec<(&'static str, &str)> = AUTHENTICATE
            .into_iter()
            .chain(OF_THE_CONNECTION)
            .chain(["host", "x-drop"])
            .map(|name| {
                (
                    name,
                    if name == "connection" {
                        "X-Drop, close"
                    } else {
                        "x"
                    },
                )
            })
            .chain([("anthropic-beta", "a,b"), ("anthropic-version", "2023-06-01")])
            .collect();
        let kept = forwarded(&headers(&sent));
        let expected = [
            ("anthropic-beta", "a,b"),
            ("anthropic-version", "2023-06-01"),
            ("accept-encoding", "identity"),
        ];
        assert_eq!(kept, headers(&expected));
    }

    #[rstest]
    #[case(None, None)]
    #[case(Some("beta=true"), Some("beta=true"))]
    #[case(Some("beta=true&API_KEY=x&a"), Some("beta=true&a"))]
    #[case(Some("key=x"), None)]
    #[case(Some("k%65y=x&b=%20"), Some("b=%20"))]
    fn a_query_loses_its_keys(#[case] sent: Option<&str>, #[case] expected: Option<&str>) {
        assert_eq!(query(sent).as_deref(), expected);
    }
}
