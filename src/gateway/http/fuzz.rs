//! Fuzz bodies of the HTTP parsers. `httparse`, which hyper uses, is the second opinion about heads and chunks.

use bytes::Bytes;
use futures_util::FutureExt as _;
use httparse::Status;
use hyper::Version;
use hyper::http::uri;
use tokio::io::AsyncReadExt as _;

use super::body::MessageBody;
use super::head::{self, HeaderFields, RequestHead, ResponseHead};
use super::request::ForwardRequest;
use super::{RequestScope, parse_connect};
use crate::gateway::stream::Buffered;
use crate::network::{Denial, RequestHost};

/// The longest head, in bytes. Shorter than that of the gateway, so that inputs reach it.
const MAX_HEAD: usize = 1024;
/// More fields than a head or trailer may have.
const FIELDS: usize = 256;
const DEFAULT_PORT: u16 = 80;

/// A client's connection: its first request, and the bytes after it.
pub(in crate::gateway) fn request(bytes: &[u8]) {
    let Some((head, rest)) = read_head(bytes) else {
        return;
    };
    let Ok(parsed) = RequestHead::parse(&head) else {
        return;
    };
    agrees_with_httparse(&head, &parsed);
    connects_to_its_target(&parsed);
    let tunnel = |port| RequestScope::Tunnel {
        host: host("example.com"),
        port,
    };
    for scope in [
        RequestScope::Port(DEFAULT_PORT),
        RequestScope::Port(8080),
        RequestScope::Proxy,
        tunnel(DEFAULT_PORT),
        tunnel(8443),
    ] {
        if let Ok(request) = ForwardRequest::new(parsed.clone(), &scope) {
            let is_in_scope = scope.host().is_none_or(|host| *host == request.host);
            assert!(is_in_scope && scope.port().is_none_or(|port| port == request.port));
            is_forwarded_as_judged(&request);
            ends_where_httparse_ends(&request.body, &rest);
        }
    }
}

/// An upstream's connection: its first response, and the bytes after it.
pub(in crate::gateway) fn response(bytes: &[u8]) {
    let Some((head, rest)) = read_head(bytes) else {
        return;
    };
    let Ok(parsed) = ResponseHead::parse(&head) else {
        return;
    };
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut theirs = httparse::Response::new(&mut fields);
    assert_eq!(theirs.parse(&head), Ok(Status::Complete(head.len())));
    assert_eq!(theirs.code, Some(parsed.status));
    assert_eq!(theirs.version, Some(minor(parsed.version)));
    has_fields(&parsed.fields, theirs.headers);
    for method in ["GET", "HEAD"] {
        if let Ok(body) = MessageBody::from_response(&parsed, method) {
            ends_where_httparse_ends(&body, &rest);
        }
    }
}

/// Reads a head at once and in two pieces, which must be the same. Returns it and the bytes after it.
fn read_head(bytes: &[u8]) -> Option<(Bytes, Bytes)> {
    let whole = read_pieces(bytes, bytes.len()).ok();
    for cut in [1, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        assert_eq!(read_pieces(bytes, cut).ok(), whole, "cut at {cut}");
    }
    whole
}

fn read_pieces(bytes: &[u8], cut: usize) -> Result<(Bytes, Bytes), Denial> {
    let (first, second) = bytes.split_at(cut.min(bytes.len()));
    let mut from = Buffered::new(first.chain(second));
    let head = head::read(&mut from, MAX_HEAD).now_or_never();
    let head = head.unwrap_or_else(|| panic!("bytes in memory are never awaited"))?;
    assert!(head.len() <= MAX_HEAD && bytes.starts_with(&head));
    let rest = Bytes::copy_from_slice(&bytes[head.len()..]);
    Ok((head, rest))
}

/// What we accept, `httparse` accepts, and it sees the same in it.
fn agrees_with_httparse(head: &[u8], parsed: &RequestHead) {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut theirs = httparse::Request::new(&mut fields);
    assert_eq!(theirs.parse(head), Ok(Status::Complete(head.len())));
    assert_eq!(theirs.method, Some(parsed.method.as_str()));
    assert_eq!(theirs.path, Some(parsed.target.as_str()));
    assert_eq!(theirs.version, Some(minor(parsed.version)));
    has_fields(&parsed.fields, theirs.headers);
}

/// A tunnel is for the host and port that hyper sees in the target, and that a Host field names.
fn connects_to_its_target(head: &RequestHead) {
    let Ok(target) = parse_connect(head) else { return };
    let theirs: uri::Authority = head.target.parse().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(theirs.port_u16(), Some(target.port));
    assert_eq!(host(theirs.host()), target.host);
    assert!(head.fields.all("host").count() <= 1);
    let written = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n");
    let again = RequestHead::parse(&Bytes::from(written)).and_then(|head| parse_connect(&head));
    assert_eq!(again, Ok(target));
}

fn has_fields(ours: &HeaderFields, theirs: &[httparse::Header<'_>]) {
    let theirs = theirs.iter().map(|field| (field.name.as_bytes(), field.value));
    assert_eq!(ours.iter().collect::<Vec<_>>(), theirs.collect::<Vec<_>>());
}

/// The head that the upstream gets is one request for the host that the policy judges, of the same length.
fn is_forwarded_as_judged(request: &ForwardRequest) {
    let judged = request.policy_request();
    let sent = Bytes::from(request.upstream_head());
    let parsed = RequestHead::parse(&sent).unwrap_or_else(|denial| panic!("{denial:?}: {sent:?}"));
    agrees_with_httparse(&sent, &parsed);
    for hidden in ["proxy-authorization", "proxy-connection", "keep-alive", "te"] {
        assert_eq!(parsed.fields.all(hidden).count(), 0, "{hidden} is forwarded");
    }
    let scope = RequestScope::Port(DEFAULT_PORT);
    let again = if request.port == DEFAULT_PORT {
        ForwardRequest::new(parsed, &scope)
    } else {
        let (host, port) = (request.host.clone(), request.port);
        ForwardRequest::new(parsed, &RequestScope::Tunnel { host, port })
    };
    let again = again.unwrap_or_else(|denial| panic!("{denial:?}: {sent:?}"));
    assert_eq!(again.policy_request(), judged);
    assert_eq!(again.body, request.body);
    assert_eq!(again.wants_websocket(), request.wants_websocket());
}

/// A body ends at the same byte whether it arrives at once or in two pieces, and where `httparse` finds the end of its chunks.
fn ends_where_httparse_ends(body: &MessageBody, bytes: &[u8]) {
    let mut whole = body.clone();
    let end = whole.advance(bytes);
    for cut in [1, bytes.len() / 2] {
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        let mut pieces = body.clone();
        let sum = pieces
            .advance(first)
            .and_then(|used| Ok(used + pieces.advance(second)?));
        assert_eq!(sum, end, "cut at {cut}");
        assert_eq!(pieces.is_over(), whole.is_over());
    }
    let Ok(end) = end else { return };
    assert!(end <= bytes.len() && (whole.is_over() || end == bytes.len()));
    if matches!(body, MessageBody::Chunked(_)) && whole.is_over() {
        assert_eq!(end_of_chunks(bytes), Some(end));
    }
}

/// Where a chunked body ends, according to `httparse`.
fn end_of_chunks(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let Ok(Status::Complete((line, size))) = httparse::parse_chunk_size(&bytes[at..]) else {
            return None;
        };
        at += line;
        if size == 0 {
            break;
        }
        at = at.checked_add(usize::try_from(size).ok()?)? + b"\r\n".len();
    }
    let mut trailers = [httparse::EMPTY_HEADER; FIELDS];
    match httparse::parse_headers(&bytes[at..], &mut trailers) {
        Ok(Status::Complete((length, _))) => Some(at + length),
        _ => None,
    }
}

fn minor(version: Version) -> u8 {
    u8::from(version == Version::HTTP_11)
}

fn host(name: &str) -> RequestHost {
    name.parse().unwrap_or_else(|_| panic!("{name} is a host"))
}
