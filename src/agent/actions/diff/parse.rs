//! Reading a unified diff.

use super::{Effect, End, Hunk, Line, Op, Patch, PatchFormatError};

const SHOWN: usize = 60;

const HEADER: &str = "a line of a diff's header (`--- a/file`, `+++ b/file`) or a hunk (`@@ -1,3 +1,4 @@`)";
const HUNK_HEADER: &str = "`@@ -line,count +line,count @@`, or `@@` alone to find the hunk by its context";
const HUNK_LINE: &str =
    "a line that begins with a space (kept), `+` (added) or `-` (removed), or the next `@@`";

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
struct Lines<'a> {
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

    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.next).copied()
    }

    fn peek_second(&self) -> Option<&'a str> {
        self.lines.get(self.next + 1).copied()
    }

    fn advance(&mut self) {
        self.next += 1;
    }

    /// The number of the line that comes next, from 1.
    fn number(&self) -> usize {
        self.next + 1
    }

    fn unexpected(&self, expected: &'static str) -> PatchFormatError {
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

/// What comes before the first hunk.
struct Header {
    effect: Effect,
    names: Vec<String>,
}

impl Header {
    fn read(lines: &mut Lines<'_>) -> Result<Self, PatchFormatError> {
        let mut header = Self {
            effect: Effect::Change,
            names: Vec::new(),
        };
        let (mut git_lines, mut name_lines) = (0, 0);
        while let Some(line) = lines.peek().filter(|line| !line.starts_with("@@")) {
            if line.starts_with("diff ") {
                git_lines += 1;
            } else if line.starts_with("--- ") {
                name_lines += 1;
            }
            if git_lines > 1 || name_lines > 1 {
                return Err(PatchFormatError::SeveralFiles { line: lines.number() });
            }
            header.read_line(line, lines)?;
            lines.advance();
        }
        Ok(header)
    }

    fn read_line(&mut self, line: &str, lines: &mut Lines<'_>) -> Result<(), PatchFormatError> {
        check_supported(line, lines.number())?;
        if line.starts_with("new file mode ") {
            self.effect = Effect::Create;
        } else if line.starts_with("deleted file mode ") {
            self.effect = Effect::Delete;
        } else if let Some(old) = line.strip_prefix("--- ") {
            lines.advance();
            let new = lines.peek().and_then(|line| line.strip_prefix("+++ "));
            let new = new.ok_or_else(|| lines.unexpected("`+++ b/file` after `--- a/file`"))?;
            self.take_names(&file_name(old), &file_name(new), lines)?;
        } else if !is_skipped(line) {
            return Err(lines.unexpected(HEADER));
        }
        Ok(())
    }

    fn take_names(&mut self, old: &str, new: &str, lines: &Lines<'_>) -> Result<(), PatchFormatError> {
        const NONE: &str = "/dev/null";
        match (old, new) {
            (NONE, NONE) => return Err(lines.unexpected("a file name on one side at least")),
            (NONE, name) => {
                self.effect = Effect::Create;
                self.names.push(name.to_owned());
            }
            (name, NONE) => {
                self.effect = Effect::Delete;
                self.names.push(name.to_owned());
            }
            (old, new) => self.names.extend([old.to_owned(), new.to_owned()]),
        }
        Ok(())
    }
}

/// Refuses what would be more than a change of a regular file's text.
fn check_supported(line: &str, number: usize) -> Result<(), PatchFormatError> {
    let refuse = |what, instead| {
        Err(PatchFormatError::Unsupported {
            line: number,
            what,
            instead,
        })
    };
    let has_mode = |mode: &str| {
        let names_mode = ["new file mode ", "new mode ", "index "]
            .iter()
            .any(|start| line.starts_with(start));
        names_mode && line.trim_end().ends_with(mode)
    };
    if line.starts_with("rename ") || line.starts_with("copy ") {
        refuse("a rename or copy", "use `run` with `git mv` or `cp`")
    } else if line.starts_with("Binary files ") || line.starts_with("GIT binary patch") {
        refuse(
            "a change of a binary file",
            "use `run` with the program that makes it",
        )
    } else if has_mode(" 120000") {
        refuse("a symbolic link", "use `run` with `ln -s`")
    } else if has_mode(" 160000") {
        refuse("a submodule", "use `run` with `git submodule`")
    } else {
        Ok(())
    }
}

fn is_skipped(line: &str) -> bool {
    const SKIPPED: [&str; 6] = [
        "diff ",
        "index ",
        "old mode ",
        "new mode ",
        "similarity index ",
        "dissimilarity index ",
    ];
    line.trim().is_empty() || SKIPPED.iter().any(|start| line.starts_with(start))
}

/// The name in a `---` or `+++` line: up to a tab (a time follows it), or between quotes, as git writes unusual names.
fn file_name(text: &str) -> String {
    match text.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
        Some(_) => unquoted(&text[1..]),
        None => text.split('\t').next().unwrap_or_default().trim_end().to_owned(),
    }
}

/// What git wrote between quotes, up to the closing one: `\303\274` is `ü`.
fn unquoted(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] | [b'"', ..] => break,
            [
                b'\\',
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                rest @ ..,
            ] => {
                bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest
            }
            [b'\\', escaped, rest @ ..] => {
                bytes.push(match escaped {
                    b'a' => 7,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => b'\r',
                    other => *other,
                });
                rest
            }
            [byte, rest @ ..] => {
                bytes.push(*byte);
                rest
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn read_hunk(lines: &mut Lines<'_>, number: usize) -> Result<Hunk, PatchFormatError> {
    let header = lines.peek().unwrap_or_default();
    let numbers = Numbers::parse(header).ok_or_else(|| lines.unexpected(HUNK_HEADER))?;
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
    Some((start.parse().ok()?, count.parse().ok()?))
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
            _ => Err(lines.unexpected(HUNK_LINE)),
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
        let last = self.lines.last_mut().ok_or_else(|| lines.unexpected(HUNK_LINE))?;
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
