//! Where the API listens.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::text::error_chain;
use axum::Router;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use tokio::net::{TcpListener, UnixListener};

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket file, which only this user can open.
    Unix(PathBuf),
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err("`unix:` is followed by a path".to_owned()),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let address = text.replace("localhost:", "127.0.0.1:").parse();
        let expected = "expected an address and a port, as in `127.0.0.1:8000`, or `unix:PATH`";
        Ok(Self::Tcp(address.map_err(|_| format!("`{text}`: {expected}"))?))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A bound address.
pub enum ApiListener {
    /// A port.
    Tcp(TcpListener),
    /// A socket file.
    Unix(UnixListener, PathBuf),
}

impl ApiListener {
    /// Starts to listen. Allows this process as many open files as the system lets it have: each client is one.
    pub async fn bind(address: &ListenAddress) -> io::Result<Self> {
        let files = getrlimit(Resource::Nofile);
        let most = Rlimit {
            current: files.maximum,
            ..files
        };
        if let Err(error) = setrlimit(Resource::Nofile, most) {
            tracing::warn!(error = %error_chain(&error), "cannot raise the limit of open files");
        }
        match address {
            ListenAddress::Tcp(address) => Ok(Self::Tcp(TcpListener::bind(address).await?)),
            ListenAddress::Unix(path) => Ok(Self::Unix(bind_private(path)?, path.clone())),
        }
    }

    /// The address with the port that the system chose; `None` for a socket file.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// Answers requests until it is dropped.
    pub async fn serve(self, router: Router) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => axum::serve(listener, router).await,
            Self::Unix(listener, _) => axum::serve(listener, router).await,
        }
    }
}

impl fmt::Display for ApiListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => write!(f, "http://{address}"),
                Err(_) => f.write_str("an unknown address"),
            },
            Self::Unix(_, path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Binds a socket file that only this user can open. One that no process listens on any more is replaced.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let is_stale = path.exists()
        && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_stale {
        std::fs::remove_file(path)?;
    }
    let others = umask(Mode::XUSR | Mode::RWXG | Mode::RWXO);
    let bound = UnixListener::bind(path);
    umask(others);
    bound
}
