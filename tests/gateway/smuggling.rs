//! Requests that two programs would read in two ways never reach a host.

use proptest::prelude::*;
use ralph::gateway::ListenerProtocol;
use rstest::rstest;

use crate::world::{OK, Server, World, allowlist, say};

#[rstest]
#[case::both_lengths(
    "POST / HTTP/1.1\r\nHost: {h}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
)]
#[case::two_lengths("POST / HTTP/1.1\r\nHost: {h}\r\nContent-Length: 0\r\nContent-Length: 40\r\n\r\n")]
#[case::hidden_coding("POST / HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n")]
#[case::space_before_colon("POST / HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n")]
#[case::folded("POST / HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n")]
#[case::bare_lf("GET / HTTP/1.1\r\nHost: {h}\nX: y\r\n\r\n")]
#[case::bare_cr("GET / HTTP/1.1\r\nHost: {h}\r\nX: a\rHost: b\r\n\r\n")]
#[case::two_hosts("GET / HTTP/1.1\r\nHost: {h}\r\nHost: evil.example\r\n\r\n")]
#[case::absolute_other_host("GET http://evil.example/ HTTP/1.1\r\nHost: {h}\r\n\r\n")]
#[case::absolute_user("GET http://{h}@evil.example/ HTTP/1.1\r\nHost: {h}\r\n\r\n")]
#[case::dropped_host("GET / HTTP/1.1\r\nHost: {h}\r\nConnection: close, Host\r\n\r\n")]
#[case::nested_connect("CONNECT evil.example:443 HTTP/1.1\r\nHost: {h}\r\n\r\n")]
#[case::http2_preface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")]
#[case::zero_byte("GET / HTTP/1.1\r\nHost: {h}\0.evil.example\r\n\r\n")]
#[tokio::test]
async fn an_ambiguous_request_is_refused(#[case] request: &str) {
    let server = Server::http(OK).await;
    let world = World::new(allowlist(&[&format!("a.example:{}", server.port)])).name("a.example");
    let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
    let request = request.replace("{h}", &format!("a.example:{}", server.port));
    let answer = String::from_utf8(say(&mut client, request).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 40"), "{answer}");
    assert!(answer.contains("x-ralph-denied: "), "{answer}");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_body_that_hides_a_request_stays_a_body() {
    let server = Server::http(OK).await;
    let world = World::new(allowlist(&[&format!("a.example:{}", server.port)])).name("a.example");
    let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
    let hidden = "GET /hidden HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let request = format!(
        "POST / HTTP/1.1\r\nHost: a.example:{}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1 \r\nx\r\n{hidden}",
        server.port
    );
    let answer = say(&mut client, request).await;
    assert_eq!(
        String::from_utf8(answer).unwrap(),
        "",
        "a chunk that is none ends the connection"
    );
    assert!(!server.seen().contains("hidden"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_request_reaches_a_host_under_another_name(
        lines in prop::collection::vec("(Host|X-Y|Connection|Transfer-Encoding|Content-Length)?[ \t]?:?[ -~\r\n\t]{0,20}", 0..6),
        target in "(/|\\*|http://)[a-z.:@/]{0,20}",
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Server::http(OK).await;
            let world = World::new(allowlist(&[&format!("a.example:{}", server.port)])).name("a.example");
            world.names.set("evil.example", &["127.0.0.1"]);
            let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
            let host = format!("a.example:{}", server.port);
            let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{}\r\n\r\n", lines.join("\r\n"));
            let _ = tokio::time::timeout(std::time::Duration::from_millis(500), say(&mut client, request)).await;
            let seen = server.seen();
            for head in seen.split("\r\n\r\n").filter(|head| !head.is_empty()) {
                assert!(head.contains(&format!("\r\nhost: {host}")), "{head:?}");
            }
        });
    }
}
