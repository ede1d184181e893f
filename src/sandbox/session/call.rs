//! One command, or another request, over a session.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{io, mem};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, timeout_at};

use super::exchange::{Exchange, Heard};
use super::{SessionError, Surroundings};
use crate::exec::{self, Command, Exit, OutputRecorder, OutputSink, OutputStream};
use crate::guest::message::{
    CHUNK, Channel, CommandLimits, CommandStatus, StartCommand, StartStage, ToGuest, WINDOW,
};
use crate::sandbox::SandboxError;

/// How much is taken before the guest is told that it may send as much again.
const GRANT: usize = WINDOW / 4;

/// How long the guest may be late: longer than it needs to end the most stubborn command.
const LATE: Duration = Duration::from_secs(10);

/// One line to the guest. Dropped before its end, it tells the guest to end the command.
#[derive(Debug)]
pub(super) struct Call<'a> {
    exchange: &'a Exchange,
    surroundings: &'a Surroundings,
    id: u32,
    heard: UnboundedReceiver<Heard>,
    over: bool,
}

impl<'a> Call<'a> {
    pub(super) fn open(exchange: &'a Exchange, surroundings: &'a Surroundings) -> Result<Self, SandboxError> {
        let (id, heard) = exchange.connect().map_err(|source| lost(surroundings, source))?;
        Ok(Self {
            exchange,
            surroundings,
            id,
            heard,
            over: false,
        })
    }

    /// Runs a command to its end.
    pub(super) async fn run(
        mut self,
        command: &Command,
        output: &mut dyn OutputSink,
    ) -> Result<Exit, SandboxError> {
        let started = Instant::now();
        let dir = self.dir_of(command);
        let mut feed = Feed::of(command);
        self.start(command, &dir, &mut feed)?;
        let mut printed = Printed::new(command.keep);
        loop {
            match self.next(self.latest_answer(command, started)).await? {
                Heard::Output(channel, bytes) => {
                    let taken = printed.push(channel, &bytes, output);
                    self.grant(channel, taken)?;
                }
                Heard::Credit(bytes) => self.feed(&mut feed, bytes)?,
                Heard::Exit(status, streams_held) => {
                    self.over = true;
                    printed.finish(output);
                    return Ok(printed.into_exit(status, streams_held, started.elapsed()));
                }
                Heard::Failed(stage, errno) => {
                    self.over = true;
                    let source = why_not_started(command, &dir, stage, errno);
                    return Err(SandboxError::not_started(&command.program, source));
                }
                Heard::AllEnded => return Err(self.out_of_turn()),
            }
        }
    }

    /// Ends every command of the session and what any of them left behind.
    pub(super) async fn end_all(mut self) -> Result<(), SandboxError> {
        let mut frame = Vec::new();
        self.put(&ToGuest::EndAll, &mut frame)?;
        self.exchange.send(frame);
        match self.next(Some(Instant::now() + LATE)).await? {
            Heard::AllEnded => {
                self.over = true;
                Ok(())
            }
            _ => Err(self.out_of_turn()),
        }
    }

    fn dir_of(&self, command: &Command) -> PathBuf {
        let dir = &self.surroundings.dir;
        command
            .cwd
            .as_ref()
            .map_or_else(|| dir.clone(), |cwd| dir.join(cwd))
    }

    /// Sends the command with the beginning of its input.
    fn start(&mut self, command: &Command, dir: &Path, feed: &mut Feed<'_>) -> Result<(), SandboxError> {
        let variables: BTreeMap<&String, &String> =
            self.surroundings.env.iter().chain(&command.env).collect();
        let args = command.args.iter().map(String::as_bytes);
        let message = ToGuest::Start(StartCommand {
            argv: [command.program.as_bytes()].into_iter().chain(args).collect(),
            env: variables
                .into_iter()
                .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
                .collect(),
            cwd: dir.as_os_str().as_bytes(),
            has_stdin: command.stdin.is_some(),
            limits: CommandLimits {
                timeout: command.timeout,
                idle: command.idle,
                grace: self.surroundings.grace,
            },
        });
        let mut frames = Vec::new();
        if let Err(error) = message.append_to(self.id, &mut frames) {
            // The guest has heard nothing of it.
            self.over = true;
            let source = io::Error::new(io::ErrorKind::ArgumentListTooLong, error);
            return Err(SandboxError::not_started(&command.program, source));
        }
        feed.take(|message| self.put(&message, &mut frames))?;
        self.exchange.send(frames);
        Ok(())
    }

    /// Sends more input, now that the guest has room for so many more bytes.
    fn feed(&self, feed: &mut Feed<'_>, room: u32) -> Result<(), SandboxError> {
        let mut frames = Vec::new();
        feed.credit += room as usize;
        feed.take(|message| self.put(&message, &mut frames))?;
        self.exchange.send(frames);
        Ok(())
    }

    fn grant(&self, channel: Channel, taken: usize) -> Result<(), SandboxError> {
        if taken == 0 {
            return Ok(());
        }
        self.exchange
            .grant(self.id, channel, taken)
            .map_err(|why| self.lost(why))
    }

    fn put(&self, message: &ToGuest<'_>, frames: &mut Vec<u8>) -> Result<(), SandboxError> {
        message
            .append_to(self.id, frames)
            .map_err(|why| self.lost(why.into()))
    }

    /// When the guest must have said something. Without a timeout a command may be silent for ever.
    fn latest_answer(&self, command: &Command, started: Instant) -> Option<Instant> {
        let longest = command.timeout?.checked_add(self.surroundings.grace)?;
        Some(started.checked_add(longest)?.max(Instant::now()) + LATE)
    }

    /// The next thing the guest says. One that does not answer in time is given up, with the session.
    async fn next(&mut self, latest: Option<Instant>) -> Result<Heard, SandboxError> {
        let heard = match latest {
            None => self.heard.recv().await,
            Some(latest) => timeout_at(latest, self.heard.recv()).await.unwrap_or_else(|_| {
                self.exchange.close(SessionError::Silent { after: LATE });
                None
            }),
        };
        heard.ok_or_else(|| self.lost(self.exchange.why_closed()))
    }

    /// A guest that answers what it was not asked is not listened to any more.
    fn out_of_turn(&self) -> SandboxError {
        let why = SessionError::nonsense("the guest answered what it was not asked");
        self.exchange.close(why.clone());
        self.lost(why)
    }

    fn lost(&self, source: SessionError) -> SandboxError {
        lost(self.surroundings, source)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.exchange.hang_up(self.id);
        let mut frame = Vec::new();
        if !self.over && ToGuest::Kill.append_to(self.id, &mut frame).is_ok() {
            self.exchange.send(frame);
        }
    }
}

/// What is left of a command's input.
#[derive(Debug)]
struct Feed<'a> {
    rest: Option<&'a [u8]>,
    /// How many bytes the guest has room for.
    credit: usize,
}

impl<'a> Feed<'a> {
    fn of(command: &'a Command) -> Self {
        Self {
            rest: command.stdin.as_deref(),
            credit: WINDOW,
        }
    }

    /// Puts as much as there is room for, and the end after the last byte.
    fn take<E>(&mut self, mut put: impl FnMut(ToGuest<'a>) -> Result<(), E>) -> Result<(), E> {
        while let Some(rest) = self.rest {
            if rest.is_empty() {
                self.rest = None;
                return put(ToGuest::StdinEnd);
            }
            let (piece, rest) = rest.split_at(rest.len().min(self.credit).min(CHUNK));
            if piece.is_empty() {
                return Ok(());
            }
            put(ToGuest::Stdin(piece))?;
            self.credit -= piece.len();
            self.rest = Some(rest);
        }
        Ok(())
    }
}

/// What a command has printed.
#[derive(Debug)]
struct Printed {
    stdout: OutputRecorder,
    stderr: OutputRecorder,
    stdout_taken: usize,
    stderr_taken: usize,
}

impl Printed {
    fn new(keep: usize) -> Self {
        Self {
            stdout: OutputRecorder::new(OutputStream::Stdout, keep),
            stderr: OutputRecorder::new(OutputStream::Stderr, keep),
            stdout_taken: 0,
            stderr_taken: 0,
        }
    }

    /// Takes a piece; returns how much the guest may send in its place: nothing, until that is worth a frame.
    fn push(&mut self, channel: Channel, bytes: &[u8], output: &mut dyn OutputSink) -> usize {
        let (recording, taken) = match channel {
            Channel::Stdout => (&mut self.stdout, &mut self.stdout_taken),
            Channel::Stderr => (&mut self.stderr, &mut self.stderr_taken),
        };
        recording.push(bytes, output);
        *taken += bytes.len();
        if *taken < GRANT { 0 } else { mem::take(taken) }
    }

    /// Hands out the last lines, which may lack their end.
    fn finish(&mut self, output: &mut dyn OutputSink) {
        self.stdout.finish(output);
        self.stderr.finish(output);
    }

    fn into_exit(self, status: CommandStatus, streams_held: bool, duration: Duration) -> Exit {
        Exit {
            status: match status {
                CommandStatus::Code(code) => exec::ExitStatus::Code(code),
                CommandStatus::Signal(signal) => exec::ExitStatus::Signal(signal),
                CommandStatus::TimedOut => exec::ExitStatus::TimedOut,
                CommandStatus::Idle => exec::ExitStatus::Idle,
            },
            duration,
            stdout: self.stdout.into_captured(),
            stderr: self.stderr.into_captured(),
            streams_held,
        }
    }
}

/// Says it as other providers do.
fn why_not_started(command: &Command, dir: &Path, stage: StartStage, errno: i32) -> io::Error {
    let error = io::Error::from_raw_os_error(errno);
    let (kind, program) = (error.kind(), &command.program);
    match stage {
        StartStage::Directory if kind == io::ErrorKind::NotFound => {
            io::Error::new(kind, format!("there is no directory `{}`", dir.display()))
        }
        StartStage::Directory => io::Error::new(kind, format!("cannot enter `{}`: {error}", dir.display())),
        StartStage::Program if kind == io::ErrorKind::NotFound && !program.contains('/') => {
            io::Error::new(kind, format!("no program `{program}` on the PATH"))
        }
        StartStage::Program | StartStage::Prepare => error,
    }
}

fn lost(surroundings: &Surroundings, source: SessionError) -> SandboxError {
    SandboxError::session(&surroundings.sandbox, source)
}
