//! Records the output of a command while it runs.

use std::time::Duration;

use super::lines::LineSplitter;
use super::{CapturedOutput, Exit, ExitStatus, OutputLine, OutputSink, OutputStream};

/// Records both output streams of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    stdout: OutputRecorder,
    stderr: OutputRecorder,
}

#[derive(Debug)]
struct OutputRecorder {
    lines: LineSplitter,
    captured: CapturedOutput,
}

impl CommandOutput {
    /// Captures about `keep` bytes of each stream.
    pub(crate) fn new(keep: usize) -> Self {
        let recorder = || OutputRecorder {
            lines: LineSplitter::default(),
            captured: CapturedOutput::with_limit(keep),
        };
        Self {
            stdout: recorder(),
            stderr: recorder(),
        }
    }

    /// Takes the next bytes of a stream, and passes whole lines on.
    pub(crate) fn push(&mut self, stream: OutputStream, bytes: &[u8], output: &mut dyn OutputSink) {
        let recorder = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        output.bytes(stream, bytes);
        recorder.captured.push(bytes);
        if output.wants_lines() {
            let emit = |text| output.line(OutputLine { stream, text });
            recorder.lines.push(bytes, emit);
        }
    }

    /// Passes the last lines on, which may lack a line break.
    pub(crate) fn into_exit(
        mut self,
        status: ExitStatus,
        duration: Duration,
        streams_held: bool,
        output: &mut dyn OutputSink,
    ) -> Exit {
        for (stream, recorder) in [
            (OutputStream::Stdout, &mut self.stdout),
            (OutputStream::Stderr, &mut self.stderr),
        ] {
            let emit = |text| output.line(OutputLine { stream, text });
            recorder.lines.finish(emit);
        }
        Exit {
            status,
            duration,
            stdout: self.stdout.captured,
            stderr: self.stderr.captured,
            streams_held,
        }
    }
}
