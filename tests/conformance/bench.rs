//! A sandbox to try things on, and the few ways in which the contracts look at it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ralph::exec::{Command, Discard, Exit};
use ralph::id::RunId;
use ralph::network::Policy;
use ralph::sandbox::connect::{Choice, connect};
use ralph::sandbox::local::LocalOptions;
use ralph::sandbox::{Provider, Resources, Sandbox, SandboxError, SandboxSpec};
use tempfile::TempDir;

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
}

/// The `local` provider: always here.
pub async fn local() -> Result<Bench, String> {
    let host = TempDir::new().unwrap();
    let choice = Choice::Local(LocalOptions {
        base: host.path().join("runs"),
        path: std::env::var("PATH").unwrap(),
        passthrough: BTreeMap::from([("PASSED_THROUGH".to_owned(), "by choice".to_owned())]),
    });
    Ok(Bench::new(connect(&choice).unwrap(), host).await)
}

impl Bench {
    async fn new(provider: Arc<dyn Provider>, host: TempDir) -> Self {
        let spec = SandboxSpec {
            run: RunId::random(),
            image: None,
            resources: Resources::default(),
            network: Policy::allow_all(),
            env: BTreeMap::from([("FROM_SPEC".to_owned(), "of the spec".to_owned())]),
            completion_grace: Duration::from_millis(300),
        };
        let sandbox = provider.create(&spec).await.unwrap();
        Self {
            provider,
            spec,
            sandbox,
            host,
        }
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
        format!("while :; do : > {}; sleep 0.02; done", self.path(name).display())
    }

    /// Whether a heartbeat still beats.
    pub async fn lives(&self, name: &str) -> bool {
        self.sandbox.remove(&self.path(name)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.has(name).await
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
