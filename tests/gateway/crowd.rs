//! Many connections, and slow ones.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use ralph::gateway::{GatewayLimits, ListenerProtocol};
use rstest::rstest;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::need;
use crate::world::{OK, Server, World, allowlist, impatient, read_all, say, send_and_read_until};

const IDLE: usize = 5000;

/// Lets this process have so many files open, or says why not.
fn allow_open_files(count: u64) -> Result<(), String> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < count) {
        return Err(format!("only {:?} files may be open", limit.maximum));
    }
    if limit.current.is_some_and(|current| current < count) {
        limit.current = Some(count);
        setrlimit(Resource::Nofile, limit).map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[rstest]
#[case::http(ListenerProtocol::Http { port: 80 }, b"GET / HT")]
#[case::tls(ListenerProtocol::Tls { port: 443 }, b"\x16\x03\x01")]
#[case::proxy(ListenerProtocol::Proxy, b"CONNECT ")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_idle_connections_do_not_stop_a_request(
    #[case] protocol: ListenerProtocol,
    #[case] words: &[u8],
) {
    need!(allow_open_files(3 * IDLE as u64));
    let server = Server::http(OK).await;
    // None of them goes by itself before the request is answered.
    let limits = GatewayLimits {
        receive_timeout: Duration::from_secs(600),
        ..GatewayLimits::default()
    };
    let world = World::with(allowlist(&[&format!("a.example:{}", server.port)]), |setup| {
        setup.limits = limits;
    });
    let world = world.name("a.example");
    let crowded = world.open(protocol);
    let mut idle = Vec::new();
    for number in 0..IDLE {
        let mut client = TcpStream::connect(crowded).await.unwrap();
        if number % 2 == 0 {
            let _ = client.write_all(words).await;
        }
        idle.push(client);
    }
    let request = format!("GET / HTTP/1.1\r\nHost: a.example:{}\r\n\r\n", server.port);
    let mut fastest = Duration::MAX;
    // The host may be busy for a while.
    for _ in 0..5 {
        let began = Instant::now();
        let mut client = world.enter(ListenerProtocol::Http { port: server.port }).await;
        send_and_read_until(&mut client, &request, "ok").await;
        fastest = fastest.min(began.elapsed());
        if fastest < Duration::from_secs(5) {
            break;
        }
    }
    assert!(fastest < Duration::from_secs(5), "{fastest:?}");
}

#[tokio::test]
async fn an_idle_connection_is_evicted_and_an_active_one_stays() {
    let server = Server::new(|mut stream, seen| async move {
        let mut chunk = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut chunk).await {
            seen.lock().unwrap().extend(&chunk[..count]);
        }
    })
    .await;
    let limits = GatewayLimits {
        max_connections: 3,
        ..GatewayLimits::default()
    };
    let world = World::with(allowlist(&[&format!("a.example:{}", server.port)]), |setup| {
        setup.limits = limits;
    });
    let world = world.name("a.example");
    let address = world.open(ListenerProtocol::Http { port: server.port });
    let mut working = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: a.example:{}\r\nContent-Length: 9\r\n\r\n",
        server.port
    );
    working.write_all(request.as_bytes()).await.unwrap();
    let begun = async {
        while server.seen().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(crate::world::TIMEOUT, begun).await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..4 {
        idle.push(TcpStream::connect(address).await.unwrap());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(read_all(&mut idle[0]).await, b"");
    assert_eq!(read_all(&mut idle[1]).await, b"");
    let _ = working.write_all(b"123456789").await;
    let seen = async {
        while !server.seen().ends_with("123456789") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(crate::world::TIMEOUT, seen).await.unwrap();
}

#[rstest]
#[case::http(ListenerProtocol::Http { port: 80 }, b"GET / HTTP/1.1\r\nHost: a.example\r\nX: yyyyyyyyyyyyyyyyyyyyyyyyyyyyy".to_vec())]
#[case::proxy(ListenerProtocol::Proxy, b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\nX: yyyyyyyyyyyyyyyyyyyyy".to_vec())]
#[case::tls(ListenerProtocol::Tls { port: 443 }, crate::tls::real_hello("a.example"))]
#[tokio::test]
async fn a_beginning_that_trickles_is_cut_off(
    #[case] protocol: ListenerProtocol,
    #[case] beginning: Vec<u8>,
) {
    let world = World::with(allowlist(&["a.example"]), |setup| setup.limits = impatient());
    let mut client = world.enter(protocol).await;
    let began = Instant::now();
    // Bytes enough for more than three times as long as is waited.
    for byte in beginning.iter().take(50) {
        if client.write_all(&[*byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    read_all(&mut client).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    world.check_denied(None, "not received in time").await;
}

#[tokio::test]
async fn a_head_without_an_end_is_cut_off_by_its_length() {
    let world = World::new(allowlist(&["a.example"]));
    let mut client = world.enter(ListenerProtocol::Http { port: 80 }).await;
    let head = format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(200 * 1024));
    let answer = String::from_utf8(say(&mut client, head).await).unwrap();
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
        "{answer}"
    );
    world.check_denied(None, "too long").await;
}

#[tokio::test]
async fn silence_ends_a_connection() {
    let limits = GatewayLimits {
        idle_timeout: Duration::from_secs(2),
        ..GatewayLimits::default()
    };
    let server = Server::echo().await;
    let world =
        World::with(ralph::network::Policy::allow_all(), |setup| setup.limits = limits).name("a.example");
    let mut client = world.enter(ListenerProtocol::Tls { port: server.port }).await;
    client
        .write_all(&crate::tls::real_hello("a.example"))
        .await
        .unwrap();
    let received = read_all(&mut client).await;
    assert_eq!(received[..3], [22, 3, 1], "the echo came, and then the end");
}

/// More than a gateway keeps of what it cannot make sense of, and what the kernel holds of a connection on both sides.
const MUCH: usize = 24 << 20;

/// Sends a beginning and then one thing over and over, until the other side stops reading; returns how much was sent.
async fn talk(stream: &mut TcpStream, begin: &[u8], again: &[u8]) -> usize {
    let chunk = again.repeat(64 * 1024 / again.len());
    let mut said = begin.len();
    if stream.write_all(begin).await.is_err() {
        return said;
    }
    while said < MUCH && stream.write_all(&chunk).await.is_ok() {
        said += chunk.len();
    }
    said
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn endless_input_is_cut_off_before_it_uses_much_memory(
        protocol in prop::sample::select(vec![
            ListenerProtocol::Http { port: 80 },
            ListenerProtocol::Tls { port: 443 },
            ListenerProtocol::Tcp { port: 5432 },
            ListenerProtocol::Proxy,
            ListenerProtocol::Dns,
        ]),
        begin in prop::sample::select(vec![
            "", "GET / HTTP/1.1\r\n", "CONNECT a.example:443 HTTP/1.1\r\n", "CONNECT ", "GET http://a.example/",
            "\u{16}\u{3}\u{1}\u{40}\u{0}\u{1}\u{0}\u{40}\u{0}",
        ]),
        again in prop_oneof![
            prop::collection::vec(any::<u8>(), 1..40),
            "[a-z]: [a-z]{1,20}\r\n".prop_map(String::into_bytes),
        ],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::with(allowlist(&["a.example"]), |setup| setup.limits = impatient());
            let mut client = world.enter(protocol).await;
            let said = talk(&mut client, begin.as_bytes(), &again).await;
            assert!(said < MUCH, "{protocol:?} {begin:?} {again:?}");
        });
    }
}
