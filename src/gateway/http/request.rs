//! A request to forward: its target, and the head that is sent to the upstream.

use std::fmt;
use std::sync::Arc;

use hyper::Version;

use super::RequestScope;
use super::body::MessageBody;
use super::head::{AMBIGUOUS_HOST, BAD_START_LINE, DROPPED_FIELD, RequestHead};
use crate::gateway::header_secret::{self, HeaderSecret, SecretTarget};
use crate::gateway::inspect::Inspection;
use crate::network::{Denial, PolicyRequest, RequestContent, RequestHost};

const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
/// Header fields that apply to one connection only, and those that the gateway writes itself.
const NOT_FORWARDED: [&[u8]; 9] = [
    b"host",
    b"connection",
    b"proxy-connection",
    b"proxy-authorization",
    b"proxy-authenticate",
    b"keep-alive",
    b"te",
    b"upgrade",
    b"http2-settings",
];
/// Header fields that the Connection field must not list, because they delimit or route the message.
const ALWAYS_FORWARDED: [&str; 3] = ["host", "content-length", "transfer-encoding"];

/// A request and its target.
pub(super) struct ForwardRequest {
    pub(super) host: RequestHost,
    pub(super) port: u16,
    path: String,
    pub(super) head: RequestHead,
    pub(super) body: MessageBody,
    /// Whether it is sent over TLS, because it comes from an inspected connection.
    pub(super) inspection: Option<Arc<Inspection>>,
}

impl ForwardRequest {
    /// The request of a head. Its Host field, its URL and the scope of its connection must name the same host.
    pub(super) fn new(head: RequestHead, scope: &RequestScope) -> Result<Self, Denial> {
        let target = host_field(&head, scope.port().unwrap_or(HTTP_PORT))?;
        let absolute = absolute(&head)?;
        if matches!(scope, RequestScope::Proxy) && absolute.is_none() {
            return Err(AMBIGUOUS_HOST);
        }
        let allowed = Authority {
            host: scope.host().unwrap_or(&target.host).clone(),
            port: scope.port().unwrap_or(target.port),
        };
        check_equal(&allowed, &target)?;
        let path = match absolute {
            None => head.target.clone(),
            Some((authority, path)) => {
                check_equal(&authority, &target)?;
                path
            }
        };
        let body = MessageBody::from_request(&head)?;
        let is_server_wide = path == "*" && head.method == "OPTIONS";
        if !path.starts_with('/') && !is_server_wide || head.method == "CONNECT" {
            return Err(BAD_START_LINE);
        }
        let drops = |name: &&str| head.fields.lists("connection", name);
        if ALWAYS_FORWARDED.iter().any(drops) {
            return Err(DROPPED_FIELD);
        }
        Ok(Self {
            host: target.host,
            port: target.port,
            path,
            head,
            body,
            inspection: match scope {
                RequestScope::Inspected { inspection, .. } => Some(inspection.clone()),
                _ => None,
            },
        })
    }

    /// The question for the policy.
    pub(super) fn policy_request(&self) -> PolicyRequest {
        PolicyRequest {
            host: self.host.clone(),
            port: self.port,
            content: RequestContent::http(&self.head.method, &self.path),
        }
    }

    /// Puts secrets in place of their placeholders.
    pub(super) fn insert_secrets(&mut self, secrets: &[HeaderSecret]) -> Result<(), Denial> {
        header_secret::check_path(secrets, &self.path)?;
        let target = SecretTarget {
            name: self.host.name(),
            port: self.port,
            is_tls: self.inspection.is_some(),
        };
        self.head
            .fields
            .replace(|value| header_secret::replace(secrets, value, &target))
    }

    /// Whether sending it twice has the same effect as sending it once.
    pub(super) fn is_repeatable(&self) -> bool {
        self.body.is_over() && matches!(self.head.method.as_str(), "GET" | "HEAD" | "OPTIONS")
    }

    /// Whether it asks for an upgrade to WebSocket. Other upgrades are not forwarded: in a protocol that the gateway does
    /// not parse, only the first request would be judged.
    pub(super) fn wants_websocket(&self) -> bool {
        self.head.method == "GET"
            && self.head.version == Version::HTTP_11
            && self.body.is_over()
            && self.head.fields.lists("connection", "upgrade")
            && self.head.fields.lists("upgrade", "websocket")
            && self.head.fields.words("upgrade").count() == 1
    }

    /// The head that is sent to the upstream.
    pub(super) fn upstream_head(&self) -> Vec<u8> {
        let (method, path, version) = (&self.head.method, &self.path, self.head.version);
        let default_port = if self.inspection.is_some() {
            HTTPS_PORT
        } else {
            HTTP_PORT
        };
        let authority = if self.port == default_port {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        };
        let mut head = format!("{method} {path} {version:?}\r\nhost: {authority}\r\n").into_bytes();
        let mut skipped = NOT_FORWARDED.to_vec();
        skipped.extend(self.head.fields.words("connection"));
        self.head.fields.write_except(&skipped, &mut head);
        if self.wants_websocket() {
            head.extend(b"connection: Upgrade\r\nupgrade: websocket\r\n");
        } else if self.head.version == Version::HTTP_10 {
            head.extend(b"connection: close\r\n");
        }
        head.extend(b"\r\n");
        head
    }
}

/// A host and port.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::gateway) struct Authority {
    pub(in crate::gateway) host: RequestHost,
    pub(in crate::gateway) port: u16,
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The authority and path of a request target that is an absolute URL of plain HTTP; `None` when it is a path.
fn absolute(head: &RequestHead) -> Result<Option<(Authority, String)>, Denial> {
    if head.target.starts_with('/') || head.target == "*" {
        return Ok(None);
    }
    let (scheme, rest) = head.target.split_once("://").ok_or(BAD_START_LINE)?;
    if !scheme.eq_ignore_ascii_case("http") || rest.contains('#') {
        return Err(BAD_START_LINE);
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    Ok(Some((parse_authority(authority, HTTP_PORT)?, path)))
}

/// The value of the Host field, of which there must be exactly one.
fn host_field(head: &RequestHead, default_port: u16) -> Result<Authority, Denial> {
    let value = head.fields.one("host").map_err(|_| AMBIGUOUS_HOST)?;
    let text = value.and_then(|value| std::str::from_utf8(value).ok());
    parse_authority(text.ok_or(AMBIGUOUS_HOST)?, default_port)
}

/// Parses `host` or `host:port`. A user is an error.
pub(super) fn parse_authority(text: &str, default_port: u16) -> Result<Authority, Denial> {
    let colon = text.rfind(':').filter(|at| !text[*at..].contains(']'));
    let (host, port) = match colon {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let host = host.parse().map_err(|_| AMBIGUOUS_HOST)?;
    let port = match port {
        None => Some(default_port),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
        Some(_) => None,
    };
    let port = port.filter(|port| *port != 0).ok_or(AMBIGUOUS_HOST)?;
    Ok(Authority { host, port })
}

fn check_equal(allowed: &Authority, actual: &Authority) -> Result<(), Denial> {
    if allowed == actual {
        return Ok(());
    }
    Err(Denial::Mismatch {
        allowed: allowed.to_string(),
        actual: actual.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn head(text: &str) -> RequestHead {
        RequestHead::parse(&Bytes::from(format!("{text}\r\n"))).unwrap()
    }

    #[track_caller]
    fn check(parsed: Result<ForwardRequest, Denial>, expected: &str) {
        let actual = match parsed {
            Ok(request) => format!(
                "{} {}:{} {}",
                request.head.method, request.host, request.port, request.path
            ),
            Err(denial) => denial.to_string(),
        };
        assert_eq!(actual, expected);
    }

    const BAD_HOST: &str = "missing or ambiguous host of the HTTP request";
    const BAD_LINE: &str = "malformed HTTP/1 request line";

    #[rstest]
    #[case::plain("GET /a HTTP/1.1\r\nHost: A.example\r\n", "GET a.example:80 /a")]
    #[case::own_port("GET / HTTP/1.1\r\nHost: a.example:80\r\n", "GET a.example:80 /")]
    #[case::other_port(
        "GET / HTTP/1.1\r\nHost: a.example:81\r\n",
        "host mismatch: the connection was allowed for a.example:80, the request names a.example:81"
    )]
    #[case::absolute(
        "GET http://a.example/b HTTP/1.1\r\nHost: a.example\r\n",
        "GET a.example:80 /b"
    )]
    #[case::two_hosts(
        "GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n",
        "host mismatch: the connection was allowed for b.example:80, the request names a.example:80"
    )]
    #[case::no_host("GET / HTTP/1.1\r\n", BAD_HOST)]
    #[case::host_twice("GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n", BAD_HOST)]
    #[case::host_list("GET / HTTP/1.1\r\nHost: a.example, b.example\r\n", BAD_HOST)]
    #[case::user("GET / HTTP/1.1\r\nHost: b.example@a.example\r\n", BAD_HOST)]
    #[case::odd_port("GET / HTTP/1.1\r\nHost: a.example:+80\r\n", BAD_HOST)]
    #[case::everything("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n", "OPTIONS a.example:80 *")]
    #[case::star("GET * HTTP/1.1\r\nHost: a.example\r\n", BAD_LINE)]
    #[case::relative("GET a HTTP/1.1\r\nHost: a.example\r\n", BAD_LINE)]
    #[case::connect("CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n", BAD_LINE)]
    #[case::connect_path("CONNECT / HTTP/1.1\r\nHost: a.example\r\n", BAD_LINE)]
    #[case::https("GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n", BAD_LINE)]
    #[case::dropped_length(
        "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close, Content-Length\r\n",
        "the Connection header lists a field that must be forwarded"
    )]
    fn the_target_of_a_request_is_in_its_host_field(#[case] text: &str, #[case] expected: &str) {
        check(ForwardRequest::new(head(text), &RequestScope::Port(80)), expected);
    }

    #[rstest]
    #[case::same("a.example", "GET a.example:8080 /")]
    #[case::same_port("a.example:8080", "GET a.example:8080 /")]
    #[case::other(
        "b.example",
        "host mismatch: the connection was allowed for a.example:8080, the request names b.example:8080"
    )]
    #[case::other_port(
        "a.example:80",
        "host mismatch: the connection was allowed for a.example:8080, the request names a.example:80"
    )]
    fn a_request_in_a_tunnel_must_be_for_its_host(#[case] host: &str, #[case] expected: &str) {
        let scope = RequestScope::Tunnel {
            host: "a.example".parse().unwrap(),
            port: 8080,
        };
        let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n");
        check(ForwardRequest::new(head(&text), &scope), expected);
    }

    #[rstest]
    #[case::plain(
        "GET http://a.example:8080/b?c HTTP/1.1\r\nHost: a.example:8080\r\n",
        "GET a.example:8080 /b?c"
    )]
    #[case::no_path(
        "GET http://a.example?c HTTP/1.1\r\nHost: a.example\r\n",
        "GET a.example:80 /?c"
    )]
    #[case::origin("GET /b HTTP/1.1\r\nHost: a.example\r\n", BAD_HOST)]
    #[case::two_hosts(
        "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n",
        "host mismatch: the connection was allowed for a.example:80, the request names b.example:80"
    )]
    #[case::user("GET http://a.example@b.example/ HTTP/1.1\r\nHost: a.example\r\n", BAD_HOST)]
    #[case::ftp("GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n", BAD_LINE)]
    fn a_request_to_the_proxy_has_an_absolute_url(#[case] text: &str, #[case] expected: &str) {
        check(ForwardRequest::new(head(text), &RequestScope::Proxy), expected);
    }

    #[test]
    fn fields_of_the_connection_are_not_forwarded() {
        let text = "GET http://a.example/b HTTP/1.1\r\nHost: A.example\r\nX-A: 1\r\nConnection: x-drop\r\n\
                    X-Drop: 1\r\nProxy-Authorization: Basic x\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nX-A: 2\r\n";
        let request = ForwardRequest::new(head(text), &RequestScope::Proxy).unwrap();
        let forwarded = String::from_utf8(request.upstream_head()).unwrap();
        let expected = "GET /b HTTP/1.1\r\nhost: a.example\r\nX-A: 1\r\nX-A: 2\r\n\r\n";
        assert_eq!(forwarded, expected);
        assert!(!request.wants_websocket());
    }

    proptest! {
        #[test]
        fn no_authority_causes_a_panic(text in ".{0,60}") {
            let _ = parse_authority(&text, 80);
        }

        #[test]
        fn a_valid_authority_names_one_host(text in "[a-z0-9.:@\\[\\]%-]{0,30}") {
            if let Ok(authority) = parse_authority(&text, 80) {
                prop_assert!(!text.contains(['@', '%']));
                prop_assert_eq!(parse_authority(&authority.to_string(), 1), Ok(authority));
            }
        }
    }
}
