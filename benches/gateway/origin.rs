//! The host that everything goes to: short answers to requests, and as many bytes as anybody wants.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::Fallible;

/// What each request is answered with, after its head.
pub(crate) const BODY: usize = 1024;
/// What a connection begins with that wants bytes. It is the beginning of no HTTP and no TLS.
pub(crate) const WANTS_BYTES: u8 = 0;

/// Serves until the end of the process, and returns the port.
pub(crate) async fn start() -> Fallible<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            // A client that closes the connection has received enough.
            tokio::spawn(async move { answer(stream).await.ok() });
        }
    });
    Ok(port)
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n{}",
        "x".repeat(BODY)
    );
    let mut request = Vec::with_capacity(4096);
    loop {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
        if request[0] == WANTS_BYTES {
            return pour(stream).await;
        }
        if request.ends_with(b"\r\n\r\n") {
            request.clear();
            stream.write_all(answer.as_bytes()).await?;
        }
    }
}

async fn pour(mut stream: TcpStream) -> std::io::Result<()> {
    let chunk = vec![7; 256 * 1024];
    loop {
        stream.write_all(&chunk).await?;
    }
}
