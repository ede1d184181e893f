//! Opens warm sessions with the guest in a container, through one exec that stays open.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::super::session::{SessionContext, SessionError, WarmSession};
use super::container::{GUEST, ROOT};
use super::sandbox::DockerSandbox;
use super::session_socket::{self, SessionSocket};
use crate::engine::{EngineError, ExecSpec};

/// The `PATH` of an engine for images that set none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How long a guest may take to connect to the socket.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

impl DockerSandbox {
    /// Opens a warm session with the guest. The inner error means that only the guest does not work.
    pub(super) async fn open_guest(&self) -> Result<Result<WarmSession, SessionError>, EngineError> {
        let (engine, container) = (&self.exec.engine, &self.exec.container);
        let found = engine.container(container).await?;
        let found = found.ok_or_else(|| EngineError::NotFound {
            subject: container.clone(),
        })?;
        // Without a socket the session uses the stream of the exec, which is only slower.
        let socket = SessionSocket::open(&self.dir.session_socket_dir()).ok();
        let mut argv = vec![GUEST, "session"];
        argv.extend(socket.as_ref().map(|_| session_socket::PATH));
        let spec = ExecSpec {
            argv: argv.into_iter().map(str::to_owned).collect(),
            env: BTreeMap::new(),
            cwd: Some(PathBuf::from("/")),
            stdin: true,
        };
        let mut exec = engine.exec(container, &spec).await?;
        let no_stdin = || EngineError::invalid_response(container, "the exec has no standard input");
        let mut to_guest = exec.stdin.take().ok_or_else(no_stdin)?;
        let mut env = found.env;
        env.extend(self.exec.variables());
        env.entry("PATH".to_owned())
            .or_insert_with(|| DEFAULT_PATH.to_owned());
        let context = SessionContext {
            sandbox: self.name.clone(),
            env,
            dir: PathBuf::from(ROOT),
            grace: self.grace,
        };
        let opened = async {
            let mut from_guest = BufReader::new(exec.into_stdout());
            if let Some(socket) = socket {
                to_guest.write_all(&socket.password()).await?;
                to_guest.flush().await?;
                if let Some(stream) = accept(socket, &mut from_guest).await? {
                    let (from_guest, to_guest) = stream.into_split();
                    return WarmSession::open(from_guest, to_guest, context).await;
                }
            }
            WarmSession::open(from_guest, to_guest, context).await
        };
        Ok(opened.await)
    }
}

/// Waits for the guest to connect to the socket. `None` if it uses the stream of the exec.
async fn accept(
    socket: SessionSocket,
    from_guest: &mut (impl AsyncBufRead + Unpin),
) -> io::Result<Option<UnixStream>> {
    let connected = async {
        tokio::select! {
            stream = socket.accept() => stream.map(Some),
            first_bytes = from_guest.fill_buf() => first_bytes.map(|_| None),
        }
    };
    timeout(CONNECT_TIMEOUT, connected).await.unwrap_or(Ok(None))
}
