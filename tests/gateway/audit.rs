//! What was asked is written down, and an injected host is never tunnelled.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ralph::gateway::audit::{AuditLimits, AuditLog, AuditSink, AuditTally};
use ralph::gateway::{ByteStream, CredentialInjector, ListenerProtocol};
use ralph::network::{HostName, Policy};
use rstest::rstest;
use tokio::net::TcpStream;

use crate::dns::address_of;
use crate::tls::real_hello;
use crate::world::{OK, Server, TIMEOUT, World, allowlist, say, send_and_read_until};

#[tokio::test]
async fn the_file_shows_what_was_blocked_and_how_to_allow_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("network.jsonl");
    let sink: Arc<dyn AuditSink> = Arc::new(AuditLog::open(&file, ralph::clock::system()).unwrap());
    let world = World::with(allowlist(&["a.example"]), |setup| setup.audit = sink);
    for _ in 0..14 {
        let mut client = world.enter(ListenerProtocol::Tls { port: 443 }).await;
        say(&mut client, real_hello("packages.example")).await;
    }
    let tally: AuditTally = AuditLog::read(&file).unwrap().iter().collect();
    let blocked: Vec<String> = tally.blocked().map(|entry| entry.to_string()).collect();
    let expected =
        "blocked packages.example 14x: to allow, add \"packages.example\" to sandbox.network.allowed";
    assert_eq!(blocked, [expected]);
    let text = std::fs::read_to_string(&file).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(line["host"], "packages.example");
    assert_eq!(line["port"], 443);
    assert_eq!(line["verdict"], "denied");
    assert_eq!(line["rule"], "host not in policy");
    assert_eq!((&line["sent"], &line["received"]), (&0.into(), &0.into()));
    assert!(line["at"].is_string());
}

/// What a sandbox asks for in vain cannot hide what it reached afterwards.
#[rstest]
#[case::other_names(|number| format!("n{number}.evil.example"))]
#[case::one_name(|_| "evil.example".to_owned())]
#[case::some_names(|number| format!("n{}.evil.example", number % 150))]
#[tokio::test]
async fn a_flood_of_denied_requests_does_not_hide_allowed_ones(#[case] name: fn(u32) -> String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("network.jsonl");
    let limits = AuditLimits {
        max_bytes: 64 << 10,
        closes_sandbox: false,
    };
    let log = AuditLog::open_with(&file, ralph::clock::system(), limits).unwrap();
    let sink: Arc<dyn AuditSink> = Arc::new(log);
    let server = Server::http(OK).await;
    let rule = format!("a.example:{}", server.port);
    let world = World::with(allowlist(&[&rule]), |setup| setup.audit = sink).name("a.example");
    for number in 0..800 {
        assert_eq!(address_of(&world, &name(number)).await, None);
    }
    let port = server.port;
    let mut client = world.enter(ListenerProtocol::Http { port }).await;
    let request = format!("GET / HTTP/1.1\r\nHost: a.example:{port}\r\nConnection: close\r\n\r\n");
    send_and_read_until(&mut client, &request, "ok").await;
    drop(client);
    let is_reached = || {
        let tally: AuditTally = AuditLog::read(&file).unwrap().iter().collect();
        tally.reached().any(|entry| entry.key.host == "a.example")
    };
    // The record is written when the connection is over.
    tokio::time::timeout(TIMEOUT, async {
        while !is_reached() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
}

/// With this setting nothing is reached that is not recorded.
#[tokio::test]
async fn a_full_audit_can_close_the_sandbox() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("network.jsonl");
    let limits = AuditLimits {
        max_bytes: 16 << 10,
        closes_sandbox: true,
    };
    let log = AuditLog::open_with(&file, ralph::clock::system(), limits).unwrap();
    let sink: Arc<dyn AuditSink> = Arc::new(log);
    let server = Server::http(OK).await;
    let rule = format!("a.example:{}", server.port);
    let world = World::with(allowlist(&[&rule]), |setup| setup.audit = sink).name("a.example");
    let port = server.port;
    let request = format!("GET / HTTP/1.1\r\nHost: a.example:{port}\r\nConnection: close\r\n\r\n");
    let mut answered = 0;
    // The first fills the file, which has room for notes only.
    for _ in 0..50 {
        let mut client = world.enter(ListenerProtocol::Http { port }).await;
        let answer = String::from_utf8_lossy(&say(&mut client, request.clone()).await).into_owned();
        if answer.contains("the network audit is full") {
            break;
        }
        answered += 1;
        assert!(answered < 50, "{answer}");
    }
    assert_eq!(server.connections(), answered);
    let tally: AuditTally = AuditLog::read(&file).unwrap().iter().collect();
    assert!(tally.is_incomplete);
}

/// Answers for one host from a server of the test.
pub struct Broker {
    pub host: &'static str,
    pub port: u16,
}

#[async_trait]
impl CredentialInjector for Broker {
    fn injects(&self, host: &HostName) -> bool {
        host.as_str() == self.host
    }

    async fn open(&self, _: &HostName) -> io::Result<Box<dyn ByteStream>> {
        Ok(Box::new(TcpStream::connect(("127.0.0.1", self.port)).await?))
    }
}

#[tokio::test]
async fn a_host_with_an_injected_credential_is_never_tunnelled() {
    let server = Server::http(OK).await;
    let broker = Broker {
        host: "api.example",
        port: server.port,
    };
    let world = World::with(Policy::allow_all(), |setup| {
        setup.injection = Some(Arc::new(broker));
    });
    let world = world.name("api.example");
    let mut client = world.enter(ListenerProtocol::Tls { port: 443 }).await;
    assert_eq!(
        say(&mut client, real_hello("api.example")).await,
        [21, 3, 3, 0, 2, 2, 49]
    );
    world
        .check_denied(Some("api.example"), "not through a tunnel")
        .await;
    assert_eq!(server.connections(), 0);

    let mut client = world.enter(ListenerProtocol::Http { port: 80 }).await;
    let request = "POST /v1/messages HTTP/1.1\r\nHost: api.example\r\nContent-Length: 0\r\n\r\n";
    send_and_read_until(&mut client, request, "ok").await;
    assert!(
        server
            .seen()
            .starts_with("POST /v1/messages HTTP/1.1\r\nhost: api.example\r\n")
    );
}
