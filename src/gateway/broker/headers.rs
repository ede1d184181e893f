//! Checks the credentials in a request of a sandbox, and removes them.

use std::collections::BTreeSet;

use hyper::HeaderMap;
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue,
};

use super::refusal::BrokerRefusal;
use crate::gateway::phantom::Phantom;
use crate::model::CredentialRecord;

const NO_PHANTOM: &str = "the request does not contain the phantom of this run";
const NOT_THE_PHANTOM: &str = "the request contains a credential that is not the phantom of this run; credentials of a sandbox are not forwarded";
/// Headers that contain a credential at some service, or select who pays.
const CREDENTIAL_HEADERS: [&str; 12] = [
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
/// Headers that apply to one connection only.
const HOP_BY_HOP: [&str; 9] = [
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
/// Headers that every client sends, and that every service gets.
const COMMON: [&str; 3] = ["accept", "content-type", "user-agent"];
/// Headers of common clients that no service needs.
const IGNORED: [&str; 7] = [
    "accept-language",
    "cache-control",
    "pragma",
    "priority",
    "sec-fetch-*",
    "traceparent",
    "tracestate",
];
/// Query parameters that contain a credential at some service.
const QUERY_KEYS: [&str; 7] = [
    "key",
    "api_key",
    "api-key",
    "apikey",
    "x-api-key",
    "access_token",
    "token",
];

/// Checks that the request contains the phantom and no other credential. Another credential is an error instead of being
/// removed silently, because its sender expects that it is used.
pub(super) fn check_phantom(headers: &HeaderMap, phantom: &Phantom) -> Result<(), BrokerRefusal> {
    let bearer = headers.get_all(AUTHORIZATION).iter().map(bearer);
    let names: BTreeSet<&str> = CredentialRecord::all().filter_map(|kind| kind.header).collect();
    let keys = names.into_iter().flat_map(|name| headers.get_all(name));
    let keys = keys.map(|value| Some(value.as_bytes()));
    let mut found = false;
    for credential in bearer.chain(keys) {
        found = true;
        if !credential.is_some_and(|credential| *phantom == *credential) {
            return Err(BrokerRefusal::wrong_phantom(NOT_THE_PHANTOM));
        }
    }
    if found {
        Ok(())
    } else {
        Err(BrokerRefusal::wrong_phantom(NO_PHANTOM))
    }
}

/// Checks that every header is on one of these lists, or is removed anyway.
pub(super) fn check_listed(
    headers: &HeaderMap,
    listed: &[&str],
    allowed: &[String],
) -> Result<(), BrokerRefusal> {
    let named = connection_names(headers);
    let is_known = |name: &HeaderName| {
        is_removed(name)
            || named.contains(name)
            || is_listed(name, listed, allowed)
            || matches(&IGNORED, name)
    };
    match headers.keys().find(|name| !is_known(name)) {
        Some(unknown) => Err(BrokerRefusal::header(unknown)),
        None => Ok(()),
    }
}

/// The headers that are forwarded to the service: those of these lists.
pub(super) fn to_forward(headers: &HeaderMap, listed: &[&str], allowed: &[String]) -> HeaderMap {
    let named = connection_names(headers);
    let is_kept =
        |name: &HeaderName| !is_removed(name) && !named.contains(name) && is_listed(name, listed, allowed);
    let kept = headers.iter().filter(|(name, _)| is_kept(name));
    let mut kept: HeaderMap = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    // The usage of a compressed response cannot be read.
    kept.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    kept
}

/// Whether a header is never forwarded as it is.
fn is_removed(name: &HeaderName) -> bool {
    let replaced = [HOST, CONTENT_LENGTH, ACCEPT_ENCODING];
    CREDENTIAL_HEADERS.contains(&name.as_str()) || is_hop_by_hop(name) || replaced.contains(name)
}

fn is_listed(name: &HeaderName, listed: &[&str], allowed: &[String]) -> bool {
    let is_allowed = |other: &String| other.eq_ignore_ascii_case(name.as_str());
    matches(&COMMON, name) || matches(listed, name) || allowed.iter().any(is_allowed)
}

/// Whether a list contains a name, or its start followed by `*`.
fn matches(list: &[&str], name: &HeaderName) -> bool {
    list.iter().any(|listed| match listed.strip_suffix('*') {
        Some(start) => name.as_str().starts_with(start),
        None => name.as_str() == *listed,
    })
}

/// Whether a header applies to one connection only.
pub(super) fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(&name.as_str())
}

/// Removes credentials from a query; `None` when nothing is left.
pub(super) fn strip_query(query: Option<&str>) -> Option<String> {
    let is_key = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        // A name with escapes could be any of them.
        name.contains('%') || QUERY_KEYS.iter().any(|key| name.eq_ignore_ascii_case(key))
    };
    let kept: Vec<&str> = query?.split('&').filter(|pair| !is_key(pair)).collect();
    (!kept.is_empty()).then(|| kept.join("&"))
}

/// Checks that a query has only these parameters and credentials, which are removed.
pub(super) fn check_query(query: Option<&str>, listed: &[&str]) -> Result<Option<String>, BrokerRefusal> {
    let query = strip_query(query);
    let names = query.iter().flat_map(|query| query.split('&'));
    let mut names = names.map(|pair| pair.split('=').next().unwrap_or_default());
    match names.find(|name| !listed.contains(name)) {
        Some(unknown) => Err(BrokerRefusal::parameter(unknown)),
        None => Ok(query),
    }
}

fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, credential) = value.as_bytes().split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| credential.trim_ascii())
}

/// The names in the Connection header, which are not forwarded.
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
    #[case::nothing(&[], Err(NO_PHANTOM))]
    #[case::in_another_header(&[("api-key", "PHANTOM")], Err(NO_PHANTOM))]
    #[case::own_key(&[("x-api-key", "sk-ant-api03-own")], Err(NOT_THE_PHANTOM))]
    #[case::own_key_beside_it(&[("authorization", "Bearer PHANTOM"), ("x-api-key", "sk-own")], Err(NOT_THE_PHANTOM))]
    #[case::two_keys(&[("x-api-key", "PHANTOM"), ("x-api-key", "sk-own")], Err(NOT_THE_PHANTOM))]
    #[case::another_scheme(&[("authorization", "Basic PHANTOM")], Err(NOT_THE_PHANTOM))]
    #[case::empty(&[("x-api-key", "")], Err(NOT_THE_PHANTOM))]
    fn only_the_phantom_authenticates(
        #[case] sent: &[(&'static str, &str)],
        #[case] expected: Result<(), &str>,
    ) {
        let phantom = Phantom::random().unwrap();
        let sent: Vec<(&str, String)> = sent
            .iter()
            .map(|(name, value)| (*name, value.replace("PHANTOM", phantom.expose())))
            .collect();
        let sent: Vec<(&'static str, &str)> =
            sent.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let checked = check_phantom(&headers(&sent), &phantom).map_err(|refusal| refusal.text);
        assert_eq!(checked, expected.map_err(str::to_owned));
    }

    #[test]
    fn credentials_are_not_forwarded() {
        let sent: Vec<(&'static str, &str)> = CREDENTIAL_HEADERS
            .into_iter()
            .chain(HOP_BY_HOP)
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
        let kept = to_forward(&headers(&sent), &["anthropic-*", "x-drop"], &[]);
        let expected = [
            ("anthropic-beta", "a,b"),
            ("anthropic-version", "2023-06-01"),
            ("accept-encoding", "identity"),
        ];
        assert_eq!(kept, headers(&expected));
    }

    #[rstest]
    #[case::listed("anthropic-beta", true)]
    #[case::start("x-stainless-os", true)]
    #[case::allowed("x-own", true)]
    #[case::of_every_client("accept-language", true)]
    #[case::credential("cookie", true)]
    #[case::another_address("x-original-url", false)]
    #[case::another_host("x-forwarded-host", false)]
    #[case::another_method("x-http-method-override", false)]
    #[case::a_setting_of_the_gateway("x-litellm-tags", false)]
    fn other_headers_are_refused_by_name(#[case] name: &'static str, #[case] expected: bool) {
        let listed = ["anthropic-beta", "x-stainless-*"];
        let checked = check_listed(&headers(&[(name, "x")]), &listed, &["X-Own".to_owned()]);
        assert_eq!(checked.is_ok(), expected);
        if let Err(refusal) = checked {
            assert!(refusal.text.contains(&format!("`{name}`")), "{}", refusal.text);
        }
    }

    #[rstest]
    #[case(Some("beta=true"), true)]
    #[case(Some("beta=true&key=x"), true)]
    #[case(Some("b%65ta=true"), true)]
    #[case(Some("beta=true&url=http://x"), false)]
    #[case(Some("Beta=true"), false)]
    fn other_parameters_are_refused(#[case] query: Option<&str>, #[case] expected: bool) {
        assert_eq!(check_query(query, &["beta"]).is_ok(), expected);
    }

    #[rstest]
    #[case(None, None)]
    #[case(Some("beta=true"), Some("beta=true"))]
    #[case(Some("beta=true&API_KEY=x&a"), Some("beta=true&a"))]
    #[case(Some("key=x"), None)]
    #[case(Some("k%65y=x&b=%20"), Some("b=%20"))]
    fn credentials_are_removed_from_a_query(#[case] sent: Option<&str>, #[case] expected: Option<&str>) {
        assert_eq!(strip_query(sent).as_deref(), expected);
    }
}
