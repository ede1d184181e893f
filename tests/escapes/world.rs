//! A sandbox that may reach one name, the server that the name leads to, and an address that stands for the internet.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ralph::gateway::{AddressGuard, Phantom};
use ralph::network::{Policy, Rule};
use ralph::sandbox::{Egress, Sandbox};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::room::Room;
use crate::sealed::AllAt;
use crate::support::base;
use crate::support::engine::docker;

pub const ALLOWED: &str = "allowed.test";
const BIG: usize = 32 << 20;

/// A room whose sandboxes may reach [`ALLOWED`], at a server of this test's own.
pub struct World {
    pub room: Room,
    phantom: Phantom,
    asked: Arc<AtomicUsize>,
    ca: String,
    files: TempDir,
}

impl World {
    /// On the engine that answers, or why not.
    pub async fn new() -> Result<Self, String> {
        Self::of(Room::new().await?).await
    }

    /// With an image that has tools, and a server that has packages for them.
    pub async fn with_tools() -> Result<Self, String> {
        let mut room = Room::new().await?;
        let image = base::tools(&room.engine).await?;
        room.spec.image = Some(image.clone());
        let world = Self::of(room).await?;
        let mount = format!("{}:/out", world.files.path().display());
        let start = ["run", "--rm", "--network", "none", "--volume", &mount, &image];
        docker(
            &world.room.engine,
            &[&start[..], &["sh", "-ec", include_str!("packages.sh")]].concat(),
        );
        Ok(world)
    }

    async fn of(mut room: Room) -> Result<Self, String> {
        // An address of this test's own, on whose ports nobody else is.
        let address = Ipv4Addr::from_bits(Ipv4Addr::new(127, 78, 0, 0).to_bits() + u32::from(number()));
        let files = repository();
        let (acceptor, ca) = certificate();
        let asked = Arc::new(AtomicUsize::new(0));
        let site = Arc::new(Site {
            files: files.path().to_owned(),
            asked: asked.clone(),
        });
        serve(bind(address, 80).await?, None, site.clone());
        serve(bind(address, 443).await?, Some(acceptor), site);
        let phantom = Phantom::random().unwrap();
        room.spec.network = Policy::allowlist([Rule::parse(ALLOWED).unwrap()]);
        room.spec.egress = Egress {
            resolver: Arc::new(AllAt(address)),
            guard: AddressGuard::dangerously_opening(["127.0.0.0/8".parse().unwrap()]),
            phantom: Some(phantom.clone()),
            ..Egress::default()
        };
        Ok(Self {
            room,
            phantom,
            asked,
            ca,
            files,
        })
    }

    /// A sandbox that trusts the server.
    pub async fn create(&self) -> Box<dyn Sandbox> {
        let sandbox = self.room.create().await;
        let file = Path::new("/workspace/ca.pem");
        sandbox.write(file, self.ca.as_bytes(), 0o644).await.unwrap();
        sandbox
    }

    /// What proxy variables hold.
    pub fn proxy(&self) -> String {
        self.phantom.proxy_url("127.0.0.1:3128")
    }

    /// How many requests the server had.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// An address of the documentation's (TEST-NET-3) that this machine has for a while, with listeners: it stands for the
/// internet.
pub struct Elsewhere {
    address: Ipv4Addr,
    heard: Arc<AtomicUsize>,
}

impl Elsewhere {
    pub async fn new() -> Result<Self, String> {
        let host = 1 + u32::from(number()) % 250;
        let elsewhere = Self {
            address: Ipv4Addr::from_bits(Ipv4Addr::new(203, 0, 113, 0).to_bits() + host),
            heard: Arc::default(),
        };
        ip("add", elsewhere.address)?;
        for port in [80, 443, 8080] {
            let (listener, heard) = (bind(elsewhere.address, port).await?, elsewhere.heard.clone());
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    heard.fetch_add(1, Ordering::SeqCst);
                    let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello\n").await;
                }
            });
        }
        for port in [53, 443] {
            let socket = tokio::net::UdpSocket::bind((elsewhere.address, port)).await;
            let (socket, heard) = (
                socket.map_err(|error| error.to_string())?,
                elsewhere.heard.clone(),
            );
            tokio::spawn(async move {
                while socket.recv(&mut [0; 512]).await.is_ok() {
                    heard.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        Ok(elsewhere)
    }

    /// Shows that its listeners hear, and forgets it.
    pub async fn hears_this_machine(&self) {
        TcpStream::connect((self.address, 8080)).await.unwrap();
        let sender = tokio::net::UdpSocket::bind("0.0.0.0:0").await.unwrap();
        sender.send_to(b"?", (self.address, 53)).await.unwrap();
        for _ in 0..200 {
            if self.heard() == 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(self.heard.swap(0, Ordering::SeqCst), 2);
    }

    pub fn heard(&self) -> usize {
        self.heard.load(Ordering::SeqCst)
    }

    /// A text with the address in one of its spellings.
    pub fn spelled(&self, text: &str) -> String {
        let [a, b, c, d] = self.address.octets();
        text.replace("{address}", &self.address.to_string())
            .replace("{decimal}", &self.address.to_bits().to_string())
            .replace("{hex}", &format!("0x{:08x}", self.address.to_bits()))
            .replace("{octal}", &format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // Somebody else may have taken it away.
        let _ = ip("del", self.address);
    }
}

fn ip(verb: &str, address: Ipv4Addr) -> Result<(), String> {
    let address = format!("{address}/32");
    let done = Command::new("ip")
        .args(["address", verb, &address, "dev", "lo"])
        .output();
    let done = done.map_err(|error| format!("ip: {error}"))?;
    if done.status.success() {
        Ok(())
    } else {
        Err(format!("ip: {}", String::from_utf8_lossy(&done.stderr)))
    }
}

/// Different for every world of this process, and most likely for other processes' too.
fn number() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 500).unwrap() * 97;
    first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 65_000
}

async fn bind(address: Ipv4Addr, port: u16) -> Result<TcpListener, String> {
    let address = SocketAddr::from((address, port));
    TcpListener::bind(address)
        .await
        .map_err(|error| format!("{address}: {error}"))
}

/// A directory with a repository in it, as a server of plain files offers one.
fn repository() -> TempDir {
    let dir = TempDir::new().unwrap();
    let script = "git init --quiet work && cd work && echo from the repository > file && git add file && \
        git -c user.name=t -c user.email=t@localhost commit --quiet -m one && cd .. && \
        git clone --quiet --bare work repo.git && cd repo.git && git update-server-info";
    let made = Command::new("sh")
        .args(["-ec", script])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    dir
}

/// A certificate, and as a file what trusts it.
fn certificate() -> (TlsAcceptor, String) {
    let made = rcgen::generate_simple_self_signed([ALLOWED.to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (TlsAcceptor::from(Arc::new(config)), made.cert.pem())
}

struct Site {
    files: std::path::PathBuf,
    asked: Arc<AtomicUsize>,
}

fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, site: Arc<Site>) {
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (tls, site) = (tls.clone(), site.clone());
            tokio::spawn(async move {
                match tls {
                    None => answer_http_1(stream, site).await,
                    Some(tls) => {
                        let Ok(stream) = tls.accept(stream).await else {
                            return;
                        };
                        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                            let service = service_fn(move |request| answer(site.clone(), request));
                            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                            let _ = http.serve_connection(TokioIo::new(stream), service).await;
                        } else {
                            answer_http_1(stream, site).await;
                        }
                    }
                }
            });
        }
    });
}

async fn answer_http_1(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, site: Arc<Site>) {
    let service = service_fn(move |request| answer(site.clone(), request));
    let http = hyper::server::conn::http1::Builder::new();
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

type Body = BoxBody<Bytes, Infallible>;

async fn answer(site: Arc<Site>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    site.asked.fetch_add(1, Ordering::SeqCst);
    let whole = |bytes: Vec<u8>| Full::new(Bytes::from(bytes)).boxed();
    let body = match request.uri().path() {
        "/hello" => whole(b"hello\n".to_vec()),
        "/big" => whole(vec![0; BIG]),
        "/upload" => {
            let received = request
                .into_body()
                .collect()
                .await
                .map_or(0, |body| body.to_bytes().len());
            whole(received.to_string().into_bytes())
        }
        "/stream" => lines(),
        "/redirect" => {
            let redirect = Response::builder()
                .status(302)
                .header("location", "http://denied.test/");
            return Ok(redirect.body(whole(Vec::new())).unwrap());
        }
        path => return Ok(file(&site.files, path)),
    };
    Ok(Response::new(body))
}

/// A file; of a directory, its index.
fn file(files: &Path, path: &str) -> Response<Body> {
    let whole = |bytes: Vec<u8>| Full::new(Bytes::from(bytes)).boxed();
    let path = path.trim_start_matches('/');
    let (path, kind) = match path.strip_suffix('/') {
        Some(dir) => (format!("{dir}/index.html"), "text/html"),
        None => (path.to_owned(), "application/octet-stream"),
    };
    match std::fs::read(files.join(path)) {
        Ok(bytes) => Response::builder()
            .header("content-type", kind)
            .body(whole(bytes)),
        Err(_) => Response::builder().status(404).body(whole(Vec::new())),
    }
    .unwrap()
}

/// Two lines, with a pause between.
fn lines() -> Body {
    let lines = futures_util::stream::iter([0, 1]).then(|number| async move {
        tokio::time::sleep(Duration::from_millis(300) * number).await;
        Ok(Frame::data(Bytes::from_static(b"line\n")))
    });
    BodyExt::boxed(StreamBody::new(Box::pin(lines)))
}
