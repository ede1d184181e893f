//! Moves bytes between a command and us.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use super::super::{Captured, OutputSink, Recording, Stream};

/// How much is read at once: what a pipe holds.
const CHUNK: usize = 64 * 1024;

/// The output streams of a command.
#[derive(Debug)]
pub(super) struct Outputs {
    pub(super) stdout: Tap<ChildStdout>,
    pub(super) stderr: Tap<ChildStderr>,
}

impl Outputs {
    pub(super) fn of(child: &mut Child, keep: usize) -> Self {
        Self {
            stdout: Tap::new(Stream::Stdout, child.stdout.take(), keep),
            stderr: Tap::new(Stream::Stderr, child.stderr.take(), keep),
        }
    }

    /// Whether something may still come.
    pub(super) fn is_open(&self) -> bool {
        self.stdout.is_open() || self.stderr.is_open()
    }

    /// Takes one chunk of either stream, or notes that one has ended. Loses nothing when dropped half-way.
    pub(super) async fn step(&mut self, output: &mut dyn OutputSink) -> io::Result<()> {
        let (stdout, stderr) = (&mut self.stdout, &mut self.stderr);
        tokio::select! {
            read = stdout.read(), if stdout.is_open() => stdout.pass_on(read?, output),
            read = stderr.read(), if stderr.is_open() => stderr.pass_on(read?, output),
            else => {}
        }
        Ok(())
    }

    /// Stops listening. A line that has not ended is passed on as it is.
    pub(super) fn close(&mut self, output: &mut dyn OutputSink) {
        self.stdout.pass_on(0, output);
        self.stderr.pass_on(0, output);
    }
}

/// One output stream.
#[derive(Debug)]
pub(super) struct Tap<R> {
    pipe: Option<R>,
    chunk: Vec<u8>,
    recording: Recording,
}

impl<R: AsyncRead + Unpin> Tap<R> {
    fn new(stream: Stream, pipe: Option<R>, keep: usize) -> Self {
        Self {
            pipe,
            chunk: Vec::with_capacity(CHUNK),
            recording: Recording::new(stream, keep),
        }
    }

    pub(super) fn into_captured(self) -> Captured {
        self.recording.into_captured()
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    async fn read(&mut self) -> io::Result<usize> {
        match &mut self.pipe {
            Some(pipe) => pipe.read_buf(&mut self.chunk).await,
            None => Ok(0),
        }
    }

    fn pass_on(&mut self, read: usize, output: &mut dyn OutputSink) {
        if read == 0 {
            self.pipe = None;
            self.recording.finish(output);
        } else {
            self.recording.push(&self.chunk, output);
        }
        self.chunk.clear();
    }
}

/// What a command reads.
#[derive(Debug)]
pub(super) struct Input<'a> {
    pipe: Option<ChildStdin>,
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn of(child: &mut Child, bytes: &'a [u8]) -> Self {
        Self {
            pipe: child.stdin.take(),
            rest: bytes,
        }
    }

    /// Whether there is something left to give.
    pub(super) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Gives as much as the command takes; closes the stream after the last byte, or when the command closed it.
    pub(super) async fn step(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        match pipe.write(self.rest).await {
            Ok(written) if written < self.rest.len() => self.rest = &self.rest[written..],
            Ok(_) | Err(_) => self.pipe = None,
        }
    }
}
