//! A model that answers at once, always the same: nothing is measured of it.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::Fallible;
use super::client::end_of_head;

/// A call with this word in it gets the beginning of an answer, and then nothing.
pub(crate) const HOLD: &str = "hold-the-line";

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const BEGINNING: &str = r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"glm-4.7","choices":[{"index":0,"delta":{"role":"assistant","content":"hello"},"finish_reason":null}]}"#;
const END: &str = r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"glm-4.7","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const USAGE: &str = r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"glm-4.7","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":2,"total_tokens":102}}"#;

/// Serves until the process ends, on a thread of its own.
pub(crate) fn start() -> Fallible<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener)?;
            loop {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                tokio::spawn(serve(stream));
            }
            #[expect(unreachable_code, reason = "says what the block returns")]
            Ok::<(), std::io::Error>(())
        })
    });
    Ok(address)
}

async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut received = Vec::new();
    loop {
        let whole = loop {
            if let Some(length) = length_of_request(&received) {
                break length;
            }
            if stream.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
        };
        let request: Vec<u8> = received.drain(..whole).collect();
        if String::from_utf8_lossy(&request).contains(HOLD) {
            stream
                .write_all(format!("{HEAD}{}", chunk(BEGINNING)).as_bytes())
                .await?;
            // Until the client goes away.
            let _ = stream.read_u8().await;
            return Ok(());
        }
        let answer = [BEGINNING, END, USAGE, "[DONE]"].map(chunk).concat();
        stream
            .write_all(format!("{HEAD}{answer}0\r\n\r\n").as_bytes())
            .await?;
    }
}

/// The length of the first request; `None` while it is not whole.
fn length_of_request(bytes: &[u8]) -> Option<usize> {
    let head = end_of_head(bytes)?;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .map_or("0", str::trim);
    let whole = head + length.parse::<usize>().ok()?;
    (bytes.len() >= whole).then_some(whole)
}

fn chunk(data: &str) -> String {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len())
}
