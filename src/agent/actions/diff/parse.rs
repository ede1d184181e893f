//! Reading a unified diff.

use super::header::Header;
use super::hunk::read_hunk;
use super::{Effect, Patch, PatchFormatError};

const SHOWN: usize = 60;

pub(super) fn parse(text: &str) -> Result<Patch, PatchFormatError> {
    let mut lines = Lines::of(text);
    let header = Header::read(&mut lines)?;
    let mut hunks = Vec::new();
    while lines.peek().is_some_and(|line| line.starts_with("@@")) {
        hunks.push(read_hunk(&mut lines, hunks.len() + 1)?);
    }
    if lines.peek().is_some() {
        return Err(PatchFormatError::SeveralFiles { line: lines.number() });
    }
    if hunks.is_empty() && header.effect == Effect::Change {
        return Err(PatchFormatError::NoChange);
    }
    if header.effect == Effect::Create
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

/// The lines of a diff, one after another.
pub(super) struct Lines<'a> {
    lines: Vec<&'a str>,
    next: usize,
}

impl<'a> Lines<'a> {
    /// Splits a text. One that was written with CRLF throughout, its `@@` lines too, is read as if with LF.
    fn of(text: &'a str) -> Self {
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

    /// The number of the line that comes next, from 1.
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
