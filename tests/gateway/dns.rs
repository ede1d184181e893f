//! DNS, asked over both transports.

use std::net::{Ipv4Addr, SocketAddr};

use ralph::gateway::ListenerProtocol;
use ralph::gateway::audit::{AuditProtocol, AuditVerdict};
use ralph::network::Policy;
use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::world::{TIMEOUT, World, allowlist};

fn query(name: &str, kind: u16) -> Vec<u8> {
    let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend(label.as_bytes());
    }
    query.push(0);
    query.extend(kind.to_be_bytes());
    query.extend([0, 1]);
    query
}

fn open_udp(world: &World) -> SocketAddr {
    // On every address of loopback, as in a sandbox: the answer must come from the one that was asked.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    world.gateway.open_dns(socket).unwrap();
    SocketAddr::from(([127, 0, 0, 1], port))
}

async fn ask_udp(server: SocketAddr, query: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(server).await.unwrap();
    socket.send(query).await.unwrap();
    let mut reply = [0; 512];
    let count = timeout(TIMEOUT, socket.recv(&mut reply)).await.unwrap().unwrap();
    reply[..count].to_vec()
}

/// The made-up address of a name; `None` when it has none.
pub async fn address_of(world: &World, name: &str) -> Option<Ipv4Addr> {
    let reply = ask_udp(open_udp(world), &query(name, 1)).await;
    (reply[7] == 1).then(|| Ipv4Addr::from(*reply.last_chunk::<4>().unwrap()))
}

#[tokio::test]
async fn allowed_names_have_one_synthetic_address_each() {
    let world = World::new(allowlist(&["a.example", "*.b.example"]));
    let server = open_udp(&world);
    let first = ask_udp(server, &query("a.example", 1)).await;
    let again = ask_udp(server, &query("A.Example", 1)).await;
    let other = ask_udp(server, &query("x.b.example", 1)).await;
    let address = |reply: &[u8]| Ipv4Addr::from(*reply.last_chunk::<4>().unwrap());
    assert_eq!(address(&first), address(&again));
    assert_ne!(address(&first), address(&other));
    assert_eq!(address(&first).octets()[..2], [198, 18]);
}

#[rstest]
#[case::denied("evil.example", 1, 3)]
#[case::suffix("evila.example", 1, 3)]
#[case::root_of_a_wildcard("b.example", 1, 3)]
#[case::deeper_than_a_wildcard("x.y.b.example", 1, 3)]
#[case::ipv6("a.example", 28, 0)]
#[case::https("a.example", 65, 0)]
#[case::svcb("a.example", 64, 0)]
#[case::text("a.example", 16, 0)]
#[tokio::test]
async fn nothing_else_has_an_address(#[case] name: &str, #[case] kind: u16, #[case] code: u8) {
    let world = World::new(allowlist(&["a.example", "*.b.example"]));
    let reply = ask_udp(open_udp(&world), &query(name, kind)).await;
    assert_eq!((reply[3] & 15, reply[7]), (code, 0));
}

#[tokio::test]
async fn the_answer_comes_from_the_address_that_was_asked() {
    let world = World::new(allowlist(&["a.example"]));
    let port = open_udp(&world).port();
    // A connected socket takes datagrams from there alone.
    let reply = ask_udp(SocketAddr::from(([127, 9, 9, 9], port)), &query("a.example", 1)).await;
    assert_eq!(reply[7], 1);
}

#[tokio::test]
async fn queries_over_a_connection_are_answered_one_after_another() {
    let world = World::new(allowlist(&["a.example"]));
    let mut client = world.enter(ListenerProtocol::Dns).await;
    for (name, code) in [("a.example", 0), ("evil.example", 3)] {
        let query = query(name, 1);
        client
            .write_u16(u16::try_from(query.len()).unwrap())
            .await
            .unwrap();
        client.write_all(&query).await.unwrap();
        let length = client.read_u16().await.unwrap();
        let mut reply = vec![0; usize::from(length)];
        client.read_exact(&mut reply).await.unwrap();
        assert_eq!(reply[3] & 15, code);
    }
}

#[tokio::test]
async fn a_lookup_is_recorded_when_denied_and_when_new() {
    let world = World::new(allowlist(&["a.example"]));
    let server = open_udp(&world);
    for name in ["a.example", "a.example", "evil.example", "evil.example"] {
        ask_udp(server, &query(name, 1)).await;
    }
    let records: Vec<(String, AuditVerdict)> = world
        .records()
        .into_iter()
        .filter(|record| record.protocol == AuditProtocol::Dns)
        .map(|record| (record.host.unwrap(), record.verdict))
        .collect();
    let denied = ("evil.example".to_owned(), AuditVerdict::Denied);
    assert_eq!(
        records,
        [
            ("a.example".to_owned(), AuditVerdict::Allowed),
            denied.clone(),
            denied
        ]
    );
}

#[tokio::test]
async fn any_name_is_known_when_everything_is_allowed() {
    let world = World::new(Policy::record());
    assert!(address_of(&world, "anything.example").await.is_some());
}
