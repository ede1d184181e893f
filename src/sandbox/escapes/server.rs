//! HTTP servers on the host's loopback interface, which record what they receive.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The longest request that is recorded.
const MAX_REQUEST: usize = 1 << 20;

/// A server whose responses depend on the request. Each connection has one request.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Server {
    /// Starts a server that sends what `respond` returns, after `delay`.
    pub(super) async fn start(
        delay: Duration,
        respond: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (connections, requests) = (
            Arc::<AtomicUsize>::default(),
            Arc::<Mutex<Vec<String>>>::default(),
        );
        let (counter, record, respond) = (connections.clone(), requests.clone(), Arc::new(respond));
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                // A client that sends nothing counts as well.
                counter.fetch_add(1, Ordering::Relaxed);
                let (record, respond) = (record.clone(), respond.clone());
                while open.try_join_next().is_some() {}
                open.spawn(async move {
                    let request = read_request(&mut stream).await;
                    let response = respond(&request);
                    record
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(request);
                    tokio::time::sleep(delay).await;
                    let _ = stream.write_all(response.as_bytes()).await;
                });
            }
        });
        Ok(Self {
            address,
            connections,
            requests,
            task,
        })
    }

    /// How many connections there were since the last call.
    pub(super) fn take_connections(&self) -> usize {
        self.connections.swap(0, Ordering::Relaxed)
    }

    /// The requests since the last call, with their bodies.
    pub(super) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A response after which the connection is closed. Each of the header lines ends with a line break.
pub(super) fn response(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

/// A request, as far as it arrives.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if is_complete(&text) || bytes.len() > MAX_REQUEST {
            return text.into_owned();
        }
        let read = stream.read_buf(&mut bytes).await;
        if !read.is_ok_and(|length| length > 0) {
            return String::from_utf8_lossy(&bytes).into_owned();
        }
    }
}

fn is_complete(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else {
        return false;
    };
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| {
        line.strip_prefix("content-length: ")?
            .trim()
            .parse::<usize>()
            .ok()
    });
    body.len() >= length.unwrap_or(0)
}
