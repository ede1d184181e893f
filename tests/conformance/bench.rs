//! A sandbox under test, and helpers for contracts.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ralph::exec::{Command, Discard, Exit};
use ralph::id::RunId;
use ralph::network::Policy;
use ralph::sandbox::daytona::DaytonaProvider;
use ralph::sandbox::docker;
use ralph::sandbox::docker_sandbox;
use ralph::sandbox::local::{LocalOptions, LocalProvider};
use ralph::sandbox::tart::{self, TartOptions};
use ralph::sandbox::{Provider, Sandbox, SandboxError, SandboxSpec};
use tempfile::TempDir;

use crate::bench_pool::{BenchPool, CreateBench};
use crate::support::guest::{self, SessionProvider};
use crate::support::vms::Site;
use crate::support::{base, engine};

/// Long enough for every contract on a busy host.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Panics if a future does not complete in time.
pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future)
        .await
        .expect("it does not complete")
}

/// The providers, and how to create a bench of each.
pub const PROVIDERS: [(&str, CreateBench); 7] = [
    ("local", |_| Box::pin(local())),
    ("session", |_| Box::pin(session())),
    ("docker", |_| Box::pin(docker())),
    ("daytona", |pool| Box::pin(daytona(pool))),
    ("sbx", |_| Box::pin(docker_sandbox("sbx"))),
    ("docker_sandbox_plugin", |_| Box::pin(docker_sandbox("docker"))),
    ("tart", |_| Box::pin(tart())),
];

/// How many bytes of output show that they are not kept in memory.
const FLOOD: u64 = 1_000_000_000;
/// For fakes, which run in this process.
const FLOOD_OF_A_FAKE: u64 = FLOOD / 10;

/// A sandbox of one provider.
pub struct Bench {
    pub provider: Arc<dyn Provider>,
    pub spec: SandboxSpec,
    pub sandbox: Box<dyn Sandbox>,
    /// A host directory for uploads and downloads.
    pub host: TempDir,
    /// How many bytes of output show that they are not kept in memory.
    pub flood: u64,
    /// The files of a new sandbox.
    initial: BTreeSet<Vec<u8>>,
    /// The directory or fake that the provider needs.
    _backing: Box<dyn Any + Send + Sync>,
}

/// The `local` provider, which is always available.
async fn local() -> Result<Bench, String> {
    let home = TempDir::new().unwrap();
    let provider = Arc::new(LocalProvider::new(options(&home)));
    Ok(Bench::new(provider, None, home, FLOOD).await)
}

/// The files of `local`, with commands in a warm session.
async fn session() -> Result<Bench, String> {
    let home = TempDir::new().unwrap();
    let guest = guest::install(home.path())?;
    let provider = Arc::new(SessionProvider::new(options(&home), guest));
    Ok(Bench::new(provider, None, home, FLOOD).await)
}

/// The `docker` provider, if there is an engine.
async fn docker() -> Result<Bench, String> {
    let image = base::image(&engine::engine().await?).await?;
    let home = TempDir::new().unwrap();
    let provider = Arc::new(docker::provider(engine::options(home.path())));
    Ok(Bench::new(provider, Some(image), home, FLOOD).await)
}

/// The `daytona` provider, with a fake Daytona.
async fn daytona(pool: &BenchPool) -> Result<Bench, String> {
    let daytona = pool.daytona().await?;
    let provider = Arc::new(DaytonaProvider::new(daytona.options()));
    let image = Some(daytona.image.clone());
    Ok(Bench::new(provider, image, (), FLOOD_OF_A_FAKE).await)
}

/// The `docker-sandbox` provider, with a fake of `sbx` or `docker sandbox`.
async fn docker_sandbox(program: &str) -> Result<Bench, String> {
    let image = base::image(&engine::engine().await?).await?;
    let site = Site::with(&[program], &image);
    let provider = Arc::new(docker_sandbox::provider(site.options()));
    Ok(Bench::new(provider, Some(image), site, FLOOD_OF_A_FAKE).await)
}

/// The `tart` provider, with a fake of `tart`.
async fn tart() -> Result<Bench, String> {
    let image = base::image(&engine::engine().await?).await?;
    let site = Site::with(&["tart"], &image);
    site.install("softnet", 0o4755);
    // The fake runs Linux, and a VM with another system has no warm session.
    site.put("os", "linux");
    let provider = Arc::new(tart::provider(TartOptions {
        vm: site.options(),
        dependencies: String::new(),
        project: "/project".into(),
        boot_timeout: TartOptions::BOOT_TIMEOUT,
    }));
    Ok(Bench::new(provider, Some(image), site, FLOOD_OF_A_FAKE).await)
}

fn options(home: &TempDir) -> LocalOptions {
    LocalOptions {
        base: home.path().join("runs"),
        path: std::env::var("PATH").unwrap(),
        passthrough: BTreeMap::from([("PASSED_THROUGH".to_owned(), "by choice".to_owned())]),
    }
}

impl Bench {
    async fn new(
        provider: Arc<dyn Provider>,
        image: Option<String>,
        backing: impl Any + Send + Sync,
        flood: u64,
    ) -> Self {
        let spec = SandboxSpec {
            image,
            env: BTreeMap::from([("FROM_SPEC".to_owned(), "of the spec".to_owned())]),
            completion_grace: Duration::from_millis(300),
            // The network is not a part of the contract.
            network: Policy::deny(),
            ..SandboxSpec::unrestricted(RunId::random())
        };
        let sandbox = provider.create(&spec).await.unwrap();
        let mut bench = Self {
            provider,
            spec,
            sandbox,
            host: TempDir::new().unwrap(),
            flood,
            initial: BTreeSet::new(),
            _backing: Box::new(backing),
        };
        bench.initial = bench.contents().await;
        bench
    }

    /// Removes all files that were created since. Returns false if that fails.
    pub async fn clean(&mut self) -> bool {
        self.sandbox.end_processes().await.unwrap();
        let found = self.contents().await;
        let left: Vec<u8> = found.difference(&self.initial).flatten().copied().collect();
        if !left.is_empty() {
            self.exec(Command::new("xargs").args(["-0", "rm", "-rf", "--"]).stdin(left))
                .await;
            if self.contents().await != self.initial {
                return false;
            }
        }
        self.host = TempDir::new().unwrap();
        true
    }

    /// The paths in the root and in the standard directories of sandboxes, each followed by a NUL byte.
    async fn contents(&self) -> BTreeSet<Vec<u8>> {
        // Not every provider has a `tmp` of its own.
        let line = "find . work home tmp -mindepth 1 -maxdepth 1 -print0 2> /dev/null; true";
        let exit = self.shell(line).await;
        let paths = exit.stdout.complete().unwrap();
        paths
            .split_inclusive(|byte| *byte == 0)
            .map(<[u8]>::to_vec)
            .collect()
    }

    /// A path inside.
    pub fn path(&self, name: &str) -> PathBuf {
        self.sandbox.root().join(name)
    }

    pub async fn try_exec(&self, command: Command) -> Result<Exit, SandboxError> {
        self.sandbox.exec(&command, &mut Discard).await
    }

    pub async fn exec(&self, command: Command) -> Exit {
        self.try_exec(command).await.unwrap()
    }

    pub async fn shell(&self, line: &str) -> Exit {
        self.exec(Command::shell(line)).await
    }

    /// What a shell line prints; it must succeed.
    pub async fn prints(&self, line: &str) -> String {
        let exit = self.shell(line).await;
        assert!(exit.success(), "{line}: {} {}", exit.status, exit.stderr.text());
        exit.stdout.text()
    }

    /// A shell line that runs forever and creates a file again and again, for [`Bench::lives`].
    pub fn heartbeat(&self, name: &str) -> String {
        // Callers put this line into quotes of either kind.
        let path = self.path(name).to_string_lossy().replace(' ', "\\ ");
        format!("while :; do : > {path}; sleep 0.02; done")
    }

    /// Waits for a heartbeat that must go on.
    pub async fn goes_on(&self, name: &str) {
        self.sandbox.files().remove(&self.path(name)).await.unwrap();
        self.wait_for(name).await;
    }

    /// Whether a heartbeat that must have ended still beats.
    pub async fn lives(&self, name: &str) -> bool {
        self.sandbox.files().remove(&self.path(name)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.has(name).await
    }

    /// Waits until a heartbeat ends.
    pub async fn stops(&self, name: &str) {
        while self.lives(name).await {}
    }

    /// Waits for a file to appear.
    pub async fn wait_for(&self, name: &str) {
        while !self.has(name).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Another sandbox, with this completion grace.
    pub async fn another(&self, grace: Duration) -> Box<dyn Sandbox> {
        let spec = SandboxSpec {
            run: RunId::random(),
            completion_grace: grace,
            ..self.spec.clone()
        };
        self.provider.create(&spec).await.unwrap()
    }

    async fn has(&self, name: &str) -> bool {
        let entries = self.sandbox.files().list(self.sandbox.root()).await.unwrap();
        entries.iter().any(|entry| entry.name == name)
    }
}
