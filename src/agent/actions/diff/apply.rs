//! Applies a unified diff.

use crate::text::counted;

use super::{DiffLine, Hunk, LineOp, Patch, PatchEffect, PatchError};

/// The result of applying a diff to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchedFile {
    /// The new content.
    Content(Vec<u8>),
    /// The file is deleted.
    Deleted,
}

/// How many lines are compared before a hunk counts as not found. It bounds the search in huge files.
const MAX_COMPARISONS: usize = 10_000_000;

/// How many lines an error shows before and after the first difference.
const AROUND: usize = 2;
const SHOWN: usize = 160;

pub(super) fn apply(patch: &Patch, original: Option<&[u8]>) -> Result<PatchedFile, PatchError> {
    let needs_file = patch.effect == PatchEffect::Delete
        || patch.hunks.iter().any(|hunk| hunk.old_lines().next().is_some());
    if original.is_none() && needs_file {
        return Err(PatchError::new(
            "the file does not exist; to create it, start the diff with `--- /dev/null`",
        ));
    }
    if original.is_some() && patch.effect == PatchEffect::Create {
        return Err(PatchError::new(
            "the file already exists, but the diff creates it (`--- /dev/null`)",
        ));
    }
    let content = edit(original.unwrap_or_default(), &patch.hunks)?;
    match patch.effect {
        PatchEffect::Change | PatchEffect::Create => Ok(PatchedFile::Content(content)),
        PatchEffect::Delete if content.is_empty() => Ok(PatchedFile::Deleted),
        PatchEffect::Delete => {
            let left = content.split_inclusive(|byte| *byte == b'\n').count();
            Err(PatchError::new(format!(
                "the diff deletes the file (`+++ /dev/null`) but leaves {} of it",
                counted(left, "line")
            )))
        }
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
                LineOp::Add => match line.text.strip_suffix('\n') {
                    Some(text) => {
                        self.push(text.as_bytes());
                        self.bytes.extend_from_slice(self.line_break);
                    }
                    None => self.push(line.text.as_bytes()),
                },
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
        let Hunk { number, header, .. } = self.hunk;
        if self.old.is_empty() && self.file.is_empty() {
            return Ok(0);
        }
        if self.old.is_empty() {
            return Err(PatchError::new(format!(
                "hunk {number} (`{header}`) has no line of the file to find its place by: \
                 give it at least one line of context",
                header = shown(header.as_bytes())
            )));
        }
        let start = self.hunk.start.unwrap_or(1).saturating_sub(1);
        let expected = start.saturating_add_signed(drift);
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
            [first, second, ..] => Err(PatchError::new(format!(
                "hunk {number} fits at line {} and at line {} of the file: give it more context, or line numbers",
                first + 1,
                second + 1
            ))),
        }
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
        let old = self.old.iter().map(|line| line.text.as_bytes());
        let found = self.file[at..].iter().copied();
        let text = format!(
            "hunk {} (`{}`) does not apply: it differs from line {} of the file\n\
             the diff has:{}\nthe file has:{}",
            self.hunk.number,
            shown(self.hunk.header.as_bytes()),
            at + matching + 1,
            excerpt(old, matching),
            excerpt(found, matching),
        );
        PatchError::new(text.trim_end())
    }
}

/// The lines around the first one that differs, each on a line of its own.
fn excerpt<'a>(lines: impl Iterator<Item = &'a [u8]>, first_difference: usize) -> String {
    let skipped = first_difference.saturating_sub(AROUND);
    let around = lines.skip(skipped).take(first_difference - skipped + 1 + AROUND);
    let mut excerpt = String::new();
    for line in around {
        excerpt.push_str("\n    ");
        excerpt.push_str(&shown(line));
    }
    if excerpt.is_empty() {
        return "\n    (the end of the file)".to_owned();
    }
    excerpt
}

/// A line without its line break, shortened.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.trim_end_matches(['\r', '\n']).chars().take(SHOWN).collect()
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
    match line.text.strip_suffix('\n') {
        None => found == line.text.as_bytes(),
        Some(text) => found.strip_suffix(b"\n").unwrap_or(found) == text.as_bytes() || lacks_cr(line, found),
    }
}

/// Whether the file's line is the hunk's line plus a carriage return.
fn lacks_cr(line: &DiffLine, found: &[u8]) -> bool {
    let text = line.text.strip_suffix('\n').map(str::as_bytes);
    text.is_some() && text == found.strip_suffix(b"\r\n")
}
