//! Lines of text that are wrapped to the terminal and scrolled.

use ratatui::text::Span;

/// How a line stands out. Nothing is said by it alone: the text says the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Heading,
    Good,
    Bad,
    Notice,
    Faint,
}

impl Tone {
    /// The tone of a line of the log, by the style that the API gives it.
    pub(super) fn of_log(style: &str) -> Self {
        match style {
            "heading" => Self::Heading,
            "good" | "good_end" => Self::Good,
            "bad" => Self::Bad,
            "notice" | "notice_end" => Self::Notice,
            _ => Self::Plain,
        }
    }

    /// The tone of a line of a diff.
    pub(super) fn of_diff(line: &str) -> Self {
        match line.as_bytes() {
            [b'd', b'i', b'f', b'f', b' ', ..] => Self::Heading,
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => Self::Faint,
            [b'@', b'@', ..] => Self::Notice,
            [b'+', ..] => Self::Good,
            [b'-', ..] => Self::Bad,
            _ => Self::Plain,
        }
    }
}

/// A line, or a row of a wrapped one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ToneLine {
    pub(super) tone: Tone,
    pub(super) text: String,
}

impl ToneLine {
    pub(super) fn new(tone: Tone, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { tone, text }
    }
}

/// Lines, as many rows of which are shown as the terminal has.
#[derive(Clone, Debug, Default)]
pub(super) struct TextView {
    lines: Vec<ToneLine>,
    /// The lines, wrapped.
    rows: Vec<ToneLine>,
    width: usize,
    height: usize,
    /// The first row that is shown.
    top: usize,
    /// Whether the end stays in sight when lines are added.
    follows: bool,
}

impl TextView {
    /// A view that keeps the end of its text in sight.
    pub(super) fn following() -> Self {
        Self {
            follows: true,
            ..Self::default()
        }
    }

    /// Wraps the lines to this many columns. `height` is the number of rows that are shown.
    pub(super) fn resize(&mut self, width: usize, height: usize) {
        self.height = height;
        if self.width != width {
            self.width = width;
            self.rows = wrapped(&self.lines, width);
        }
        self.keep_in_sight();
    }

    /// Replaces all lines. The position stays.
    pub(super) fn replace(&mut self, lines: Vec<ToneLine>) {
        if lines != self.lines {
            self.rows = wrapped(&lines, self.width);
            self.lines = lines;
            self.keep_in_sight();
        }
    }

    /// Adds lines, and forgets the oldest ones of more than `most`.
    pub(super) fn append(&mut self, lines: Vec<ToneLine>, most: usize) {
        let added = wrapped(&lines, self.width);
        self.lines.extend(lines);
        self.rows.extend(added);
        let extra = self.lines.len().saturating_sub(most);
        if extra > 0 {
            let gone = wrapped(&self.lines[..extra], self.width).len();
            self.lines.drain(..extra);
            self.rows.drain(..gone.min(self.rows.len()));
            self.top = self.top.saturating_sub(gone);
        }
        self.keep_in_sight();
    }

    /// Scrolls by this many rows. At the end it follows again, if it ever did.
    pub(super) fn scroll(&mut self, rows: isize, can_follow: bool) {
        self.top = self.top.saturating_add_signed(rows).min(self.last_top());
        self.follows = can_follow && self.top == self.last_top();
    }

    pub(super) fn go_to_start(&mut self) {
        self.top = 0;
        self.follows = self.follows && self.last_top() == 0;
    }

    pub(super) fn go_to_end(&mut self, can_follow: bool) {
        self.top = self.last_top();
        self.follows = can_follow;
    }

    pub(super) fn height(&self) -> usize {
        self.height
    }

    pub(super) fn follows(&self) -> bool {
        self.follows
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The rows in sight.
    pub(super) fn shown(&self) -> &[ToneLine] {
        let end = self.rows.len().min(self.top + self.height);
        self.rows.get(self.top..end).unwrap_or_default()
    }

    /// The number of the last row in sight, and that of all rows.
    pub(super) fn position(&self) -> (usize, usize) {
        (self.rows.len().min(self.top + self.height), self.rows.len())
    }

    fn last_top(&self) -> usize {
        self.rows.len().saturating_sub(self.height)
    }

    fn keep_in_sight(&mut self) {
        self.top = if self.follows {
            self.last_top()
        } else {
            self.top.min(self.last_top())
        };
    }
}

fn wrapped(lines: &[ToneLine], width: usize) -> Vec<ToneLine> {
    let mut rows = Vec::with_capacity(lines.len());
    for line in lines {
        for part in line.text.split('\n') {
            let pieces = pieces(part, width.max(1));
            rows.extend(pieces.into_iter().map(|piece| ToneLine::new(line.tone, piece)));
        }
    }
    rows
}

/// A text of one line in pieces, each of at most `width` columns. A piece ends after a space where there is one.
fn pieces(text: &str, width: usize) -> Vec<&str> {
    if text.len() <= width {
        return vec![text];
    }
    let (mut pieces, mut start, mut column) = (Vec::new(), 0, 0);
    // The end of the last word of the piece, and its column.
    let mut word_end = None;
    for (at, c) in text.char_indices() {
        let columns = columns_of(c);
        if column + columns > width && at > start {
            let (end, before) = word_end.take().unwrap_or((at, column));
            pieces.push(&text[start..end]);
            (start, column) = (end, column - before);
        }
        column += columns;
        if c == ' ' && text[start..at].contains(|c| c != ' ') {
            word_end = Some((at + 1, column));
        }
    }
    pieces.push(&text[start..]);
    pieces
}

fn columns_of(c: char) -> usize {
    if c.is_ascii() {
        return 1;
    }
    Span::raw(&*c.encode_utf8(&mut [0; 4])).width()
}

/// The beginning of a text, at most `width` columns of it. A text that is cut ends in `…`.
pub(super) fn cut(text: &str, width: usize) -> String {
    if Span::raw(text).width() <= width {
        return text.to_owned();
    }
    let (mut end, mut column) = (0, 1);
    for (at, c) in text.char_indices() {
        column += columns_of(c);
        if column > width {
            break;
        }
        end = at + c.len_utf8();
    }
    format!("{}…", &text[..end])
}

/// The end of a text, at most `width` columns of it.
pub(super) fn tail(text: &str, width: usize) -> &str {
    let (mut start, mut columns) = (text.len(), 0);
    for (at, c) in text.char_indices().rev() {
        columns += columns_of(c);
        if columns > width {
            break;
        }
        start = at;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(texts: &[&str]) -> Vec<ToneLine> {
        texts
            .iter()
            .map(|text| ToneLine::new(Tone::Plain, *text))
            .collect()
    }

    fn texts(view: &TextView) -> Vec<&str> {
        view.shown().iter().map(|row| row.text.as_str()).collect()
    }

    #[test]
    fn lines_are_wrapped_by_the_columns_they_need() {
        assert_eq!(pieces("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(pieces("日本語", 4), ["日本", "語"]);
        assert_eq!(pieces("日本", 1), ["日", "本"]);
        assert_eq!(pieces("", 4), [""]);
        assert_eq!(pieces("ab cd ef", 6), ["ab cd ", "ef"]);
        assert_eq!(pieces("ab cdefghij k", 6), ["ab ", "cdefgh", "ij k"]);
        assert_eq!(
            pieces("      abcdef", 8),
            ["      ab", "cdef"],
            "an indent is no word"
        );
        assert_eq!(
            (cut("abcdef", 4), cut("abcd", 4)),
            ("abc…".to_owned(), "abcd".to_owned())
        );
        assert_eq!((tail("abcdef", 4), tail("日本語", 5)), ("cdef", "本語"));
    }

    #[test]
    fn a_view_follows_until_it_is_scrolled_and_again_at_its_end() {
        let mut view = TextView::following();
        view.resize(10, 2);
        view.append(plain(&["1", "2", "3"]), 100);
        assert_eq!(texts(&view), ["2", "3"]);
        view.scroll(-1, true);
        view.append(plain(&["4"]), 100);
        assert_eq!((texts(&view), view.follows()), (vec!["1", "2"], false));
        view.scroll(isize::MAX, true);
        view.append(plain(&["5"]), 100);
        assert_eq!((texts(&view), view.position()), (vec!["4", "5"], (5, 5)));
    }

    #[test]
    fn the_oldest_lines_are_forgotten_and_the_position_stays() {
        let mut view = TextView::following();
        view.resize(2, 1);
        view.append(plain(&["aabb", "cc", "dd"]), 3);
        view.scroll(-1, true);
        assert_eq!(texts(&view), ["cc"]);
        view.append(plain(&["ee"]), 3);
        assert_eq!((texts(&view), view.position()), (vec!["cc"], (1, 3)));
    }

    #[test]
    fn another_width_wraps_again() {
        let mut view = TextView::default();
        view.resize(4, 3);
        view.replace(plain(&["abcdef\ngh"]));
        assert_eq!(texts(&view), ["abcd", "ef", "gh"]);
        view.resize(80, 3);
        assert_eq!(texts(&view), ["abcdef", "gh"]);
    }

    #[test]
    fn a_diff_line_has_the_tone_of_its_sign() {
        let tones = [
            "diff --git a/b",
            "+++ b/b",
            "+new",
            "-old",
            "@@ -1 +1 @@",
            " same",
        ]
        .map(Tone::of_diff);
        let expected = [
            Tone::Heading,
            Tone::Faint,
            Tone::Good,
            Tone::Bad,
            Tone::Notice,
            Tone::Plain,
        ];
        assert_eq!(tones, expected);
    }
}
