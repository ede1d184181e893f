//! TLS by its hello, with real clients and servers.

use std::sync::{Arc, Mutex};

use ralph::gateway::{AddressGuard, ListenerProtocol};
use ralph::network::Policy;
use rstest::rstest;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::world::{Server, World, allowlist, impatient, read_all, say};

/// A fatal alert: access denied, no such name, cannot be read.
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];
const DECODE_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];

/// A server with a certificate for these names that greets, and the configuration of a client that trusts it.
pub async fn tls_server(names: &[&str]) -> (Server, Arc<ClientConfig>) {
    let identity = Identity::new(names, &[]);
    let server = identity
        .serve(|mut stream, _| async move {
            let _ = stream.write_all(b"hello from inside").await;
            let _ = stream.shutdown().await;
        })
        .await;
    let client = trusting(&identity.pem, &[]);
    (server, client)
}

/// The certificate of a server, which is its own authority.
pub struct Identity {
    pub pem: Vec<u8>,
    acceptor: TlsAcceptor,
}

impl Identity {
    pub fn new(names: &[&str], protocols: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self {
            pem: made.cert.pem().into_bytes(),
            acceptor: TlsAcceptor::from(Arc::new(config)),
        }
    }

    /// A server that treats each connection alike, once it is agreed on.
    pub async fn serve<F>(
        &self,
        handle: impl Fn(TlsStream<TcpStream>, Arc<Mutex<Vec<u8>>>) -> F + Send + Sync + 'static,
    ) -> Server
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (acceptor, handle) = (self.acceptor.clone(), Arc::new(handle));
        Server::new(move |stream, seen| {
            let (acceptor, handle) = (acceptor.clone(), handle.clone());
            async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    handle(stream, seen).await;
                }
            }
        })
        .await
    }
}

/// A client that trusts these authorities and speaks these protocols.
pub fn trusting(pem: &[u8], protocols: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).map(Result::unwrap));
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// What a real client receives.
pub async fn greet(
    config: Arc<ClientConfig>,
    name: &'static str,
    stream: TcpStream,
) -> std::io::Result<String> {
    let name = ServerName::try_from(name).unwrap();
    let mut stream = TlsConnector::from(config).connect(name, stream).await?;
    let mut received = String::new();
    stream.read_to_string(&mut received).await?;
    Ok(received)
}

/// The first bytes of a real client.
pub fn real_hello(name: &'static str) -> Vec<u8> {
    let config = trusting(b"", &[]);
    let mut client = ClientConnection::new(config, ServerName::try_from(name).unwrap()).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// A hello with one more extension.
fn with_extension(mut hello: Vec<u8>, kind: u16, content: &[u8]) -> Vec<u8> {
    let extension = [
        &kind.to_be_bytes()[..],
        &u16::try_from(content.len()).unwrap().to_be_bytes(),
        content,
    ]
    .concat();
    // Record, message, version, random, session id; then the two lists before the extensions.
    let mut at = 5 + 4 + 2 + 32;
    at += 1 + usize::from(hello[at]);
    at += 2 + usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
    at += 1 + usize::from(hello[at]);
    hello.extend(&extension);
    for length in [3, 7, at] {
        let old = u16::from_be_bytes([hello[length], hello[length + 1]]);
        let new = old + u16::try_from(extension.len()).unwrap();
        hello[length..length + 2].copy_from_slice(&new.to_be_bytes());
    }
    hello
}

#[tokio::test]
async fn an_allowed_name_is_reached_end_to_end() {
    let (server, config) = tls_server(&["a.example"]).await;
    let world = World::new(allowlist(&[&format!("a.example:{}", server.port)])).name("a.example");
    let stream = world.enter(ListenerProtocol::Tls { port: server.port }).await;
    assert_eq!(
        greet(config, "a.example", stream).await.unwrap(),
        "hello from inside"
    );
    let record = world.record(0).await;
    assert_eq!(record.host.as_deref(), Some("a.example"));
    assert!(record.sent > 100 && record.received > 100, "{record:?}");
}

#[rstest]
#[case::whole(usize::MAX, usize::MAX)]
#[case::bytewise(usize::MAX, 1)]
#[case::small_records(3, usize::MAX)]
#[case::both(7, 5)]
#[tokio::test]
async fn a_hello_in_pieces_is_put_together(#[case] record: usize, #[case] packet: usize) {
    let (server, _) = tls_server(&["a.example"]).await;
    let world = World::new(allowlist(&[&format!("a.example:{}", server.port)])).name("a.example");
    let mut stream = world.enter(ListenerProtocol::Tls { port: server.port }).await;
    stream.set_nodelay(true).unwrap();
    let message = real_hello("a.example").split_off(5);
    let records: Vec<u8> = message
        .chunks(record.min(message.len()))
        .flat_map(|part| {
            [
                &[22, 3, 1],
                &u16::try_from(part.len()).unwrap().to_be_bytes()[..],
                part,
            ]
            .concat()
        })
        .collect();
    for part in records.chunks(packet.min(records.len())) {
        stream.write_all(part).await.unwrap();
    }
    let mut first = [0; 3];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(first, [22, 3, 3], "the server's hello");
}

#[rstest]
#[case::denied_name(real_hello("evil.example"), &ACCESS_DENIED, Some("evil.example"), "host not in policy")]
#[case::encrypted(with_extension(real_hello("a.example"), 0xfe0d, &[0; 50]), &ACCESS_DENIED, None, "encrypted server name (ECH)")]
#[case::http(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n".to_vec(), &DECODE_ERROR, None, "not TLS")]
#[case::second_name(with_extension(real_hello("a.example"), 0, b"\0\x0f\0\0\x0cevil.example"), &DECODE_ERROR, None, "malformed TLS client hello")]
#[tokio::test]
async fn a_denied_hello_gets_an_alert_at_once(
    #[case] hello: Vec<u8>,
    #[case] alert: &[u8],
    #[case] host: Option<&str>,
    #[case] rule: &str,
) {
    let (server, _) = tls_server(&["a.example"]).await;
    let world = World::new(allowlist(&[&format!("a.example:{}", server.port)])).name("a.example");
    let mut stream = world.enter(ListenerProtocol::Tls { port: server.port }).await;
    assert_eq!(say(&mut stream, hello).await, alert);
    world.check_denied(host, rule).await;
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn reserved_values_are_ignored() {
    let (server, _) = tls_server(&["a.example"]).await;
    let world = World::new(allowlist(&[&format!("a.example:{}", server.port)])).name("a.example");
    let mut stream = world.enter(ListenerProtocol::Tls { port: server.port }).await;
    stream
        .write_all(&with_extension(real_hello("a.example"), 0x5a5a, &[0]))
        .await
        .unwrap();
    let mut first = [0; 3];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(first, [22, 3, 3], "the server's hello");
}

#[tokio::test]
async fn a_hello_without_a_name_is_refused() {
    let (server, config) = tls_server(&["a.example"]).await;
    let world = World::new(Policy::allow_all());
    let mut stream = world.enter(ListenerProtocol::Tls { port: server.port }).await;
    let mut client = ClientConnection::new(config, ServerName::try_from("127.0.0.1").unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    assert_eq!(say(&mut stream, hello).await, UNRECOGNIZED_NAME);
    world.check_denied(None, "without a server name (SNI)").await;
}

#[tokio::test]
async fn a_client_without_a_hello_is_disconnected() {
    let world = World::with(Policy::allow_all(), |setup| setup.limits = impatient());
    let mut stream = world.enter(ListenerProtocol::Tls { port: 443 }).await;
    stream.write_all(&real_hello("a.example")[..40]).await.unwrap();
    assert_eq!(read_all(&mut stream).await, DECODE_ERROR);
}

#[tokio::test]
async fn a_name_with_a_denied_address_is_refused_with_the_reason() {
    let world = World::with(allowlist(&["a.example"]), |setup| {
        setup.guard = AddressGuard::default();
    });
    world.names.set("a.example", &["169.254.169.254"]);
    let mut stream = world.enter(ListenerProtocol::Tls { port: 443 }).await;
    assert_eq!(say(&mut stream, real_hello("a.example")).await, ACCESS_DENIED);
    world.check_denied(Some("a.example"), "a metadata service").await;
}

#[tokio::test]
async fn path_rules_do_not_allow_encrypted_requests() {
    let world = World::new(allowlist(&["GET a.example/open/*"])).name("a.example");
    let mut stream = world.enter(ListenerProtocol::Tls { port: 443 }).await;
    assert_eq!(say(&mut stream, real_hello("a.example")).await, ACCESS_DENIED);
    world.check_denied(Some("a.example"), "not inspected").await;
}
