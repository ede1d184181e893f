//! Parses a unified diff.

use super::{DiffLine, Hunk, LineOp, Patch, PatchEffect, PatchError};

const EXPECTED_BEFORE_HUNKS: &str =
    "a line of a diff's header (`--- a/file`, `+++ b/file`) or a hunk (`@@ -1,3 +1,4 @@`)";
const EXPECTED_HUNK: &str = "`@@ -line,count +line,count @@`, or `@@` alone to find the hunk by its context";
const EXPECTED_LINE: &str =
    "a line that begins with a space (kept), `+` (added) or `-` (removed), or the next `@@`";
/// The name of a file that does not exist.
const NO_FILE: &str = "/dev/null";
/// How many characters of an unexpected line an error quotes.
const SHOWN: usize = 60;

pub(super) fn parse(text: &str) -> Result<Patch, PatchError> {
    let mut lines = DiffLines::new(text);
    let mut patch = Patch {
        text: text.to_owned(),
        effect: PatchEffect::Change,
        names: Vec::new(),
        hunks: Vec::new(),
    };
    parse_header(&mut lines, &mut patch)?;
    while lines.peek().is_some_and(|line| line.starts_with("@@")) {
        patch.hunks.push(parse_hunk(&mut lines, patch.hunks.len() + 1)?);
    }
    if lines.peek().is_some() {
        return Err(lines.second_file());
    }
    if patch.hunks.is_empty() && patch.effect == PatchEffect::Change {
        return Err(PatchError::new(
            "the diff changes nothing: it has no hunk with a `+` or `-` line",
        ));
    }
    let keeps_lines = |hunk: &&Hunk| hunk.old_lines().next().is_some();
    match patch.hunks.iter().find(keeps_lines) {
        Some(hunk) if patch.effect == PatchEffect::Create => Err(PatchError::new(format!(
            "hunk {} keeps or removes lines of a file that `--- /dev/null` says is new",
            hunk.number
        ))),
        _ => Ok(patch),
    }
}

/// Parses the lines before the first hunk: the effect and the names of the patch.
fn parse_header(lines: &mut DiffLines<'_>, patch: &mut Patch) -> Result<(), PatchError> {
    let (mut git_lines, mut name_lines) = (0, 0);
    while let Some(line) = lines.peek().filter(|line| !line.starts_with("@@")) {
        git_lines += u32::from(line.starts_with("diff "));
        name_lines += u32::from(line.starts_with("--- "));
        if git_lines > 1 || name_lines > 1 {
            return Err(lines.second_file());
        }
        check_supported(line, lines.number())?;
        if line.starts_with("new file mode ") {
            patch.effect = PatchEffect::Create;
        } else if line.starts_with("deleted file mode ") {
            patch.effect = PatchEffect::Delete;
        } else if let Some(old) = line.strip_prefix("--- ") {
            lines.next += 1;
            let new = lines.peek().and_then(|line| line.strip_prefix("+++ "));
            let new = new.ok_or_else(|| lines.unexpected("`+++ b/file` after `--- a/file`"))?;
            let names = [old, new].map(file_name);
            match names.each_ref().map(|name| name == NO_FILE) {
                [true, true] => return Err(lines.unexpected("a file name on one side at least")),
                [true, false] => patch.effect = PatchEffect::Create,
                [false, true] => patch.effect = PatchEffect::Delete,
                [false, false] => {}
            }
            patch
                .names
                .extend(names.into_iter().filter(|name| name != NO_FILE));
        } else if !is_skipped(line) {
            return Err(lines.unexpected(EXPECTED_BEFORE_HUNKS));
        }
        lines.next += 1;
    }
    Ok(())
}

/// Refuses everything except text changes of a regular file.
fn check_supported(line: &str, number: usize) -> Result<(), PatchError> {
    let begins = |starts: &[&str]| starts.iter().any(|start| line.starts_with(start));
    let has_mode =
        |mode: &str| begins(&["new file mode ", "new mode ", "index "]) && line.trim_end().ends_with(mode);
    let (what, instead) = if begins(&["rename ", "copy "]) {
        ("a rename or copy", "use `run` with `git mv` or `cp`")
    } else if begins(&["Binary files ", "GIT binary patch"]) {
        (
            "a change of a binary file",
            "use `run` with the program that makes it",
        )
    } else if has_mode(" 120000") {
        ("a symbolic link", "use `run` with `ln -s`")
    } else if has_mode(" 160000") {
        ("a submodule", "use `run` with `git submodule`")
    } else {
        return Ok(());
    };
    Err(PatchError::new(format!(
        "line {number} of the diff asks for {what}, which a patch cannot do here: {instead}"
    )))
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

/// The name in a `---` or `+++` line. It ends at a tab, or is quoted as git quotes unusual names.
fn file_name(text: &str) -> String {
    match text.strip_prefix('"') {
        Some(quoted) => unquoted(quoted),
        None => text.split('\t').next().unwrap_or_default().trim_end().to_owned(),
    }
}

/// Decodes git's quoting up to the closing quote: `\303\274` is `ü`.
fn unquoted(text: &str) -> String {
    let mut decoded = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next().filter(|byte| *byte != b'"') {
        decoded.push(match byte {
            b'\\' => match bytes.next().unwrap_or(b'\\') {
                b'a' => 7,
                b'b' => 8,
                b't' => b'\t',
                b'n' => b'\n',
                b'v' => 11,
                b'f' => 12,
                b'r' => b'\r',
                high @ b'0'..=b'3' => {
                    let low = bytes.by_ref().take(2);
                    low.fold(high & 7, |value, digit| (value << 3) | (digit & 7))
                }
                other => other,
            },
            plain => plain,
        });
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Parses the hunk that begins at the next line, an `@@` line.
fn parse_hunk(lines: &mut DiffLines<'_>, number: usize) -> Result<Hunk, PatchError> {
    let header = lines.peek().unwrap_or_default();
    let numbers = HunkNumbers::parse(header).ok_or_else(|| lines.unexpected(EXPECTED_HUNK))?;
    lines.next += 1;
    let mut body = HunkBody::default();
    while let Some(line) = lines.peek() {
        // `--- x` can also remove the line `-- x`; the counts decide.
        let is_complete = body.old.count >= numbers.old && body.new.count >= numbers.new;
        let begins_file = is_complete && line.starts_with("--- ") && lines.is_second("+++ ");
        if begins_file || line.starts_with("@@") || line.starts_with("diff ") {
            break;
        }
        body.push(line, lines)?;
        lines.next += 1;
    }
    // Empty lines at the end beyond the count in the header are not part of the hunk.
    let surplus = body.old.count.saturating_sub(numbers.old).min(body.blank_at_end);
    body.lines.truncate(body.lines.len() - surplus);
    if body.lines.iter().all(|line| line.op == LineOp::Keep) {
        return Err(PatchError::new(format!(
            "hunk {number} changes nothing: it has no `+` or `-` line"
        )));
    }
    Ok(Hunk {
        number,
        header: header.to_owned(),
        start: numbers.start,
        lines: body.lines,
    })
}

/// The start and the counts in an `@@` line; the counts are zero if it has none.
#[derive(Default)]
struct HunkNumbers {
    start: Option<usize>,
    old: usize,
    new: usize,
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
            return Some(Self::default());
        }
        let (old, new) = inner.split_once(' ')?;
        let (start, old) = range(old.strip_prefix('-')?)?;
        let (_, new) = range(new.trim_start().strip_prefix('+')?)?;
        // `-5,0` is "after line 5": the hunk's place is before the sixth.
        let start = Some(if old == 0 { start.checked_add(1)? } else { start });
        Some(Self { start, old, new })
    }
}

/// `12,3`, or `12` for one line.
fn range(text: &str) -> Option<(usize, usize)> {
    let (start, count) = text.split_once(',').unwrap_or((text, "1"));
    let number = |text: &str| usize::try_from(text.parse::<u32>().ok()?).ok();
    Some((number(start)?, number(count)?))
}

/// The lines of a hunk so far.
#[derive(Default)]
struct HunkBody {
    lines: Vec<DiffLine>,
    /// How many empty lines the hunk ends with so far. They are kept lines, or white space after the hunk.
    blank_at_end: usize,
    old: HunkSide,
    new: HunkSide,
}

/// The old or the new lines of a hunk so far.
#[derive(Default)]
struct HunkSide {
    count: usize,
    /// Whether `\ No newline at end of file` followed the last of them.
    ends_file: bool,
}

impl HunkBody {
    fn push(&mut self, line: &str, lines: &DiffLines<'_>) -> Result<(), PatchError> {
        let blank_before = std::mem::take(&mut self.blank_at_end);
        let mut text = line.chars();
        let op = match text.next() {
            Some(' ') => LineOp::Keep,
            Some('+') => LineOp::Add,
            Some('-') => LineOp::Remove,
            Some('\\') => return self.end_file(lines),
            None if self.old.ends_file || self.new.ends_file => return Ok(()),
            // Many editors and models drop the space in front of an empty kept line.
            None => {
                self.blank_at_end = blank_before + 1;
                LineOp::Keep
            }
            Some(_) => return Err(lines.unexpected(EXPECTED_LINE)),
        };
        for side in self.sides(op) {
            if side.ends_file {
                return Err(PatchError::new(format!(
                    "line {} of the diff comes after `\\ No newline at end of file`: nothing can follow there",
                    lines.number()
                )));
            }
            side.count += 1;
        }
        let text = format!("{}\n", text.as_str());
        self.lines.push(DiffLine { op, text });
        Ok(())
    }

    /// Handles `\ No newline at end of file`, which refers to the previous line.
    fn end_file(&mut self, lines: &DiffLines<'_>) -> Result<(), PatchError> {
        let last = self.lines.last_mut();
        let last = last.ok_or_else(|| lines.unexpected(EXPECTED_LINE))?;
        last.text.truncate(last.text.trim_end_matches('\n').len());
        let op = last.op;
        self.sides(op).for_each(|side| side.ends_file = true);
        Ok(())
    }

    /// The sides that contain a line with this operation.
    fn sides(&mut self, op: LineOp) -> impl Iterator<Item = &mut HunkSide> {
        let old = (op != LineOp::Add).then_some(&mut self.old);
        let new = (op != LineOp::Remove).then_some(&mut self.new);
        old.into_iter().chain(new)
    }
}

/// A cursor over the lines of a diff.
struct DiffLines<'a> {
    lines: Vec<&'a str>,
    next: usize,
}

impl<'a> DiffLines<'a> {
    /// Splits a text into lines. If its `@@` lines end with CRLF, the carriage returns are removed.
    fn new(text: &'a str) -> Self {
        let mut lines: Vec<&str> = text.split_terminator('\n').collect();
        let crlf = |line: &&str| line.starts_with("@@") && line.ends_with('\r');
        if lines.iter().any(crlf) {
            for line in &mut lines {
                *line = line.strip_suffix('\r').unwrap_or(line);
            }
        }
        Self { lines, next: 0 }
    }

    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.next).copied()
    }

    /// Whether the line after the next one begins like this.
    fn is_second(&self, start: &str) -> bool {
        let second = self.lines.get(self.next + 1);
        second.is_some_and(|line| line.starts_with(start))
    }

    /// The number of the next line, from 1.
    fn number(&self) -> usize {
        self.next + 1
    }

    fn second_file(&self) -> PatchError {
        PatchError::new(format!(
            "line {} of the diff begins a second file: give each file a `patch` action of its own",
            self.number()
        ))
    }

    fn unexpected(&self, expected: &str) -> PatchError {
        let line = self.peek().unwrap_or("the end of the diff");
        let found: String = line.chars().take(SHOWN).collect();
        PatchError::new(format!(
            "line {} of the diff is {found:?}: expected {expected}",
            self.number()
        ))
    }
}
