//! Ways to the origin, and connections over them.

use std::net::SocketAddr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Fallible;
use super::origin::BODY;

/// A way to the origin.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// Where connections are made to.
    address: SocketAddr,
    /// The origin, as it is called on this way.
    origin: String,
    /// What stands before the path of each request, and which fields come with it.
    prefix: String,
    fields: String,
}

impl Route {
    /// To the origin itself.
    pub(crate) fn direct(port: u16) -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            origin: format!("127.0.0.1:{port}"),
            prefix: String::new(),
            fields: String::new(),
        }
    }

    /// Through a proxy that anybody may use.
    pub(crate) fn proxy(address: SocketAddr, origin: String) -> Self {
        Self {
            address,
            prefix: format!("http://{origin}"),
            origin,
            fields: String::new(),
        }
    }

    /// Through a proxy whose URL holds a user and a password.
    pub(crate) fn of_url(url: &str, origin: String) -> Fallible<Self> {
        let inner = url
            .trim()
            .strip_prefix("http://")
            .and_then(|rest| rest.split_once('@'));
        let (user, address) = inner.ok_or("no user in the URL of the proxy")?;
        let credential = BASE64_STANDARD.encode(user);
        Ok(Self {
            fields: format!("Proxy-Authorization: Basic {credential}\r\n"),
            ..Self::proxy(address.parse()?, origin)
        })
    }

    pub(crate) async fn connect(&self) -> Fallible<Connection> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let Self {
            prefix,
            origin,
            fields,
            ..
        } = self;
        Ok(Connection {
            stream,
            request: format!("GET {prefix}/ HTTP/1.1\r\nHost: {origin}\r\n{fields}\r\n"),
            answer: Vec::with_capacity(4096),
        })
    }

    /// A connection through which bytes pass as they are.
    pub(crate) async fn tunnel(&self) -> Fallible<TcpStream> {
        let mut stream = TcpStream::connect(self.address).await?;
        if self.prefix.is_empty() {
            return Ok(stream);
        }
        let Self { origin, fields, .. } = self;
        let request = format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await?);
        }
        if answer.get(9..12) == Some(b"200") {
            return Ok(stream);
        }
        Err(format!("no tunnel: {}", String::from_utf8_lossy(&answer)).into())
    }
}

/// A connection that carries one request after another.
pub(crate) struct Connection {
    stream: TcpStream,
    request: String,
    answer: Vec<u8>,
}

impl Connection {
    /// One request and its whole answer.
    pub(crate) async fn get(&mut self) -> Fallible<()> {
        self.stream.write_all(self.request.as_bytes()).await?;
        self.answer.clear();
        let mut body = None;
        while body.is_none_or(|start| self.answer.len() < start + BODY) {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                return Err("the connection ended".into());
            }
            if body.is_none() {
                let end = self.answer.windows(4).position(|window| window == b"\r\n\r\n");
                body = end.map(|end| end + 4);
            }
        }
        if self.answer.get(9..12) == Some(b"200") {
            return Ok(());
        }
        Err(format!("no answer: {}", String::from_utf8_lossy(&self.answer)).into())
    }
}
