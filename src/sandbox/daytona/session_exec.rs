//! Runs a command through a session of the toolbox, without the guest. Evidence is collected this way.
//!
//! In contrast to the warm session, output arrives by line and as text, signals appear as exit codes, and processes that
//! hold the streams of a finished command are waited for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::DaytonaError;
use super::files::RemoteFiles;
use super::toolbox::Toolbox;
use crate::exec::{Command, CommandOutput, Exit, ExitStatus, OutputSink, OutputStream, WaitEnd, WaitLimits};
use crate::sandbox::shell;

/// How often a log whose connection broke is opened again.
const MAX_REOPENS: u32 = 5;
/// How long Daytona may take to report the exit code after the end of the log.
const EXIT_CODE_TIMEOUT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

/// The markers before each line of a log.
const STDOUT_MARK: [u8; 3] = [1; 3];
const STDERR_MARK: [u8; 3] = [2; 3];

/// Runs commands through sessions of the toolbox.
#[derive(Debug)]
pub(super) struct ToolboxSessionExec {
    pub(super) toolbox: Toolbox,
    pub(super) root: PathBuf,
    /// The environment of every command.
    pub(super) env: BTreeMap<String, String>,
}

impl ToolboxSessionExec {
    /// Runs a command to its end.
    pub(super) async fn run(
        &self,
        command: &Command,
        files: &RemoteFiles,
        output: &mut dyn OutputSink,
    ) -> Result<Exit, DaytonaError> {
        let started = Instant::now();
        let input = match &command.stdin {
            Some(bytes) => Some(files.stage(bytes).await?),
            None => None,
        };
        let session = ToolboxSession::open(&self.toolbox).await?;
        let line = self.line(command, input.as_deref());
        let id = self.toolbox.start(&session.id, line).await?;
        let mut log = SessionLog::new(command.keep);
        let limits = WaitLimits::new(command, started);
        let ending = self.follow(&session.id, &id, &mut log, &limits, output).await?;
        let status = match ending {
            WaitEnd::Finished => self.exit_code(&session.id, &id).await?,
            WaitEnd::TimedOut => ExitStatus::TimedOut,
            WaitEnd::Idle => ExitStatus::Idle,
        };
        session.end().await?;
        Ok(log.into_exit(status, started, output))
    }

    /// The command as a line for the shell of the session. It runs in a subshell.
    fn line(&self, command: &Command, input: Option<&std::path::Path>) -> String {
        let dir = command.dir_in(&self.root);
        let env = self.env.iter().chain(&command.env);
        let input = input.map_or("/dev/null".into(), |path| path.to_string_lossy());
        format!(
            "( {} && exec {command} ) < {}",
            shell::enter(&dir, env),
            shell::quote(&input)
        )
    }

    /// Reads the log until it ends or a limit is reached. Opens it again if the connection breaks.
    async fn follow(
        &self,
        session: &str,
        command: &str,
        log: &mut SessionLog,
        limits: &WaitLimits,
        output: &mut dyn OutputSink,
    ) -> Result<WaitEnd, DaytonaError> {
        let mut last_output = Instant::now();
        for opened in 0.. {
            let (mut reader, _writer) = self.toolbox.logs(session, command).await?.split();
            log.restart();
            let error = loop {
                tokio::select! {
                    piece = reader.next() => match piece {
                        Ok(Some(bytes)) => {
                            last_output = Instant::now();
                            log.push(&bytes, output);
                        }
                        Ok(None) => return Ok(WaitEnd::Finished),
                        Err(error) => break error,
                    },
                    ending = limits.exceeded(last_output) => return Ok(ending),
                }
            };
            if opened == MAX_REOPENS {
                return Err(error);
            }
        }
        Ok(WaitEnd::Finished)
    }

    async fn exit_code(&self, session: &str, command: &str) -> Result<ExitStatus, DaytonaError> {
        let deadline = Instant::now() + EXIT_CODE_TIMEOUT;
        loop {
            match self.toolbox.exit_code(session, command).await? {
                Some(code) => return Ok(ExitStatus::Code(code)),
                None if Instant::now() < deadline => sleep(PAUSE).await,
                None => {
                    return Err(DaytonaError::Response {
                        call: format!("command {command}"),
                        source: std::io::Error::new(
                            std::io::ErrorKind::TimedOut,
                            "the command has no exit code although its log has ended",
                        ),
                    });
                }
            }
        }
    }
}

/// A session of the toolbox. It ends when this is dropped.
struct ToolboxSession {
    toolbox: Toolbox,
    id: String,
    ended: bool,
}

impl ToolboxSession {
    async fn open(toolbox: &Toolbox) -> Result<Self, DaytonaError> {
        let id = format!("ralph-{:016x}", fastrand::u64(..));
        toolbox.open_session(&id).await?;
        Ok(Self {
            toolbox: toolbox.clone(),
            id,
            ended: false,
        })
    }

    async fn end(mut self) -> Result<(), DaytonaError> {
        self.ended = true;
        self.toolbox.end_session(&self.id).await
    }
}

impl Drop for ToolboxSession {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let (toolbox, id) = (self.toolbox.clone(), self.id.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // There is no caller to report an error to.
            runtime.spawn(async move { toolbox.end_session(&id).await });
        }
    }
}

/// Splits a log into its two streams.
#[derive(Debug)]
struct SessionLog {
    output: CommandOutput,
    /// The stream of the current line.
    line: Option<OutputStream>,
    /// The beginning of a line whose marker is not complete yet.
    mark: Vec<u8>,
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
            mark: Vec::new(),
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
        let mut rest = &bytes[known..];
        self.read += rest.len();
        while !rest.is_empty() {
            let Some(stream) = self.line else {
                rest = self.read_mark(rest, output);
                continue;
            };
            let end = rest.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
            self.output.push(stream, piece, output);
            if end.is_some() {
                self.line = None;
            }
            rest = after;
        }
    }

    /// Reads one byte of a marker. A line without a marker belongs to standard output.
    fn read_mark<'b>(&mut self, bytes: &'b [u8], output: &mut dyn OutputSink) -> &'b [u8] {
        let (byte, rest) = bytes.split_at(1);
        self.mark.extend_from_slice(byte);
        let mark = self.mark.as_slice();
        if mark == STDOUT_MARK || mark == STDERR_MARK {
            self.line = Some(if mark == STDOUT_MARK {
                OutputStream::Stdout
            } else {
                OutputStream::Stderr
            });
            self.mark.clear();
        } else if !STDOUT_MARK.starts_with(mark) && !STDERR_MARK.starts_with(mark) {
            let bytes = std::mem::take(&mut self.mark);
            self.line = bytes
                .last()
                .filter(|last| **last != b'\n')
                .map(|_| OutputStream::Stdout);
            self.output.push(OutputStream::Stdout, &bytes, output);
        }
        rest
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
