//! A `docker` provider under test.

use std::path::Path;
use std::time::Duration;

use ralph::engine::Engine;
use ralph::exec::{Command, Discard, Exit};
use ralph::id::RunId;
use ralph::network::Policy;
use ralph::sandbox::docker::{DockerOptions, provider};
use ralph::sandbox::{Provider, Purpose, Resources, Sandbox, SandboxSpec};
use tempfile::TempDir;

use crate::support::engine::docker;
use crate::support::{base, engine};

/// Enough for all tests, and little enough to be used up by one.
pub const MEMORY: u64 = 256 << 20;

/// A provider with a directory of its own, and the spec of a sandbox.
pub struct DockerTest {
    pub engine: Engine,
    pub provider: Box<dyn Provider>,
    pub spec: SandboxSpec,
    pub dir: TempDir,
}

impl DockerTest {
    /// Uses the engine of the host. The error is the reason to skip the test.
    pub async fn new() -> Result<Self, String> {
        let engine = engine::engine().await?;
        let image = base::image(&engine).await?;
        let dir = TempDir::new().unwrap();
        Ok(Self::on(engine, engine::options(dir.path()), image, dir))
    }

    pub fn on(engine: Engine, options: DockerOptions, image: String, dir: TempDir) -> Self {
        let run = RunId::random();
        let spec = SandboxSpec {
            purpose: Purpose {
                agent: "test".to_owned(),
                branch: format!("ralph/{run}"),
                task: format!("task of {run}"),
            },
            image: Some(image),
            resources: Resources {
                memory_bytes: Some(MEMORY),
                cpu_millis: Some(1000),
                disk_bytes: None,
            },
            network: Policy::deny(),
            completion_grace: Duration::from_millis(300),
            ..SandboxSpec::unrestricted(run)
        };
        Self {
            engine,
            provider: Box::new(provider(options)),
            spec,
            dir,
        }
    }

    /// The same task in another run.
    pub fn another_run(&self) -> SandboxSpec {
        SandboxSpec {
            run: RunId::random(),
            ..self.spec.clone()
        }
    }

    pub async fn create(&self) -> Box<dyn Sandbox> {
        self.provider.create(&self.spec).await.unwrap()
    }

    /// A sandbox of another run beside the first.
    pub async fn create_another(&self) -> Box<dyn Sandbox> {
        self.provider.create(&self.another_run()).await.unwrap()
    }

    /// The output of `docker inspect` with this template.
    pub fn inspect(&self, container: &str, template: &str) -> String {
        let output = docker(&self.engine, &["inspect", "--format", template, container]);
        output.trim().to_owned()
    }

    /// Whether the engine has a container of this name.
    pub async fn has(&self, container: &str) -> bool {
        self.engine.container(container).await.unwrap().is_some()
    }
}

/// Runs a shell line.
pub async fn shell(sandbox: &dyn Sandbox, line: &str) -> Exit {
    let command = Command::shell(line).timeout(Duration::from_secs(40));
    sandbox.exec(&command, &mut Discard).await.unwrap()
}

/// What a shell line prints; it must succeed.
pub async fn prints(sandbox: &dyn Sandbox, line: &str) -> String {
    let exit = shell(sandbox, line).await;
    assert!(exit.success(), "{line}: {} {}", exit.status, exit.stderr.text());
    exit.stdout.text()
}

/// The number of sandbox directories.
pub fn sandbox_dirs(dir: &Path) -> usize {
    std::fs::read_dir(dir.join("sandboxes")).map_or(0, Iterator::count)
}
