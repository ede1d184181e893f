//! Moves bytes between this process and a command.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use super::super::{CapturedOutput, OutputRecorder, OutputSink, OutputStream};

/// How much is read at once: the capacity of a pipe.
const CHUNK: usize = 64 * 1024;

/// The output streams of a command.
#[derive(Debug)]
pub(super) struct OutputPipes {
    pub(super) stdout: CommandPipe<ChildStdout>,
    pub(super) stderr: CommandPipe<ChildStderr>,
}

impl OutputPipes {
    pub(super) fn new(child: &mut Child, keep: usize) -> Self {
        Self {
            stdout: CommandPipe::new(OutputStream::Stdout, child.stdout.take(), keep),
            stderr: CommandPipe::new(OutputStream::Stderr, child.stderr.take(), keep),
        }
    }

    /// Whether more output may come.
    pub(super) fn is_open(&self) -> bool {
        self.stdout.is_open() || self.stderr.is_open()
    }

    /// Reads one chunk of either stream, or notes that one has ended. Cancel-safe.
    pub(super) async fn step(&mut self, output: &mut dyn OutputSink) -> io::Result<()> {
        let (stdout, stderr) = (&mut self.stdout, &mut self.stderr);
        tokio::select! {
            read = stdout.read(), if stdout.is_open() => stdout.pass_on(read?, output),
            read = stderr.read(), if stderr.is_open() => stderr.pass_on(read?, output),
            else => {}
        }
        Ok(())
    }

    /// Closes both streams. Passes on an incomplete last line.
    pub(super) fn close(&mut self, output: &mut dyn OutputSink) {
        self.stdout.pass_on(0, output);
        self.stderr.pass_on(0, output);
    }
}

/// One output stream.
#[derive(Debug)]
pub(super) struct CommandPipe<R> {
    pipe: Option<R>,
    chunk: Vec<u8>,
    recorder: OutputRecorder,
}

impl<R: AsyncRead + Unpin> CommandPipe<R> {
    fn new(stream: OutputStream, pipe: Option<R>, keep: usize) -> Self {
        Self {
            pipe,
            chunk: Vec::with_capacity(CHUNK),
            recorder: OutputRecorder::new(stream, keep),
        }
    }

    pub(super) fn into_captured(self) -> CapturedOutput {
        self.recorder.into_captured()
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
            self.recorder.finish(output);
        } else {
            self.recorder.push(&self.chunk, output);
        }
        self.chunk.clear();
    }
}

/// The standard input of a command.
#[derive(Debug)]
pub(super) struct InputPipe<'a> {
    pipe: Option<ChildStdin>,
    rest: &'a [u8],
}

impl<'a> InputPipe<'a> {
    pub(super) fn new(child: &mut Child, bytes: &'a [u8]) -> Self {
        Self {
            pipe: child.stdin.take(),
            rest: bytes,
        }
    }

    /// Whether there is input left to write.
    pub(super) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Writes as much as the command accepts. Closes the stream after the last byte, or if the command closed it.
    pub(super) async fn step(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        match pipe.write(self.rest).await {
            Ok(written) if written < self.rest.len() => self.rest = &self.rest[written..],
            Ok(_) | Err(_) => self.pipe = None,
        }
    }
}
