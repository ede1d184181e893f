use std::sync::Arc;

use proptest::prelude::*;
use rstest::rstest;
use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;
use crate::gateway::tls::fuzz::seen_by_a_server;

fn parse(bytes: &[u8]) -> Result<Option<HostName>, HelloError> {
    HelloReader::default().read(bytes)
}

/// The first bytes that a real client sends.
fn real_hello(name: &'static str) -> Vec<u8> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), name.try_into().unwrap()).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// A hello made by hand, in one record.
fn hello(extensions: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0);
    body.extend([0, 2, 0x13, 0x01]);
    body.extend([1, 0]);
    let mut all = Vec::new();
    for (kind, content) in extensions {
        all.extend(kind.to_be_bytes());
        all.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
        all.extend(*content);
    }
    body.extend(u16::try_from(all.len()).unwrap().to_be_bytes());
    body.extend(all);
    let mut message = vec![1, 0];
    message.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    message.extend(body);
    in_records(&message, message.len())
}

/// A message cut into records of this many bytes.
fn in_records(message: &[u8], size: usize) -> Vec<u8> {
    let record = |fragment: &[u8]| {
        let length = u16::try_from(fragment.len()).unwrap().to_be_bytes();
        [&[22, 3, 1], &length[..], fragment].concat()
    };
    message.chunks(size).flat_map(record).collect()
}

fn sni(name: &str) -> Vec<u8> {
    let length = u16::try_from(name.len()).unwrap();
    let mut content = (length + 3).to_be_bytes().to_vec();
    content.push(0);
    content.extend(length.to_be_bytes());
    content.extend(name.as_bytes());
    content
}

fn named(name: &str) -> HostName {
    HostName::parse(name).unwrap()
}

#[test]
fn the_hello_of_a_real_client_is_read() {
    assert_eq!(
        parse(&real_hello("www.example.org")),
        Ok(Some(named("www.example.org")))
    );
}

#[rstest]
fn a_hello_in_many_records_is_read(#[values(1, 2, 5, 100, 10_000)] size: usize) {
    let whole = real_hello("www.example.org");
    let cut = in_records(&whole[RECORD_HEADER..], size);
    assert_eq!(parse(&cut), Ok(Some(named("www.example.org"))));
    let mut reader = HelloReader::default();
    for length in 0..cut.len() {
        assert_eq!(reader.read(&cut[..length]), Ok(None), "{length}");
    }
    assert_eq!(reader.read(&cut), Ok(Some(named("www.example.org"))));
}

#[test]
fn bytes_after_the_hello_are_not_read() {
    let mut bytes = real_hello("www.example.org");
    bytes.extend([23, 3, 3, 0, 1, 0]);
    assert_eq!(parse(&bytes), Ok(Some(named("www.example.org"))));
}

#[test]
fn reserved_values_are_ignored() {
    let name = sni("a.example");
    let bytes = hello(&[(0x0a0a, &[]), (0, &name), (0xfafa, &[0]), (0xdada, b"anything")]);
    assert_eq!(parse(&bytes), Ok(Some(named("a.example"))));
}

#[rstest]
#[case::no_extension(&[], HelloError::NO_NAME)]
#[case::other_extensions(&[(16, b"\0\x03\x02h2".as_slice())], HelloError::NO_NAME)]
#[case::encrypted(&[(0, b"\0\x0c\0\0\x09a.example".as_slice()), (0xfe0d, b"\0")], HelloError::ENCRYPTED)]
#[case::encrypted_draft(&[(0xffce, b"\0".as_slice()), (0, b"\0\x0c\0\0\x09a.example")], HelloError::ENCRYPTED)]
#[case::two_extensions(&[(0, b"\0\x0c\0\0\x09a.example".as_slice()), (0, b"\0\x0c\0\0\x09b.example")], HelloError::MALFORMED)]
#[case::two_names(&[(0, b"\0\x18\0\0\x09a.example\0\0\x09b.example".as_slice())], HelloError::MALFORMED)]
#[case::empty_list(&[(0, b"\0\0".as_slice())], HelloError::MALFORMED)]
#[case::another_kind_of_name(&[(0, b"\0\x0c\x01\0\x09a.example".as_slice())], HelloError::MALFORMED)]
#[case::an_address(&[(0, b"\0\x0c\0\0\x09127.0.0.1".as_slice())], HelloError::NO_NAME)]
#[case::a_dot_at_the_end(&[(0, b"\0\x0d\0\0\x0aa.example.".as_slice())], HelloError::NO_NAME)]
#[case::a_zero_in_it(&[(0, b"\0\x0c\0\0\x09a.ex\0mple".as_slice())], HelloError::NO_NAME)]
#[case::not_utf8(&[(0, b"\0\x0c\0\0\x09a.ex\xffmple".as_slice())], HelloError::MALFORMED)]
fn a_hello_without_exactly_one_name_is_refused(
    #[case] extensions: &[(u16, &[u8])],
    #[case] expected: HelloError,
) {
    assert_eq!(parse(&hello(extensions)), Err(expected));
}

#[rstest]
#[case::http(b"GET / HTTP/1.1\r\n".as_slice(), HelloError::NOT_TLS)]
#[case::ssl2(&[0x80, 0x2e, 1, 0, 2], HelloError::NOT_TLS)]
#[case::other_record(&[23, 3, 3], HelloError::NOT_TLS)]
#[case::other_version(&[22, 2], HelloError::NOT_TLS)]
#[case::empty_record(&[22, 3, 1, 0, 0], HelloError::MALFORMED)]
#[case::huge_record(&[22, 3, 1, 0x40, 1], HelloError::MALFORMED)]
#[case::server_hello(&[22, 3, 1, 0, 1, 2], HelloError::MALFORMED)]
#[case::huge_message(&[22, 3, 1, 0, 4, 1, 0, 0x40, 0], HelloError::TOO_LONG)]
fn bytes_that_are_not_a_hello_are_refused_at_once(#[case] bytes: &[u8], #[case] expected: HelloError) {
    assert_eq!(parse(bytes), Err(expected));
}

#[test]
fn a_hello_of_more_than_16_kib_is_refused() {
    let name = sni("a.example");
    let padding = |total: usize| vec![0; total - hello(&[(0, &name), (21, &[])]).len()];
    let longest = MAX_HELLO + RECORD_HEADER;
    assert_eq!(
        parse(&hello(&[(0, &name), (21, &padding(longest))])),
        Ok(Some(named("a.example")))
    );
    assert_eq!(
        parse(&hello(&[(0, &name), (21, &padding(longest + 1))])),
        Err(HelloError::MALFORMED)
    );
}

#[test]
fn a_hello_names_the_host_that_a_server_sees() {
    let seen = seen_by_a_server(&real_hello("www.example.org")).unwrap();
    assert_eq!(seen.server_name.as_deref(), Some("www.example.org"));
}

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = parse(&bytes);
        let _ = parse(&in_records(&bytes, 7));
        let _ = parse_hello(&bytes);
        let _ = parse_server_name(&bytes);
    }

    #[test]
    fn a_changed_hello_names_the_host_that_a_server_sees(
        changes in prop::collection::vec((0_usize..300, any::<u8>()), 1..5),
    ) {
        let mut bytes = real_hello("www.example.org");
        for (at, to) in changes {
            let at = at % bytes.len();
            bytes[at] = to;
        }
        if let (Ok(Some(name)), Some(seen)) = (parse(&bytes), seen_by_a_server(&bytes)) {
            prop_assert_eq!(Some(name.as_str()), seen.server_name.as_deref());
        }
    }

    #[test]
    fn a_changed_hello_never_names_a_host_that_is_not_in_it(at in 0_usize..300, to in any::<u8>()) {
        let mut bytes = real_hello("www.example.org");
        let at = at % bytes.len();
        bytes[at] = to;
        if let Ok(Some(name)) = parse(&bytes) {
            let name = name.as_str().as_bytes();
            prop_assert!(bytes.to_ascii_lowercase().windows(name.len()).any(|window| window == name));
        }
    }

    #[test]
    fn the_memory_for_a_hello_is_limited(
        claimed in prop_oneof![0_u32..20_000, 0_u32..1 << 24],
        lengths in prop::collection::vec(1_usize..2000, 0..200),
    ) {
        let whole: usize = lengths.iter().sum();
        let [_, length @ ..] = claimed.to_be_bytes();
        let mut message = [&[MESSAGE_CLIENT_HELLO], length.as_slice()].concat();
        message.resize(whole.max(MESSAGE_HEADER), 0);
        let mut bytes = Vec::new();
        let mut rest = message.as_slice();
        for length in lengths {
            let (fragment, after) = rest.split_at(length);
            bytes.extend(in_records(fragment, length));
            rest = after;
        }
        let mut reader = HelloReader::default();
        for end in (0..=bytes.len()).step_by(997).chain([bytes.len()]) {
            let looked = reader.read(&bytes[..end]);
            prop_assert!(reader.message.len() <= MAX_HELLO + MAX_RECORD);
            match looked {
                Ok(None) => prop_assert!(end <= MAX_WITH_HEADERS),
                Ok(Some(_)) | Err(_) => break,
            }
        }
    }
}
