//! Builds with `docker buildx`, which speaks the protocol of `BuildKit`.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::build::ImageBuild;
use super::log::BuildLog;
use super::{Engine, EngineEndpoint, EngineError, TarStream};
use crate::exec::{Command, Discard};

/// Timeout of `docker buildx version`.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);

/// Whether `docker buildx` is installed on the host.
pub(super) async fn is_installed(engine: &Engine) -> bool {
    let ask = docker(engine)
        .args(["buildx", "version"])
        .timeout(VERSION_TIMEOUT);
    let exit = engine.host.run(&ask, &mut Discard).await;
    exit.is_ok_and(|exit| exit.success())
}

/// Builds with the default builder, which is the engine itself: others do not see its images.
pub(super) async fn build(
    engine: &Engine,
    build: ImageBuild,
    log: &mut BuildLog<'_>,
) -> Result<(), EngineError> {
    let tag = build.tag.to_string();
    let beside = build.log.parent().unwrap_or(Path::new("."));
    let context =
        tempfile::tempdir_in(beside).map_err(EngineError::io("create a directory in", beside.display()))?;
    let command = command(engine, &build, context.path());
    let unpacked = unpack(build.context, context.path()).await;
    unpacked.map_err(|source| EngineError::Content {
        subject: tag.clone(),
        source,
    })?;
    let exit = engine
        .host
        .run(&command, log)
        .await
        .map_err(EngineError::io("run", &command.program))?;
    if exit.success() {
        return Ok(());
    }
    let message = exit.stderr.text();
    let last = message
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("ERROR: "));
    Err(last
        .and_then(|line| EngineError::from_message(&tag, line))
        .unwrap_or_else(|| log.build_error(&tag)))
}

fn command(engine: &Engine, build: &ImageBuild, context: &Path) -> Command {
    let pairs = |option: &'static str, pairs: &std::collections::BTreeMap<String, String>| {
        let flags = pairs
            .iter()
            .map(|(name, value)| [option.to_owned(), format!("{name}={value}")]);
        flags.flatten().collect::<Vec<_>>()
    };
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let mut command = docker(engine)
        .args([
            "buildx",
            "build",
            "--builder",
            "default",
            "--load",
            "--progress",
            "plain",
        ])
        .args(["--tag".to_owned(), build.tag.to_string()])
        .args(["--file".to_owned(), path(&context.join(&build.dockerfile))])
        .args(pairs("--build-arg", &build.build_args))
        .args(pairs("--label", &build.labels));
    if let Some(platform) = &build.platform {
        command = command.args(["--platform", platform.as_str()]);
    }
    if !build.use_cache {
        command = command.arg("--no-cache");
    }
    command.arg(path(context))
}

/// The `docker` command for this engine, independent of the current context.
fn docker(engine: &Engine) -> Command {
    let mut command = Command::new("docker").env("DOCKER_HOST", engine.near_endpoint().to_string());
    if let EngineEndpoint::Tls { certificates, .. } = engine.endpoint() {
        command = command
            .env("DOCKER_TLS_VERIFY", "1")
            .env("DOCKER_CERT_PATH", certificates.to_string_lossy());
    }
    match engine.environment.docker_dir() {
        Some(dir) => command.env("DOCKER_CONFIG", dir.to_string_lossy()),
        None => command,
    }
}

/// Unpacks the context into a directory, because the CLI reads a tar only from its standard input.
async fn unpack(tar: TarStream, dir: &Path) -> io::Result<()> {
    let (reader, mut writer) = io::pipe()?;
    let dir = dir.to_owned();
    let written = tokio::task::spawn_blocking(move || tar.write_to(&mut writer));
    let unpacked = tokio::task::spawn_blocking(move || {
        let mut archive = tar::Archive::new(reader);
        archive.set_preserve_permissions(true);
        archive.unpack(dir)
    });
    let (written, unpacked) = (written.await?, unpacked.await?);
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => unpacked,
    }
}
