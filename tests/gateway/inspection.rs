//! TLS that is opened: requests in it are judged like plain ones, and the host is verified.

use std::io;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use ralph::gateway::audit::{AuditProtocol, AuditVerdict};
use ralph::gateway::{
    GatewaySetup, HeaderSecret, Inspection, InspectionTrust, ListenerProtocol, TrustedRoots,
};
use ralph::network::{HostPattern, Policy};
use ralph::secret::Secret;
use rstest::rstest;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::audit::Broker;
use crate::proxy::connect;
use crate::tcp::connect_to_name;
use crate::tls::{Identity, real_hello, trusting};
use crate::world::{OK, Server, World, allowlist, answer_heads, impatient, say, send_and_read_until};

/// A world in which `a.example` is inspected and its server is trusted, and what a sandbox in it would trust.
pub struct Inspected {
    pub world: World,
    pub inspection: Arc<Inspection>,
    pub trust: InspectionTrust,
}

impl Inspected {
    /// `{p}` in the lines is the server's port.
    pub fn new(lines: &[&str], server: &Server, identity: &Identity) -> Self {
        Self::with(lines, server, identity, |_| {})
    }

    pub fn with(
        lines: &[&str],
        server: &Server,
        identity: &Identity,
        change: impl FnOnce(&mut GatewaySetup),
    ) -> Self {
        let lines: Vec<String> = lines
            .iter()
            .map(|line| line.replace("{p}", &server.port.to_string()))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        Self::of(allowlist(&lines), identity, change)
    }

    fn of(policy: Policy, identity: &Identity, change: impl FnOnce(&mut GatewaySetup)) -> Self {
        let roots = TrustedRoots::Pem(identity.pem.clone());
        let inspection = Arc::new(Inspection::new(&roots, Timestamp::now()).unwrap());
        let trust = inspection.trust(&identity.pem, Path::new("/trust"));
        let policy = policy.inspecting([HostPattern::parse("a.example").unwrap()]);
        let world = World::with(policy, |setup| {
            setup.inspection = Some(inspection.clone());
            change(setup);
        });
        let world = world.name("a.example").name("b.example");
        Self {
            world,
            inspection,
            trust,
        }
    }

    /// A client that trusts what the sandbox trusts.
    fn client(&self) -> Arc<ClientConfig> {
        trusting(&self.trust.bundle, &["h2", "http/1.1"])
    }

    async fn enter(&self, protocol: ListenerProtocol) -> TlsStream<TcpStream> {
        self.open("a.example", self.world.enter(protocol).await)
            .await
            .unwrap()
    }

    pub async fn open(&self, name: &'static str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(name).unwrap();
        TlsConnector::from(self.client()).connect(name, stream).await
    }
}

/// A server for `a.example` and `b.example`, as one of a CDN is, and its certificate.
pub async fn https_server() -> (Server, Identity) {
    let identity = Identity::new(&["a.example", "b.example"], &["http/1.1"]);
    let server = identity
        .serve(|stream, seen| answer_heads(stream, seen, OK))
        .await;
    (server, identity)
}

fn request(method: &str, path: &str, server: &Server) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: a.example:{}\r\n\r\n",
        server.port
    )
}

#[tokio::test]
async fn methods_and_paths_of_inspected_requests_are_judged() {
    let (server, identity) = https_server().await;
    let inspected = Inspected::new(&["GET a.example:{p}/open/*"], &server, &identity);
    let mut client = inspected.enter(ListenerProtocol::Tls { port: server.port }).await;
    assert_eq!(client.get_ref().1.alpn_protocol(), Some(b"http/1.1".as_slice()));
    for path in ["/open/1", "/open/2"] {
        send_and_read_until(&mut client, &request("GET", path, &server), "ok").await;
    }
    let answer = say(&mut client, request("POST", "/open/3", &server)).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden"), "{answer}");
    assert!(answer.contains("x-ralph-denied: "), "{answer}");
    assert!(!server.seen().contains("POST"));
    assert_eq!(server.connections(), 1, "the connection to the host is kept");
    let record = inspected.world.record(0).await;
    assert_eq!(
        (record.protocol, record.verdict),
        (AuditProtocol::Https, AuditVerdict::Allowed)
    );
    let record = inspected.world.record(2).await;
    assert_eq!(
        (record.protocol, record.verdict),
        (AuditProtocol::Https, AuditVerdict::Denied)
    );
}

#[tokio::test]
async fn an_inspected_request_cannot_name_another_host() {
    let (server, identity) = https_server().await;
    let inspected = Inspected::new(&["a.example:{p}", "b.example:{p}"], &server, &identity);
    let mut client = inspected.enter(ListenerProtocol::Tls { port: server.port }).await;
    let fronted = request("GET", "/", &server).replace("a.example", "b.example");
    let answer = String::from_utf8(say(&mut client, fronted).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden"), "{answer}");
    assert_eq!(server.connections(), 0);
    let rule = format!(
        "host mismatch: the connection was allowed for a.example:{0}, the request names b.example:{0}",
        server.port
    );
    inspected.world.check_denied(Some("a.example"), &rule).await;
}

#[tokio::test]
async fn a_host_that_is_not_inspected_shows_its_own_certificate() {
    let (server, identity) = https_server().await;
    let inspected = Inspected::new(&["b.example:{p}"], &server, &identity);
    let stream = inspected
        .world
        .enter(ListenerProtocol::Tls { port: server.port })
        .await;
    let client = inspected.open("b.example", stream).await.unwrap();
    let shown = client.get_ref().1.peer_certificates().unwrap()[0].clone();
    assert!(rustls_pem(&identity.pem) == shown);
}

fn rustls_pem(pem: &[u8]) -> rustls::pki_types::CertificateDer<'static> {
    rustls::pki_types::pem::PemObject::from_pem_slice(pem).unwrap()
}

#[rstest]
#[case::not_listed(&["b.example:{p}"], "host not in policy")]
#[case::another_port(&["a.example:1"], "does not cover it")]
#[tokio::test]
async fn inspection_allows_nothing(#[case] lines: &[&str], #[case] reason: &str) {
    let (server, identity) = https_server().await;
    let inspected = Inspected::new(lines, &server, &identity);
    let mut stream = inspected
        .world
        .enter(ListenerProtocol::Tls { port: server.port })
        .await;
    let alert = say(&mut stream, real_hello("a.example")).await;
    assert_eq!(alert, [21, 3, 3, 0, 2, 2, 49]);
    inspected.world.check_denied(Some("a.example"), reason).await;
}

#[tokio::test]
async fn a_host_to_be_inspected_is_never_tunnelled() {
    let (server, identity) = https_server().await;
    let lines = ["a.example:{p}"];
    let inspected = Inspected::with(&lines, &server, &identity, |setup| setup.inspection = None);
    let mut stream = inspected
        .world
        .enter(ListenerProtocol::Tls { port: server.port })
        .await;
    say(&mut stream, real_hello("a.example")).await;
    inspected
        .world
        .check_denied(Some("a.example"), "the gateway has no inspection")
        .await;
    assert_eq!(server.connections(), 0);
}

#[rstest]
#[case::another_name(Identity::new(&["b.example"], &[]), Trusted::Yes)]
#[case::unknown_authority(Identity::new(&["a.example"], &[]), Trusted::No)]
#[tokio::test]
async fn a_host_without_a_valid_certificate_gets_no_request(
    #[case] identity: Identity,
    #[case] trusted: Trusted,
) {
    let server = identity
        .serve(|stream, seen| answer_heads(stream, seen, OK))
        .await;
    let other = Identity::new(&["a.example"], &[]);
    let roots = match trusted {
        Trusted::Yes => &identity,
        Trusted::No => &other,
    };
    let inspected = Inspected::new(&["a.example:{p}"], &server, roots);
    let mut client = inspected.enter(ListenerProtocol::Tls { port: server.port }).await;
    let answer = say(&mut client, request("GET", "/secret", &server)).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(
        answer.contains("x-ralph-error: the TLS handshake with a.example failed"),
        "{answer}"
    );
    assert_eq!(server.seen(), "");
}

enum Trusted {
    Yes,
    No,
}

#[tokio::test]
async fn a_credential_is_injected_into_inspected_requests() {
    let (server, identity) = https_server().await;
    let broker = Server::http(OK).await;
    let injection = Broker {
        host: "a.example",
        port: broker.port,
    };
    let lines = ["POST a.example:{p}/v1/*", "b.example:{p}"];
    let inspected = Inspected::with(&lines, &server, &identity, |setup| {
        setup.injection = Some(Arc::new(injection));
    });
    let mut client = inspected.enter(ListenerProtocol::Tls { port: server.port }).await;
    let asked = request("POST", "/v1/messages", &server);
    send_and_read_until(&mut client, &asked, "ok").await;
    assert!(
        broker
            .seen()
            .starts_with("POST /v1/messages HTTP/1.1\r\nhost: a.example")
    );
    let answer = say(&mut client, request("POST", "/v2", &server)).await;
    assert!(answer.starts_with(b"HTTP/1.1 403 "), "{answer:?}");
    assert_eq!(server.connections(), 0, "it is never reached itself");
}

#[tokio::test]
async fn a_credential_is_injected_into_an_inspected_tunnel() {
    let (server, identity) = https_server().await;
    let broker = Server::http(OK).await;
    let injection = Broker {
        host: "a.example",
        port: broker.port,
    };
    let inspected = Inspected::with(&["a.example"], &server, &identity, |setup| {
        setup.injection = Some(Arc::new(injection));
    });
    let mut stream = inspected.world.enter(ListenerProtocol::Proxy).await;
    send_and_read_until(
        &mut stream,
        &connect(&inspected.world, "a.example:443"),
        "\r\n\r\n",
    )
    .await;
    let mut client = inspected.open("a.example", stream).await.unwrap();
    let asked = "POST /v1/messages HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n";
    send_and_read_until(&mut client, asked, "ok").await;
    let expected = "POST /v1/messages HTTP/1.1\r\nhost: a.example\r\n";
    assert!(broker.seen().starts_with(expected), "{}", broker.seen());
}

#[tokio::test]
async fn a_tunnel_of_the_proxy_is_inspected() {
    let (server, identity) = https_server().await;
    let inspected = Inspected::new(&["GET a.example:{p}/open/*"], &server, &identity);
    let mut stream = inspected.world.enter(ListenerProtocol::Proxy).await;
    let target = format!("a.example:{}", server.port);
    send_and_read_until(&mut stream, &connect(&inspected.world, &target), "\r\n\r\n").await;
    let mut client = inspected.open("a.example", stream).await.unwrap();
    send_and_read_until(&mut client, &request("GET", "/open/1", &server), "ok").await;
    let answer = say(&mut client, request("GET", "/closed", &server)).await;
    assert!(answer.starts_with(b"HTTP/1.1 403 "), "{answer:?}");
}

#[tokio::test]
async fn an_inspected_tunnel_is_for_its_host_only() {
    let (server, identity) = https_server().await;
    let inspected = Inspected::new(&["a.example:{p}", "b.example:{p}"], &server, &identity);
    for (asked, meant) in [("a.example", "b.example"), ("b.example", "a.example")] {
        let mut stream = inspected.world.enter(ListenerProtocol::Proxy).await;
        let target = format!("{asked}:{}", server.port);
        send_and_read_until(&mut stream, &connect(&inspected.world, &target), "\r\n\r\n").await;
        assert!(inspected.open(meant, stream).await.is_err(), "{asked} {meant}");
    }
    assert_eq!(server.seen(), "");
}

#[rstest]
#[case::whole_host(&["a.example:{p}"])]
#[case::by_path(&["GET a.example:{p}/open/*"])]
#[tokio::test]
async fn tls_on_any_other_port_is_inspected(#[case] lines: &[&str]) {
    let (server, identity) = https_server().await;
    let inspected = Inspected::new(lines, &server, &identity);
    let stream = connect_to_name(&inspected.world, "a.example", server.port).await;
    let mut client = inspected.open("a.example", stream).await.unwrap();
    send_and_read_until(&mut client, &request("GET", "/open/1", &server), "ok").await;
    let fronted = request("GET", "/open/2", &server).replace("a.example", "b.example");
    let answer = say(&mut client, fronted).await;
    assert!(answer.starts_with(b"HTTP/1.1 403 "), "{answer:?}");
}

#[tokio::test]
async fn a_path_rule_on_another_port_denies_tls_without_inspection() {
    let (server, _) = https_server().await;
    let world = World::new(allowlist(&[&format!("GET a.example:{}/x", server.port)])).name("a.example");
    let mut stream = connect_to_name(&world, "a.example", server.port).await;
    let alert = say(&mut stream, real_hello("a.example")).await;
    assert_eq!(alert, [21, 3, 3, 0, 2, 2, 49]);
    let record = world.record(1).await;
    assert!(record.rule.contains("not inspected"), "{record:?}");
    assert_eq!(server.connections(), 0);
}

#[rstest]
#[case::not_trusting(&["http/1.1"], "UnknownIssuer")]
#[case::no_http1(&["h2"], "NoApplicationProtocol")]
#[tokio::test]
async fn a_failed_handshake_is_recorded(#[case] protocols: &[&str], #[case] reason: &str) {
    let (server, identity) = https_server().await;
    let inspected = Inspected::new(&["a.example:{p}"], &server, &identity);
    let stream = inspected
        .world
        .enter(ListenerProtocol::Tls { port: server.port })
        .await;
    let name = ServerName::try_from("a.example").unwrap();
    let client = TlsConnector::from(trusting(b"", protocols));
    let error = client.connect(name, stream).await.unwrap_err();
    assert!(error.to_string().contains(reason), "{error}");
    inspected
        .world
        .check_denied(
            Some("a.example"),
            "the TLS handshake of an inspected connection failed",
        )
        .await;
}

#[tokio::test]
async fn a_silent_client_is_disconnected() {
    let (server, identity) = https_server().await;
    let inspected = Inspected::with(&["a.example:{p}"], &server, &identity, |setup| {
        setup.limits = impatient();
    });
    let mut stream = inspected
        .world
        .enter(ListenerProtocol::Tls { port: server.port })
        .await;
    stream.write_all(&real_hello("a.example")).await.unwrap();
    inspected
        .world
        .check_denied(
            Some("a.example"),
            "the TLS handshake of an inspected connection failed",
        )
        .await;
}

#[tokio::test]
async fn a_narrower_policy_closes_inspected_connections() {
    let identity = Identity::new(&["a.example"], &["http/1.1"]);
    let endless = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
    let server = identity
        .serve(move |stream, seen| answer_heads(stream, seen, endless))
        .await;
    let inspected = Inspected::new(&["a.example:{p}"], &server, &identity);
    let mut client = inspected.enter(ListenerProtocol::Tls { port: server.port }).await;
    send_and_read_until(&mut client, &request("GET", "/", &server), "data: 1").await;
    inspected.world.gateway.set_policy(Policy::deny());
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(crate::world::TIMEOUT, client.read_to_end(&mut rest))
        .await
        .expect("the connection stays open");
    assert_eq!(inspected.world.record(0).await.verdict, AuditVerdict::Denied);
}

#[rstest]
#[case::bearer(
    "Authorization: Bearer ralph-KEY-placeholder",
    "Authorization: Bearer real-value"
)]
#[case::basic(
    "authorization: Basic dTpyYWxwaC1LRVktcGxhY2Vob2xkZXI=",
    "authorization: Basic dTpyZWFsLXZhbHVl"
)]
#[case::own_field("X-Key: ralph-KEY-placeholder", "X-Key: real-value")]
#[tokio::test]
async fn the_host_of_a_secret_receives_it_in_place_of_the_placeholder(
    #[case] sent: &str,
    #[case] received: &str,
) {
    let (server, identity) = https_server().await;
    let inspected = with_secret(&server, &identity);
    let mut client = inspected.enter(ListenerProtocol::Tls { port: server.port }).await;
    let asked = request("GET", "/", &server).replace("\r\n\r\n", &format!("\r\n{sent}\r\n\r\n"));
    send_and_read_until(&mut client, &asked, "ok").await;
    assert!(
        server.seen().contains(&format!("\r\n{received}\r\n")),
        "{}",
        server.seen()
    );
}

/// A world in which the secret `KEY` may go to `a.example`.
fn with_secret(server: &Server, identity: &Identity) -> Inspected {
    let hosts = HostPattern::parse(&format!("a.example:{}", server.port)).unwrap();
    let secret = HeaderSecret::new("KEY", Secret::new("real-value"), vec![hosts]).unwrap();
    let lines = ["a.example:{p}", "b.example:{p}", "a.example:80"];
    Inspected::with(&lines, server, identity, |setup| setup.secrets = vec![secret])
}

#[tokio::test]
async fn a_placeholder_on_any_other_way_is_denied() {
    const FIELD: &str = "\r\nx-key: ralph-KEY-placeholder\r\n\r\n";
    let (server, identity) = https_server().await;
    let inspected = with_secret(&server, &identity);
    let mut client = inspected.enter(ListenerProtocol::Tls { port: server.port }).await;
    let in_path = request("GET", "/?key=ralph-KEY-placeholder", &server);
    let answer = String::from_utf8(say(&mut client, in_path).await).unwrap();
    assert!(
        answer.contains("x-ralph-denied: the request has the placeholder of the secret `KEY`"),
        "{answer}"
    );
    assert!(answer.contains("in header fields only"), "{answer}");
    for (host, reason) in [
        ("a.example", "is sent over TLS only"),
        ("b.example", "is not for this host"),
    ] {
        let mut client = inspected
            .world
            .enter(ListenerProtocol::Http { port: server.port })
            .await;
        let asked = request("GET", "/", &server)
            .replace("a.example", host)
            .replace("\r\n\r\n", FIELD);
        let answer = String::from_utf8(say(&mut client, asked).await).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 403 ") && answer.contains(reason),
            "{answer}"
        );
    }
    assert_eq!(server.seen(), "");
    let denied = inspected.world.records();
    assert_eq!(denied.len(), 3);
    assert!(
        denied.iter().all(|record| record.verdict == AuditVerdict::Denied),
        "{denied:?}"
    );
}
