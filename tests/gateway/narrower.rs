//! A narrower policy ends what it does not allow; an added rule opens a name at once.

use ralph::gateway::audit::AuditVerdict;
use ralph::gateway::{AddedRules, ListenerProtocol};
use ralph::network::{Policy, PolicyRule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::tls::{real_hello, tls_server};
use crate::world::{Server, World, allowlist, read_all, send_and_read_until};

#[tokio::test]
async fn a_narrower_policy_closes_older_connections_and_leaves_the_rest() {
    let server = Server::new(|mut stream, _| async move {
        let mut chunk = [0; 4096];
        while let Ok(1..) = stream.read(&mut chunk).await {
            let endless = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
            let _ = stream.write_all(endless.as_bytes()).await;
        }
    })
    .await;
    let (stays, goes) = (
        format!("stays.example:{}", server.port),
        format!("goes.example:{}", server.port),
    );
    let world = World::new(allowlist(&[&stays, &goes]))
        .name("stays.example")
        .name("goes.example");
    let mut clients = Vec::new();
    for host in [&stays, &goes] {
        let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        send_and_read_until(&mut client, &request, "data: 1").await;
        clients.push(client);
    }
    world.gateway.set_policy(allowlist(&[&stays]));
    let [mut staying, mut going] = <[_; 2]>::try_from(clients).unwrap();
    read_all(&mut going).await;
    let record = world.record(0).await;
    assert_eq!(
        (record.host.as_deref(), record.verdict),
        (Some("goes.example"), AuditVerdict::Denied)
    );
    let silence = std::time::Duration::from_millis(100);
    let received = tokio::time::timeout(silence, staying.read(&mut [0; 1])).await;
    assert!(
        received.is_err(),
        "the other one is neither closed nor disturbed: {received:?}"
    );
    assert_eq!(world.records().len(), 1);
}

#[tokio::test]
async fn a_tunnel_ends_when_its_name_is_denied() {
    let (server, _) = tls_server(&["a.example"]).await;
    let world = World::new(Policy::allow_all()).name("a.example");
    let mut client = world.enter(ListenerProtocol::Tls { port: server.port }).await;
    client.write_all(&real_hello("a.example")).await.unwrap();
    client.read_exact(&mut [0; 5]).await.unwrap();
    world.gateway.set_policy(Policy::deny());
    read_all(&mut client).await;
    assert_eq!(world.record(0).await.verdict, AuditVerdict::Denied);
}

#[tokio::test]
async fn dropping_a_gateway_closes_every_connection() {
    let server = Server::echo().await;
    let world = World::new(Policy::allow_all()).name("a.example");
    let address = world.open(ListenerProtocol::Tls { port: server.port });
    let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
    client.write_all(&real_hello("a.example")).await.unwrap();
    client.read_exact(&mut [0; 5]).await.unwrap();
    drop(world);
    read_all(&mut client).await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn an_added_rule_opens_a_name_in_every_gateway_at_once_and_denied_names_stay_denied() {
    let server = Server::echo().await;
    let added = AddedRules::default();
    let rule = |name: &str| PolicyRule::parse(&format!("{name}:{}", server.port)).unwrap();
    let open = || {
        let policy = allowlist(&[]).denying([rule("bad.example")]);
        let world = World::with(policy, |setup| setup.added = added.clone());
        world.name("a.example").name("bad.example")
    };
    let first = open();
    assert!(!reaches(&first, "a.example", server.port).await);
    added.add([rule("a.example"), rule("bad.example")]);
    added.add([rule("a.example")]);
    // A gateway that is opened later has the rule too.
    for world in [first, open()] {
        assert!(reaches(&world, "a.example", server.port).await);
        assert!(!reaches(&world, "bad.example", server.port).await);
        world.gateway.set_policy(allowlist(&[]));
        assert!(reaches(&world, "a.example", server.port).await);
        world.gateway.set_policy(Policy::deny());
        assert!(!reaches(&world, "a.example", server.port).await);
    }
}

/// Whether a TLS connection to this name is forwarded.
async fn reaches(world: &World, name: &'static str, port: u16) -> bool {
    let mut client = world.enter(ListenerProtocol::Tls { port }).await;
    client.write_all(&real_hello(name)).await.unwrap();
    // The server echoes the handshake; a refusal is an alert.
    let mut head = [0; 5];
    client.read_exact(&mut head).await.is_ok() && head[0] == 22
}
