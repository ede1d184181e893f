//! Plain HTTP: what passes, and how.

use std::time::Duration;

use ralph::gateway::ListenerProtocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::{OK, Server, World, allowlist, say, send_and_read_until};

fn world_with(server: &Server) -> World {
    World::new(allowlist(&[&format!("a.example:{}", server.port)])).name("a.example")
}

fn get(server: &Server, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example:{}\r\n\r\n", server.port)
}

#[tokio::test]
async fn every_request_of_a_connection_is_judged() {
    let server = Server::http(OK).await;
    let line = format!("GET a.example:{}/open/*", server.port);
    let world = World::new(allowlist(&[&line])).name("a.example");
    let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
    send_and_read_until(&mut client, &get(&server, "/open/1"), "ok").await;
    send_and_read_until(&mut client, &get(&server, "/open/2"), "ok").await;
    let answer = String::from_utf8(say(&mut client, get(&server, "/closed")).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden"), "{answer}");
    assert_eq!(server.connections(), 1, "the connection to the host is kept");
    assert!(!server.seen().contains("/closed"));
}

#[tokio::test]
async fn pipelined_requests_are_judged_one_by_one() {
    let server = Server::http(OK).await;
    let world = world_with(&server);
    let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
    let other = get(&server, "/2").replace("a.example", "b.example");
    let answer = say(&mut client, get(&server, "/1") + &other + &get(&server, "/3")).await;
    let answer = String::from_utf8(answer).unwrap();
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 1, "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 403 Forbidden").count(), 1, "{answer}");
    assert!(server.seen().contains("/1") && !server.seen().contains("/2"));
}

#[tokio::test]
async fn bodies_pass_in_both_directions_and_are_counted() {
    let server = Server::new(|mut stream, _| async move {
        let mut request = vec![0; 300];
        let mut read = 0;
        while !request[..read].ends_with(b"0\r\n\r\n") {
            read += stream.read(&mut request[read..]).await.unwrap();
        }
        let answer =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nback\r\n0\r\nX-Sum: 1\r\n\r\n";
        stream.write_all(answer.as_bytes()).await.unwrap();
    })
    .await;
    let world = world_with(&server);
    let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a.example:{}\r\nConnection: close\r\n",
        server.port
    );
    let request = head + "Transfer-Encoding: chunked\r\n\r\n5\r\nthere\r\n0\r\n\r\n";
    let answer = String::from_utf8(say(&mut client, request).await).unwrap();
    assert!(
        answer.ends_with("4;x=y\r\nback\r\n0\r\nX-Sum: 1\r\n\r\n"),
        "{answer}"
    );
    let record = world.record(0).await;
    assert!(record.sent > 20 && record.received > 40, "{record:?}");
    assert_eq!(record.rule, format!("`a.example:{}`", server.port));
}

#[tokio::test]
async fn a_websocket_is_a_tunnel_once_the_host_agrees() {
    let server = Server::new(|mut stream, seen| async move {
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).await.unwrap();
        seen.lock().unwrap().extend(&chunk[..count]);
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        while let Ok(count @ 1..) = stream.read(&mut chunk).await {
            stream.write_all(&chunk[..count]).await.unwrap();
        }
    })
    .await;
    let world = world_with(&server);
    let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
    let request = get(&server, "/socket").replace(
        "\r\n\r\n",
        "\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n",
    );
    let head = send_and_read_until(&mut client, &request, "\r\n\r\n").await;
    assert!(
        head.contains("upgrade: websocket") && head.contains("Sec-WebSocket-Accept: x"),
        "{head}"
    );
    assert!(server.seen().contains("upgrade: websocket"));
    client.write_all(b"\x81\x05hello").await.unwrap();
    let mut frame = [0; 7];
    client.read_exact(&mut frame).await.unwrap();
    assert_eq!(&frame, b"\x81\x05hello");
}

#[tokio::test]
async fn only_an_upgrade_to_websocket_is_forwarded() {
    let server =
        Server::http("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n").await;
    let world = world_with(&server);
    let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
    let request = get(&server, "/").replace("\r\n\r\n", "\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
    let answer = String::from_utf8(say(&mut client, request).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(!server.seen().to_lowercase().contains("upgrade"));
}

#[tokio::test]
async fn a_connection_that_the_host_closed_is_opened_again() {
    let server = Server::new(|mut stream, _| async move {
        let mut chunk = [0; 4096];
        let _ = stream.read(&mut chunk).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    })
    .await;
    let world = world_with(&server);
    let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
    for _ in 0..3 {
        send_and_read_until(&mut client, &get(&server, "/"), "ok").await;
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn an_ambiguous_response_is_not_passed_on() {
    let server =
        Server::http("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok").await;
    let world = world_with(&server);
    let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
    let answer = String::from_utf8(say(&mut client, get(&server, "/")).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[tokio::test]
async fn a_100_continue_is_passed_on() {
    let server = Server::new(|mut stream, seen| async move {
        let mut chunk = [0; 4096];
        let _ = stream.read(&mut chunk).await;
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
        let count = stream.read(&mut chunk).await.unwrap();
        seen.lock().unwrap().extend(&chunk[..count]);
        stream.write_all(OK.as_bytes()).await.unwrap();
    })
    .await;
    let world = world_with(&server);
    let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
    let head = get(&server, "/").replace("GET", "PUT");
    let request = head.replace(
        "\r\n\r\n",
        "\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n",
    );
    send_and_read_until(&mut client, &request, "100 Continue\r\n\r\n").await;
    send_and_read_until(&mut client, "body", "ok").await;
    assert_eq!(server.seen(), "body");
}

#[tokio::test]
async fn an_early_response_is_passed_on() {
    let server = Server::new(|mut stream, _| async move {
        let mut chunk = [0; 4096];
        let _ = stream.read(&mut chunk).await;
        let _ = stream
            .write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            .await;
        let _ = stream.shutdown().await;
        while let Ok(1..) = stream.read(&mut chunk).await {}
    })
    .await;
    let world = world_with(&server);
    let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
    let head = get(&server, "/").replace("GET", "PUT");
    let request = head.replace("\r\n\r\n", "\r\nContent-Length: 1000000\r\n\r\nbegin");
    let answer = String::from_utf8(say(&mut client, request).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}
