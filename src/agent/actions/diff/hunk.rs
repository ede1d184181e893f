//! Parses one hunk of a diff.

use super::parse::DiffLines;
use super::{DiffLine, Hunk, LineEnd, LineOp, PatchFormatError};

const EXPECTED_HEADER: &str =
    "`@@ -line,count +line,count @@`, or `@@` alone to find the hunk by its context";
const EXPECTED_LINE: &str =
    "a line that begins with a space (kept), `+` (added) or `-` (removed), or the next `@@`";

/// Parses the hunk that begins at the next line, an `@@` line.
pub(super) fn parse_hunk(lines: &mut DiffLines<'_>, number: usize) -> Result<Hunk, PatchFormatError> {
    let header = lines.peek().unwrap_or_default();
    let numbers = HunkNumbers::parse(header).ok_or_else(|| lines.unexpected(EXPECTED_HEADER))?;
    lines.advance();
    let mut body = HunkBody::new(&numbers);
    while let Some(line) = lines.peek().filter(|line| !body.ends_before(line, lines)) {
        body.push(line, lines)?;
        lines.advance();
    }
    let lines = body.finish();
    if lines.iter().all(|line| line.op == LineOp::Keep) {
        return Err(PatchFormatError::EmptyHunk { hunk: number });
    }
    Ok(Hunk {
        number,
        header: header.to_owned(),
        start: numbers.start(),
        lines,
    })
}

/// The line numbers in an `@@` line.
enum HunkNumbers {
    Absent,
    Given { start: usize, old: usize, new: usize },
}

impl HunkNumbers {
    /// Parses `@@ -1,3 +1,4 @@ anything`, `@@ -1 +1 @@`, `@@ @@` or `@@`.
    fn parse(header: &str) -> Option<Self> {
        let inner = header.strip_prefix("@@")?;
        let inner = match inner.split_once("@@") {
            Some((inner, _section)) => inner.trim(),
            None if inner.trim().is_empty() => "",
            None => return None,
        };
        if inner.is_empty() {
            return Some(Self::Absent);
        }
        let (old, new) = inner.split_once(' ')?;
        let (start, old) = range(old.strip_prefix('-')?)?;
        let (_, new) = range(new.trim_start().strip_prefix('+')?)?;
        // `-5,0` is "after line 5": the hunk's place is before the sixth.
        let start = if old == 0 { start.checked_add(1)? } else { start };
        Some(Self::Given { start, old, new })
    }

    fn start(&self) -> Option<usize> {
        match self {
            Self::Absent => None,
            Self::Given { start, .. } => Some(*start),
        }
    }
}

/// `12,3`, or `12` for one line.
fn range(text: &str) -> Option<(usize, usize)> {
    let (start, count) = text.split_once(',').unwrap_or((text, "1"));
    let number = |text: &str| usize::try_from(text.parse::<u32>().ok()?).ok();
    Some((number(start)?, number(count)?))
}

/// The lines of a hunk so far.
struct HunkBody<'a> {
    numbers: &'a HunkNumbers,
    lines: Vec<DiffLine>,
    /// How many empty lines the hunk ends with so far. They are kept lines, or white space after the hunk.
    blank_at_end: usize,
    old: Side,
    new: Side,
}

/// One side (old or new) of a hunk so far.
#[derive(Clone, Copy)]
struct Side {
    count: usize,
    end: LineEnd,
}

impl<'a> HunkBody<'a> {
    fn new(numbers: &'a HunkNumbers) -> Self {
        let side = Side {
            count: 0,
            end: LineEnd::LineBreak,
        };
        Self {
            numbers,
            lines: Vec::new(),
            blank_at_end: 0,
            old: side,
            new: side,
        }
    }

    /// Whether the hunk ends before this line. `--- x` can also remove the line `-- x`; the counts decide.
    fn ends_before(&self, line: &str, lines: &DiffLines<'_>) -> bool {
        let complete = match *self.numbers {
            HunkNumbers::Absent => true,
            HunkNumbers::Given { old, new, .. } => self.old.count >= old && self.new.count >= new,
        };
        let begins_file =
            line.starts_with("--- ") && lines.peek_second().is_some_and(|next| next.starts_with("+++ "));
        line.starts_with("@@") || line.starts_with("diff ") || (complete && begins_file)
    }

    fn push(&mut self, line: &str, lines: &DiffLines<'_>) -> Result<(), PatchFormatError> {
        let blank = self.blank_at_end;
        self.blank_at_end = 0;
        match line.split_at_checked(1) {
            Some((" ", text)) => self.push_line(LineOp::Keep, text, lines),
            Some(("+", text)) => self.push_line(LineOp::Add, text, lines),
            Some(("-", text)) => self.push_line(LineOp::Remove, text, lines),
            Some(("\\", _)) => self.end_file(lines),
            None if self.old.end == LineEnd::File || self.new.end == LineEnd::File => Ok(()),
            // Many editors and models drop the space in front of an empty kept line.
            None if line.is_empty() => {
                self.blank_at_end = blank + 1;
                self.push_line(LineOp::Keep, "", lines)
            }
            _ => Err(lines.unexpected(EXPECTED_LINE)),
        }
    }

    fn push_line(&mut self, op: LineOp, text: &str, lines: &DiffLines<'_>) -> Result<(), PatchFormatError> {
        for side in self.sides(op) {
            if side.end == LineEnd::File {
                return Err(PatchFormatError::AfterEndOfFile { line: lines.number() });
            }
            side.count += 1;
        }
        self.lines.push(DiffLine {
            op,
            text: text.to_owned(),
            end: LineEnd::LineBreak,
        });
        Ok(())
    }

    /// Handles `\ No newline at end of file`, which refers to the previous line.
    fn end_file(&mut self, lines: &DiffLines<'_>) -> Result<(), PatchFormatError> {
        let last = self
            .lines
            .last_mut()
            .ok_or_else(|| lines.unexpected(EXPECTED_LINE))?;
        last.end = LineEnd::File;
        let op = last.op;
        for side in self.sides(op) {
            side.end = LineEnd::File;
        }
        Ok(())
    }

    /// The sides that contain a line with this operation.
    fn sides(&mut self, op: LineOp) -> impl Iterator<Item = &mut Side> {
        let old = (op != LineOp::Add).then_some(&mut self.old);
        let new = (op != LineOp::Remove).then_some(&mut self.new);
        old.into_iter().chain(new)
    }

    /// The lines, without empty lines at the end beyond the count in the header.
    fn finish(mut self) -> Vec<DiffLine> {
        let wanted = match *self.numbers {
            HunkNumbers::Absent => 0,
            HunkNumbers::Given { old, .. } => old,
        };
        let surplus = self.old.count.saturating_sub(wanted).min(self.blank_at_end);
        self.lines.truncate(self.lines.len() - surplus);
        self.lines
    }
}
