//! A host with files behind an inspected connection, and programs that fetch them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use ralph::gateway::ListenerProtocol;
use ralph::gateway::audit::{AuditProtocol, AuditVerdict};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

use crate::inspection::Inspected;
use crate::tls::Identity;
use crate::world::Server;

/// How long a program may take. Some of them are slow to start.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(120);

/// A host with files, of which those below `/open` may be fetched, and what a program needs to reach it.
pub struct Site {
    pub inspected: Inspected,
    server: Server,
    pub dir: TempDir,
    proxy: SocketAddr,
    pub address: SocketAddr,
}

impl Site {
    pub async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("open")).unwrap();
        fs::write(root.join("open/file"), "it works").unwrap();
        let identity = Identity::new(&["a.example"], &["http/1.1"]);
        let root: Arc<Path> = root.into();
        let server = identity
            .serve(move |stream, _| serve_files(stream, root.clone()))
            .await;
        let mut inspected = Inspected::new(&["GET,HEAD a.example:{p}/open/*"], &server, &identity);
        inspected.trust = inspected
            .inspection
            .trust(&identity.pem, &dir.path().join("trust"));
        fs::create_dir(dir.path().join("trust")).unwrap();
        for (path, content) in &inspected.trust.files {
            fs::write(path, content).unwrap();
        }
        let proxy = inspected.world.open(ListenerProtocol::Proxy);
        // At the port that the host has, so that programs which know no proxy can be led here.
        let listener = std::net::TcpListener::bind(("127.77.0.1", server.port)).unwrap();
        let address = listener.local_addr().unwrap();
        inspected
            .world
            .gateway
            .open(ListenerProtocol::Tls { port: server.port }, listener)
            .unwrap();
        Self {
            inspected,
            server,
            dir,
            proxy,
            address,
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://a.example:{}{path}", self.server.port)
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// A program with nothing in its environment but what a sandbox has.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let proxy = self.inspected.world.phantom.proxy_url(self.proxy);
        command
            .env_clear()
            .envs(["PATH", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"].map(variable))
            .env("HOME", self.dir.path())
            .env("https_proxy", proxy)
            .envs(&self.inspected.trust.env)
            .current_dir(self.dir.path())
            .kill_on_drop(true);
        command
    }

    /// Checks what a program fetched, and that it came over an opened connection.
    pub fn check(&self, output: &Output, expected: &str) {
        let said = output_text(output);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(expected), "{said}");
        self.check_fetched(output);
    }

    /// Checks that something was fetched over an opened connection.
    pub fn check_fetched(&self, output: &Output) {
        let records = self.inspected.world.records();
        let fetched = records.iter().any(|record| {
            let opened = (record.protocol, record.verdict) == (AuditProtocol::Https, AuditVerdict::Allowed);
            opened && record.received > 0
        });
        assert!(fetched, "{}\n{records:?}", output_text(output));
    }
}

fn variable(name: &str) -> (&str, String) {
    (name, std::env::var(name).unwrap_or_default())
}

pub async fn run(command: &mut Command) -> Output {
    let running = command.stdin(std::process::Stdio::null()).output();
    timeout(TIMEOUT, running)
        .await
        .expect("the program did not end")
        .unwrap()
}

pub fn output_text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

/// Serves the files below a directory, one request after another.
async fn serve_files(mut stream: impl AsyncRead + AsyncWrite + Unpin, root: Arc<Path>) {
    let mut pending = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut chunk).await {
        pending.extend(&chunk[..count]);
        while let Some(end) = pending.windows(4).position(|window| window == b"\r\n\r\n") {
            let head: Vec<u8> = pending.drain(..end + 4).collect();
            let head = String::from_utf8(head).unwrap();
            let path = head
                .split([' ', '?'])
                .nth(1)
                .unwrap()
                .trim_matches('/')
                .to_owned();
            let mut file = root.join(path);
            if file.is_dir() {
                file = file.join("index.html");
            }
            let (status, body) = match fs::read(file) {
                Ok(content) => ("200 OK", content),
                Err(_) => ("404 Not Found", Vec::new()),
            };
            let kind = if path_is_page(&head) {
                "text/html"
            } else {
                "application/octet-stream"
            };
            let fields = format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
            let answer = [format!("HTTP/1.1 {status}\r\n{fields}\r\n").as_bytes(), &body].concat();
            if stream.write_all(&answer).await.is_err() || stream.flush().await.is_err() {
                return;
            }
        }
    }
}

fn path_is_page(head: &str) -> bool {
    head.split(' ').nth(1).is_some_and(|path| path.ends_with('/'))
}
