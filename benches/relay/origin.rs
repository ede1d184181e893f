//! The server that the allowed name leads to, in this process: short answers to requests, and bytes in both directions.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::Fallible;

/// The only name that sandboxes may reach.
pub(crate) const HOST: &str = "allowed.example";
/// What a connection begins with that downloads bytes, and one that uploads them. Neither is the beginning of HTTP or TLS.
pub(crate) const WANTS_BYTES: u8 = 0;
pub(crate) const UPLOADS: u8 = 1;
/// A request, and the whole answer if it passes the gateway unchanged.
pub(crate) const REQUEST: &str = "GET / HTTP/1.1\r\nHost: allowed.example\r\n\r\n";
pub(crate) const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

const CHUNK: usize = 256 << 10;

/// Serves until the end of the process, and returns the port.
pub(crate) async fn start() -> Fallible<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that closes its connection has what it wants.
            tokio::spawn(async move { serve(stream).await.ok() });
        }
    });
    Ok(port)
}

async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    match stream.read_u8().await? {
        WANTS_BYTES => {
            // Made once, as for the exec stream that this is compared with.
            let chunk = vec![7; CHUNK];
            loop {
                stream.write_all(&chunk).await?;
            }
        }
        UPLOADS => {
            let mut left = stream.read_u64().await?;
            let mut chunk = vec![0; CHUNK];
            while left > 0 {
                left = left.saturating_sub(stream.read(&mut chunk).await? as u64);
            }
            stream.write_all(&[UPLOADS]).await
        }
        _ => answer_requests(stream).await,
    }
}

/// Answers requests, without the first byte of the first.
async fn answer_requests(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = Vec::with_capacity(4096);
    while stream.read_buf(&mut request).await? > 0 {
        if request.ends_with(b"\r\n\r\n") {
            request.clear();
            stream.write_all(ANSWER.as_bytes()).await?;
        }
    }
    Ok(())
}
