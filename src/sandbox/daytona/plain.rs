//! One command by a session of the toolbox: nothing of ours stands between it and Daytona. Evidence comes this way.
//!
//! It knows less than the warm session: output comes by the line and as text, a signal is told as a code, and what
//! holds the streams of a command that has ended is waited for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::DaytonaError;
use super::files::RemoteFiles;
use super::toolbox::Toolbox;
use crate::exec::{Command, Exit, ExitStatus, OutputRecorder, OutputSink, OutputStream};
use crate::sandbox::limits::{Ending, Limits};
use crate::sandbox::script;

/// How often a log that broke off is opened again.
const REOPENINGS: u32 = 5;
/// How long Daytona may take to know the code of a command whose log has ended.
const SETTLING: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

/// What stands before each line of a log.
const OF_STDOUT: [u8; 3] = [1; 3];
const OF_STDERR: [u8; 3] = [2; 3];

/// Runs commands by sessions.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) toolbox: Toolbox,
    pub(super) root: PathBuf,
    /// What every command sees.
    pub(super) env: BTreeMap<String, String>,
}

impl Plain {
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
        let session = Guard::open(&self.toolbox).await?;
        let line = self.line(command, input.as_deref());
        let id = self.toolbox.start(&session.id, line).await?;
        let mut log = Log::new(command.keep);
        let limits = Limits::of(command, started);
        let ending = self
            .follow((&session.id, &id), &mut log, (&limits, output))
            .await?;
        let status = match ending {
            Ending::Finished => self.settled(&session.id, &id).await?,
            Ending::TimedOut => ExitStatus::TimedOut,
            Ending::Idle => ExitStatus::Idle,
        };
        session.end().await?;
        Ok(log.into_exit(status, started, output))
    }

    /// The command as a line for the session's shell: in a shell of its own, which it may leave as it likes.
    fn line(&self, command: &Command, input: Option<&std::path::Path>) -> String {
        let dir = command
            .cwd
            .as_ref()
            .map_or_else(|| self.root.clone(), |cwd| self.root.join(cwd));
        let env = self.env.iter().chain(&command.env);
        let input = input.map_or("/dev/null".into(), |path| path.to_string_lossy());
        format!(
            "( {} && exec {command} ) < {}",
            script::surroundings(&dir, env),
            script::quoted(&input)
        )
    }

    /// Takes the log until it ends or a limit is reached. One that breaks off is opened again and goes on.
    async fn follow(
        &self,
        (session, command): (&str, &str),
        log: &mut Log,
        (limits, output): (&Limits, &mut dyn OutputSink),
    ) -> Result<Ending, DaytonaError> {
        let mut heard = Instant::now();
        for opened in 0.. {
            let (mut ears, _mouth) = self.toolbox.logs(session, command).await?.split();
            log.begin_again();
            let error = loop {
                tokio::select! {
                    piece = ears.hear() => match piece {
                        Ok(Some(bytes)) => {
                            heard = Instant::now();
                            log.push(&bytes, output);
                        }
                        Ok(None) => return Ok(Ending::Finished),
                        Err(error) => break error,
                    },
                    ending = limits.ring(heard) => return Ok(ending),
                }
            };
            if opened == REOPENINGS {
                return Err(error);
            }
        }
        Ok(Ending::Finished)
    }

    async fn settled(&self, session: &str, command: &str) -> Result<ExitStatus, DaytonaError> {
        let give_up = Instant::now() + SETTLING;
        loop {
            match self.toolbox.exit_code(session, command).await? {
                Some(code) => return Ok(ExitStatus::Code(code)),
                None if Instant::now() < give_up => sleep(PAUSE).await,
                None => {
                    return Err(DaytonaError::Answer {
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

/// A session, which ends with this.
struct Guard {
    toolbox: Toolbox,
    id: String,
    over: bool,
}

impl Guard {
    async fn open(toolbox: &Toolbox) -> Result<Self, DaytonaError> {
        let id = format!("ralph-{:016x}", fastrand::u64(..));
        toolbox.open_session(&id).await?;
        Ok(Self {
            toolbox: toolbox.clone(),
            id,
            over: false,
        })
    }

    async fn end(mut self) -> Result<(), DaytonaError> {
        self.over = true;
        self.toolbox.end_session(&self.id).await
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let (toolbox, id) = (self.toolbox.clone(), self.id.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // Nobody is left to tell.
            runtime.spawn(async move { toolbox.end_session(&id).await });
        }
    }
}

/// A log, cut into the two streams it is made of.
#[derive(Debug)]
struct Log {
    stdout: OutputRecorder,
    stderr: OutputRecorder,
    /// The stream of the line that is being taken.
    line: Option<OutputStream>,
    /// The beginning of a line whose stream is not known yet.
    mark: Vec<u8>,
    /// How many bytes were taken in all, and how many of those come again.
    taken: usize,
    again: usize,
}

impl Log {
    fn new(keep: usize) -> Self {
        Self {
            stdout: OutputRecorder::new(OutputStream::Stdout, keep),
            stderr: OutputRecorder::new(OutputStream::Stderr, keep),
            line: None,
            mark: Vec::new(),
            taken: 0,
            again: 0,
        }
    }

    /// From now on everything comes again, from the beginning.
    fn begin_again(&mut self) {
        self.again = self.taken;
    }

    fn push(&mut self, bytes: &[u8], output: &mut dyn OutputSink) {
        let known = bytes.len().min(self.again);
        self.again -= known;
        let mut rest = &bytes[known..];
        self.taken += rest.len();
        while !rest.is_empty() {
            let Some(stream) = self.line else {
                rest = self.take_mark(rest, output);
                continue;
            };
            let end = rest.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
            self.recording(stream).push(piece, output);
            if end.is_some() {
                self.line = None;
            }
            rest = after;
        }
    }

    /// Takes what tells the stream of a line. A line without it is taken for output.
    fn take_mark<'b>(&mut self, bytes: &'b [u8], output: &mut dyn OutputSink) -> &'b [u8] {
        let (byte, rest) = bytes.split_at(1);
        self.mark.extend_from_slice(byte);
        let mark = self.mark.as_slice();
        if mark == OF_STDOUT || mark == OF_STDERR {
            self.line = Some(if mark == OF_STDOUT {
                OutputStream::Stdout
            } else {
                OutputStream::Stderr
            });
            self.mark.clear();
        } else if !OF_STDOUT.starts_with(mark) && !OF_STDERR.starts_with(mark) {
            let bytes = std::mem::take(&mut self.mark);
            self.line = bytes
                .last()
                .filter(|last| **last != b'\n')
                .map(|_| OutputStream::Stdout);
            self.stdout.push(&bytes, output);
        }
        rest
    }

    fn recording(&mut self, stream: OutputStream) -> &mut OutputRecorder {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }

    fn into_exit(mut self, status: ExitStatus, started: Instant, output: &mut dyn OutputSink) -> Exit {
        self.stdout.finish(output);
        self.stderr.finish(output);
        Exit {
            status,
            duration: started.elapsed(),
            stdout: self.stdout.into_captured(),
            stderr: self.stderr.into_captured(),
            streams_held: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::exec::Discard;

    fn cut(log: &[u8], piece: usize) -> (String, String) {
        let mut taken = Log::new(1000);
        for bytes in log.chunks(piece) {
            taken.push(bytes, &mut Discard);
        }
        let exit = taken.into_exit(ExitStatus::Code(0), Instant::now(), &mut Discard);
        (exit.stdout.text(), exit.stderr.text())
    }

    proptest! {
        #[test]
        fn a_log_is_cut_into_its_streams_however_it_comes(piece in 1usize..20) {
            let log = b"\x01\x01\x01out \x02\x02\x02\n\x02\x02\x02err\n\x01\x01\x01more\nunmarked\n";
            let (stdout, stderr) = cut(log, piece);
            prop_assert_eq!(stdout, "out \x02\x02\x02\nmore\nunmarked\n");
            prop_assert_eq!(stderr, "err\n");
        }
    }

    #[test]
    fn a_log_that_broke_off_goes_on_where_it_was() {
        let whole = b"\x01\x01\x01one\n\x01\x01\x01two\n";
        for broken in 0..whole.len() {
            let mut log = Log::new(1000);
            log.push(&whole[..broken], &mut Discard);
            log.begin_again();
            log.push(whole, &mut Discard);
            let exit = log.into_exit(ExitStatus::Code(0), Instant::now(), &mut Discard);
            assert_eq!(exit.stdout.text(), "one\ntwo\n", "after {broken} bytes");
        }
    }
}
