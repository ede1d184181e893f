//! A real Postgres on loopback, started by `tests/support/postgres-server`.

use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::skip;

/// A running server. It ends when dropped, and when this process does.
pub struct PostgresServer {
    address: String,
    orders: Mutex<Option<ChildStdin>>,
    process: Child,
    home: tempfile::TempDir,
}

/// The server that the tests of this process share.
static SHARED: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());

impl PostgresServer {
    /// The server that all tests share, or why there is none. Commits are not synced: no test makes the host crash.
    pub fn shared() -> Result<Arc<Self>, String> {
        let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return Ok(server);
        }
        let server = Arc::new(Self::start(&["fsync=off", "max_connections=300"])?);
        *shared = Arc::downgrade(&server);
        Ok(server)
    }

    /// A server of its own, or why there is none.
    pub fn start(settings: &[&str]) -> Result<Self, String> {
        let debian = Path::new("/usr/lib/postgresql").exists();
        if !debian {
            skip::program("initdb")?;
        }
        let home = tempfile::tempdir().unwrap();
        // Its user is another one.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(home.path(), mode).unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let log = File::create(home.path().join("log")).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/postgres-server");
        let mut process = Command::new(script)
            .arg(home.path().join("data"))
            .arg(port.to_string())
            .args(settings)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut server = Self {
            address: format!("127.0.0.1:{port}"),
            orders: Mutex::new(process.stdin.take()),
            process,
            home,
        };
        server.wait_until_it_answers();
        Ok(server)
    }

    /// The address of one of its databases.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://ralph@{}/{database}", self.address)
    }

    /// Kills it as a crash would and starts it again. Returns at once.
    pub fn restart(&self) {
        let mut orders = self.orders.lock().unwrap();
        orders.as_mut().unwrap().write_all(b"restart\n").unwrap();
    }

    fn wait_until_it_answers(&mut self) {
        let started = Instant::now();
        while !self.log().contains("ready to accept connections") {
            let ended = self.process.try_wait().unwrap();
            assert!(
                ended.is_none() && started.elapsed() < Duration::from_secs(60),
                "postgres does not come up ({ended:?}):\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        drop(self.orders.lock().map(|mut orders| orders.take()));
        let _ = self.process.wait();
    }
}
