//! The whole way: a sandbox's plain HTTP, the gateway, the broker, the service.

use std::sync::{Arc, Mutex};

use ralph::gateway::audit::AuditRecord;
use ralph::gateway::{Gateway, GatewaySetup, ListenerProtocol};
use ralph::network::{Policy, PolicyRule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::model_service::{Answer, ModelService, USED};
use crate::world::{World, body};

/// The name that a sandbox gets, and the vendor's, which must not lead past the broker.
const NAMES: [&str; 2] = ["anthropic.ralph.internal", "api.anthropic.com"];

#[tokio::test]
async fn a_sandbox_speaks_plain_http_to_the_name_of_the_service() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let world = World::new(ralph::model::ANTHROPIC_KEY, &service).await;
    let gateway = Gateway::new(GatewaySetup {
        injection: Some(Arc::new(world.handle.clone())),
        ..GatewaySetup::new(
            Policy::allowlist(NAMES.map(|name| PolicyRule::parse(name).unwrap())),
            Arc::new(Mutex::new(Vec::<AuditRecord>::new())),
        )
    });
    let enter = async |door: ListenerProtocol| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        gateway.open(door, listener).unwrap();
        tokio::net::TcpStream::connect(address).await.unwrap()
    };
    let mut stream = enter(ListenerProtocol::Http { port: 80 }).await;
    let call = body("", "m", true).to_string();
    for host in NAMES {
        let request = format!(
            "POST /v1/messages?beta=true HTTP/1.1\r\nhost: {host}\r\nx-api-key: {}\r\n\
             anthropic-version: 2023-06-01\r\ncontent-length: {}\r\n\r\n{call}",
            world.phantom.expose(),
            call.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut received = String::new();
        while !received.contains("message_stop") {
            let mut chunk = [0; 4096];
            let count = stream.read(&mut chunk).await.unwrap();
            assert!(count > 0, "ended after {received}");
            received.push_str(&String::from_utf8_lossy(&chunk[..count]));
        }
        assert!(received.starts_with("HTTP/1.1 200 "), "{received}");
        // The end of a chunked body.
        while !received.ends_with("0\r\n\r\n") {
            let mut chunk = [0; 64];
            let count = stream.read(&mut chunk).await.unwrap();
            received.push_str(&String::from_utf8_lossy(&chunk[..count]));
        }
    }
    assert_eq!(service.requests().len(), 2);
    assert_eq!(world.meter.spent().calls, 2);

    // TLS to the same name would carry a key that the gateway does not see.
    let mut tls = enter(ListenerProtocol::Tcp { port: 443 }).await;
    let mut received = Vec::new();
    let _ = tls.read_to_end(&mut received).await;
    assert!(received.is_empty());
}
