//! The log of a build: passed on line by line, written to a file, and its last lines kept for an error.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{LineWriter, Write};
use std::path::{Path, PathBuf};

use super::EngineError;
use crate::exec::{OutputLine, OutputSink, OutputStream};

/// The number of lines in an error.
const TAIL_LINES: usize = 25;

/// The log of one build.
pub(super) struct BuildLog<'a> {
    path: PathBuf,
    file: LineWriter<File>,
    tail: VecDeque<String>,
    partial: String,
    output: &'a mut dyn OutputSink,
}

impl<'a> BuildLog<'a> {
    pub(super) fn create(path: &Path, output: &'a mut dyn OutputSink) -> Result<Self, EngineError> {
        let file = File::create(path).map_err(EngineError::io("create", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            file: LineWriter::new(file),
            tail: VecDeque::with_capacity(TAIL_LINES),
            partial: String::new(),
            output,
        })
    }

    /// Adds text, which may end within a line.
    pub(super) fn push(&mut self, text: &str) {
        self.partial.push_str(text);
        while let Some(end) = self.partial.find('\n') {
            let line: String = self.partial.drain(..=end).collect();
            self.write(OutputStream::Stdout, line.trim_end());
        }
    }

    /// The last lines.
    pub(super) fn tail(&mut self) -> String {
        let rest = std::mem::take(&mut self.partial);
        if !rest.is_empty() {
            self.write(OutputStream::Stdout, &rest);
        }
        self.tail.make_contiguous().join("\n")
    }

    /// The error of a failed build, with the last lines.
    pub(super) fn build_error(&mut self, tag: &str) -> EngineError {
        EngineError::Build {
            tag: tag.to_owned(),
            tail: self.tail(),
            log: self.path.clone(),
        }
    }

    fn write(&mut self, stream: OutputStream, line: &str) {
        if let Err(error) = writeln!(self.file, "{line}") {
            tracing::warn!(path = %self.path.display(), %error, "cannot write a line of the build log");
        }
        if self.tail.len() == TAIL_LINES {
            self.tail.pop_front();
        }
        self.tail.push_back(line.to_owned());
        self.output.line(OutputLine {
            stream,
            text: line.to_owned(),
        });
    }
}

impl OutputSink for BuildLog<'_> {
    fn line(&mut self, line: OutputLine) {
        self.write(line.stream, &line.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_all_lines_and_the_tail_the_last_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut shown = Vec::new();
        let mut log = BuildLog::create(&path, &mut shown).unwrap();
        for number in 0..100 {
            log.push(&format!("line {number}"));
            log.push("\n");
        }
        log.push("no line break");
        let tail = log.tail();
        drop(log);
        assert!(
            tail.starts_with("line 76\n") && tail.ends_with("\nline 99\nno line break"),
            "{tail}"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 101);
        assert_eq!(shown.len(), 101);
    }
}
