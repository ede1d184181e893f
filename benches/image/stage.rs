//! Where the measurements take place: a temporary directory, an engine, and the programs that are compared with.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ralph::engine::{Engine, EngineEnvironment, EngineError, EngineImage};
use ralph::exec::{Command, Discard, Host};
use tempfile::TempDir;

use super::Fallible;

/// The label of every image that is measured with.
pub(crate) const LABEL: &str = "ralph.bench";

/// A name for an image of this measurement.
pub(crate) fn tag(name: &str) -> String {
    format!("ralph-bench-{}:{name}", std::process::id())
}

pub(crate) struct Stage {
    pub(crate) engine: Engine,
    pub(crate) host: Host,
    dir: TempDir,
}

impl Stage {
    pub(crate) async fn set_up() -> Fallible<Self> {
        #[expect(clippy::disallowed_methods, reason = "the engine is where the caller has it")]
        let env: BTreeMap<String, String> = std::env::vars().collect();
        let home = env.get("HOME").map(PathBuf::from);
        let host = Host::new(env.clone());
        let engine = Engine::connect(&EngineEnvironment { env, home }, &host).await?;
        let info = engine.info().await?;
        println!("engine: {} {}, {:?}", engine.endpoint(), info.version, info.store);
        Ok(Self {
            engine,
            host,
            dir: tempfile::Builder::new().prefix("ralph-bench-").tempdir()?,
        })
    }

    /// A path of that name in the temporary directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command and returns what it printed and how long that took. One that fails is an error.
    pub(crate) async fn run(&self, command: &Command) -> Fallible<(String, Duration)> {
        let started = Instant::now();
        let exit = self.host.run(command, &mut Discard).await?;
        let spent = started.elapsed();
        if exit.success() {
            return Ok((exit.stdout.text(), spent));
        }
        Err(format!("`{command}` failed: {}", exit.stderr.text()).into())
    }

    /// Runs git in a directory.
    pub(crate) async fn git(&self, dir: &Path, args: &[&str]) -> Fallible<()> {
        let command = Command::new("git").args(args.iter().copied()).cwd(dir);
        self.run(&command).await.map(drop)
    }

    /// Removes the images of this measurement: an image after those that stand on it, in whatever order the engine
    /// lists them.
    pub(crate) async fn clean(&self) -> Fallible<()> {
        let mut left = self.images().await?;
        while !left.is_empty() {
            let before = left.len();
            for image in &left {
                match self.engine.remove_image(&image.id.to_string()).await {
                    Err(EngineError::Conflict { .. }) => {}
                    removed => removed?,
                }
            }
            left = self.images().await?;
            if left.len() == before {
                return Err(format!("these images cannot be removed: {left:?}").into());
            }
        }
        Ok(())
    }

    async fn images(&self) -> Fallible<Vec<EngineImage>> {
        let label = format!("{LABEL}={}", std::process::id());
        Ok(self.engine.images(Some(&label)).await?)
    }

    /// The `docker` command, on the engine that is measured.
    pub(crate) fn docker(&self) -> Command {
        Command::new("docker").env("DOCKER_HOST", self.engine.endpoint().to_string())
    }
}

/// Writes so many bytes that cannot be packed, always the same for one seed.
pub(crate) fn write_noise(out: &mut dyn Write, seed: u64, bytes: u64) -> Fallible<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut block = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        random.fill(&mut block);
        let part = usize::try_from(left.min(block.len() as u64))?;
        out.write_all(&block[..part])?;
        left -= part as u64;
    }
    Ok(())
}

/// A file of noise.
pub(crate) fn write_file(path: &Path, seed: u64, bytes: u64) -> Fallible<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    write_noise(&mut std::fs::File::create(path)?, seed, bytes)
}
