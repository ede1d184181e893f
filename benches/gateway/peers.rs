//! Everybody that is measured, each a process of its own that ends with this one.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ralph::exec::{Command, Discard, Host};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::Fallible;
use super::origin;
use super::route::Route;
use super::serve;

/// The ways to the origin that are compared.
pub(crate) struct Peers {
    pub(crate) direct: Route,
    pub(crate) ours: Route,
    pub(crate) squid: Route,
    pub(crate) mitmproxy: Route,
    origin: u16,
    host: Host,
    dir: TempDir,
    // Dropping it ends them.
    processes: std::sync::Mutex<JoinSet<()>>,
}

impl Peers {
    /// Starts them all. `installed` is where squid and mitmproxy are.
    pub(crate) async fn start(installed: &Path) -> Fallible<Self> {
        #[expect(
            clippy::disallowed_methods,
            reason = "programs need the caller's PATH and HOME"
        )]
        let env: BTreeMap<String, String> = std::env::vars().collect();
        let origin = origin::start().await?;
        let direct = Route::direct(origin);
        let mut peers = Self {
            ours: direct.clone(),
            squid: direct.clone(),
            mitmproxy: direct.clone(),
            direct,
            origin,
            host: Host::new(env),
            dir: tempfile::Builder::new().prefix("ralph-bench-").tempdir()?,
            processes: std::sync::Mutex::default(),
        };
        peers.ours = peers.gateways(1).await?.routes.remove(0);
        peers.squid = peers.start_squid(&installed.join("squid")).await?;
        peers.mitmproxy = peers.start_mitmproxy(&installed.join("mitmproxy")).await?;
        Ok(peers)
    }

    /// One process with so many gateways.
    pub(crate) async fn gateways(&self, count: usize) -> Fallible<Gateways> {
        let file = self.path(&format!("gateways-{count}"));
        let program = std::env::current_exe()?.display().to_string();
        let args = [
            serve::ROLE.to_owned(),
            count.to_string(),
            file.display().to_string(),
        ];
        self.keep(Command::new(program).args(args));
        let written = wait(async || std::fs::read_to_string(&file).ok()).await?;
        let mut lines = written.lines();
        let process = lines.next().ok_or("no process")?.parse()?;
        let origin = format!("{}:{}", serve::ORIGIN, self.origin);
        let routes = lines
            .map(|url| Route::of_url(url, origin.clone()))
            .collect::<Fallible<_>>()?;
        Ok(Gateways { process, routes })
    }

    /// It writes down each request, as ours does, and keeps nothing.
    async fn start_squid(&self, root: &Path) -> Fallible<Route> {
        let address = free_address()?;
        let dir = self.path("squid");
        std::fs::create_dir(&dir)?;
        // It changes to a user of its own, who has to write there.
        for open in [self.dir.path(), &dir] {
            std::fs::set_permissions(open, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
        }
        let (shown, root) = (dir.display(), root.display());
        let settings = format!(
            "http_port {address}\nhttp_access allow all\ncache deny all\npid_filename none\npinger_enable off\n\
             access_log stdio:{shown}/access.log\ncache_log {shown}/cache.log\ncache_store_log none\n\
             coredump_dir {shown}\nmime_table {root}/usr/share/squid/mime.conf\n\
             icon_directory {root}/usr/share/squid/icons\nerror_directory {root}/usr/share/squid/errors/en\n\
             unlinkd_program {root}/usr/lib/squid/unlinkd\nshutdown_lifetime 1 second\n"
        );
        let file = dir.join("squid.conf");
        std::fs::write(&file, settings)?;
        let libraries = format!(
            "{root}/usr/lib/{}-linux-gnu:{root}/usr/lib",
            std::env::consts::ARCH
        );
        let command = Command::new(format!("{root}/usr/sbin/squid"))
            .args(["-N", "-f", &file.display().to_string()])
            .env("LD_LIBRARY_PATH", libraries);
        self.start_proxy(command, address).await
    }

    async fn start_mitmproxy(&self, root: &Path) -> Fallible<Route> {
        let address = free_address()?;
        let command = Command::new(root.join("bin/mitmdump").display().to_string())
            .args(["--quiet", "--listen-host", "127.0.0.1", "--listen-port"])
            .arg(address.port().to_string())
            .args(["--set", &format!("confdir={}", self.path("mitmproxy").display())]);
        self.start_proxy(command, address).await
    }

    async fn start_proxy(&self, command: Command, address: SocketAddr) -> Fallible<Route> {
        self.keep(command);
        wait(async || TcpStream::connect(address).await.ok()).await?;
        Ok(Route::proxy(address, format!("127.0.0.1:{}", self.origin)))
    }

    fn keep(&self, command: Command) {
        let host = self.host.clone();
        let running = async move {
            match host.run(&command, &mut Discard).await {
                Ok(exit) => println!("`{command}` ended with {}: {}", exit.status, exit.stderr.text()),
                Err(error) => println!("`{command}`: {error}"),
            }
        };
        let mut processes = self
            .processes
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        processes.spawn(running);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// Gateways in one process.
pub(crate) struct Gateways {
    pub(crate) process: u32,
    pub(crate) routes: Vec<Route>,
}

/// Another process is unlikely to take it meanwhile.
fn free_address() -> Fallible<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Waits until something is there.
async fn wait<T>(look: impl AsyncFn() -> Option<T>) -> Fallible<T> {
    for _ in 0..600 {
        if let Some(found) = look().await {
            return Ok(found);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err("a program did not start".into())
}
