//! What a request wants, and what of it is passed on.

use std::sync::Arc;

use super::Scope;
use super::body::Body;
use super::head::{HeadError, RequestHead, Version};
use crate::gateway::inspect::Inspection;
use crate::network::{Denial, HostName, PolicyRequest, RequestContent, RequestHost};

/// The ports of HTTP, plain and within TLS.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
/// Fields that concern one connection only, and those that the gateway writes itself.
const NOT_PASSED_ON: [&str; 9] = [
    "host",
    "connection",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "keep-alive",
    "te",
    "upgrade",
    "http2-settings",
];
/// Fields that a client must not have dropped on the way: they say what the message is.
const NEVER_DROPPED: [&str; 3] = ["host", "content-length", "transfer-encoding"];

/// One request, and where it goes.
#[derive(Debug)]
pub(in crate::gateway) struct Ask {
    pub(in crate::gateway) host: RequestHost,
    port: u16,
    path: String,
    head: RequestHead,
    body: Body,
    onward: Onward,
}

/// How a request goes on to its host.
#[derive(Clone, Debug)]
pub(in crate::gateway) enum Onward {
    /// As plain HTTP.
    Plain,
    /// Within TLS again, to the host that the client's TLS was for.
    Encrypted(Arc<Inspection>, HostName),
}

impl Onward {
    /// The port that need not be said.
    fn default_port(&self) -> u16 {
        match self {
            Self::Plain => HTTP_PORT,
            Self::Encrypted(..) => HTTPS_PORT,
        }
    }
}

impl Ask {
    /// A request that is made as if to the host itself.
    pub(super) fn within(head: RequestHead, scope: &Scope) -> Result<Self, Denial> {
        let (Scope::Port(own_port) | Scope::Tunnel(_, own_port) | Scope::Inspected(_, _, own_port)) = scope;
        let said = host_field(&head, *own_port)?;
        let (host, onward) = match scope {
            Scope::Port(_) => (said.0.clone(), Onward::Plain),
            Scope::Tunnel(host, _) => (host.clone(), Onward::Plain),
            Scope::Inspected(inspection, name, _) => (
                RequestHost::Name(name.clone()),
                Onward::Encrypted(inspection.clone(), name.clone()),
            ),
        };
        let expected = (host, *own_port);
        must_be_equal(&expected, &said)?;
        let path = match absolute(&head)? {
            None => head.target.clone(),
            Some((authority, path)) => {
                must_be_equal(&authority, &said)?;
                path
            }
        };
        Self::new(head, said, path, onward)
    }

    /// A request that is made to a proxy: its target is a whole address.
    pub(in crate::gateway) fn of_proxy(head: RequestHead) -> Result<Self, Denial> {
        let (authority, path) = absolute(&head)?.ok_or(HeadError::Host)?;
        let said = host_field(&head, HTTP_PORT)?;
        must_be_equal(&authority, &said)?;
        Self::new(head, authority, path, Onward::Plain)
    }

    fn new(head: RequestHead, (host, port): Authority, path: String, onward: Onward) -> Result<Self, Denial> {
        let body = Body::of_request(&head)?;
        let everything = path == "*" && head.method == "OPTIONS";
        if !path.starts_with('/') && !everything || head.method == "CONNECT" {
            return Err(HeadError::StartLine.into());
        }
        if NEVER_DROPPED
            .iter()
            .any(|name| head.fields.lists("connection", name))
        {
            return Err(HeadError::Connection.into());
        }
        Ok(Self {
            host,
            port,
            path,
            head,
            body,
            onward,
        })
    }

    /// What the policy is asked.
    pub(in crate::gateway) fn request(&self) -> PolicyRequest {
        PolicyRequest {
            host: self.host.clone(),
            port: self.port,
            content: RequestContent::http(&self.head.method, &self.path),
        }
    }

    /// Whether it goes to this host and port.
    pub(super) fn goes_to(&self, host: &RequestHost, port: u16) -> bool {
        self.host == *host && self.port == port
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn onward(&self) -> &Onward {
        &self.onward
    }

    pub(super) fn method(&self) -> &str {
        &self.head.method
    }

    pub(super) fn version(&self) -> Version {
        self.head.version
    }

    pub(super) fn body(&self) -> Body {
        self.body.clone()
    }

    /// Whether sending it twice does no more than sending it once.
    pub(super) fn can_be_repeated(&self) -> bool {
        self.body.is_over() && matches!(self.method(), "GET" | "HEAD" | "OPTIONS")
    }

    /// Whether the client goes on to another request on the same connection.
    pub(super) fn keeps_open(&self) -> bool {
        self.version() == Version::Http11 && !self.head.fields.lists("connection", "close")
    }

    /// Whether it wants to go on as a WebSocket. No other protocol is changed to: in one that the gateway does not read,
    /// one request would be judged and the next one not.
    pub(super) fn wants_websocket(&self) -> bool {
        self.method() == "GET"
            && self.version() == Version::Http11
            && self.body.is_over()
            && self.head.fields.lists("connection", "upgrade")
            && self.head.fields.lists("upgrade", "websocket")
            && self.head.fields.words("upgrade").count() == 1
    }

    /// The head as it is passed on.
    pub(super) fn head_to_pass_on(&self) -> Vec<u8> {
        let (method, path, version) = (self.method(), &self.path, self.version().as_str());
        let authority = if self.port == self.onward.default_port() {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        };
        let mut head = format!("{method} {path} {version}\r\nhost: {authority}\r\n").into_bytes();
        let named: Vec<&[u8]> = self.head.fields.words("connection").collect();
        let skipped = NOT_PASSED_ON.iter().map(|name| name.as_bytes()).chain(named);
        let skipped: Vec<&[u8]> = skipped.collect();
        for (name, value) in self.head.fields.iter() {
            if !skipped.iter().any(|own| name.eq_ignore_ascii_case(own)) {
                head.extend([name, b": ", value, b"\r\n"].concat());
            }
        }
        if self.wants_websocket() {
            head.extend(b"connection: Upgrade\r\nupgrade: websocket\r\n");
        } else if self.version() == Version::Http10 {
            head.extend(b"connection: close\r\n");
        }
        head.extend(b"\r\n");
        head
    }
}

type Authority = (RequestHost, u16);

/// The target of a request, where it is a whole address of plain HTTP: its authority and its path.
fn absolute(head: &RequestHead) -> Result<Option<(Authority, String)>, HeadError> {
    if head.target.starts_with('/') || head.target == "*" {
        return Ok(None);
    }
    let (scheme, rest) = head.target.split_once("://").ok_or(HeadError::StartLine)?;
    if !scheme.eq_ignore_ascii_case("http") || rest.contains('#') {
        return Err(HeadError::StartLine);
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

/// The one Host field.
fn host_field(head: &RequestHead, default_port: u16) -> Result<Authority, HeadError> {
    let value = head.fields.one("host").map_err(|_| HeadError::Host)?;
    let text = value.and_then(|value| std::str::from_utf8(value).ok());
    parse_authority(text.ok_or(HeadError::Host)?, default_port)
}

/// `host` or `host:port`, without a user.
pub(super) fn parse_authority(text: &str, default_port: u16) -> Result<Authority, HeadError> {
    let colon = text.rfind(':').filter(|at| !text[*at..].contains(']'));
    let (host, port) = match colon {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let host = RequestHost::parse(host).map_err(|_| HeadError::Host)?;
    let port = match port {
        None => default_port,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_err(|_| HeadError::Host)?
        }
        Some(_) => return Err(HeadError::Host),
    };
    if port == 0 {
        Err(HeadError::Host)
    } else {
        Ok((host, port))
    }
}

fn must_be_equal(said: &Authority, meant: &Authority) -> Result<(), Denial> {
    if said == meant {
        return Ok(());
    }
    Err(Denial::Mismatch {
        allowed: format!("{}:{}", said.0, said.1),
        actual: format!("{}:{}", meant.0, meant.1),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn head(text: &str) -> RequestHead {
        RequestHead::parse(Bytes::from(format!("{text}\r\n"))).unwrap()
    }

    #[track_caller]
    fn check(asked: Result<Ask, Denial>, expected: &str) {
        let said = match asked {
            Ok(ask) => format!("{} {}:{} {}", ask.method(), ask.host, ask.port, ask.path),
            Err(denial) => denial.to_string(),
        };
        assert_eq!(said, expected);
    }

    const UNCLEAR_HOST: &str = "an HTTP request that does not say one host";
    const UNCLEAR_LINE: &str = "a first line that is none of HTTP/1";

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
    #[case::no_host("GET / HTTP/1.1\r\n", UNCLEAR_HOST)]
    #[case::host_twice("GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n", UNCLEAR_HOST)]
    #[case::host_list("GET / HTTP/1.1\r\nHost: a.example, b.example\r\n", UNCLEAR_HOST)]
    #[case::user("GET / HTTP/1.1\r\nHost: b.example@a.example\r\n", UNCLEAR_HOST)]
    #[case::odd_port("GET / HTTP/1.1\r\nHost: a.example:+80\r\n", UNCLEAR_HOST)]
    #[case::everything("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n", "OPTIONS a.example:80 *")]
    #[case::star("GET * HTTP/1.1\r\nHost: a.example\r\n", UNCLEAR_LINE)]
    #[case::relative("GET a HTTP/1.1\r\nHost: a.example\r\n", UNCLEAR_LINE)]
    #[case::connect("CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n", UNCLEAR_LINE)]
    #[case::connect_path("CONNECT / HTTP/1.1\r\nHost: a.example\r\n", UNCLEAR_LINE)]
    #[case::https("GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n", UNCLEAR_LINE)]
    #[case::dropped_length(
        "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close, Content-Length\r\n",
        "a Connection field that names what must stay"
    )]
    fn a_request_says_where_it_goes(#[case] text: &str, #[case] expected: &str) {
        check(Ask::within(head(text), &Scope::Port(80)), expected);
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
    fn a_request_in_a_tunnel_goes_where_the_tunnel_goes(#[case] host: &str, #[case] expected: &str) {
        let scope = Scope::Tunnel("a.example".parse().unwrap(), 8080);
        let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n");
        check(Ask::within(head(&text), &scope), expected);
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
    #[case::origin("GET /b HTTP/1.1\r\nHost: a.example\r\n", UNCLEAR_HOST)]
    #[case::two_hosts(
        "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n",
        "host mismatch: the connection was allowed for a.example:80, the request names b.example:80"
    )]
    #[case::user(
        "GET http://a.example@b.example/ HTTP/1.1\r\nHost: a.example\r\n",
        UNCLEAR_HOST
    )]
    #[case::ftp("GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n", UNCLEAR_LINE)]
    fn a_request_to_the_proxy_is_a_whole_address(#[case] text: &str, #[case] expected: &str) {
        check(Ask::of_proxy(head(text)), expected);
    }

    #[test]
    fn what_concerns_one_connection_is_not_passed_on() {
        let text = "GET http://a.example/b HTTP/1.1\r\nHost: A.example\r\nX-A: 1\r\nConnection: x-drop\r\n\
                    X-Drop: 1\r\nProxy-Authorization: Basic x\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nX-A: 2\r\n";
        let ask = Ask::of_proxy(head(text)).unwrap();
        let passed_on = String::from_utf8(ask.head_to_pass_on()).unwrap();
        let expected = "GET /b HTTP/1.1\r\nhost: a.example\r\nX-A: 1\r\nX-A: 2\r\n\r\n";
        assert_eq!(passed_on, expected);
        assert!(!ask.wants_websocket());
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_an_authority_without_a_panic(text in ".{0,60}") {
            let _ = parse_authority(&text, 80);
        }

        #[test]
        fn an_authority_that_is_taken_names_one_host(text in "[a-z0-9.:@\\[\\]%-]{0,30}") {
            if let Ok((host, port)) = parse_authority(&text, 80) {
                prop_assert!(!text.contains(['@', '%']));
                prop_assert_eq!(parse_authority(&format!("{host}:{port}"), 1), Ok((host, port)));
            }
        }
    }
}
