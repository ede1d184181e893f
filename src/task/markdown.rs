//! The parts of Markdown that a task file uses: headings, list items and code spans outside of code blocks and comments.

use std::ops::Range;

use super::error::{LintRule, TaskError};

/// One line of Markdown without its line break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MarkdownLine<'a> {
    /// The line number, from 1.
    pub(super) number: usize,
    /// Its position in bytes.
    pub(super) start: usize,
    pub(super) text: &'a str,
}

/// The lines of a text with their numbers and positions. Accepts LF and CRLF.
pub(super) fn lines(text: &str) -> impl Iterator<Item = MarkdownLine<'_>> {
    let mut start = 0;
    text.split_inclusive('\n').zip(1..).map(move |(whole, number)| {
        let text = whole.strip_suffix('\n').unwrap_or(whole);
        let text = text.strip_suffix('\r').unwrap_or(text);
        let line = MarkdownLine { number, start, text };
        start += whole.len();
        line
    })
}

/// Drops the lines in code blocks and comments. Returns an error for one without an end.
pub(super) fn visible<'a>(
    lines: impl Iterator<Item = MarkdownLine<'a>>,
) -> (Vec<MarkdownLine<'a>>, Option<TaskError>) {
    let mut state = State::Text;
    let mut seen = Vec::new();
    for line in lines {
        let before = state;
        state = before.after(line);
        if matches!(before, State::Text) && !matches!(state, State::Code { .. }) {
            seen.push(line);
        }
    }
    let unclosed = match state {
        State::Text => None,
        State::Code { since, .. } => Some((
            since,
            "code block",
            "close it with as many ` or ~ as it begins with",
        )),
        State::Comment { since } => Some((
            since,
            "comment",
            "close it with -->, or put <!-- in backticks if it is text",
        )),
    };
    let error = unclosed.map(|(line, what, fix)| {
        let reason = format!("this {what} is never closed, so the checkboxes after it are ignored");
        TaskError::new(line, LintRule::Closed, reason, fix)
    });
    (seen, error)
}

/// A list item, at any depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListItem<'a> {
    /// The column of its bullet. A tab advances to the next multiple of four.
    pub(super) indent: usize,
    /// The position of its content, in bytes of the line.
    pub(super) start: usize,
    pub(super) content: &'a str,
}

/// Parses a line that begins with `-`, `*`, `+`, `1.` or `1)`.
pub(super) fn list_item(line: &str) -> Option<ListItem<'_>> {
    let trimmed = line.trim_start_matches(BLANK);
    let after = match trimmed.strip_prefix(['-', '*', '+']) {
        Some(after) => after,
        None => trimmed
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .strip_prefix(['.', ')'])?,
    };
    let content = after.trim_start_matches(BLANK);
    let starts_with_blank = content.len() < after.len();
    starts_with_blank.then(|| ListItem {
        indent: column(&line[..line.len() - trimmed.len()]),
        start: line.len() - content.len(),
        content,
    })
}

/// Parses a heading: its level, from 1, and its text.
pub(super) fn heading(line: &str) -> Option<(usize, &str)> {
    let after = line.trim_start_matches('#');
    let level = line.len() - after.len();
    let is_heading = (1..=6).contains(&level) && (after.is_empty() || after.starts_with(BLANK));
    is_heading.then(|| {
        let text = after.trim();
        let unclosed = text.trim_end_matches('#');
        let text = if unclosed.is_empty() || unclosed.ends_with(BLANK) {
            unclosed
        } else {
            text
        };
        (level, text.trim_end())
    })
}

/// Text in backticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CodeSpan<'a> {
    /// Its position including the backticks, in bytes of the line.
    pub(super) range: Range<usize>,
    /// The text between the backticks, trimmed.
    pub(super) code: &'a str,
}

/// The code spans of a line. A span ends with as many backticks as it began with.
pub(super) fn code_spans(line: &str) -> Vec<CodeSpan<'_>> {
    let mut spans = Vec::new();
    let runs: Vec<Range<usize>> = backtick_runs(line).collect();
    let mut next = 0;
    while let Some(open) = runs.get(next) {
        next += 1;
        let closing = runs[next..].iter().position(|run| run.len() == open.len());
        let Some(between) = closing else { continue };
        let close = &runs[next + between];
        next += between + 1;
        let code = line[open.end..close.start].trim();
        spans.push(CodeSpan {
            range: open.start..close.end,
            code,
        });
    }
    spans
}

const BLANK: [char; 2] = [' ', '\t'];

const TAB: usize = 4;

fn column(indentation: &str) -> usize {
    indentation.chars().fold(0, |column, c| match c {
        '\t' => (column / TAB + 1) * TAB,
        _ => column + 1,
    })
}

fn backtick_runs(line: &str) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + line[from..].find('`')?;
        let after = line[start..].trim_start_matches('`');
        from = line.len() - after.len();
        Some(start..from)
    })
}

/// The parser state at the end of a line.
#[derive(Clone, Copy)]
enum State {
    Text,
    Code { fence: Fence, since: usize },
    Comment { since: usize },
}

impl State {
    fn after(self, line: MarkdownLine<'_>) -> Self {
        match self {
            Self::Text => match Fence::opened_by(line.text) {
                Some(fence) => Self::Code {
                    fence,
                    since: line.number,
                },
                None => Self::after_text(line.text, line.number),
            },
            Self::Code { fence, .. } if fence.is_closed_by(line.text) => Self::Text,
            Self::Code { .. } => self,
            Self::Comment { .. } => match line.text.split_once(COMMENT_END) {
                Some((_, text)) => Self::after_text(text, line.number),
                None => self,
            },
        }
    }

    fn after_text(text: &str, number: usize) -> Self {
        let spans = code_spans(text);
        let mut from = 0;
        while let Some(found) = text[from..].find(COMMENT_START) {
            let at = from + found;
            let next = spans.partition_point(|span| span.range.end <= at);
            if let Some(span) = spans.get(next).filter(|span| span.range.contains(&at)) {
                from = span.range.end;
            } else if let Some(length) = text[at + OVERLAP..].find(COMMENT_END) {
                from = at + OVERLAP + length + COMMENT_END.len();
            } else {
                return Self::Comment { since: number };
            }
        }
        Self::Text
    }
}

const COMMENT_START: &str = "<!--";
const COMMENT_END: &str = "-->";
/// `<!-->` is a complete comment: the same dashes open and close it.
const OVERLAP: usize = "<!".len();

/// The line that opens a code block.
#[derive(Clone, Copy)]
struct Fence {
    mark: char,
    length: usize,
}

impl Fence {
    fn opened_by(line: &str) -> Option<Self> {
        let text = list_item(line).map_or(line.trim_start_matches(BLANK), |item| item.content);
        let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let info = text.trim_start_matches(mark);
        let length = text.len() - info.len();
        let is_fence = length >= 3 && !(mark == '`' && info.contains('`'));
        is_fence.then_some(Self { mark, length })
    }

    fn is_closed_by(self, line: &str) -> bool {
        let text = line.trim_matches(BLANK);
        text.len() >= self.length && text.chars().all(|c| c == self.mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_megabytes_is_read_in_one_pass() {
        // A look at all spans for each `<!--` would take minutes.
        let spans = 600_000;
        let line = "`<!--` ".repeat(spans);
        assert_eq!(code_spans(&line).len(), spans);
        let (seen, unclosed) = visible(lines(&line));
        assert_eq!(seen.len(), 1);
        assert!(unclosed.is_none(), "{unclosed:?}");
    }
}
