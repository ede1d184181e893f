//! What a build prints: shown while it runs, kept in a file, and remembered in its last lines.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{LineWriter, Write};
use std::path::{Path, PathBuf};

use super::EngineError;
use crate::exec::{OutputLine, OutputSink, Stream};

/// How many lines an error shows.
const TAIL: usize = 25;

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
        let file = File::create(path).map_err(|source| EngineError::File {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            file: LineWriter::new(file),
            tail: VecDeque::with_capacity(TAIL),
            partial: String::new(),
            output,
        })
    }

    /// Takes text that may end anywhere.
    pub(super) fn text(&mut self, text: &str) {
        self.partial.push_str(text);
        while let Some(end) = self.partial.find('\n') {
            let line: String = self.partial.drain(..=end).collect();
            self.write(Stream::Stdout, line.trim_end());
        }
    }

    /// The last lines.
    pub(super) fn tail(&mut self) -> String {
        let rest = std::mem::take(&mut self.partial);
        if !rest.is_empty() {
            self.write(Stream::Stdout, &rest);
        }
        self.tail.make_contiguous().join("\n")
    }

    /// The error of a build that ended without an image.
    pub(super) fn failed(&mut self, tag: &str) -> EngineError {
        EngineError::Build {
            tag: tag.to_owned(),
            tail: self.tail(),
            log: self.path.clone(),
        }
    }

    fn write(&mut self, stream: Stream, line: &str) {
        if let Err(error) = writeln!(self.file, "{line}") {
            tracing::warn!(path = %self.path.display(), %error, "a line of the build log was lost");
        }
        if self.tail.len() == TAIL {
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
    fn the_file_holds_all_and_the_tail_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut shown = Vec::new();
        let mut log = BuildLog::create(&path, &mut shown).unwrap();
        for number in 0..100 {
            log.text(&format!("line {number}"));
            log.text("\n");
        }
        log.text("no line break");
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
