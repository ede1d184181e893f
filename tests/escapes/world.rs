//! A sandbox that may reach one name, and the server of that name.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
use ralph::network::{Policy, PolicyRule};
use ralph::sandbox::{Egress, ReadOnlyMount, Sandbox};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::docker_test::DockerTest;
use crate::elsewhere::{bind, number};
use crate::sealed::AllAt;
use crate::support::base;
use crate::support::engine::docker;

pub const ALLOWED: &str = "allowed.test";
/// Fakes of what a task commonly needs: a forge, a package index, a model, a content delivery network, documentation.
pub const COMMON: [&str; 5] = [
    "forge.test",
    "packages.test",
    "model.test",
    "cdn.test",
    "docs.test",
];
const BIG: usize = 32 << 20;

/// A room whose sandboxes may reach [`ALLOWED`], which is served by this test.
pub struct World {
    pub room: DockerTest,
    phantom: Phantom,
    asked: Arc<AtomicUsize>,
    ca: String,
    files: TempDir,
}

impl World {
    /// On the engine of the host. The error says why there is none.
    pub async fn new() -> Result<Self, String> {
        Self::in_room(DockerTest::new().await?).await
    }

    /// With an image that has package managers, and a server with packages for them.
    pub async fn with_tools() -> Result<Self, String> {
        let mut room = DockerTest::new().await?;
        let image = base::tools(&room.engine).await?;
        room.spec.image = Some(image.clone());
        room.spec.mounts.extend(toolchain());
        let world = Self::in_room(room).await?;
        let mount = format!("{}:/out", world.files.path().display());
        let start = ["run", "--rm", "--network", "none", "--volume", &mount, &image];
        docker(
            &world.room.engine,
            &[&start[..], &["sh", "-ec", include_str!("packages.sh")]].concat(),
        );
        Ok(world)
    }

    async fn in_room(mut room: DockerTest) -> Result<Self, String> {
        // An address that only this test uses.
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
        room.spec.network = Policy::allowlist([PolicyRule::parse(ALLOWED).unwrap()]);
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
        sandbox
            .files()
            .write(file, self.ca.as_bytes(), 0o644)
            .await
            .unwrap();
        sandbox
    }

    /// The value of the proxy variables.
    pub fn proxy(&self) -> String {
        self.phantom.proxy_url("127.0.0.1:3128")
    }

    /// How many requests the server had.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// The path of cargo in sandboxes with tools.
const TOOLCHAIN: &str = "/toolchain";

/// The host's own toolchain, for a sandbox to read.
pub fn toolchain() -> Option<ReadOnlyMount> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let source = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    // A toolchain of the distribution is spread over the system.
    let is_whole = source.join("bin/cargo").exists() && source != Path::new("/usr");
    is_whole.then(|| ReadOnlyMount {
        source,
        target: TOOLCHAIN.into(),
    })
}

/// A directory with a repository for the dumb HTTP protocol.
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

/// A TLS acceptor, and its certificate as PEM.
fn certificate() -> (TlsAcceptor, String) {
    let names = std::iter::once(ALLOWED).chain(COMMON).map(str::to_owned);
    let made = rcgen::generate_simple_self_signed(names.collect::<Vec<_>>()).unwrap();
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
        "/name" => whole(format!("{}\n", request_host(&request)).into_bytes()),
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

/// The host of a request, of HTTP/1 or HTTP/2.
fn request_host(request: &Request<Incoming>) -> String {
    let field = || request.headers().get("host")?.to_str().ok();
    request.uri().host().or_else(field).unwrap_or_default().to_owned()
}

/// A file, or the index of a directory.
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
        tokio::time::sleep(Duration::from_secs(3) * number).await;
        Ok(Frame::data(Bytes::from_static(b"line\n")))
    });
    BodyExt::boxed(StreamBody::new(Box::pin(lines)))
}
