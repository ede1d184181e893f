//! The one place that starts processes on the host.

use std::collections::BTreeMap;
use std::io;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Captured, Command, Exit, OutputSink, Status, Streams};

/// Starts processes on the host. They see the variables given here and their command's own, nothing else.
#[derive(Clone, Debug)]
pub struct Host {
    env: BTreeMap<String, String>,
    grace: Duration,
}

impl Host {
    /// A host whose commands start from exactly these variables (`PATH` and `HOME`, as a rule).
    #[must_use]
    pub fn new(env: BTreeMap<String, String>) -> Self {
        Self {
            env,
            grace: Duration::from_secs(2),
        }
    }

    /// How long a command that has ended may be kept waiting by a child that holds its streams.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Runs a command to its end, in a process group of its own.
    pub async fn run(&self, command: &Command, _output: &mut dyn OutputSink) -> io::Result<Exit> {
        let started = Instant::now();
        #[expect(clippy::disallowed_methods, reason = "this is the one module that may")]
        let mut process = tokio::process::Command::new(&command.program);
        process
            .args(&command.args)
            .env_clear()
            .envs(&self.env)
            .envs(&command.env)
            .process_group(0);
        process
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(dir) = &command.cwd {
            process.current_dir(dir);
        }
        let mut child = process.spawn()?;
        let (mut stdin, mut out, mut err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let feed = async {
            if let (Some(mut stdin), Some(bytes)) = (stdin.take(), &command.stdin) {
                let _ = stdin.write_all(bytes).await;
            }
        };
        let read_out = async {
            if let Some(out) = &mut out {
                let _ = out.read_to_end(&mut stdout).await;
            }
        };
        let read_err = async {
            if let Some(err) = &mut err {
                let _ = err.read_to_end(&mut stderr).await;
            }
        };
        let (_, _, _, status) = tokio::join!(feed, read_out, read_err, child.wait());
        let status = status?;
        let status = match status.code() {
            Some(code) => Status::Code(code),
            None => Status::Signal(std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or(0)),
        };
        let captured = |bytes: &[u8]| {
            let mut captured = Captured::with_limit(command.keep);
            captured.push(bytes);
            captured
        };
        Ok(Exit {
            status,
            duration: started.elapsed(),
            stdout: captured(&stdout),
            stderr: captured(&stderr),
            streams: Streams::Closed,
        })
    }
}
