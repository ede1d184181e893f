//! Applying a unified diff.

use std::fmt::Write as _;

use thiserror::Error;

use super::{Effect, End, Hunk, Line, Op, Patch};

/// What became of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It has this content now.
    Content(Vec<u8>),
    /// It is gone.
    Deleted,
}

/// Why a diff does not apply. `hunk` counts from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatchError {
    /// There is nothing to change.
    #[error(
        "the file does not exist, and the diff does not make it: begin it with `--- /dev/null` to make it"
    )]
    Missing,
    /// There is something already.
    #[error(
        "the file exists already, but the diff makes it (`--- /dev/null`): read it, and change what is there"
    )]
    Exists,
    /// The lines of a hunk are nowhere in the file.
    #[error(
        "hunk {hunk} (`{header}`) does not apply: it differs from line {line} of the file\n{}",
        side_by_side(expected, found)
    )]
    Mismatch {
        /// Which one.
        hunk: usize,
        /// Its `@@` line.
        header: String,
        /// The first line of the file that differs, from 1, at the place that is most alike.
        line: usize,
        /// Lines of the hunk around there.
        expected: Vec<String>,
        /// Lines of the file around there.
        found: Vec<String>,
    },
    /// A hunk without numbers fits in two places.
    #[error(
        "hunk {hunk} fits at line {first} and at line {second} of the file: give it more context, or line numbers"
    )]
    Ambiguous {
        /// Which one.
        hunk: usize,
        /// One place.
        first: usize,
        /// Another.
        second: usize,
    },
    /// A hunk that only adds, with nothing to find its place by.
    #[error(
        "hunk {hunk} (`{header}`) has no line of the file to find its place by: give it at least one line of context"
    )]
    NoContext {
        /// Which one.
        hunk: usize,
        /// Its `@@` line.
        header: String,
    },
    /// A deletion that does not remove all.
    #[error("the diff deletes the file (`+++ /dev/null`) but leaves {lines} lines of it")]
    LeftOver {
        /// How many.
        lines: usize,
    },
}

/// How many lines are compared at most before a hunk counts as not found: no file makes the search endless.
const MAX_COMPARISONS: usize = 10_000_000;

/// How many lines are shown before and after the one that differs.
const AROUND: usize = 2;
const SHOWN: usize = 160;

pub(super) fn apply(patch: &Patch, original: Option<&[u8]>) -> Result<Applied, PatchError> {
    let needs_file =
        patch.effect == Effect::Delete || patch.hunks.iter().any(|hunk| hunk.old_lines().next().is_some());
    match original {
        None if needs_file => return Err(PatchError::Missing),
        Some(_) if patch.effect == Effect::Create => return Err(PatchError::Exists),
        None | Some(_) => {}
    }
    let content = edit(original.unwrap_or_default(), &patch.hunks)?;
    match patch.effect {
        Effect::Change | Effect::Create => Ok(Applied::Content(content)),
        Effect::Delete if content.is_empty() => Ok(Applied::Deleted),
        Effect::Delete => Err(PatchError::LeftOver {
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

/// The new content while it is written.
struct Output {
    bytes: Vec<u8>,
    /// What a line that is added ends with.
    line_break: &'static [u8],
}

impl Output {
    /// Adds a line, after a line break if the one before has none.
    fn push(&mut self, line: &[u8]) {
        if self.bytes.last().is_some_and(|byte| *byte != b'\n') {
            self.bytes.extend_from_slice(self.line_break);
        }
        self.bytes.extend_from_slice(line);
    }

    /// Adds what a hunk makes of the lines it was found at. Lines that stay are taken from the file; lines that are
    /// added end with CRLF where the file's lines do and the diff's do not.
    fn push_hunk(&mut self, hunk: &Hunk, found: &[&[u8]]) {
        let mut found = found.iter();
        let crlf = hunk
            .old_lines()
            .zip(found.clone())
            .any(|(line, found)| lacks_cr(line, found));
        self.line_break = if crlf { b"\r\n" } else { b"\n" };
        for line in &hunk.lines {
            match line.op {
                Op::Keep => found.next().into_iter().for_each(|line| self.push(line)),
                Op::Remove => drop(found.next()),
                Op::Add => {
                    self.push(line.text.as_bytes());
                    match line.end {
                        End::File => {}
                        End::LineBreak => self.bytes.extend_from_slice(self.line_break),
                    }
                }
            }
        }
    }
}

/// The search for the place of one hunk.
struct Search<'a> {
    file: &'a [&'a [u8]],
    hunk: &'a Hunk,
    old: Vec<&'a Line>,
    /// The first line that no earlier hunk has taken, from 0.
    from: usize,
}

impl Search<'_> {
    /// Finds the line, from 0, where the hunk belongs: where its header says, moved as the hunk before was, or else
    /// the nearest place where it fits.
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
        let mut fits = Vec::new();
        let mut compared = 0;
        for at in nearest_first(expected, self.from, self.file.len()) {
            let alike = self.lines_alike(at);
            if alike == self.old.len() {
                fits.push(at);
            }
            if alike > best.0 || compared == 0 {
                best = (alike, at);
            }
            compared += alike + 1;
            let settled = self.hunk.start.is_some() && !fits.is_empty();
            if settled || fits.len() > 1 || compared > MAX_COMPARISONS {
                break;
            }
        }
        match fits[..] {
            [] => Err(self.mismatch(best.1, best.0)),
            [at] => Ok(at),
            [first, second, ..] => Err(PatchError::Ambiguous {
                hunk: self.hunk.number,
                first: first + 1,
                second: second + 1,
            }),
        }
    }

    /// Lines without any context have a place only where there is nothing else.
    fn place_of_addition(&self) -> Result<usize, PatchError> {
        if self.file.is_empty() {
            return Ok(0);
        }
        Err(PatchError::NoContext {
            hunk: self.hunk.number,
            header: self.hunk.header.clone(),
        })
    }

    /// How many of the hunk's old lines, from the first on, are at this place.
    fn lines_alike(&self, at: usize) -> usize {
        let here = self.file[at..].iter();
        self.old
            .iter()
            .zip(here)
            .take_while(|(line, found)| fits(line, found))
            .count()
    }

    fn mismatch(&self, at: usize, alike: usize) -> PatchError {
        let around = alike.saturating_sub(AROUND)..alike + AROUND + 1;
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
            line: at + alike + 1,
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

/// The numbers from `low` to `high`, those near `middle` first.
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

/// Whether the file's line is the hunk's: the same text, but for a carriage return or a last line break that only the
/// file's line has or lacks.
fn fits(line: &Line, found: &[u8]) -> bool {
    match line.end {
        End::File => found == line.text.as_bytes(),
        End::LineBreak => without_break(found) == line.text.as_bytes() || lacks_cr(line, found),
    }
}

/// Whether the file's line is the hunk's and a carriage return.
fn lacks_cr(line: &Line, found: &[u8]) -> bool {
    found.strip_suffix(b"\r\n") == Some(line.text.as_bytes()) && line.end == End::LineBreak
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
