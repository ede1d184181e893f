//! One command, or another request, in a warm session.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
use std::{io, mem};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, timeout_at};

use super::router::{GuestReply, MessageRouter};
use super::{SessionContext, SessionError};
use crate::exec::{Command, CommandOutput, Exit, ExitStatus, OutputSink, OutputStream};
use crate::guest::message::{
    CHUNK, Channel, CommandLimits, CommandStatus, StartCommand, StartStage, ToGuest, WINDOW,
};
use crate::sandbox::SandboxError;

/// How many bytes of output are consumed before the guest gets credit for as many again.
const GRANT: usize = WINDOW / 4;

/// How long a reply of the guest may be overdue. Ending a command takes it less.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A request to the guest. Dropping it before its end lets the guest kill the command.
#[derive(Debug)]
pub(super) struct SessionCall<'a> {
    router: &'a MessageRouter,
    context: &'a SessionContext,
    id: u32,
    replies: UnboundedReceiver<GuestReply>,
    finished: bool,
}

impl<'a> SessionCall<'a> {
    pub(super) fn open(router: &'a MessageRouter, context: &'a SessionContext) -> Result<Self, SandboxError> {
        let opened = router.open_call();
        let (id, replies) = opened.map_err(|error| SandboxError::session(&context.sandbox, error))?;
        Ok(Self {
            router,
            context,
            id,
            replies,
            finished: false,
        })
    }

    /// Runs a command to its end.
    pub(super) async fn run(
        mut self,
        command: &Command,
        output: &mut dyn OutputSink,
    ) -> Result<Exit, SandboxError> {
        let started = Instant::now();
        let dir = command.dir_in(&self.context.dir);
        self.start(command, &dir)?;
        let mut input = CommandInput {
            rest: command.stdin.as_deref(),
            credit: WINDOW,
        };
        self.send_input(&mut input)?;
        let mut printed = CommandOutput::new(command.keep);
        let mut unacknowledged = [0; 2];
        loop {
            match self.next(self.reply_deadline(command, started)).await? {
                GuestReply::Output(channel, bytes) => {
                    let (stream, consumed) = match channel {
                        Channel::Stdout => (OutputStream::Stdout, &mut unacknowledged[0]),
                        Channel::Stderr => (OutputStream::Stderr, &mut unacknowledged[1]),
                    };
                    printed.push(stream, &bytes, output);
                    *consumed += bytes.len();
                    if *consumed >= GRANT {
                        let granted = self.router.grant(self.id, channel, mem::take(consumed));
                        granted.map_err(|error| self.lost(error))?;
                    }
                }
                GuestReply::Credit(bytes) => {
                    input.credit += bytes as usize;
                    self.send_input(&mut input)?;
                }
                GuestReply::Exit(status, streams_held) => {
                    self.finished = true;
                    return Ok(printed.into_exit(
                        exit_status(status),
                        started.elapsed(),
                        streams_held,
                        output,
                    ));
                }
                GuestReply::Failed(stage, errno) => {
                    self.finished = true;
                    let error = start_error(command, &dir, stage, errno);
                    return Err(SandboxError::not_started(&command.program, error));
                }
                GuestReply::AllEnded => return Err(self.unexpected_reply()),
            }
        }
    }

    /// Ends every command of the session and all processes they left behind.
    pub(super) async fn end_all(mut self) -> Result<(), SandboxError> {
        self.send(&ToGuest::EndAll)?;
        match self.next(Some(Instant::now() + REPLY_TIMEOUT)).await? {
            GuestReply::AllEnded => {
                self.finished = true;
                Ok(())
            }
            _ => Err(self.unexpected_reply()),
        }
    }

    fn start(&mut self, command: &Command, dir: &Path) -> Result<(), SandboxError> {
        let variables: BTreeMap<&String, &String> = self.context.env.iter().chain(&command.env).collect();
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
                grace: self.context.grace,
            },
        });
        self.router.send(self.id, &message).map_err(|error| {
            // Nothing was sent to the guest.
            self.finished = true;
            let error = io::Error::new(io::ErrorKind::ArgumentListTooLong, error);
            SandboxError::not_started(&command.program, error)
        })
    }

    /// Sends as much input as the guest accepts, and the end of the input after the last byte.
    fn send_input(&self, input: &mut CommandInput<'_>) -> Result<(), SandboxError> {
        while let Some(rest) = input.rest {
            if rest.is_empty() {
                input.rest = None;
                return self.send(&ToGuest::StdinEnd);
            }
            let (piece, rest) = rest.split_at(rest.len().min(input.credit).min(CHUNK));
            if piece.is_empty() {
                return Ok(());
            }
            self.send(&ToGuest::Stdin(piece))?;
            input.credit -= piece.len();
            input.rest = Some(rest);
        }
        Ok(())
    }

    fn send(&self, message: &ToGuest<'_>) -> Result<(), SandboxError> {
        let sent = self.router.send(self.id, message);
        sent.map_err(|error| self.lost(error))
    }

    /// When the guest must have sent its next reply. It enforces the limits of the command, unless it is frozen together
    /// with the sandbox. A command without limits may be silent forever.
    fn reply_deadline(&self, command: &Command, started: Instant) -> Option<Instant> {
        let now = Instant::now();
        let after = |from: Instant, limit: Duration| from.checked_add(limit)?.checked_add(self.context.grace);
        let timeout = command.timeout.and_then(|limit| after(started, limit));
        let idle = command.idle.and_then(|limit| after(now, limit));
        let first = timeout.into_iter().chain(idle).min()?;
        first.max(now).checked_add(REPLY_TIMEOUT)
    }

    /// The next reply. Closes the session if the guest does not send it in time.
    async fn next(&mut self, deadline: Option<Instant>) -> Result<GuestReply, SandboxError> {
        let reply = match deadline {
            None => self.replies.recv().await,
            Some(deadline) => timeout_at(deadline, self.replies.recv())
                .await
                .unwrap_or_else(|_| {
                    self.router.close(SessionError::Silent { after: REPLY_TIMEOUT });
                    None
                }),
        };
        reply.ok_or_else(|| self.lost(self.router.close_reason()))
    }

    /// Closes the session of a guest that sends a reply without a request.
    fn unexpected_reply(&self) -> SandboxError {
        let error = SessionError::protocol("the guest sent an unexpected reply");
        self.router.close(error.clone());
        self.lost(error)
    }

    fn lost(&self, error: impl Into<SessionError>) -> SandboxError {
        SandboxError::session(&self.context.sandbox, error.into())
    }
}

impl Drop for SessionCall<'_> {
    fn drop(&mut self) {
        self.router.close_call(self.id);
        if !self.finished {
            let _ = self.router.send(self.id, &ToGuest::Kill);
        }
    }
}

/// The input of a command that was not sent yet.
#[derive(Debug)]
struct CommandInput<'a> {
    rest: Option<&'a [u8]>,
    /// How many bytes the guest accepts.
    credit: usize,
}

fn exit_status(status: CommandStatus) -> ExitStatus {
    match status {
        CommandStatus::Code(code) => ExitStatus::Code(code),
        CommandStatus::Signal(signal) => ExitStatus::Signal(signal),
        CommandStatus::TimedOut => ExitStatus::TimedOut,
        CommandStatus::Idle => ExitStatus::Idle,
    }
}

/// The error for a command that the guest could not start, in the words of the other providers.
fn start_error(command: &Command, dir: &Path, stage: StartStage, errno: i32) -> io::Error {
    let error = io::Error::from_raw_os_error(errno);
    let (kind, program) = (error.kind(), &command.program);
    match stage {
        StartStage::Directory if kind == io::ErrorKind::NotFound => {
            io::Error::new(kind, format!("no directory `{}`", dir.display()))
        }
        StartStage::Directory => io::Error::new(kind, format!("cannot enter `{}`: {error}", dir.display())),
        StartStage::Program if kind == io::ErrorKind::NotFound && !program.contains('/') => {
            io::Error::new(kind, format!("no program `{program}` on the PATH"))
        }
        StartStage::Program | StartStage::Prepare => error,
    }
}
