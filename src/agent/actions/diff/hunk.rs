//! Reading one hunk of a diff.

use super::parse::Lines;
use super::{End, Hunk, Line, Op, PatchFormatError};

const EXPECTED_HEADER: &str =
    "`@@ -line,count +line,count @@`, or `@@` alone to find the hunk by its context";
const EXPECTED_LINE: &str =
    "a line that begins with a space (kept), `+` (added) or `-` (removed), or the next `@@`";

/// Reads the hunk whose `@@` line comes next.
pub(super) fn read_hunk(lines: &mut Lines<'_>, number: usize) -> Result<Hunk, PatchFormatError> {
    let header = lines.peek().unwrap_or_default();
    let numbers = Numbers::parse(header).ok_or_else(|| lines.unexpected(EXPECTED_HEADER))?;
    lines.advance();
    let mut body = Body::new(&numbers);
    while let Some(line) = lines.peek().filter(|line| !body.ends_before(line, lines)) {
        body.push(line, lines)?;
        lines.advance();
    }
    let lines = body.finish();
    if lines.iter().all(|line| line.op == Op::Keep) {
        return Err(PatchFormatError::EmptyHunk { hunk: number });
    }
    Ok(Hunk {
        number,
        header: header.to_owned(),
        start: numbers.start(),
        lines,
    })
}

/// The numbers of a `@@` line.
enum Numbers {
    Absent,
    Given { start: usize, old: usize, new: usize },
}

impl Numbers {
    /// Reads `@@ -1,3 +1,4 @@ anything`, `@@ -1 +1 @@`, `@@ @@` or `@@`.
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

/// The lines of a hunk while they are read.
struct Body<'a> {
    numbers: &'a Numbers,
    lines: Vec<Line>,
    /// How many lines at the end are wholly empty: blank lines to keep, or just space after the hunk.
    blank_at_end: usize,
    old: Side,
    new: Side,
}

/// How far one side of a hunk has been read.
#[derive(Clone, Copy)]
struct Side {
    count: usize,
    end: End,
}

impl<'a> Body<'a> {
    fn new(numbers: &'a Numbers) -> Self {
        let side = Side {
            count: 0,
            end: End::LineBreak,
        };
        Self {
            numbers,
            lines: Vec::new(),
            blank_at_end: 0,
            old: side,
            new: side,
        }
    }

    /// Whether the hunk is over before this line. `--- x` can also be the removal of `-- x`: then the counts decide.
    fn ends_before(&self, line: &str, lines: &Lines<'_>) -> bool {
        let complete = match *self.numbers {
            Numbers::Absent => true,
            Numbers::Given { old, new, .. } => self.old.count >= old && self.new.count >= new,
        };
        let begins_file =
            line.starts_with("--- ") && lines.peek_second().is_some_and(|next| next.starts_with("+++ "));
        line.starts_with("@@") || line.starts_with("diff ") || (complete && begins_file)
    }

    fn push(&mut self, line: &str, lines: &Lines<'_>) -> Result<(), PatchFormatError> {
        let blank = self.blank_at_end;
        self.blank_at_end = 0;
        match line.split_at_checked(1) {
            Some((" ", text)) => self.push_line(Op::Keep, text, lines),
            Some(("+", text)) => self.push_line(Op::Add, text, lines),
            Some(("-", text)) => self.push_line(Op::Remove, text, lines),
            Some(("\\", _)) => self.end_file(lines),
            None if self.old.end == End::File || self.new.end == End::File => Ok(()),
            // Many editors and models drop the space of an empty line that is kept.
            None if line.is_empty() => {
                self.blank_at_end = blank + 1;
                self.push_line(Op::Keep, "", lines)
            }
            _ => Err(lines.unexpected(EXPECTED_LINE)),
        }
    }

    fn push_line(&mut self, op: Op, text: &str, lines: &Lines<'_>) -> Result<(), PatchFormatError> {
        for side in self.sides(op) {
            if side.end == End::File {
                return Err(PatchFormatError::AfterEndOfFile { line: lines.number() });
            }
            side.count += 1;
        }
        self.lines.push(Line {
            op,
            text: text.to_owned(),
            end: End::LineBreak,
        });
        Ok(())
    }

    /// Takes `\ No newline at end of file`, which speaks of the line before it.
    fn end_file(&mut self, lines: &Lines<'_>) -> Result<(), PatchFormatError> {
        let last = self
            .lines
            .last_mut()
            .ok_or_else(|| lines.unexpected(EXPECTED_LINE))?;
        last.end = End::File;
        let op = last.op;
        for side in self.sides(op) {
            side.end = End::File;
        }
        Ok(())
    }

    /// The sides that a line with this operation is on.
    fn sides(&mut self, op: Op) -> impl Iterator<Item = &mut Side> {
        let old = (op != Op::Add).then_some(&mut self.old);
        let new = (op != Op::Remove).then_some(&mut self.new);
        old.into_iter().chain(new)
    }

    /// The lines, without the empty ones at the end that the counts do not ask for.
    fn finish(mut self) -> Vec<Line> {
        let wanted = match *self.numbers {
            Numbers::Absent => 0,
            Numbers::Given { old, .. } => old,
        };
        let surplus = self.old.count.saturating_sub(wanted).min(self.blank_at_end);
        self.lines.truncate(self.lines.len() - surplus);
        self.lines
    }
}
