//! Runs a command through a session of the toolbox, without the guest. Evidence is collected this way.
//!
//! In contrast to the warm session, output arrives by line and as text, signals appear as exit codes, and processes that
//! hold the streams of a finished command are waited for.

use std::time::Duration;

use reqwest::multipart::Part;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::client::DaytonaClient;
use super::error::DaytonaError;
use super::sandbox::DaytonaSandbox;
use super::socket;
use super::wire::{ToolboxCommandInfo, ToolboxCommandStarted};
use crate::exec::{Command, CommandOutput, Exit, ExitStatus, OutputSink, OutputStream, WaitLimits};
use crate::sandbox::shell;

/// How often a log whose connection broke is opened again.
const MAX_REOPENS: u32 = 5;
/// How long Daytona may take to report the exit code after the end of the log.
const EXIT_CODE_TIMEOUT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

/// The markers before each line of a log.
const STDOUT_MARK: [u8; 3] = [1; 3];
const STDERR_MARK: [u8; 3] = [2; 3];

impl DaytonaSandbox {
    /// Runs a command to its end.
    pub(super) async fn exec_in_session(
        &self,
        command: &Command,
        output: &mut dyn OutputSink,
    ) -> Result<Exit, DaytonaError> {
        let started = Instant::now();
        let input = match &command.stdin {
            Some(bytes) => self.upload_part(Part::bytes(bytes.clone())).await?,
            None => "/dev/null".to_owned(),
        };
        let session = ToolboxSession::open(&self.toolbox).await?;
        let path = session.start(self.line(command, &input)).await?;
        let mut log = SessionLog::new(command.keep);
        let limits = WaitLimits::new(command, started);
        let status = match self.follow(&path, &mut log, &limits, output).await? {
            None => self.exit_code(&path).await?,
            Some(limit) => limit,
        };
        session.end().await?;
        Ok(log.into_exit(status, started, output))
    }

    /// The command as a line for the shell of the session. It runs in a subshell.
    fn line(&self, command: &Command, input: &str) -> String {
        let dir = command.dir_in(&self.context.dir);
        let enter = shell::enter(&dir, self.context.env.iter().chain(&command.env));
        format!("( {enter} && exec {command} ) < {}", shell::quote(input))
    }

    /// Reads the log of a command until it ends or a limit is reached. Opens it again if the connection breaks.
    async fn follow(
        &self,
        command_path: &str,
        log: &mut SessionLog,
        limits: &WaitLimits,
        output: &mut dyn OutputSink,
    ) -> Result<Option<ExitStatus>, DaytonaError> {
        let path = format!("{command_path}/logs");
        let (mut last_output, mut reopens) = (Instant::now(), 0);
        loop {
            let call = self.toolbox.get(&path).query(&[("follow", "true")]);
            let (mut reader, _writer) = socket::open(call, path.clone()).await?;
            log.restart();
            let error = loop {
                tokio::select! {
                    piece = reader.next() => match piece {
                        Ok(Some(bytes)) => {
                            last_output = Instant::now();
                            log.push(&bytes, output);
                        }
                        Ok(None) => return Ok(None),
                        Err(error) => break error,
                    },
                    limit = limits.exceeded(last_output) => return Ok(Some(limit)),
                }
            };
            if reopens == MAX_REOPENS {
                return Err(error);
            }
            reopens += 1;
        }
    }

    async fn exit_code(&self, command_path: &str) -> Result<ExitStatus, DaytonaError> {
        let deadline = Instant::now() + EXIT_CODE_TIMEOUT;
        loop {
            let info: ToolboxCommandInfo = self.toolbox.get(command_path).json().await?;
            match info.exit_code {
                Some(code) => return Ok(ExitStatus::Code(code)),
                None if Instant::now() < deadline => sleep(PAUSE).await,
                None => {
                    let reason = "the command has no exit code although its log has ended";
                    return Err(DaytonaError::response(command_path, reason));
                }
            }
        }
    }
}

/// A session of the toolbox: a shell that runs one command. It ends when this is dropped.
struct ToolboxSession {
    toolbox: DaytonaClient,
    path: String,
    ended: bool,
}

impl ToolboxSession {
    async fn open(toolbox: &DaytonaClient) -> Result<Self, DaytonaError> {
        let id = format!("ralph-{:016x}", fastrand::u64(..));
        let call = toolbox.post("process/session", json!({ "sessionId": id }));
        call.done().await?;
        Ok(Self {
            toolbox: toolbox.clone(),
            path: format!("process/session/{id}"),
            ended: false,
        })
    }

    /// Starts the command, and returns its path in the API.
    async fn start(&self, line: String) -> Result<String, DaytonaError> {
        let body = json!({ "command": line, "runAsync": true });
        let call = self.toolbox.post(&format!("{}/exec", self.path), body);
        let started: ToolboxCommandStarted = call.json().await?;
        Ok(format!("{}/command/{}", self.path, started.cmd_id))
    }

    async fn end(mut self) -> Result<(), DaytonaError> {
        self.ended = true;
        self.toolbox.delete(&self.path).await
    }
}

impl Drop for ToolboxSession {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let (toolbox, path) = (self.toolbox.clone(), self.path.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // There is no caller to report an error to.
            runtime.spawn(async move { toolbox.delete(&path).await });
        }
    }
}

/// Splits a log into its two streams.
#[derive(Debug)]
struct SessionLog {
    output: CommandOutput,
    /// The stream of the current line; `None` until its marker is complete.
    line: Option<OutputStream>,
    /// Bytes that are not split yet: at most a part of a marker.
    rest: Vec<u8>,
    /// How many bytes were read in all.
    read: usize,
    /// How many bytes to skip, because they were read before.
    skip: usize,
}

impl SessionLog {
    fn new(keep: usize) -> Self {
        Self {
            output: CommandOutput::new(keep),
            line: None,
            rest: Vec::new(),
            read: 0,
            skip: 0,
        }
    }

    /// The log is read again from its beginning.
    fn restart(&mut self) {
        self.skip = self.read;
    }

    fn push(&mut self, bytes: &[u8], output: &mut dyn OutputSink) {
        let known = bytes.len().min(self.skip);
        self.skip -= known;
        self.read += bytes.len() - known;
        let all = [&self.rest, &bytes[known..]].concat();
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            let Some(stream) = self.line else {
                let may_be_mark = STDOUT_MARK.starts_with(rest) || STDERR_MARK.starts_with(rest);
                if rest.len() < STDOUT_MARK.len() && may_be_mark {
                    break;
                }
                // A line without a marker belongs to standard output.
                let (stream, after) = match rest.strip_prefix(&STDERR_MARK) {
                    Some(after) => (OutputStream::Stderr, after),
                    None => (
                        OutputStream::Stdout,
                        rest.strip_prefix(&STDOUT_MARK).unwrap_or(rest),
                    ),
                };
                (self.line, rest) = (Some(stream), after);
                continue;
            };
            let end = rest.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
            self.output.push(stream, piece, output);
            self.line = end.is_none().then_some(stream);
            rest = after;
        }
        rest.clone_into(&mut self.rest);
    }

    fn into_exit(self, status: ExitStatus, started: Instant, output: &mut dyn OutputSink) -> Exit {
        let duration = started.elapsed();
        self.output.into_exit(status, duration, false, output)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::exec::Discard;

    fn split(log: &[u8], piece: usize) -> (String, String) {
        let mut split = SessionLog::new(1000);
        for bytes in log.chunks(piece) {
            split.push(bytes, &mut Discard);
        }
        let exit = split.into_exit(ExitStatus::Code(0), Instant::now(), &mut Discard);
        (exit.stdout.text(), exit.stderr.text())
    }

    proptest! {
        #[test]
        fn a_log_is_split_into_its_streams(piece in 1usize..20) {
            let log = b"\x01\x01\x01out \x02\x02\x02\n\x02\x02\x02err\n\x01\x01\x01more\nunmarked\n";
            let (stdout, stderr) = split(log, piece);
            prop_assert_eq!(stdout, "out \x02\x02\x02\nmore\nunmarked\n");
            prop_assert_eq!(stderr, "err\n");
        }
    }

    #[test]
    fn a_log_that_is_opened_again_continues() {
        let whole = b"\x01\x01\x01one\n\x01\x01\x01two\n";
        for broken in 0..whole.len() {
            let mut log = SessionLog::new(1000);
            log.push(&whole[..broken], &mut Discard);
            log.restart();
            log.push(whole, &mut Discard);
            let exit = log.into_exit(ExitStatus::Code(0), Instant::now(), &mut Discard);
            assert_eq!(exit.stdout.text(), "one\ntwo\n", "after {broken} bytes");
        }
    }
}
