//! A sandbox to try things on, and the few ways in which the contracts look at it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ralph::exec::{Command, Discard, Exit};
use ralph::id::RunId;
use ralph::network::Policy;
use ralph::sandbox::connect::{Choice, connect};
use ralph::sandbox::daytona::DaytonaOptions;
use ralph::sandbox::docker_sandbox::DockerSandboxOptions;
use ralph::sandbox::local::LocalOptions;
use ralph::sandbox::tart::TartOptions;
use ralph::sandbox::{Provider, Sandbox, SandboxError, SandboxSpec};
use tempfile::TempDir;

use crate::support::daytona::Daytona;
use crate::support::guest::{self, SessionProvider};
use crate::support::machines::Site;
use crate::support::{base, engine};

/// Long enough for every contract.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something that must end; a contract that hangs fails by it.
pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it does not end")
}

/// A fresh sandbox of one provider.
pub struct Bench {
    pub provider: Arc<dyn Provider>,
    pub spec: SandboxSpec,
    pub sandbox: Box<dyn Sandbox>,
    /// A directory of the host, for what goes in and comes out.
    pub host: TempDir,
    /// How many bytes of output show that nothing is kept of them, in the time there is.
    pub flood: u64,
    /// What the provider stands on, where that is a fake.
    ground: Option<Box<dyn std::any::Any>>,
}

/// The `local` provider: always here.
pub async fn local() -> Result<Bench, String> {
    let host = TempDir::new().unwrap();
    let choice = Choice::Local(options(&host));
    Ok(Bench::new(connect(&choice).unwrap(), None, host).await)
}

/// The files of `local`, and commands over a session with a guest.
pub async fn session() -> Result<Bench, String> {
    let host = TempDir::new().unwrap();
    let guest = guest::install(host.path())?;
    let provider = SessionProvider::new(options(&host), guest);
    Ok(Bench::new(Arc::new(provider), None, host).await)
}

/// The `docker` provider, on the engine that answers.
pub async fn docker() -> Result<Bench, String> {
    let engine = engine::engine().await?;
    let image = base::image(&engine).await?;
    let host = TempDir::new().unwrap();
    let choice = Choice::Docker(engine::options(host.path()));
    Ok(Bench::new(connect(&choice).unwrap(), Some(image), host).await)
}

/// The `daytona` provider, at a whole fake.
pub async fn daytona() -> Result<Bench, String> {
    let engine = engine::engine().await?;
    let image = base::image(&engine).await?;
    let daytona = Daytona::start(engine).await;
    let choice = Choice::Daytona(daytona.options());
    let bench = Bench::new(connect(&choice).unwrap(), Some(image), TempDir::new().unwrap()).await;
    Ok(bench.on(daytona))
}

/// The `daytona` provider, at a fake that somebody else keeps. Less is enough there, since more comes of it elsewhere.
pub async fn daytona_at(options: DaytonaOptions, image: &str) -> Bench {
    let provider = connect(&Choice::Daytona(options)).unwrap();
    let bench = Bench::new(provider, Some(image.to_owned()), TempDir::new().unwrap()).await;
    bench.on(())
}

/// The `docker-sandbox` provider, on a program that stands in for `sbx`.
pub async fn sbx() -> Result<Bench, String> {
    docker_sandbox("sbx").await
}

/// The `docker-sandbox` provider, on a program that stands in for `docker sandbox`.
pub async fn docker_sandbox_plugin() -> Result<Bench, String> {
    docker_sandbox("docker").await
}

async fn docker_sandbox(program: &str) -> Result<Bench, String> {
    let image = base::image(&engine::engine().await?).await?;
    let site = Site::with(&[program], &image);
    let choice = Choice::DockerSandbox(DockerSandboxOptions {
        machines: site.options(),
    });
    let bench = Bench::new(connect(&choice).unwrap(), Some(image), TempDir::new().unwrap()).await;
    Ok(bench.on(site))
}

/// The `tart` provider, on a program that stands in for `tart`.
pub async fn tart() -> Result<Bench, String> {
    let image = base::image(&engine::engine().await?).await?;
    let site = Site::with(&["tart"], &image);
    site.install("softnet", 0o4755);
    let choice = Choice::Tart(TartOptions {
        machines: site.options(),
        dependencies: String::new(),
        boot_patience: TartOptions::BOOT_PATIENCE,
    });
    let bench = Bench::new(connect(&choice).unwrap(), Some(image), TempDir::new().unwrap()).await;
    Ok(bench.on(site))
}

fn options(host: &TempDir) -> LocalOptions {
    LocalOptions {
        base: host.path().join("runs"),
        path: std::env::var("PATH").unwrap(),
        passthrough: BTreeMap::from([("PASSED_THROUGH".to_owned(), "by choice".to_owned())]),
    }
}

impl Bench {
    async fn new(provider: Arc<dyn Provider>, image: Option<String>, host: TempDir) -> Self {
        let spec = SandboxSpec {
            image,
            env: BTreeMap::from([("FROM_SPEC".to_owned(), "of the spec".to_owned())]),
            completion_grace: Duration::from_millis(300),
            // What needs a network is not tried here.
            network: Policy::deny(),
            ..SandboxSpec::unrestricted(RunId::random())
        };
        let sandbox = provider.create(&spec).await.unwrap();
        Self {
            provider,
            spec,
            sandbox,
            host,
            flood: 1_000_000_000,
            ground: None,
        }
    }

    /// The same on a fake, which lives as long, and carries less because all of it is in this process.
    fn on(mut self, ground: impl std::any::Any) -> Self {
        self.ground = Some(Box::new(ground));
        self.flood /= 10;
        self
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

    /// A shell line that never ends and shows that it lives, for [`Bench::lives`].
    pub fn heartbeat(&self, name: &str) -> String {
        // A path may have spaces, and this line stands in quotes of either kind.
        let path = self.path(name).to_string_lossy().replace(' ', "\\ ");
        format!("while :; do : > {path}; sleep 0.02; done")
    }

    /// Whether a heartbeat still beats.
    pub async fn lives(&self, name: &str) -> bool {
        self.sandbox.remove(&self.path(name)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.has(name).await
    }

    /// Whether a heartbeat that is being ended stops: the word for it may still be under way.
    pub async fn stops(&self, name: &str) -> bool {
        for _ in 0..10 {
            if !self.lives(name).await {
                return true;
            }
        }
        false
    }

    /// Waits for a file to appear.
    pub async fn wait_for(&self, name: &str) {
        for _ in 0..500 {
            if self.has(name).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{name} does not appear");
    }

    async fn has(&self, name: &str) -> bool {
        let entries = self.sandbox.list(self.sandbox.root()).await.unwrap();
        entries.iter().any(|entry| entry.name == name)
    }
}
