//! Fuzz bodies of the parsers that a sandbox reaches over the network.

use std::net::Ipv4Addr;

use super::dns::{DnsLookup, respond};
use super::http;
use super::tls;

const DNS_HEADER: usize = 12;
/// An answer with one address.
const DNS_ANSWER: usize = 16;

/// A DNS query.
pub(crate) fn dns_query(query: &[u8]) {
    let mut asked = None;
    let reply = respond(query, |name| {
        asked = Some(name.to_string());
        DnsLookup::At(Ipv4Addr::new(198, 18, 0, 1))
    });
    let is_query = query.len() >= DNS_HEADER && query[2] & 0x80 == 0;
    assert_eq!(reply.is_some(), is_query);
    let Some(reply) = reply else { return };
    assert!(reply.len() <= query.len() + DNS_ANSWER);
    assert_eq!(reply[..2], query[..2]);
    assert_eq!(respond(&reply, |_| DnsLookup::Unknown), None);
    let (questions, answers) = (reply[5], reply[7]);
    let question = &reply[DNS_HEADER..reply.len() - usize::from(answers) * DNS_ANSWER];
    assert_eq!(questions == 1, !question.is_empty());
    assert!(query[DNS_HEADER..].starts_with(question));
    assert!(answers <= 1 && (answers == 0 || asked.is_some()));
    if let Some(asked) = asked {
        assert_eq!(dotted(question).to_ascii_lowercase(), asked);
    }
}

/// The labels of a question, with dots between them.
fn dotted(question: &[u8]) -> String {
    let (mut labels, mut rest) = (Vec::new(), question);
    while let Some((length, after)) = rest.split_first().filter(|(length, _)| **length > 0) {
        let (label, after) = after.split_at(usize::from(*length));
        labels.push(String::from_utf8_lossy(label));
        rest = after;
    }
    labels.join(".")
}

/// The first bytes of a TLS connection.
pub(crate) fn tls_hello(bytes: &[u8]) {
    tls::fuzz::hello(bytes);
}

/// A client's HTTP connection.
pub(crate) fn http_request(bytes: &[u8]) {
    http::fuzz::request(bytes);
}

/// An upstream's HTTP connection.
pub(crate) fn http_response(bytes: &[u8]) {
    http::fuzz::response(bytes);
}
