//! The explicit proxy.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use proptest::prelude::*;
use ralph::gateway::{ListenerProtocol, Phantom};
use ralph::network::{Policy, PolicyRule};
use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::tls::{greet, real_hello, tls_server};
use crate::world::{OK, Server, World, allowlist, say, send_and_read_until};

pub fn authorization(phantom: &Phantom) -> String {
    let pair = BASE64_STANDARD.encode(format!("ralph:{}", phantom.expose()));
    format!("Proxy-Authorization: Basic {pair}\r\n")
}

pub fn connect(world: &World, target: &str) -> String {
    format!(
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{}\r\n",
        authorization(&world.phantom)
    )
}

#[tokio::test]
async fn a_whole_address_is_passed_on_without_the_phantom() {
    let server = Server::http(OK).await;
    let world = World::new(allowlist(&[&format!("a.example:{}", server.port)])).name("a.example");
    let mut client = world.enter(ListenerProtocol::Proxy).await;
    let address = format!("a.example:{}", server.port);
    let own = authorization(&world.phantom);
    let request = format!(
        "GET http://{address}/x HTTP/1.1\r\nHost: {address}\r\n{own}Proxy-Connection: keep-alive\r\n\r\n"
    );
    send_and_read_until(&mut client, &request, "ok").await;
    send_and_read_until(&mut client, &request, "ok").await;
    assert!(
        server.seen().starts_with("GET /x HTTP/1.1\r\n"),
        "{}",
        server.seen()
    );
    assert!(!server.seen().to_lowercase().contains("proxy"));
    assert_eq!(server.connections(), 1);
    let denied = request.replace(&address, "evil.example");
    let answer = String::from_utf8(say(&mut client, denied).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden"), "{answer}");
}

#[rstest]
#[case::none(String::new())]
#[case::another_run(authorization(&Phantom::random().unwrap()))]
#[case::nonsense("Proxy-Authorization: Basic ???\r\n".to_owned())]
#[case::twice(authorization(&Phantom::random().unwrap()).repeat(2))]
#[tokio::test]
async fn without_the_phantom_nothing_is_served(#[case] field: String) {
    let server = Server::http(OK).await;
    let world = World::new(Policy::allow_all()).name("a.example");
    for method in ["GET http://a.example/", "CONNECT a.example:443"] {
        let mut client = world.enter(ListenerProtocol::Proxy).await;
        let request = format!("{method} HTTP/1.1\r\nHost: a.example\r\n{field}\r\n");
        let answer = String::from_utf8(say(&mut client, request).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 407 "), "{answer}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_tunnel_to_an_allowed_name_works_end_to_end() {
    let (server, config) = tls_server(&["a.example"]).await;
    let world = World::new(allowlist(&[&format!("a.example:{}", server.port)])).name("a.example");
    let mut client = world.enter(ListenerProtocol::Proxy).await;
    let target = format!("a.example:{}", server.port);
    let answer = send_and_read_until(&mut client, &connect(&world, &target), "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(
        greet(config, "a.example", client).await.unwrap(),
        "hello from inside"
    );
}

#[tokio::test]
async fn traffic_in_a_tunnel_must_be_for_its_host() {
    let server = Server::echo().await;
    for port in [443, server.port] {
        let world = World::new(Policy::allow_all()).name("cdn.example");
        let mut client = world.enter(ListenerProtocol::Proxy).await;
        send_and_read_until(
            &mut client,
            &connect(&world, &format!("cdn.example:{port}")),
            "\r\n\r\n",
        )
        .await;
        let received = say(&mut client, real_hello("a.example")).await;
        assert!(
            received.is_empty() || received == [21, 3, 3, 0, 2, 2, 112],
            "{received:?}"
        );
        let record = world.record(0).await;
        assert!(
            record.rule.contains(
                "host mismatch: the connection was allowed for cdn.example, the request names a.example"
            ),
            "{record:?}"
        );
    }
    assert_eq!(server.seen(), "");
}

/// Where bare addresses are allowed, they do not lead around the names that are denied.
#[tokio::test]
async fn a_tunnel_to_an_address_is_judged_by_the_name_in_it() {
    let server = Server::echo().await;
    let denied = PolicyRule::parse("evil.example").unwrap();
    let world = World::new(Policy::allow_all().denying([denied]));
    let target = format!("127.0.0.1:{}", server.port);
    for (name, passes) in [("evil.example", false), ("a.example", true)] {
        let mut client = world.enter(ListenerProtocol::Proxy).await;
        send_and_read_until(&mut client, &connect(&world, &target), "\r\n\r\n").await;
        let hello = real_hello(name);
        client.write_all(&hello).await.unwrap();
        let mut echoed = vec![0; hello.len()];
        assert_eq!(client.read_exact(&mut echoed).await.is_ok(), passes, "{name}");
    }
    assert!(!server.seen().contains("evil"));
}

#[tokio::test]
async fn plain_http_through_a_tunnel_is_judged_too() {
    let server = Server::http(OK).await;
    let world = World::new(allowlist(&[&format!("a.example:{}", server.port)])).name("a.example");
    let mut client = world.enter(ListenerProtocol::Proxy).await;
    let target = format!("a.example:{}", server.port);
    send_and_read_until(&mut client, &connect(&world, &target), "\r\n\r\n").await;
    send_and_read_until(
        &mut client,
        &format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n"),
        "ok",
    )
    .await;
    let nested = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    let answer = String::from_utf8(say(&mut client, nested).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(!server.seen().contains("CONNECT"));
}

#[rstest]
#[case::denied("evil.example:443", "403", "host not in policy")]
#[case::address("93.184.216.34:443", "403", "not IP addresses")]
#[case::other_port("a.example:22", "403", "port 22 not in policy")]
#[case::no_port("a.example", "400", "missing or ambiguous host")]
#[case::path("a.example:443/x", "400", "missing or ambiguous host")]
#[case::user("a.example@evil.example:443", "400", "missing or ambiguous host")]
#[case::odd_port("a.example:0443x", "400", "missing or ambiguous host")]
#[case::whole_address("http://a.example:443", "400", "missing or ambiguous host")]
#[tokio::test]
async fn a_denied_tunnel_is_refused_with_the_reason(
    #[case] target: &str,
    #[case] status: &str,
    #[case] reason: &str,
) {
    let world = World::new(allowlist(&["a.example"])).name("a.example");
    let mut client = world.enter(ListenerProtocol::Proxy).await;
    let answer = String::from_utf8(say(&mut client, connect(&world, target)).await).unwrap();
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    assert!(answer.contains(reason), "{answer}");
}

#[tokio::test]
async fn the_host_field_of_a_tunnel_must_match_its_target() {
    let world = World::new(allowlist(&["a.example"])).name("a.example");
    let mut client = world.enter(ListenerProtocol::Proxy).await;
    let request = connect(&world, "a.example:443").replace("Host: a.example:443", "Host: evil.example:443");
    let answer = String::from_utf8(say(&mut client, request).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn only_a_valid_connect_line_opens_a_tunnel(target in "[ -~]{0,20}|a\\.example[ -~]{0,6}|[ -~]{0,4}a\\.example:443") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::new(allowlist(&["a.example:443"])).name("a.example");
            let mut client = world.enter(ListenerProtocol::Proxy).await;
            let request = format!("CONNECT {target} HTTP/1.1\r\n{}\r\n", authorization(&world.phantom));
            let answer = send_and_read_until(&mut client, &request, "\r\n\r\n").await;
            let right = target.rsplit_once(':').is_some_and(|(host, port)| {
                let digits = port.bytes().all(|byte| byte.is_ascii_digit());
                ["a.example", "a.example."].contains(&host.to_lowercase().as_str())
                    && digits
                    && port.parse() == Ok(443_u16)
            });
            assert_eq!(answer.starts_with("HTTP/1.1 200 "), right, "{target}: {answer}");
        });
    }
}
