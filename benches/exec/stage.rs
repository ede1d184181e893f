//! Where the measurements take place: an engine, an image with nothing but busybox in it, and sandboxes made from that.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ralph::engine::{Engine, EngineEnvironment};
use ralph::exec::{Command, Discard, Host};
use ralph::id::RunId;
use ralph::sandbox::docker::{self, DockerOptions, SealChoice, WorkspaceChoice};
use ralph::sandbox::{Provider, Sandbox, SandboxSpec};
use tempfile::TempDir;

use super::Fallible;

/// The programs of busybox that the measurements use.
const PROGRAMS: [&str; 5] = ["cat", "sh", "sleep", "true", "truncate"];

pub(crate) struct Stage {
    pub(crate) engine: Engine,
    image: String,
    host: Host,
    surroundings: EngineEnvironment,
    dir: TempDir,
}

impl Stage {
    pub(crate) async fn set_up() -> Fallible<Self> {
        Self::with_files(&[]).await
    }

    /// With these files in the image as well, each with its path there.
    pub(crate) async fn with_files(files: &[(PathBuf, PathBuf)]) -> Fallible<Self> {
        #[expect(clippy::disallowed_methods, reason = "the engine is where the caller has it")]
        let env: BTreeMap<String, String> = std::env::vars().collect();
        let home = env.get("HOME").map(PathBuf::from);
        let host = Host::new(env.clone());
        let surroundings = EngineEnvironment { env, home };
        let engine = Engine::connect(&surroundings, &host).await?;
        let info = engine.info().await?;
        println!("engine: {} {}, {:?}", engine.endpoint(), info.version, info.store);
        let stage = Self {
            engine,
            image: format!("ralph-bench-exec:{}", RunId::random()),
            host,
            surroundings,
            dir: tempfile::Builder::new().prefix("ralph-bench-").tempdir()?,
        };
        let archive = stage.dir.path().join("image.tar");
        write_image(&archive, files)?;
        let import = stage.docker(["import", &archive.to_string_lossy(), &stage.image]);
        stage.run(&import).await?;
        Ok(stage)
    }

    pub(crate) async fn tear_down(&self) -> Fallible<()> {
        self.run(&self.docker(["rmi", &self.image])).await.map(drop)
    }

    /// A provider that knows of no other's sandboxes, as a new process would have it.
    pub(crate) fn provider(&self) -> impl Provider + use<> {
        self.provider_with(SealChoice::Auto)
    }

    /// The same, which seals networks in this way.
    pub(crate) fn provider_with(&self, seal: SealChoice) -> impl Provider + use<> {
        docker::provider(DockerOptions {
            workspace: WorkspaceChoice::Auto,
            base: self.dir.path().join("sandboxes"),
            engine: self.surroundings.clone(),
            host: self.host.clone(),
            guest_dir: self.dir.path().join("guest"),
            cache: self.dir.path().join("image-files"),
            seal,
            runtime: None,
            host_name: "bench".to_owned(),
            clock: ralph::clock::system(),
        })
    }

    /// A sandbox without a policy.
    pub(crate) fn spec(&self) -> SandboxSpec {
        SandboxSpec {
            image: Some(self.image.clone()),
            ..SandboxSpec::unrestricted(RunId::random())
        }
    }

    pub(crate) fn image(&self) -> &str {
        &self.image
    }

    /// The `docker` command, on the engine that is measured.
    pub(crate) fn docker<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        Command::new("docker")
            .args(args)
            .env("DOCKER_HOST", self.engine.endpoint().to_string())
    }

    /// How long a command of the host takes. One that fails is an error.
    pub(crate) async fn run(&self, command: &Command) -> Fallible<Duration> {
        let started = Instant::now();
        let exit = self.host.run(command, &mut Discard).await?;
        let spent = started.elapsed();
        if exit.success() {
            return Ok(spent);
        }
        Err(format!("`{command}` failed: {}", exit.stderr.text()).into())
    }
}

/// How long a command in a sandbox takes. One that fails is an error.
pub(crate) async fn exec(sandbox: &dyn Sandbox, command: &Command) -> Fallible<Duration> {
    let started = Instant::now();
    let exit = sandbox.exec(command, &mut Discard).await?;
    let spent = started.elapsed();
    match sandbox.notices().first() {
        // What is measured would not be what the figure says.
        Some(notice) => Err(notice.clone().into()),
        None if exit.success() => Ok(spent),
        None => Err(format!("`{command}` failed: {}", exit.stderr.text()).into()),
    }
}

/// A root file system: busybox under the names of its programs, and these files.
fn write_image(archive: &Path, files: &[(PathBuf, PathBuf)]) -> Fallible<()> {
    let busybox = which::which("busybox")?;
    let mut archive = tar::Builder::new(File::create(archive)?);
    // Engines do not know files with holes.
    archive.sparse(false);
    archive.append_path_with_name(busybox, "bin/busybox")?;
    for program in PROGRAMS {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_mode(0o777);
        header.set_size(0);
        archive.append_link(&mut header, format!("bin/{program}"), "busybox")?;
    }
    for (source, target) in files {
        archive.append_path_with_name(source, target)?;
    }
    archive.into_inner()?.sync_all()?;
    Ok(())
}
