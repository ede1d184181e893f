//! Applies a unified diff.

use std::fmt::Write as _;

use thiserror::Error;

use super::{DiffLine, Hunk, LineEnd, LineOp, Patch, PatchEffect};

/// The result of applying a diff to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchedFile {
    /// The new content.
    Content(Vec<u8>),
    /// The file is deleted.
    Deleted,
}

/// Why a diff does not apply. `hunk` counts from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatchError {
    /// The file does not exist.
    #[error(
        "the file does not exist, and the diff does not make it: begin it with `--- /dev/null` to make it"
    )]
    Missing,
    /// The file exists already.
    #[error(
        "the file exists already, but the diff makes it (`--- /dev/null`): read it, and change what is there"
    )]
    Exists,
    /// The lines of a hunk are not in the file.
    #[error(
        "hunk {hunk} (`{header}`) does not apply: it differs from line {line} of the file\n{}",
        side_by_side(expected, found)
    )]
    Mismatch {
        /// The number of the hunk.
        hunk: usize,
        /// Its `@@` line.
        header: String,
        /// The first line of the file that differs, from 1, at the best match.
        line: usize,
        /// The lines of the hunk around there.
        expected: Vec<String>,
        /// The lines of the file around there.
        found: Vec<String>,
    },
    /// A hunk without line numbers matches twice.
    #[error(
        "hunk {hunk} fits at line {first} and at line {second} of the file: give it more context, or line numbers"
    )]
    Ambiguous {
        /// The number of the hunk.
        hunk: usize,
        /// The line of the first match.
        first: usize,
        /// The line of the second match.
        second: usize,
    },
    /// A hunk that only adds lines and has no context.
    #[error(
        "hunk {hunk} (`{header}`) has no line of the file to find its place by: give it at least one line of context"
    )]
    NoContext {
        /// The number of the hunk.
        hunk: usize,
        /// Its `@@` line.
        header: String,
    },
    /// A deletion that does not remove every line.
    #[error("the diff deletes the file (`+++ /dev/null`) but leaves {lines} lines of it")]
    LeftOver {
        /// How many lines are left.
        lines: usize,
    },
}

/// How many lines are compared before a hunk counts as not found. It bounds the search in huge files.
const MAX_COMPARISONS: usize = 10_000_000;

/// How many lines an error shows before and after the first difference.
const AROUND: usize = 2;
const SHOWN: usize = 160;

pub(super) fn apply(patch: &Patch, original: Option<&[u8]>) -> Result<PatchedFile, PatchError> {
    let needs_file = patch.effect == PatchEffect::Delete
        || patch.hunks.iter().any(|hunk| hunk.old_lines().next().is_some());
    match original {
        None if needs_file => return Err(PatchError::Missing),
        Some(_) if patch.effect == PatchEffect::Create => return Err(PatchError::Exists),
        None | Some(_) => {}
    }
    let content = edit(original.unwrap_or_default(), &patch.hunks)?;
    match patch.effect {
        PatchEffect::Change | PatchEffect::Create => Ok(PatchedFile::Content(content)),
        PatchEffect::Delete if content.is_empty() => Ok(PatchedFile::Deleted),
        PatchEffect::Delete => Err(PatchError::LeftOver {
            lines: content.split_inclusive(|byte| *byte == b'\n').count(),
        }),
    }
}

fn edit(original: &[u8], hunks: &[Hunk]) -> Result<Vec<u8>, PatchError> {
    let file: Vec<&[u8]> = original.split_inclusive(|byte| *byte == b'\n').collect();
    let mut output = Output {
        bytes: Vec::new(),
        line_break: b"\n",
    };
    let mut copied = 0;
    let mut drift = 0;
    for hunk in hunks {
        let search = Search {
            file: &file,
            hunk,
            old: hunk.old_lines().collect(),
            from: copied,
        };
        let place = search.place(drift)?;
        if let Some(start) = hunk.start {
            drift = place
                .cast_signed()
                .saturating_sub(start.saturating_sub(1).cast_signed());
        }
        file[copied..place].iter().for_each(|line| output.push(line));
        copied = place + search.old.len();
        output.push_hunk(hunk, &file[place..copied]);
    }
    file[copied..].iter().for_each(|line| output.push(line));
    Ok(output.bytes)
}

/// The new content so far.
struct Output {
    bytes: Vec<u8>,
    /// The line break of added lines.
    line_break: &'static [u8],
}

impl Output {
    /// Adds a line. Ends the previous line first if it has no line break.
    fn push(&mut self, line: &[u8]) {
        if self.bytes.last().is_some_and(|byte| *byte != b'\n') {
            self.bytes.extend_from_slice(self.line_break);
        }
        self.bytes.extend_from_slice(line);
    }

    /// Adds the result of a hunk. Kept lines are copied from the file. Added lines end with CRLF if the file's lines do
    /// and the diff's do not.
    fn push_hunk(&mut self, hunk: &Hunk, found: &[&[u8]]) {
        let mut found = found.iter();
        let crlf = hunk
            .old_lines()
            .zip(found.clone())
            .any(|(line, found)| lacks_cr(line, found));
        self.line_break = if crlf { b"\r\n" } else { b"\n" };
        for line in &hunk.lines {
            match line.op {
                LineOp::Keep => found.next().into_iter().for_each(|line| self.push(line)),
                LineOp::Remove => drop(found.next()),
                LineOp::Add => {
                    self.push(line.text.as_bytes());
                    match line.end {
                        LineEnd::File => {}
                        LineEnd::LineBreak => self.bytes.extend_from_slice(self.line_break),
                    }
                }
            }
        }
    }
}

/// Searches for the lines of one hunk.
struct Search<'a> {
    file: &'a [&'a [u8]],
    hunk: &'a Hunk,
    old: Vec<&'a DiffLine>,
    /// The first line after the previous hunk, from 0.
    from: usize,
}

impl Search<'_> {
    /// Finds the line, from 0, where the hunk applies: where its header says, shifted like the previous hunk, or at the
    /// nearest match.
    fn place(&self, drift: isize) -> Result<usize, PatchError> {
        if self.old.is_empty() {
            return self.place_of_addition();
        }
        let expected = self
            .hunk
            .start
            .unwrap_or(1)
            .saturating_sub(1)
            .saturating_add_signed(drift);
        let mut best = (0, self.from);
        let mut matches = Vec::new();
        let mut compared = 0;
        for at in nearest_first(expected, self.from, self.file.len()) {
            let matching = self.matching_lines(at);
            if matching == self.old.len() {
                matches.push(at);
            }
            if matching > best.0 || compared == 0 {
                best = (matching, at);
            }
            compared += matching + 1;
            let settled = self.hunk.start.is_some() && !matches.is_empty();
            if settled || matches.len() > 1 || compared > MAX_COMPARISONS {
                break;
            }
        }
        match matches[..] {
            [] => Err(self.mismatch(best.1, best.0)),
            [at] => Ok(at),
            [first, second, ..] => Err(PatchError::Ambiguous {
                hunk: self.hunk.number,
                first: first + 1,
                second: second + 1,
            }),
        }
    }

    /// A hunk without context applies only to an empty file.
    fn place_of_addition(&self) -> Result<usize, PatchError> {
        if self.file.is_empty() {
            return Ok(0);
        }
        Err(PatchError::NoContext {
            hunk: self.hunk.number,
            header: self.hunk.header.clone(),
        })
    }

    /// How many of the hunk's old lines match at this line, from the first on.
    fn matching_lines(&self, at: usize) -> usize {
        let here = self.file[at..].iter();
        self.old
            .iter()
            .zip(here)
            .take_while(|(line, found)| is_match(line, found))
            .count()
    }

    fn mismatch(&self, at: usize, matching: usize) -> PatchError {
        let around = matching.saturating_sub(AROUND)..matching + AROUND + 1;
        let shown = |bytes: &[u8]| -> String {
            String::from_utf8_lossy(bytes)
                .trim_end_matches(['\r', '\n'])
                .chars()
                .take(SHOWN)
                .collect()
        };
        let window = |count: usize| around.start.min(count)..around.end.min(count);
        PatchError::Mismatch {
            hunk: self.hunk.number,
            header: shown(self.hunk.header.as_bytes()),
            line: at + matching + 1,
            expected: self.old[window(self.old.len())]
                .iter()
                .map(|line| shown(line.text.as_bytes()))
                .collect(),
            found: self.file[at..][window(self.file.len() - at)]
                .iter()
                .map(|line| shown(line))
                .collect(),
        }
    }
}

/// The numbers from `low` to `high`, nearest to `middle` first.
fn nearest_first(middle: usize, low: usize, high: usize) -> impl Iterator<Item = usize> {
    let middle = middle.clamp(low, high);
    (0..=high - low).flat_map(move |distance| {
        let after = Some(middle + distance).filter(|at| *at <= high);
        let before = middle
            .checked_sub(distance)
            .filter(|at| *at >= low && distance > 0);
        after.into_iter().chain(before)
    })
}

/// Whether a line of the file matches a line of the hunk. A carriage return, or a missing last line break, in the file
/// alone does not matter.
fn is_match(line: &DiffLine, found: &[u8]) -> bool {
    match line.end {
        LineEnd::File => found == line.text.as_bytes(),
        LineEnd::LineBreak => without_break(found) == line.text.as_bytes() || lacks_cr(line, found),
    }
}

/// Whether the file's line is the hunk's line plus a carriage return.
fn lacks_cr(line: &DiffLine, found: &[u8]) -> bool {
    found.strip_suffix(b"\r\n") == Some(line.text.as_bytes()) && line.end == LineEnd::LineBreak
}

fn without_break(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

fn side_by_side(expected: &[String], found: &[String]) -> String {
    let mut text = String::new();
    for (title, lines) in [("the diff has:", expected), ("the file has:", found)] {
        text.push_str(title);
        for line in lines {
            let _ = write!(text, "\n    {line}");
        }
        if lines.is_empty() {
            text.push_str("\n    (the end of the file)");
        }
        text.push('\n');
    }
    text.trim_end().to_owned()
}
