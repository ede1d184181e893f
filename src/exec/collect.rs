//! What becomes of the output of a command, wherever it ran.

use super::lines::Lines;
use super::{Captured, OutputLine, OutputSink, Stream};

/// Takes one output stream: keeps its two ends and passes on its bytes and lines.
#[derive(Debug)]
pub struct Collector {
    stream: Stream,
    lines: Lines,
    captured: Captured,
}

impl Collector {
    /// Collects a stream, of which about `keep` bytes are kept.
    #[must_use]
    pub fn new(stream: Stream, keep: usize) -> Self {
        Self {
            stream,
            lines: Lines::default(),
            captured: Captured::with_limit(keep),
        }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8], output: &mut dyn OutputSink) {
        let stream = self.stream;
        let wanted = output.wants_lines();
        output.bytes(stream, bytes);
        self.captured.push(bytes);
        if wanted {
            self.lines
                .push(bytes, |text| output.line(OutputLine { stream, text }));
        }
    }

    /// The stream is at its end: a line that was not ended is passed on as it is.
    pub fn finish(&mut self, output: &mut dyn OutputSink) {
        let stream = self.stream;
        self.lines.finish(|text| output.line(OutputLine { stream, text }));
    }

    /// What is kept of it.
    #[must_use]
    pub fn into_captured(self) -> Captured {
        self.captured
    }
}
