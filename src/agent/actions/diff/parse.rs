//! Parses a unified diff.

use super::header::DiffHeader;
use super::hunk::parse_hunk;
use super::{Patch, PatchEffect, PatchFormatError};

const SHOWN: usize = 60;

pub(super) fn parse(text: &str) -> Result<Patch, PatchFormatError> {
    let mut lines = DiffLines::new(text);
    let header = DiffHeader::parse(&mut lines)?;
    let mut hunks = Vec::new();
    while lines.peek().is_some_and(|line| line.starts_with("@@")) {
        hunks.push(parse_hunk(&mut lines, hunks.len() + 1)?);
    }
    if lines.peek().is_some() {
        return Err(PatchFormatError::SeveralFiles { line: lines.number() });
    }
    if hunks.is_empty() && header.effect == PatchEffect::Change {
        return Err(PatchFormatError::NoChange);
    }
    if header.effect == PatchEffect::Create
        && let Some(hunk) = hunks.iter().find(|hunk| hunk.old_lines().next().is_some())
    {
        return Err(PatchFormatError::OldLinesInNewFile { hunk: hunk.number });
    }
    Ok(Patch {
        text: text.to_owned(),
        effect: header.effect,
        names: header.names,
        hunks,
    })
}

/// A cursor over the lines of a diff.
pub(super) struct DiffLines<'a> {
    lines: Vec<&'a str>,
    next: usize,
}

impl<'a> DiffLines<'a> {
    /// Splits a text into lines. If its `@@` lines end with CRLF, the carriage returns are removed.
    fn new(text: &'a str) -> Self {
        let mut lines: Vec<&str> = text.split('\n').collect();
        if lines.last() == Some(&"") {
            lines.pop();
        }
        let crlf = lines
            .iter()
            .any(|line| line.starts_with("@@") && line.ends_with('\r'));
        if crlf {
            for line in &mut lines {
                *line = line.strip_suffix('\r').unwrap_or(line);
            }
        }
        Self { lines, next: 0 }
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.next).copied()
    }

    pub(super) fn peek_second(&self) -> Option<&'a str> {
        self.lines.get(self.next + 1).copied()
    }

    pub(super) fn advance(&mut self) {
        self.next += 1;
    }

    /// The number of the next line, from 1.
    pub(super) fn number(&self) -> usize {
        self.next + 1
    }

    pub(super) fn unexpected(&self, expected: &'static str) -> PatchFormatError {
        PatchFormatError::Unexpected {
            line: self.number(),
            found: self
                .peek()
                .unwrap_or("the end of the diff")
                .chars()
                .take(SHOWN)
                .collect(),
            expected,
        }
    }
}
