//! What a sandbox of the fake is: a container without a network, with a user of its own.

use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;

use axum::body::Bytes;
use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use futures_util::{Stream, StreamExt};
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Who commands run as.
const USER: &str = "1000:1000";
/// The first process: it takes in what others leave behind, and starts nothing.
const KEEP: &str = "mkfifo /tmp/.keep; exec 3<>/tmp/.keep; while :; do read -r <&3; done";
/// Makes the user.
const MAKE_USER: &str = "mkdir -p /daytona && chown 1000:1000 /daytona && \
                         echo daytona:x:1000:1000::/daytona:/bin/bash >> /etc/passwd";

/// One container.
#[derive(Clone)]
pub(super) struct Room {
    pub(super) name: String,
    docker: Arc<Docker>,
}

/// A command that runs in a container.
pub(super) struct Running {
    docker: Arc<Docker>,
    id: String,
    pub(super) output: Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>,
    pub(super) input: Pin<Box<dyn AsyncWrite + Send>>,
}

/// A command that has ended.
pub(super) struct Ended {
    pub(super) code: i64,
    pub(super) output: Vec<u8>,
}

impl Room {
    /// A container of this image that runs, or why there is none.
    pub(super) async fn make(docker: Arc<Docker>, image: &str, env: &[String]) -> Result<Self, String> {
        let name = format!("ralph-test-daytona-{:016x}", fastrand::u64(..));
        let mut args: Vec<&str> = vec!["run", "-d", "--name", &name, "--network", "none"];
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
        run(&args).await?;
        run(&["exec", "--user", "0", &name, "/bin/sh", "-c", MAKE_USER]).await?;
        Ok(Self { name, docker })
    }

    pub(super) async fn stop(&self) {
        let _ = run(&["kill", &self.name]).await;
    }

    pub(super) async fn start(&self) {
        run(&["start", &self.name]).await.unwrap();
    }

    pub(super) async fn remove(&self) {
        let _ = run(&["rm", "-f", "-v", &self.name]).await;
    }

    /// As [`Room::remove`], for where nothing can be awaited.
    pub(super) fn remove_now(&self) {
        let _ = Command::new("docker")
            .args(["rm", "-f", "-v", &self.name])
            .output();
    }

    /// Starts a command.
    pub(super) async fn start_command(&self, argv: &[&str]) -> Running {
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
        match self.docker.start_exec(&id, Some(options)).await.unwrap() {
            StartExecResults::Attached { output, input } => Running {
                docker: self.docker.clone(),
                id,
                output,
                input,
            },
            StartExecResults::Detached => panic!("the engine keeps the streams to itself"),
        }
    }

    /// Runs a shell script to its end, with these bytes to read.
    pub(super) async fn script(&self, script: &str, args: &[&str], input: &[u8]) -> Ended {
        let words = [&["/bin/sh", "-c", script, "sh"], args].concat();
        let mut running = self.start_command(&words).await;
        let mut output = Vec::new();
        let feed = async {
            let _ = running.input.write_all(input).await;
            let _ = running.input.shutdown().await;
        };
        let take = async {
            while let Some(Ok(piece)) = running.output.next().await {
                output.extend_from_slice(&piece.into_bytes());
            }
        };
        tokio::join!(feed, take);
        Ended {
            code: code_of(&running.docker, &running.id).await,
            output,
        }
    }
}

impl Running {
    /// With which code it ended; its streams have.
    pub(super) async fn code(self) -> i64 {
        code_of(&self.docker, &self.id).await
    }
}

/// What is printed, wherever.
pub(super) fn bytes_of(piece: LogOutput) -> Bytes {
    piece.into_bytes()
}

async fn code_of(docker: &Docker, id: &str) -> i64 {
    for _ in 0..1000 {
        let found = docker.inspect_exec(id).await.unwrap();
        if found.running == Some(false) {
            return found.exit_code.unwrap_or(-1);
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    -1
}

async fn run(args: &[&str]) -> Result<(), String> {
    let output = tokio::process::Command::new("docker")
        .args(args)
        .output()
        .await
        .unwrap();
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
