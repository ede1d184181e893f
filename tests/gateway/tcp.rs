//! Any other port, by the made-up address.

use std::net::SocketAddr;

use ralph::gateway::ListenerProtocol;
use ralph::network::Policy;
use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::dns::address_of;
use crate::tls::real_hello;
use crate::world::{OK, Server, World, allowlist, read_all, say, send_and_read_until};

/// A connection that the gateway handles as one to this destination, as a sandbox's own network would make it.
async fn connect_to(world: &World, destination: SocketAddr) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, accepted) = tokio::join!(
        TcpStream::connect(listener.local_addr().unwrap()),
        listener.accept()
    );
    let protocol = ListenerProtocol::Tcp {
        port: destination.port(),
    };
    world.gateway.serve(protocol, accepted.unwrap().0, destination);
    client.unwrap()
}

pub async fn connect_to_name(world: &World, name: &str, port: u16) -> TcpStream {
    let address = address_of(world, name).await.unwrap();
    connect_to(world, SocketAddr::from((address, port))).await
}

#[tokio::test]
async fn a_name_and_port_are_reached_by_the_synthetic_address() {
    let server = Server::echo().await;
    let world = World::new(allowlist(&[&format!("db.example:{}", server.port)])).name("db.example");
    let mut client = connect_to_name(&world, "db.example", server.port).await;
    client.write_all(b"\0\0\0\x08ping").await.unwrap();
    let mut received = [0; 8];
    client.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"\0\0\0\x08ping");
}

#[tokio::test]
async fn a_host_can_send_first() {
    let server = Server::new(|mut stream, _| async move {
        stream.write_all(b"SSH-2.0-test\r\n").await.unwrap();
        let mut chunk = [0; 64];
        let count = stream.read(&mut chunk).await.unwrap();
        stream.write_all(&chunk[..count]).await.unwrap();
    })
    .await;
    let world = World::new(allowlist(&[&format!("git.example:{}", server.port)])).name("git.example");
    let mut client = connect_to_name(&world, "git.example", server.port).await;
    crate::world::read_until_text(&mut client, "SSH-2.0-test\r\n").await;
    send_and_read_until(&mut client, "SSH-2.0-client\r\n", "SSH-2.0-client\r\n").await;
}

#[tokio::test]
async fn an_address_that_stands_for_no_name_is_reset() {
    let server = Server::echo().await;
    let world = World::new(allowlist(&[&format!("db.example:{}", server.port)])).name("db.example");
    for address in ["127.0.0.1", "198.18.0.9", "93.184.216.34"] {
        let destination = SocketAddr::new(address.parse().unwrap(), server.port);
        let mut client = connect_to(&world, destination).await;
        let mut received = Vec::new();
        let error = client.read_to_end(&mut received).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{address}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn tls_and_http_on_another_port_are_for_the_same_name() {
    let server = Server::http(OK).await;
    let world = World::new(allowlist(&[&format!("a.example:{}", server.port)])).name("a.example");
    let mut client = connect_to_name(&world, "a.example", server.port).await;
    say(&mut client, real_hello("evil.example")).await;
    let record = world.record(1).await;
    assert!(
        record.rule.contains("the request names evil.example"),
        "{record:?}"
    );

    let mut client = connect_to_name(&world, "a.example", server.port).await;
    let answer = say(&mut client, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    assert!(answer.starts_with(b"HTTP/1.1 403 "), "{answer:?}");
    let mut client = connect_to_name(&world, "a.example", server.port).await;
    send_and_read_until(&mut client, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "ok").await;
    assert!(!server.seen().contains("evil"));
}

/// Lenient servers take all of these for a request to another host.
#[rstest]
#[case::empty_line("\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")]
#[case::empty_lines("\n\r\n\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")]
#[case::spaces("  GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")]
#[case::odd_method("PROPFIND / HTTP/1.1\r\nHost: evil.example\r\n\r\n")]
#[case::own_method("X-Y / HTTP/1.1\r\nHost: evil.example\r\n\r\n")]
#[case::lower_case("get / HTTP/1.1\r\nHost: evil.example\r\n\r\n")]
#[case::tabs("GET\t/\tHTTP/1.1\r\nHost: evil.example\r\n\r\n")]
#[case::bare_line_ends("PURGE / HTTP/1.1\nHost: evil.example\n\n")]
#[case::connect("CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n")]
#[case::later_version("GET / HTTP/3.7\r\nHost: evil.example\r\n\r\n")]
#[case::http2("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n evil.example")]
#[tokio::test]
async fn no_spelling_of_a_request_names_another_host_on_another_port(
    #[case] request: &str,
    #[values(1, 1000)] piece: usize,
) {
    let server = Server::http(OK).await;
    let world = World::new(allowlist(&[&format!("a.example:{}", server.port)])).name("a.example");
    let mut client = connect_to_name(&world, "a.example", server.port).await;
    for bytes in request.as_bytes().chunks(piece) {
        // The gateway may have refused it already.
        if client.write_all(bytes).await.is_err() {
            break;
        }
    }
    let answer = read_all(&mut client).await;
    let refused = answer.starts_with(b"HTTP/1.1 403 ") || answer.starts_with(b"HTTP/1.1 400 ");
    assert!(refused, "{}", answer.escape_ascii());
    assert_eq!(server.seen(), "");
}

/// Such a method is fine for the host itself.
#[tokio::test]
async fn an_odd_method_reaches_its_own_host_on_another_port() {
    let server = Server::http(OK).await;
    let world = World::new(allowlist(&[&format!("a.example:{}", server.port)])).name("a.example");
    let mut client = connect_to_name(&world, "a.example", server.port).await;
    let request = format!("PROPFIND / HTTP/1.1\r\nHost: a.example:{}\r\n\r\n", server.port);
    send_and_read_until(&mut client, &request, "ok").await;
}

/// The head comes at once, so that its end is known before its length is counted.
#[rstest]
#[case::just_fits(64 << 10, true)]
#[case::too_long((64 << 10) + 1, false)]
#[case::far_too_long(200 << 10, false)]
#[tokio::test]
async fn a_head_is_limited_however_it_comes(#[case] length: usize, #[case] fits: bool) {
    let server = Server::http(OK).await;
    let world = World::new(allowlist(&[&format!("a.example:{}", server.port)])).name("a.example");
    let mut client = connect_to_name(&world, "a.example", server.port).await;
    let start = format!("GET / HTTP/1.1\r\nHost: a.example:{}\r\nX: ", server.port);
    let rest = length - start.len() - 4;
    let request = format!("{start}{}\r\n\r\n", "x".repeat(rest));
    let _ = client.write_all(request.as_bytes()).await;
    let expected = if fits { "200 OK" } else { "HTTP head too long" };
    crate::world::read_until_text(&mut client, expected).await;
    assert_eq!(server.seen().is_empty(), !fits);
}

/// Servers differ about these paths, so no line with a path covers them.
#[rstest]
#[case("/x/#/../../secret")]
#[case("/x/..%c0%afsecret")]
#[case("/x/%c0%ae%c0%ae/secret")]
#[case("/x/..%e0%80%afsecret")]
#[case("/x/..%EF%BC%8Fsecret")]
#[tokio::test]
async fn a_line_with_a_path_covers_no_ambiguous_path(#[case] path: &str) {
    let server = Server::http(OK).await;
    let port = server.port;
    let world = World::new(allowlist(&[&format!("GET a.example:{port}/x/*")])).name("a.example");
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n");
    let mut client = connect_to_name(&world, "a.example", port).await;
    let answer = say(&mut client, request(path)).await;
    assert!(answer.starts_with(b"HTTP/1.1 403 "), "{}", answer.escape_ascii());
    let mut client = connect_to_name(&world, "a.example", port).await;
    send_and_read_until(&mut client, &request("/x/%C3%A4"), "ok").await;
    assert!(!server.seen().contains("secret"));
}

#[tokio::test]
async fn everything_allowed_allows_a_bare_address_but_not_a_private_one() {
    let world = World::new(Policy::allow_all());
    let mut client = connect_to(&world, "10.1.2.3:5432".parse().unwrap()).await;
    assert_eq!(say(&mut client, "x").await, b"");
    world.check_denied(Some("10.1.2.3"), "a private network").await;
}
