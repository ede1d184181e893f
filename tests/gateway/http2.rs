//! HTTP/2 inside TLS, which passes as it is.

use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use ralph::gateway::ListenerProtocol;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::server::TlsStream;

use crate::proxy::connect;
use crate::tls::{Identity, trusting};
use crate::world::{World, allowlist, send_and_read_until};

const REQUESTS: usize = 50;

/// Answers each request with its own path.
async fn answer(stream: TlsStream<TcpStream>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else {
        return;
    };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let body = request.uri().path().to_owned().into();
        let mut stream = respond.send_response(Response::new(()), false).unwrap();
        stream.send_data(body, true).unwrap();
    }
}

#[tokio::test]
async fn many_requests_share_one_connection() {
    let identity = Identity::new(&["a.example"], &["h2"]);
    let server = identity.serve(|stream, _| answer(stream)).await;
    let target = format!("a.example:{}", server.port);
    let world = World::new(allowlist(&[&target])).name("a.example");
    let mut tunnel = world.enter(ListenerProtocol::Proxy).await;
    send_and_read_until(&mut tunnel, &connect(&world, &target), "\r\n\r\n").await;
    for stream in [
        world.enter(ListenerProtocol::Tls { port: server.port }).await,
        tunnel,
    ] {
        let connector = TlsConnector::from(trusting(&identity.pem, &["h2", "http/1.1"]));
        let name = ServerName::try_from("a.example").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        join_all((0..REQUESTS).map(|number| ask(client.clone(), number))).await;
    }
    assert_eq!(server.connections(), 2, "one for each way");
}

async fn ask(client: h2::client::SendRequest<bytes::Bytes>, number: usize) {
    let uri = format!("https://a.example/{number}");
    let request = Request::get(uri).body(()).unwrap();
    let (response, _) = client.ready().await.unwrap().send_request(request, true).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    let mut received = Vec::new();
    while let Some(data) = body.data().await {
        received.extend(data.unwrap());
    }
    assert_eq!(received, format!("/{number}").into_bytes());
}
