//! Parses DNS queries and builds responses.

use std::net::Ipv4Addr;

use crate::network::HostName;

/// The TTL of a response in seconds. It is short, so that a changed policy takes effect soon.
const TTL: u32 = 5;

const HEADER: usize = 12;
const TYPE_A: u16 = 1;
const CLASS_IN: u16 = 1;
/// Response, recursion desired (copied) and available.
const RESPONSE: u16 = 0x8080;
const RECURSION_DESIRED: u16 = 0x0100;
const OPCODE: u16 = 0x7800;

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum DnsLookup {
    /// The name is allowed and has this synthetic address.
    At(Ipv4Addr),
    /// The name is not allowed, so it does not exist for the sandbox.
    Unknown,
    /// There is no free address.
    Unavailable,
}

#[derive(Clone, Copy)]
enum ResponseCode {
    NoError = 0,
    FormatError = 1,
    ServerFailure = 2,
    NoSuchName = 3,
    NotImplemented = 4,
    Refused = 5,
}

/// The response to a query; `None` when the bytes are not a query.
pub(in crate::gateway) fn respond(
    query: &[u8],
    lookup: impl FnOnce(&HostName) -> DnsLookup,
) -> Option<Vec<u8>> {
    let header = Header::parse(query)?;
    if header.is_response() {
        return None;
    }
    if header.flags & OPCODE != 0 {
        return Some(header.reply(ResponseCode::NotImplemented, &[], None));
    }
    let Some(question) = Question::parse(&query[HEADER..]).filter(|_| header.questions == 1) else {
        return Some(header.reply(ResponseCode::FormatError, &[], None));
    };
    if question.class != CLASS_IN {
        return Some(header.reply(ResponseCode::Refused, question.bytes, None));
    }
    let found = question.name.as_ref().map_or(DnsLookup::Unknown, lookup);
    let (code, address) = match found {
        // There are only A records: no IPv6, no services, no keys for encrypted server names.
        DnsLookup::At(address) => (
            ResponseCode::NoError,
            (question.kind == TYPE_A).then_some(address),
        ),
        DnsLookup::Unknown => (ResponseCode::NoSuchName, None),
        DnsLookup::Unavailable => (ResponseCode::ServerFailure, None),
    };
    Some(header.reply(code, question.bytes, address))
}

struct Header {
    id: u16,
    flags: u16,
    questions: u16,
}

impl Header {
    fn parse(query: &[u8]) -> Option<Self> {
        let (header, _) = query.split_first_chunk::<HEADER>()?;
        let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        Some(Self {
            id: field(0),
            flags: field(2),
            questions: field(4),
        })
    }

    fn is_response(&self) -> bool {
        self.flags & 0x8000 != 0
    }

    fn reply(&self, code: ResponseCode, question: &[u8], address: Option<Ipv4Addr>) -> Vec<u8> {
        let flags = RESPONSE | (self.flags & (RECURSION_DESIRED | OPCODE)) | code as u16;
        let counts = [
            u16::from(!question.is_empty()),
            u16::from(address.is_some()),
            0,
            0,
        ];
        let mut reply = Vec::with_capacity(HEADER + question.len() + 16);
        for field in [self.id, flags].into_iter().chain(counts) {
            reply.extend(field.to_be_bytes());
        }
        reply.extend(question);
        if let Some(address) = address {
            // A pointer to the name in the question.
            reply.extend([0xc0, 0x0c]);
            reply.extend([TYPE_A, CLASS_IN].map(u16::to_be_bytes).concat());
            reply.extend(TTL.to_be_bytes());
            reply.extend(4_u16.to_be_bytes());
            reply.extend(address.octets());
        }
        reply
    }
}

struct Question<'a> {
    /// `None` when it is not a valid host name.
    name: Option<HostName>,
    kind: u16,
    class: u16,
    bytes: &'a [u8],
}

impl<'a> Question<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut labels: Vec<&str> = Vec::new();
        let mut at = 0;
        let mut is_text = true;
        loop {
            let length = usize::from(*bytes.get(at)?);
            at += 1;
            // Longer labels are pointers, which a question must not have.
            if length > 63 || at + length > 255 {
                return None;
            }
            if length == 0 {
                break;
            }
            match std::str::from_utf8(bytes.get(at..at + length)?) {
                // A dot in a label would change the name.
                Ok(label) if !label.contains('.') => labels.push(label),
                _ => is_text = false,
            }
            at += length;
        }
        let &[k0, k1, c0, c1] = bytes.get(at..at + 4)?.first_chunk()?;
        Some(Self {
            name: is_text.then(|| HostName::parse(&labels.join(".")).ok()).flatten(),
            kind: u16::from_be_bytes([k0, k1]),
            class: u16::from_be_bytes([c0, c1]),
            bytes: &bytes[..at + 4],
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 7);

    fn query(labels: &[&[u8]], kind: u16) -> Vec<u8> {
        let mut query = vec![0xab, 0xcd, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            query.push(u8::try_from(label.len()).unwrap());
            query.extend(*label);
        }
        query.push(0);
        query.extend(kind.to_be_bytes());
        query.extend(CLASS_IN.to_be_bytes());
        query
    }

    fn lookup(name: &HostName) -> DnsLookup {
        match name.as_str() {
            "a.example" => DnsLookup::At(ADDRESS),
            "full.example" => DnsLookup::Unavailable,
            _ => DnsLookup::Unknown,
        }
    }

    fn code_and_answers(reply: &[u8]) -> (u8, u8) {
        (reply[3] & 0x0f, reply[7])
    }

    #[test]
    fn an_allowed_name_has_an_address_with_a_short_ttl() {
        let query = query(&[b"A", b"Example"], TYPE_A);
        let reply = respond(&query, lookup).unwrap();
        assert_eq!(code_and_answers(&reply), (0, 1));
        assert_eq!(reply[..2], query[..2]);
        assert_eq!(
            reply[12..query.len()],
            query[12..],
            "the question is repeated unchanged"
        );
        assert_eq!(reply[reply.len() - 4..], ADDRESS.octets());
        let ttl = u32::from_be_bytes(*reply[reply.len() - 10..].first_chunk().unwrap());
        assert!(ttl <= 5);
    }

    #[rstest]
    #[case::aaaa(28)]
    #[case::https(65)]
    #[case::svcb(64)]
    #[case::txt(16)]
    #[case::any(255)]
    fn an_allowed_name_has_no_other_records(#[case] kind: u16) {
        let reply = respond(&query(&[b"a", b"example"], kind), lookup).unwrap();
        assert_eq!(code_and_answers(&reply), (0, 0));
    }

    #[rstest]
    #[case::denied(&[b"b".as_slice(), b"example"], 3)]
    #[case::full(&[b"full".as_slice(), b"example"], 2)]
    #[case::root(&[], 3)]
    #[case::dot_in_a_label(&[b"a.example".as_slice()], 3)]
    #[case::zero_in_a_label(&[b"a\0".as_slice(), b"example"], 3)]
    #[case::not_utf8(&[b"\xff".as_slice(), b"example"], 3)]
    fn a_name_that_is_not_allowed_does_not_exist(#[case] labels: &[&[u8]], #[case] code: u8) {
        let reply = respond(&query(labels, TYPE_A), lookup).unwrap();
        assert_eq!(code_and_answers(&reply), (code, 0));
    }

    #[rstest]
    #[case::nothing(&[], None)]
    #[case::short(&[0; 11], None)]
    #[case::no_question(&[0; 12], Some(1))]
    #[case::a_response(&[0, 0, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1], None)]
    #[case::an_update(&[0, 0, 0x28, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1], Some(4))]
    #[case::a_pointer(&[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 0x0c, 0, 1, 0, 1], Some(1))]
    #[case::two_questions(&[0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1], Some(1))]
    #[case::another_class(&[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 3], Some(5))]
    fn an_invalid_query_is_an_error(#[case] query: &[u8], #[case] code: Option<u8>) {
        let reply = respond(query, |_| panic!("nothing to look up"));
        assert_eq!(reply.map(|reply| code_and_answers(&reply).0), code);
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic_or_leak_an_address(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            if let Some(reply) = respond(&bytes, lookup) {
                prop_assert!(reply.len() <= bytes.len() + 16);
                prop_assert_eq!(reply[7], 0);
            }
        }

        #[test]
        fn only_the_allowed_name_has_an_address(
            labels in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..6),
            kind in any::<u16>(),
        ) {
            let labels: Vec<&[u8]> = labels.iter().map(Vec::as_slice).collect();
            let reply = respond(&query(&labels, kind), lookup).unwrap();
            let is_allowed = labels.join(&b'.').eq_ignore_ascii_case(b"a.example") && kind == TYPE_A;
            prop_assert_eq!(reply[7] == 1, is_allowed);
        }
    }
}
