//! Text for people: errors and texts in one line, and nothing that a terminal would obey.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::{Display, Write};

/// Replaces every run of white space, line breaks included, with one space.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Formats text as a Markdown code span, even if it contains backticks.
pub(crate) fn code_span(text: &str) -> String {
    let line = one_line(text);
    let longest = line.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    // Without content two backticks would be a longer fence. They stay apart by a space.
    let padding = match line.as_str() {
        "" => return "` `".to_owned(),
        line if line.starts_with('`') || line.ends_with('`') => " ",
        _ => "",
    };
    format!("{fence}{padding}{line}{padding}{fence}")
}

/// Joins an error and its sources with `: `. Leaves out a source whose text the error already contains.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        next = source.source();
        let source = source.to_string();
        if !text.contains(&source) {
            text.push_str(": ");
            text.push_str(&source);
        }
    }
    text
}

/// `1 line`, `2 lines`, `2 boxes`.
pub(crate) fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let hisses = ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end));
    let plural = match count == N::from(1) {
        true => "",
        false if hisses => "es",
        false => "s",
    };
    format!("{count} {noun}{plural}")
}

/// The text with its middle cut out if it has more than `limit` characters. A message says at its end what to do.
pub(crate) fn cut_middle(text: &str, limit: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= limit {
        return Cow::Borrowed(text);
    }
    let half = limit / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(count - half).collect();
    let cut = counted(count - 2 * half, "character");
    Cow::Owned(format!("{head}[... {cut} ...]{tail}"))
}

/// Whether a character changes how a terminal shows other text: control characters, except for line break and tab, and
/// those that change the direction of writing or end a line.
fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    }
}

/// The text with every character that a terminal would obey written as `\uXXXX`. That keeps the meaning of JSON.
#[must_use]
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hidden(c) {
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// The text without characters that a terminal would obey, and with line breaks of one kind.
#[must_use]
pub(crate) fn without_hidden(text: &str) -> String {
    text.replace("\r\n", "\n").replace(is_hidden, "")
}

/// Adds a line to `plain` without the escape sequences of a terminal.
pub(crate) fn without_escapes(line: &str, plain: &mut String) {
    let mut parts = line.split('\u{1b}');
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let end = match part.as_bytes().first() {
            Some(b'[') => part[1..]
                .find(|c: char| ('@'..='~').contains(&c))
                .map(|at| at + 2),
            Some(b']') => part.find('\u{7}').map(|at| at + 1),
            Some(b'(' | b')') => part.char_indices().nth(2).map(|(at, _)| at),
            _ => part.char_indices().nth(1).map(|(at, _)| at),
        };
        plain.push_str(&part[end.unwrap_or(part.len())..]);
    }
}

/// The beginning of a text, at most `limit` bytes; whole characters.
pub(crate) fn first_bytes(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The end of a text, at most `limit` bytes; whole characters.
pub(crate) fn last_bytes(text: &str, limit: usize) -> &str {
    let mut start = text.len().saturating_sub(limit);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// A text as one word of a shell command, quoted where that is needed.
pub(crate) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// A text as one part of the path or the query of a URL, percent-encoded.
pub(crate) fn url_part(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            // Writing to a string cannot fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        let hostile = "a\x1b[31m\u{9b}2J\x07\r\u{202e}\u{2066}\u{200f}\x7f\0b";
        let shown = "a\\u001b[31m\\u009b2J\\u0007\\u000d\\u202e\\u2066\\u200f\\u007f\\u0000b";
        assert_eq!(visible(hostile), shown);
        assert_eq!(without_hidden(hostile), "a[31m2Jb");
        assert_eq!(without_hidden("a\r\nb\tc"), "a\nb\tc");
        let plain = "plain\n\ttext, \u{e4}\u{65e5}\u{1f600}";
        assert!(matches!(visible(plain), Cow::Borrowed(text) if text == plain));
    }

    #[test]
    fn escape_sequences_are_left_out() {
        let mut plain = "> ".to_owned();
        without_escapes(
            "\x1b[1;31mred\x1b[0m \x1b]0;title\x07a\x1b]8;;u\x1b\\\x1b(Bb\x1b=c",
            &mut plain,
        );
        assert_eq!(plain, "> red abc");
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!(counted(1_u64, "token"), "1 token");
        assert_eq!(counted(0_u64, "token"), "0 tokens");
        assert_eq!(counted(2_usize, "sandbox"), "2 sandboxes");
        assert_eq!(counted(1_usize, "process"), "1 process");
        assert_eq!(counted(3_u32, "path"), "3 paths");
    }

    #[test]
    fn the_middle_of_a_long_text_is_cut() {
        assert_eq!(cut_middle("0123456789", 10), "0123456789");
        assert_eq!(cut_middle("0123456789a", 4), "01[... 7 characters ...]9a");
    }

    #[test]
    fn a_text_is_one_part_of_a_url() {
        assert_eq!(url_part("r7k2-v2.~_"), "r7k2-v2.~_");
        assert_eq!(url_part("a/b c?d=\u{e9}"), "a%2Fb%20c%3Fd%3D%C3%A9");
    }

    proptest! {
        #[test]
        fn json_keeps_its_meaning(text in any::<String>()) {
            let json = serde_json::to_string_pretty(&[&text]).unwrap();
            let read: Vec<String> = serde_json::from_str(&visible(&json)).unwrap();
            prop_assert_eq!(&read[0], &text);
        }
    }
}
