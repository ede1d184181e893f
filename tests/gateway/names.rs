//! Names in the policy, and addresses behind them.

use ralph::gateway::{AddressGuard, ListenerProtocol};
use ralph::network::Policy;
use rstest::rstest;
use tokio::net::TcpStream;

use crate::tls::{greet, tls_server};
use crate::world::{OK, Server, World, allowlist, say};

/// A forge, a package index, a model's API, a CDN and a site with documents.
const COMMON: [&str; 5] = [
    "forge.example",
    "index.example",
    "api.model.example",
    "cdn.example",
    "docs.example",
];

fn world_of_common_domains(lines: &[&str]) -> World {
    COMMON
        .iter()
        .fold(World::new(allowlist(lines)), |world, name| world.name(name))
}

#[tokio::test]
async fn five_common_domains_work_together_and_a_sixth_does_not() {
    let mut servers = Vec::new();
    for _ in COMMON {
        servers.push(Server::http(OK).await);
    }
    let lines: Vec<String> = COMMON
        .iter()
        .zip(&servers)
        .map(|(name, server)| format!("{name}:{}", server.port))
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let world = world_of_common_domains(&lines);
    for (name, server) in COMMON.iter().zip(&servers) {
        let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
        let request = format!(
            "GET /{name} HTTP/1.1\r\nHost: {name}:{}\r\nConnection: close\r\n\r\n",
            server.port
        );
        let answer = String::from_utf8(say(&mut client, request).await).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("ok"),
            "{name}: {answer}"
        );
        assert!(server.seen().starts_with(&format!("GET /{name} ")));
    }
    let mut client = world
        .enter(ListenerProtocol::Http {
            port: servers[0].port,
        })
        .await;
    let request = format!(
        "GET / HTTP/1.1\r\nHost: sixth.example:{}\r\n\r\n",
        servers[0].port
    );
    let answer = String::from_utf8(say(&mut client, request).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden"), "{answer}");
    assert!(answer.contains("x-ralph-denied: host not in policy"), "{answer}");
    assert_eq!(servers.iter().map(Server::connections).sum::<usize>(), 5);
}

#[tokio::test]
async fn five_common_domains_work_together_within_tls_too() {
    let (server, config) = tls_server(&COMMON).await;
    let lines = COMMON.map(|name| format!("{name}:{}", server.port));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let world = world_of_common_domains(&lines);
    let door = world.open(ListenerProtocol::Tls { port: server.port });
    for name in COMMON {
        let stream = TcpStream::connect(door).await.unwrap();
        let received = greet(config.clone(), name, stream).await;
        assert_eq!(received.unwrap(), "hello from inside", "{name}");
    }
    let stream = TcpStream::connect(door).await.unwrap();
    assert!(greet(config, "sixth.example", stream).await.is_err());
    assert_eq!(server.connections(), COMMON.len());
}

#[rstest]
#[case::loopback("127.0.0.1", "a loopback address")]
#[case::private("10.1.2.3", "an address of a private network")]
#[case::metadata("169.254.169.254", "a metadata service")]
#[case::mapped("::ffff:127.0.0.1", "an IPv4-mapped IPv6 address")]
#[case::loopback6("::1", "a loopback address")]
#[tokio::test]
async fn an_allowed_name_that_leads_to_a_denied_address_is_refused(
    #[case] address: &str,
    #[case] class: &str,
) {
    let server = Server::http(OK).await;
    let world = World::with(Policy::allow_all(), |setup| setup.guard = AddressGuard::default());
    world.names.set("rebound.example", &[address]);
    let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
    let request = format!("GET / HTTP/1.1\r\nHost: rebound.example:{}\r\n\r\n", server.port);
    let answer = String::from_utf8(say(&mut client, request).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden"), "{answer}");
    assert!(answer.contains(class), "{answer}");
    world.check_denied(Some("rebound.example"), class).await;
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_name_that_moves_to_a_denied_address_is_refused_from_then_on() {
    let server = Server::http("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await;
    let world = World::new(allowlist(&[&format!("moving.example:{}", server.port)])).name("moving.example");
    let request = format!("GET / HTTP/1.1\r\nHost: moving.example:{}\r\n\r\n", server.port);
    let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
    crate::world::send_and_read_until(&mut client, &request, "ok").await;
    world
        .names
        .set("moving.example", &["10.0.0.1", "169.254.169.254"]);
    let answer = String::from_utf8(say(&mut client, &request).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden"), "{answer}");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn of_several_addresses_only_open_ones_are_used() {
    let server = Server::http(OK).await;
    let world = World::new(allowlist(&[&format!("mixed.example:{}", server.port)]));
    world.names.set("mixed.example", &["10.0.0.1", "127.0.0.1"]);
    let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
    let request = format!(
        "GET / HTTP/1.1\r\nHost: mixed.example:{}\r\nConnection: close\r\n\r\n",
        server.port
    );
    let answer = String::from_utf8(say(&mut client, request).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test]
async fn an_unknown_name_is_a_bad_gateway() {
    let world = World::new(allowlist(&["missing.example"]));
    let mut client = world.enter(ListenerProtocol::Http { port: 80 }).await;
    let answer = say(&mut client, "GET / HTTP/1.1\r\nHost: missing.example\r\n\r\n").await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(
        answer.contains("cannot connect to missing.example: the name has no address"),
        "{answer}"
    );
}
