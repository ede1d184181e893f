//! A client that does as little as possible, so that what is measured is the other side.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Fallible;

/// Where calls go, and what they say.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
}

/// One connection that makes call after call.
pub(crate) struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    request: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(way: &Way, words: &str) -> Fallible<Self> {
        let stream = TcpStream::connect(way.address).await?;
        stream.set_nodelay(true)?;
        let body = format!(
            r#"{{"model":"zai/glm-4.7","max_tokens":100,"stream":true,"stream_options":{{"include_usage":true}},"messages":[{{"role":"user","content":"{words}"}}]}}"#
        );
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            way.address,
            way.key,
            body.len()
        );
        Ok(Self {
            stream,
            received: Vec::with_capacity(16 * 1024),
            request: request.into_bytes(),
        })
    }

    /// Makes a call and reads its answer to the end; returns how long its first word took.
    pub(crate) async fn call(&mut self) -> Fallible<Duration> {
        let first = self.begin().await?;
        while !self.received.ends_with(b"0\r\n\r\n") {
            self.receive().await?;
        }
        if !String::from_utf8_lossy(&self.received).contains("[DONE]") {
            return Err(format!("cut short: {}", String::from_utf8_lossy(&self.received)).into());
        }
        Ok(first)
    }

    /// Makes a call and waits for its first word.
    pub(crate) async fn begin(&mut self) -> Fallible<Duration> {
        self.received.clear();
        let started = Instant::now();
        self.stream.write_all(&self.request).await?;
        while !self.has_begun()? {
            self.receive().await?;
        }
        Ok(started.elapsed())
    }

    fn has_begun(&self) -> Fallible<bool> {
        let Some(head) = end_of_head(&self.received) else {
            return Ok(false);
        };
        if !self.received.starts_with(b"HTTP/1.1 200") {
            return Err(String::from_utf8_lossy(&self.received).into());
        }
        Ok(self.received[head..].windows(6).any(|window| window == b"data: "))
    }

    async fn receive(&mut self) -> Fallible<()> {
        match self.stream.read_buf(&mut self.received).await? {
            0 => Err(format!("ended after {}", String::from_utf8_lossy(&self.received)).into()),
            _ => Ok(()),
        }
    }
}

/// Where the head of a message ends.
pub(crate) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .map(|at| at + 4)
}
