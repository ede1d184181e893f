//! Events, sockets of the web and long downloads, by every way that requests can take.

use std::sync::Arc;
use std::time::Duration;

use ralph::gateway::{ByteStream, ListenerProtocol};
use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::inspection::Inspected;
use crate::proxy::{authorization, connect};
use crate::tcp::connect_to_name;
use crate::tls::Identity;
use crate::world::{Server, read_until_text, say, send_and_read_until};

/// How a request gets to its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Http,
    Tls,
    Inspected,
    Tcp,
    Proxy,
    ConnectHttp,
    ConnectTls,
    ConnectInspected,
}

impl Way {
    const ALL: [Self; 8] = [
        Self::Http,
        Self::Tls,
        Self::Inspected,
        Self::Tcp,
        Self::Proxy,
        Self::ConnectHttp,
        Self::ConnectTls,
        Self::ConnectInspected,
    ];

    fn is_encrypted(self) -> bool {
        match self {
            Self::Tls | Self::Inspected | Self::ConnectTls | Self::ConnectInspected => true,
            Self::Http | Self::Tcp | Self::Proxy | Self::ConnectHttp => false,
        }
    }

    /// One of the two hosts is inspected.
    fn host(self) -> &'static str {
        match self {
            Self::Inspected | Self::ConnectInspected => "a.example",
            _ => "b.example",
        }
    }
}

type Wire = Box<dyn ByteStream>;

/// A host that treats each connection alike, and a client that is on its way there.
struct Flow {
    _inspected: Inspected,
    _server: Server,
    client: Wire,
    /// What stands before the path, and the fields of a request.
    prefix: String,
    fields: String,
}

impl Flow {
    async fn new<F>(way: Way, handle: impl Fn(Wire) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let identity = Identity::new(&["a.example", "b.example"], &["http/1.1"]);
        let server = if way.is_encrypted() {
            identity.serve(move |stream, _| handle(Box::new(stream))).await
        } else {
            Server::new(move |stream, _| handle(Box::new(stream))).await
        };
        let inspected = Inspected::new(&["a.example:{p}", "b.example:{p}"], &server, &identity);
        let stream = reach(way, &inspected, server.port).await;
        let client: Wire = if way.is_encrypted() {
            Box::new(inspected.open(way.host(), stream).await.unwrap())
        } else {
            Box::new(stream)
        };
        let host = format!("{}:{}", way.host(), server.port);
        let (prefix, own) = match way {
            Way::Proxy => (format!("http://{host}"), authorization(&inspected.world.phantom)),
            _ => (String::new(), String::new()),
        };
        Self {
            client,
            prefix,
            fields: format!("Host: {host}\r\n{own}"),
            _inspected: inspected,
            _server: server,
        }
    }

    fn request(&self, fields: &str) -> String {
        format!("GET {}/ HTTP/1.1\r\n{}{fields}\r\n", self.prefix, self.fields)
    }
}

async fn reach(way: Way, inspected: &Inspected, port: u16) -> TcpStream {
    let world = &inspected.world;
    match way {
        Way::Http => world.enter(ListenerProtocol::Http { port }).await,
        Way::Tls | Way::Inspected => world.enter(ListenerProtocol::Tls { port }).await,
        Way::Tcp => connect_to_name(world, way.host(), port).await,
        Way::Proxy => world.enter(ListenerProtocol::Proxy).await,
        Way::ConnectHttp | Way::ConnectTls | Way::ConnectInspected => {
            let mut stream = world.enter(ListenerProtocol::Proxy).await;
            let target = format!("{}:{port}", way.host());
            send_and_read_until(&mut stream, &connect(world, &target), "\r\n\r\n").await;
            stream
        }
    }
}

async fn write(stream: &mut Wire, text: &[u8]) {
    stream.write_all(text).await.unwrap();
    stream.flush().await.unwrap();
}

#[tokio::test]
async fn events_are_passed_on_as_they_come() {
    for way in Way::ALL {
        println!("{way:?}");
        check_events(way).await;
    }
}

async fn check_events(way: Way) {
    let arrived = Arc::new(Semaphore::new(0));
    let confirmed = arrived.clone();
    let mut flow = Flow::new(way, move |mut stream| {
        let confirmed = confirmed.clone();
        async move {
            let _ = stream.read(&mut [0; 4096]).await;
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
            write(&mut stream, head.as_bytes()).await;
            for number in 0..3 {
                write(&mut stream, format!("data: {number}\n\n").as_bytes()).await;
                confirmed.acquire().await.unwrap().forget();
            }
            let _ = stream.shutdown().await;
        }
    })
    .await;
    let request = flow.request("");
    write(&mut flow.client, request.as_bytes()).await;
    for number in 0..3 {
        // The server does not go on before this one has arrived.
        read_until_text(&mut flow.client, &format!("data: {number}\n\n")).await;
        arrived.add_permits(1);
    }
    // It ends cleanly: in TLS, any other end would look like truncation.
    assert_eq!(flow.client.read_to_end(&mut Vec::new()).await.unwrap(), 0);
}

#[tokio::test]
async fn a_websocket_carries_both_ways() {
    for way in Way::ALL {
        println!("{way:?}");
        check_websocket(way).await;
    }
}

async fn check_websocket(way: Way) {
    let mut flow = Flow::new(way, |mut stream| async move {
        let mut chunk = [0; 4096];
        let _ = stream.read(&mut chunk).await;
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
        write(&mut stream, head.as_bytes()).await;
        while let Ok(count @ 1..) = stream.read(&mut chunk).await {
            write(&mut stream, &chunk[..count]).await;
        }
    })
    .await;
    let request = flow.request("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n");
    send_and_read_until(&mut flow.client, &request, "\r\n\r\n").await;
    for frame in [b"\x81\x05hello", b"\x81\x05again"] {
        write(&mut flow.client, frame).await;
        let mut received = [0; 7];
        flow.client.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, frame);
    }
}

#[tokio::test]
async fn a_long_download_passes_whole() {
    for way in Way::ALL {
        println!("{way:?}");
        check_download(way).await;
    }
}

async fn check_download(way: Way) {
    const LENGTH: usize = 8 * 1024 * 1024;
    let mut flow = Flow::new(way, |mut stream| async move {
        let _ = stream.read(&mut [0; 4096]).await;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
        write(&mut stream, head.as_bytes()).await;
        let block = vec![7; 1024 * 1024];
        for _ in 0..LENGTH / block.len() {
            write(&mut stream, &block).await;
        }
        let _ = stream.shutdown().await;
        // TLS must not be cut off while the last of it is on its way.
        tokio::time::sleep(Duration::from_secs(5)).await;
    })
    .await;
    let request = flow.request("Connection: close\r\n");
    let answer = say(&mut flow.client, request).await;
    let head = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap()
        + 4;
    assert_eq!(answer.len() - head, LENGTH);
    assert!(answer[head..].iter().all(|byte| *byte == 7));
}

#[rstest]
#[tokio::test]
async fn a_response_that_breaks_off_breaks_off_for_the_client(
    #[values(Way::Tls, Way::Inspected, Way::ConnectTls, Way::ConnectInspected)] way: Way,
) {
    let mut flow = Flow::new(way, |mut stream| async move {
        let _ = stream.read(&mut [0; 4096]).await;
        write(&mut stream, b"HTTP/1.1 200 OK\r\n\r\nhalf").await;
    })
    .await;
    let request = flow.request("");
    send_and_read_until(&mut flow.client, &request, "half").await;
    let error = flow.client.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{error}");
}
