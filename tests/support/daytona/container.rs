//! A sandbox as a container without a network, with its own user.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use axum::body::Bytes;
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bollard::{ClientVersion, Docker};
use futures_util::StreamExt;
use ralph::engine::Engine;
use tokio::io::AsyncWriteExt;

use super::room::{Piece, Running};

/// The user of commands.
const USER: &str = "1000:1000";
/// The first process. It reaps orphans.
const KEEP: &str = "mkfifo /tmp/.keep; exec 3<>/tmp/.keep; while :; do read -r <&3; done";
/// Creates the user.
const MAKE_USER: &str = "mkdir -p /daytona && chown 1000:1000 /daytona && \
                         echo daytona:x:1000:1000::/daytona:/bin/bash >> /etc/passwd";

/// One container.
#[derive(Clone)]
pub struct Container {
    name: String,
    engine: String,
    docker: Arc<Docker>,
}

impl Container {
    /// Starts a container of this image. The error says why that failed.
    pub async fn make(engine: &Engine, image: &str, env: &[String]) -> Result<Self, String> {
        let endpoint = engine.endpoint().to_string();
        let version = ClientVersion {
            major_version: 1,
            minor_version: 41,
        };
        let path = endpoint.trim_start_matches("unix://");
        let room = Self {
            name: format!("ralph-test-daytona-{:016x}", fastrand::u64(..)),
            docker: Arc::new(Docker::connect_with_unix(path, 600, &version).unwrap()),
            engine: endpoint,
        };
        let mut args: Vec<&str> = vec!["run", "-d", "--name", &room.name, "--network", "none"];
        args.extend([
            "--user",
            USER,
            "--env",
            "HOME=/daytona",
            "--label",
            "ralph-test-daytona",
        ]);
        args.extend(env.iter().flat_map(|pair| ["--env", pair.as_str()]));
        args.extend([image, "/bin/bash", "-c", KEEP]);
        room.docker(&args).await?;
        let make_user = ["exec", "--user", "0", &room.name, "/bin/sh", "-c", MAKE_USER];
        room.docker(&make_user).await?;
        Ok(room)
    }

    pub async fn stop(&self) {
        let _ = self.docker(&["kill", &self.name]).await;
    }

    pub async fn start(&self) {
        self.docker(&["start", &self.name]).await.unwrap();
    }

    pub async fn remove(&self) {
        let _ = self.docker(&["rm", "-f", "-v", &self.name]).await;
    }

    pub fn remove_now(&self) {
        let mut command = Command::new("docker");
        let command = command.env("DOCKER_HOST", &self.engine);
        let _ = command.args(["rm", "-f", "-v", &self.name]).output();
    }

    pub async fn start_command(&self, argv: &[&str]) -> Running {
        let options = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            working_dir: Some("/daytona".to_owned()),
            cmd: Some(argv.iter().map(|arg| (*arg).to_owned()).collect()),
            ..Default::default()
        };
        let id = self.docker.create_exec(&self.name, options).await.unwrap().id;
        let options = StartExecOptions {
            output_capacity: Some(64 * 1024),
            ..Default::default()
        };
        let started = self.docker.start_exec(&id, Some(options)).await.unwrap();
        let StartExecResults::Attached { output, input } = started else {
            panic!("the engine keeps the streams to itself");
        };
        let pieces = output.take_while(|piece| std::future::ready(piece.is_ok()));
        let docker = self.docker.clone();
        Running {
            output: pieces.map(|piece| piece_of(piece.unwrap())).boxed(),
            input,
            code: Box::pin(async move { code_of(&docker, &id).await }),
        }
    }

    async fn docker(&self, args: &[&str]) -> Result<(), String> {
        docker(&self.engine, args, b"").await
    }
}

/// Builds an image from a Dockerfile and the files of these archives, as Daytona's builder does: without directories, and
/// without the targets of links. The engine caches it.
pub async fn build(engine: &Engine, dockerfile: &str, contexts: &[Bytes]) -> Result<String, String> {
    let mut tar = tar::Builder::new(Vec::new());
    add(&mut tar, Path::new("Dockerfile"), 0o644, dockerfile.as_bytes());
    for context in contexts {
        let mut archive = tar::Archive::new(&context[..]);
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            if entry.header().entry_type().is_dir() {
                continue;
            }
            let (path, mode) = (entry.path().unwrap().into_owned(), entry.header().mode().unwrap());
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            add(&mut tar, &path, mode, &content);
        }
    }
    let archive = tar.into_inner().unwrap();
    let hash = ralph::engine::Digest::sha256(&archive);
    let name = format!("ralph-test-daytona-build:{}", &hash.hex()[..12]);
    let endpoint = engine.endpoint().to_string();
    docker(&endpoint, &["build", "--quiet", "--tag", &name, "-"], &archive).await?;
    Ok(name)
}

fn add(tar: &mut tar::Builder<Vec<u8>>, path: &Path, mode: u32, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(content.len() as u64);
    header.set_mtime(0);
    tar.append_data(&mut header, path, content).unwrap();
}

async fn docker(engine: &str, args: &[&str], input: &[u8]) -> Result<(), String> {
    let mut child = tokio::process::Command::new("docker")
        .env("DOCKER_HOST", engine)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(input).await;
    drop(stdin);
    let ended = child.wait_with_output().await.unwrap();
    if ended.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&ended.stderr).into_owned())
    }
}

fn piece_of(printed: LogOutput) -> Piece {
    match printed {
        LogOutput::StdErr { message } => Piece::Error(message),
        printed => Piece::Output(printed.into_bytes()),
    }
}

async fn code_of(docker: &Docker, id: &str) -> i64 {
    for _ in 0..12_000 {
        let found = docker.inspect_exec(id).await.unwrap();
        if found.running == Some(false) {
            return found.exit_code.unwrap_or(-1);
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    -1
}
