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

pub const ALLOWED: &str = "allowed.test";
const BIG: usize = 32 << 20;

/// A room whose sandboxes may reach [`ALLOWED`], at a server of this test's own.
pub struct World {
    pub room: Room,
    phantom: Phantom,
    asked: Arc<AtomicUsize>,
    ca: String,
    _files: TempDir,
}

impl World {
    /// On the engine that answers, or why not.
    pub async fn new() -> Result<Self, String> {
        let mut room = Room::new().await?;
        // An address of this test's own, on whose ports nobody else is.
        let address = Ipv4Addr::from_bits(Ipv4Addr::new(127, 78, 0, 0).to_bits() + u32::from(number()));
        let files = repository();
        let (acceptor, ca) = certificate();
        let asked = Arc::new(AtomicUsize::new(0));
        let site = Arc::new(Site { files: files.path().to_owned(), asked: asked.clone() });
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
        Ok(Self { room, phantom, asked, ca, _files: files })
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

/// An address of the documentation's (TEST-NET-3) on an interface of this test's own, with listeners: it stands for the
/// internet. Removed when dropped.
pub struct Dummy {
    link: String,
    address: Ipv4Addr,
    heard: Arc<AtomicUsize>,
}

impl Dummy {
    pub async fn new() -> Result<Self, String> {
        let number = number();
        let dummy = Self {
            link: format!("rt{}-{number}", std::process::id()),
            address: Ipv4Addr::from_bits(Ipv4Addr::new(203, 0, 113, 0).to_bits() + 1 + u32::from(number) % 250),
            heard: Arc::default(),
        };
        let address = format!("{}/32", dummy.address);
        for args in [
            vec!["link", "add", &dummy.link, "type", "dummy"],
            vec!["addr", "add", &address, "dev", &dummy.link],
            vec!["link", "set", &dummy.link, "up"],
        ] {
            let done = Command::new("ip").args(&args).output().map_err(|error| error.to_string())?;
            if !done.status.success() {
                return Err(format!("ip {args:?}: {}", String::from_utf8_lossy(&done.stderr)));
            }
        }
        for port in [80, 443, 8080] {
            let (listener, heard) = (bind(dummy.address, port).await?, dummy.heard.clone());
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    heard.fetch_add(1, Ordering::SeqCst);
                    let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello\n").await;
                }
            });
        }
        for port in [53, 443] {
            let socket = tokio::net::UdpSocket::bind((dummy.address, port)).await;
            let (socket, heard) = (socket.map_err(|error| error.to_string())?, dummy.heard.clone());
            tokio::spawn(async move {
                while socket.recv(&mut [0; 512]).await.is_ok() {
                    heard.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        Ok(dummy)
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

impl Drop for Dummy {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.link]).status();
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
    TcpListener::bind(address).await.map_err(|error| format!("{address}: {error}"))
}

/// A directory with a repository in it, as a server of plain files offers one.
fn repository() -> TempDir {
    let dir = TempDir::new().unwrap();
    let script = "git init --quiet work && cd work && echo from the repository > file && git add file && \
        git -c user.name=t -c user.email=t@localhost commit --quiet -m one && cd .. && \
        git clone --quiet --bare work repo.git && cd repo.git && git update-server-info";
    let made = Command::new("sh").args(["-ec", script]).current_dir(dir.path()).output().unwrap();
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
                        let Ok(stream) = tls.accept(stream).await else { return };
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
            let received = request.into_body().collect().await.map_or(0, |body| body.to_bytes().len());
            whole(received.to_string().into_bytes())
        }
        "/stream" => lines(),
        "/redirect" => {
            let redirect = Response::builder().status(302).header("location", "http://denied.test/");
            return Ok(redirect.body(whole(Vec::new())).unwrap());
        }
        path => match std::fs::read(site.files.join(path.trim_start_matches('/'))) {
            Ok(bytes) => whole(bytes),
            Err(_) => return Ok(Response::builder().status(404).body(whole(Vec::new())).unwrap()),
        },
    };
    Ok(Response::new(body))
}

/// Two lines, with a pause between.
fn lines() -> Body {
    let lines = futures_util::stream::iter([0, 1]).then(|number| async move {
        tokio::time::sleep(Duration::from_millis(300) * number).await;
        Ok(Frame::data(Bytes::from_static(b"line\n")))
    });
    BodyExt::boxed(StreamBody::new(Box::pin(lines)))
}
