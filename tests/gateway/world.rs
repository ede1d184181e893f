//! A gateway whose names lead to servers of the test. Nothing here leaves loopback.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ralph::gateway::audit::{AuditRecord, AuditVerdict};
use ralph::gateway::{
    AddressGuard, Gateway, GatewayLimits, GatewaySetup, ListenerProtocol, Phantom, Resolver,
};
use ralph::network::{HostName, Policy, PolicyRule};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long anything may take that a test waits for.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The names of a test, which can be changed at any time.
#[derive(Default)]
pub struct Names(Mutex<BTreeMap<String, Vec<IpAddr>>>);

impl Names {
    pub fn set(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        self.0.lock().unwrap().insert(name.to_owned(), addresses);
    }
}

#[async_trait]
impl Resolver for Names {
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        Ok(self
            .0
            .lock()
            .unwrap()
            .get(name.as_str())
            .cloned()
            .unwrap_or_default())
    }
}

/// A gateway, its names and what it wrote down.
pub struct World {
    pub gateway: Gateway,
    pub names: Arc<Names>,
    pub phantom: Phantom,
    records: Arc<Mutex<Vec<AuditRecord>>>,
}

/// The lines of an allowlist.
pub fn allowlist(lines: &[&str]) -> Policy {
    Policy::allowlist(lines.iter().map(|line| PolicyRule::parse(line).unwrap()))
}

impl World {
    /// A gateway with this policy. Loopback is opened, since that is where the servers of a test are.
    pub fn new(policy: Policy) -> Self {
        Self::with(policy, |_| {})
    }

    pub fn with(policy: Policy, change: impl FnOnce(&mut GatewaySetup)) -> Self {
        let names = Arc::new(Names::default());
        let records = Arc::new(Mutex::new(Vec::new()));
        let phantom = Phantom::random().unwrap();
        let mut setup = GatewaySetup::new(policy, records.clone());
        setup.resolver = names.clone();
        setup.guard = AddressGuard::dangerously_opening(["127.0.0.0/8".parse().unwrap()]);
        setup.phantom = Some(phantom.clone());
        change(&mut setup);
        Self {
            gateway: Gateway::new(setup),
            names,
            phantom,
            records,
        }
    }

    /// A name that leads to loopback.
    pub fn name(self, name: &str) -> Self {
        self.names.set(name, &["127.0.0.1"]);
        self
    }

    /// Opens a listener on loopback.
    pub fn open(&self, protocol: ListenerProtocol) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        self.gateway.open(protocol, listener).unwrap();
        address
    }

    /// Connects to a new listener.
    pub async fn enter(&self, protocol: ListenerProtocol) -> TcpStream {
        TcpStream::connect(self.open(protocol)).await.unwrap()
    }

    /// The last thing that was written down, once there are so many.
    pub async fn record(&self, number: usize) -> AuditRecord {
        let waiting = async {
            loop {
                if let Some(record) = self.records.lock().unwrap().get(number).cloned() {
                    return record;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(TIMEOUT, waiting).await.expect("nothing was written down")
    }

    /// What was written down so far.
    pub fn records(&self) -> Vec<AuditRecord> {
        self.records.lock().unwrap().clone()
    }

    /// Checks what was written down first.
    pub async fn check_denied(&self, host: Option<&str>, rule: &str) {
        let record = self.record(0).await;
        assert_eq!(record.verdict, AuditVerdict::Denied, "{record:?}");
        assert_eq!(record.host.as_deref(), host, "{record:?}");
        assert!(record.rule.contains(rule), "{record:?}");
        assert_eq!((record.sent, record.received), (0, 0));
    }
}

/// Limits with short waits.
pub fn impatient() -> GatewayLimits {
    GatewayLimits {
        receive_timeout: Duration::from_millis(300),
        ..GatewayLimits::default()
    }
}

/// Sends a text and receives everything until the other side ends. A reset is an end too.
pub async fn say(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), text: impl AsRef<[u8]>) -> Vec<u8> {
    let _ = stream.write_all(text.as_ref()).await;
    read_all(stream).await
}

/// Everything until the other side ends.
pub async fn read_all(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut received = Vec::new();
    let _ = timeout(TIMEOUT, stream.read_to_end(&mut received))
        .await
        .expect("the connection stays open");
    received
}

/// Reads until the text has come.
pub async fn read_until_text(stream: &mut (impl AsyncRead + Unpin), text: &str) -> String {
    let mut received = Vec::new();
    let hearing = async {
        while !String::from_utf8_lossy(&received).contains(text) {
            let mut chunk = [0; 4096];
            let count = stream.read(&mut chunk).await.unwrap();
            assert!(count > 0, "ended after {:?}", String::from_utf8_lossy(&received));
            received.extend(&chunk[..count]);
        }
    };
    timeout(TIMEOUT, hearing)
        .await
        .unwrap_or_else(|_| panic!("{text:?} did not come"));
    String::from_utf8(received).unwrap()
}

/// A server on loopback that treats each connection alike, and counts them.
pub struct Server {
    pub port: u16,
    seen: Arc<Mutex<Vec<u8>>>,
    connections: Arc<Mutex<usize>>,
}

impl Server {
    /// Handles each connection with `handle`; what that reads through the reader is remembered.
    pub async fn new<F>(handle: impl Fn(TcpStream, Arc<Mutex<Vec<u8>>>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(Mutex::new(0));
        let (remembered, counted) = (seen.clone(), connections.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *counted.lock().unwrap() += 1;
                tokio::spawn(handle(stream, remembered.clone()));
            }
        });
        Self {
            port,
            seen,
            connections,
        }
    }

    /// Answers each HTTP head it reads with these bytes, and keeps the connection open.
    pub async fn http(answer: &'static str) -> Self {
        Self::new(move |stream, seen| answer_heads(stream, seen, answer)).await
    }

    /// Sends everything back.
    pub async fn echo() -> Self {
        Self::new(|mut stream, seen| async move {
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut chunk).await {
                seen.lock().unwrap().extend(&chunk[..count]);
                if stream.write_all(&chunk[..count]).await.is_err() {
                    return;
                }
            }
        })
        .await
    }

    /// What reached it.
    pub fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// How many connections reached it.
    pub fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

/// Answers each HTTP head with these bytes.
pub async fn answer_heads(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    seen: Arc<Mutex<Vec<u8>>>,
    answer: &str,
) {
    let mut pending: Vec<u8> = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut chunk).await {
        seen.lock().unwrap().extend(&chunk[..count]);
        pending.extend(&chunk[..count]);
        while let Some(end) = pending.windows(4).position(|window| window == b"\r\n\r\n") {
            pending.drain(..end + 4);
            let answered = async {
                stream.write_all(answer.as_bytes()).await?;
                stream.flush().await
            };
            if answered.await.is_err() {
                return;
            }
        }
    }
}

pub const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Says something and reads until the answer has come.
pub async fn send_and_read_until(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    said: &str,
    text: &str,
) -> String {
    stream.write_all(said.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    read_until_text(stream, text).await
}
