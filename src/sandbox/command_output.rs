//! The output of a running command.

use std::time::Duration;

use crate::exec::{Exit, ExitStatus, OutputRecorder, OutputSink, OutputStream};

/// Records both output streams of a command.
#[derive(Debug)]
pub(super) struct CommandOutput {
    stdout: OutputRecorder,
    stderr: OutputRecorder,
}

impl CommandOutput {
    /// Keeps at most `keep` bytes of each stream.
    pub(super) fn new(keep: usize) -> Self {
        Self {
            stdout: OutputRecorder::new(OutputStream::Stdout, keep),
            stderr: OutputRecorder::new(OutputStream::Stderr, keep),
        }
    }

    /// Records bytes, and passes whole lines on.
    pub(super) fn push(&mut self, stream: OutputStream, bytes: &[u8], output: &mut dyn OutputSink) {
        match stream {
            OutputStream::Stdout => self.stdout.push(bytes, output),
            OutputStream::Stderr => self.stderr.push(bytes, output),
        }
    }

    /// Passes the last lines on, which may lack a line break.
    pub(super) fn into_exit(
        mut self,
        status: ExitStatus,
        duration: Duration,
        streams_held: bool,
        output: &mut dyn OutputSink,
    ) -> Exit {
        self.stdout.finish(output);
        self.stderr.finish(output);
        Exit {
            status,
            duration,
            stdout: self.stdout.into_captured(),
            stderr: self.stderr.into_captured(),
            streams_held,
        }
    }
}
