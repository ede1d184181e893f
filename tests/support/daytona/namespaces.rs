//! A sandbox as a set of namespaces of the host, with its own processes and mounts. It is cheap, so that hundreds of them fit
//! on one host. It sees the host's programs read-only; its files are in memory.

use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::room::{Piece, Running};

/// The first process. It reports when the mounts are ready, and reaps orphans. It exits when its input is closed.
const FIRST: &str = "mount -o remount,bind,ro / 2>/dev/null; mount -t tmpfs tmpfs /mnt && mount -t tmpfs tmpfs /tmp && \
                     echo ready && while read -r; do :; done";
const HOME: &str = "HOME=/mnt";
const PATH: &str = "PATH=/usr/local/bin:/usr/bin:/bin";
const PIECE: usize = 64 * 1024;

/// A set of namespaces. They end with their first process.
#[derive(Clone)]
pub struct Namespaces {
    first: Arc<Mutex<Child>>,
    /// The process id of the first process on the host.
    pid: u32,
    env: Vec<String>,
}

impl Namespaces {
    /// Creates namespaces with these variables. The error says why that failed.
    pub async fn make(env: &[String]) -> Result<Self, String> {
        let mut first = tokio::process::Command::new("unshare");
        first.args(["--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "--"]);
        first.args(["bash", "-c", FIRST]);
        first
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut first = first.into_std().spawn().map_err(|error| error.to_string())?;
        let stdout = tokio::process::ChildStdout::from_std(first.stdout.take().unwrap()).unwrap();
        let ready = first_line(stdout);
        if tokio::time::timeout(Duration::from_secs(20), ready)
            .await
            .ok()
            .as_deref()
            != Some("ready")
        {
            let _ = first.kill();
            let _ = first.wait();
            return Err("no namespaces of one's own can be had here".to_owned());
        }
        let children = format!("/proc/{0}/task/{0}/children", first.id());
        let pid = std::fs::read_to_string(children).unwrap_or_default();
        Ok(Self {
            pid: pid
                .trim()
                .parse()
                .map_err(|_| "the first process is gone".to_owned())?,
            first: Arc::new(Mutex::new(first)),
            env: env.to_vec(),
        })
    }

    /// Kills everything in them. Calling it twice is harmless.
    pub fn end(&self) {
        let mut first = self.first.lock().unwrap();
        let _ = first.kill();
        let _ = first.wait();
    }

    pub fn start_command(&self, argv: &[&str]) -> Running {
        let mut command = tokio::process::Command::new("nsenter");
        command.args(["--target", &self.pid.to_string(), "--pid", "--mount", "--"]);
        command.args(["env", "-i", HOME, PATH]).args(&self.env);
        command
            .args(["sh", "-c", "cd /mnt && exec \"$@\"", "sh"])
            .args(argv);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = pieces(child.stdout.take().unwrap(), Piece::Output);
        let errors = pieces(child.stderr.take().unwrap(), Piece::Error);
        Running {
            output: stream::select(output, errors).boxed(),
            input: Box::pin(child.stdin.take().unwrap()),
            code: Box::pin(async move {
                let ended = child.wait().await.unwrap();
                i64::from(ended.code().unwrap_or(137))
            }),
        }
    }
}

async fn first_line(mut stdout: tokio::process::ChildStdout) -> String {
    let mut line = Vec::new();
    while let Ok(byte) = stdout.read_u8().await {
        if byte == b'\n' {
            break;
        }
        line.push(byte);
    }
    String::from_utf8_lossy(&line).into_owned()
}

fn pieces(
    from: impl AsyncRead + Send + Unpin + 'static,
    piece: fn(Bytes) -> Piece,
) -> BoxStream<'static, Piece> {
    let read = |mut from| async {
        let mut buffer = vec![0; PIECE];
        match AsyncReadExt::read(&mut from, &mut buffer).await {
            Ok(0) | Err(_) => None,
            Ok(length) => {
                buffer.truncate(length);
                Some((Bytes::from(buffer), from))
            }
        }
    };
    stream::unfold(from, read).map(piece).boxed()
}
