//! Records one output stream while it arrives.

use super::lines::LineSplitter;
use super::{CapturedOutput, OutputLine, OutputSink, OutputStream};

/// Passes the bytes and lines of one output stream to a sink and captures its beginning and end.
#[derive(Debug)]
pub(crate) struct OutputRecorder {
    stream: OutputStream,
    lines: LineSplitter,
    captured: CapturedOutput,
}

impl OutputRecorder {
    /// Creates a recorder that captures about `keep` bytes.
    pub(crate) fn new(stream: OutputStream, keep: usize) -> Self {
        Self {
            stream,
            lines: LineSplitter::default(),
            captured: CapturedOutput::with_limit(keep),
        }
    }

    /// Takes the next bytes of the stream.
    pub(crate) fn push(&mut self, bytes: &[u8], output: &mut dyn OutputSink) {
        let stream = self.stream;
        output.bytes(stream, bytes);
        self.captured.push(bytes);
        if output.wants_lines() {
            self.lines
                .push(bytes, |text| output.line(OutputLine { stream, text }));
        }
    }

    /// Passes on a last line without a line break.
    pub(crate) fn finish(&mut self, output: &mut dyn OutputSink) {
        let stream = self.stream;
        self.lines.finish(|text| output.line(OutputLine { stream, text }));
    }

    pub(crate) fn into_captured(self) -> CapturedOutput {
        self.captured
    }
}
