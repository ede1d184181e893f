//! What was asked is written down, and an injected host is never tunnelled.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use ralph::gateway::audit::{AuditLog, AuditSink, AuditTally};
use ralph::gateway::{ByteStream, CredentialInjector, ListenerProtocol};
use ralph::network::{HostName, Policy};
use tokio::net::TcpStream;

use crate::tls::real_hello;
use crate::world::{OK, Server, World, allowlist, say, send_and_read_until};

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
