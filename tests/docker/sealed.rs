//! A sealed sandbox with one allowed name, and the server it leads to.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ralph::gateway::audit::AuditRecord;
use ralph::gateway::{AddressGuard, Resolver};
use ralph::network::firewall::SEALED;
use ralph::network::{HostName, Policy, PolicyRule};
use ralph::sandbox::docker::SealError;
use ralph::sandbox::{Egress, Sandbox, SandboxError};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::docker_test::{DockerTest, prints};

/// A server that an allowed name leads to, and a sandbox that may reach that name alone.
pub struct Sealed {
    pub room: DockerTest,
    pub stand_in: StandIn,
    pub audit: Arc<Mutex<Vec<AuditRecord>>>,
}

impl Sealed {
    pub async fn new() -> Result<Self, String> {
        let mut room = DockerTest::new().await?;
        let stand_in = StandIn::start().await;
        let audit = Arc::new(Mutex::new(Vec::new()));
        let rule = format!("allowed.test:{}", stand_in.port);
        room.spec.network = Policy::allowlist([PolicyRule::parse(&rule).unwrap()]);
        room.spec.egress = Egress {
            resolver: Arc::new(AllAt(Ipv4Addr::LOCALHOST)),
            guard: AddressGuard::dangerously_opening(["127.0.0.0/8".parse().unwrap()]),
            audit: audit.clone(),
            ..Egress::default()
        };
        Ok(Self {
            room,
            stand_in,
            audit,
        })
    }

    /// The sandbox that was made, found again.
    pub async fn again(&self) -> Box<dyn Sandbox> {
        let found = self.room.provider.reopen(&self.room.spec).await;
        found.unwrap().unwrap()
    }

    /// Asks the allowed name from inside.
    pub async fn ask(&self, sandbox: &dyn Sandbox) -> String {
        let url = format!("http://allowed.test:{}/", self.stand_in.port);
        prints(
            sandbox,
            &format!("curl --silent --show-error --max-time 10 {url}"),
        )
        .await
    }

    /// Whether the allowed name cannot be reached from inside, which is seen at once.
    pub async fn is_closed(&self, sandbox: &str) -> bool {
        let url = format!("http://allowed.test:{}/", self.stand_in.port);
        // The session is not asked: it may be gone with the rest.
        let ask = ["exec", sandbox, "curl", "--silent", "--max-time", "10", &url];
        let mut fastest = Duration::MAX;
        // The host may be busy for a while; what is dropped would be waited for each time.
        for _ in 0..5 {
            let started = Instant::now();
            if outside(&ask).await {
                return false;
            }
            fastest = fastest.min(started.elapsed());
            if fastest < Duration::from_secs(5) {
                return true;
            }
        }
        panic!("it took {fastest:?} at least");
    }
}

pub fn holder(sandbox: &dyn Sandbox) -> String {
    format!("{}-net", sandbox.id())
}

/// Whether `docker` with these arguments succeeds. The gateway works meanwhile.
pub async fn outside(args: &[&str]) -> bool {
    let done = tokio::process::Command::new("docker").args(args).output().await;
    done.unwrap().status.success()
}

/// Every name is at this address.
pub struct AllAt(pub Ipv4Addr);

#[async_trait]
impl Resolver for AllAt {
    async fn resolve(&self, _name: &HostName) -> io::Result<Vec<IpAddr>> {
        Ok(vec![self.0.into()])
    }
}

/// Answers every request with `hello`, and counts them.
pub struct StandIn {
    pub port: u16,
    asked: Arc<Mutex<usize>>,
    received: Arc<Mutex<Vec<u8>>>,
}

impl StandIn {
    pub async fn start() -> Self {
        Self::at(TcpListener::bind("127.0.0.1:0").await.unwrap(), None)
    }

    /// At this listener, over TLS where there is an acceptor.
    pub fn at(listener: TcpListener, tls: Option<TlsAcceptor>) -> Self {
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(0));
        let counted = asked.clone();
        let received: Arc<Mutex<Vec<u8>>> = Arc::default();
        let kept = received.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *counted.lock().unwrap() += 1;
                let request = match &tls {
                    None => hello(stream).await,
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => hello(stream).await,
                        Err(_) => Vec::new(),
                    },
                };
                kept.lock().unwrap().extend(request);
            }
        });
        Self {
            port,
            asked,
            received,
        }
    }

    pub fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }

    /// The requests so far.
    pub fn received(&self) -> String {
        String::from_utf8(self.received.lock().unwrap().clone()).unwrap()
    }
}

/// Answers a request, and returns it.
pub async fn hello(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Vec<u8> {
    let mut request = vec![0; 4096];
    let length = stream.read(&mut request).await.unwrap_or_default();
    request.truncate(length);
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n";
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
    request
}

/// A certificate that no client trusts.
pub fn acceptor() -> TlsAcceptor {
    certified(&["allowed.test"]).0
}

/// A certificate for these names, and what it is trusted by.
pub fn certified(names: &[&str]) -> (TlsAcceptor, String) {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), made.cert.pem())
}

/// A listener on an address of its own for each test, whose ports nothing else uses; or why there is none.
pub async fn own_listener(port: u16) -> Result<TcpListener, String> {
    static NUMBER: AtomicU8 = AtomicU8::new(0);
    let [.., a, b] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 80 + NUMBER.fetch_add(1, Ordering::SeqCst) % 100, a, b);
    let bound = TcpListener::bind((address, port)).await;
    bound.map_err(|error| format!("port {port}: {error}"))
}

/// Whether the engine has a container of this name.
pub async fn is_there(name: &str) -> bool {
    outside(&["inspect", name]).await
}

/// Why a network is not sealed.
pub fn reason(outcome: &Result<(), SandboxError>) -> &SealError {
    let error = outcome.as_ref().expect_err("it is sealed");
    error.cause().unwrap_or_else(|| panic!("{error:?}"))
}

/// Runs this test once more, in a process of its own; whether this is that process.
pub fn is_alone(test: &str) -> bool {
    const ALONE: &str = "RALPH_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(ALONE, "1")
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
    false
}

/// Waits for something that comes a moment later.
pub async fn eventually_async(mut holds: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never came");
}

/// What a program like `iptables-save` prints of a process's network, without what was counted and when.
pub fn saved(program: &Path, pid: &str) -> Vec<String> {
    let saved = std::process::Command::new("nsenter")
        .args(["--net", "--target", pid])
        .arg(program)
        .output()
        .unwrap();
    assert!(saved.status.success(), "{saved:?}");
    let saved = String::from_utf8(saved.stdout).unwrap();
    let lines = saved.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split(" [").next().unwrap().to_owned())
        .collect()
}

/// What it must print of a sealed network.
pub fn expected_rules() -> Vec<String> {
    let rules = SEALED.to_string().replace(" [0:0]", "");
    rules.lines().map(str::to_owned).collect()
}

pub fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
