//! What is kept and passed on of one output stream.

use super::lines::Lines;
use super::{Captured, OutputLine, OutputSink, Stream};

/// One output stream while it comes: bytes and lines go to a sink, the beginning and the end are kept.
#[derive(Debug)]
pub(crate) struct Recording {
    stream: Stream,
    lines: Lines,
    captured: Captured,
}

impl Recording {
    /// Keeps about `keep` bytes.
    pub(crate) fn new(stream: Stream, keep: usize) -> Self {
        Self {
            stream,
            lines: Lines::default(),
            captured: Captured::with_limit(keep),
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

    /// Passes on a last line that has not ended.
    pub(crate) fn finish(&mut self, output: &mut dyn OutputSink) {
        let stream = self.stream;
        self.lines.finish(|text| output.line(OutputLine { stream, text }));
    }

    pub(crate) fn into_captured(self) -> Captured {
        self.captured
    }
}
