//! Colours and emphasis in the output of programs: the escape sequences of ISO 6429 for "select graphic rendition".
//!
//! Only these are understood, and only as names from a fixed list. Any other escape sequence stays text.

use schemars::JsonSchema;
use serde::Serialize;

use crate::text::visible;

/// The eight colours, by their numbers. The bright ones have the same names.
const COLOURS: [&str; 8] = [
    "black", "red", "green", "yellow", "blue", "magenta", "cyan", "white",
];

/// The kinds of emphasis, whose codes begin with 1.
const EMPHASIS: [&str; 4] = ["bold", "dim", "italic", "underline"];

/// A piece of a line that looks the same from its first to its last character.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct LogSpan {
    /// The text.
    text: String,
    /// How it looks: `bold`, `dim`, `italic`, `underline`, and the name of a colour such as `red`.
    looks: Vec<&'static str>,
}

/// The looks that are in force.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Rendition {
    /// Whether each of [`EMPHASIS`] is in force.
    emphasis: [bool; 4],
    colour: Option<&'static str>,
}

/// The pieces of a text with such sequences; none if it has no such sequence. Together they are the text without them.
pub(super) fn spans(text: &str) -> Vec<LogSpan> {
    let (mut found, mut now, mut rest) = (Vec::<LogSpan>::new(), Rendition::default(), text);
    let mut has_any = false;
    let mut plain = String::new();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after;
        let Some((codes, after)) = sequence(after) else {
            plain.push('\u{1b}');
            continue;
        };
        has_any = true;
        now.push(&mut found, &mut plain);
        now.select(codes);
        rest = after;
    }
    if !has_any {
        return Vec::new();
    }
    plain.push_str(rest);
    now.push(&mut found, &mut plain);
    if found.is_empty() {
        // Nothing but sequences: without a piece they would be shown as text.
        found.push(LogSpan {
            text: String::new(),
            looks: Vec::new(),
        });
    }
    found
}

/// The text of all pieces.
pub(super) fn plain_text(spans: &[LogSpan]) -> String {
    spans.iter().map(|span| span.text.as_str()).collect()
}

/// The codes of a sequence that begins here, without its escape character, and what follows it.
fn sequence(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('[')?;
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ';' && c != ':')?;
    let after = text[end..].strip_prefix('m')?;
    Some((&text[..end], after))
}

impl Rendition {
    /// Follows the codes of one sequence. Codes that are not known change nothing.
    fn select(&mut self, codes: &str) {
        // An empty code means 0; one that is too long for a number means nothing.
        let number = |code: &str| match code {
            "" => 0,
            code => code.parse().unwrap_or(u32::MAX),
        };
        let mut codes = codes.split([';', ':']).map(number);
        while let Some(code) = codes.next() {
            match code {
                0 => *self = Self::default(),
                1..=4 => self.emphasis[code as usize - 1] = true,
                // Neither bold nor dim.
                22 => self.emphasis[..2].fill(false),
                23 | 24 => self.emphasis[code as usize - 21] = false,
                30..=37 | 90..=97 => self.colour = Some(COLOURS[(code % 10) as usize]),
                38 => self.colour = indexed(&mut codes),
                // The background is not shown, but its codes are not others.
                48 => drop(indexed(&mut codes)),
                39 => self.colour = None,
                _ => {}
            }
        }
    }

    fn looks(self) -> Vec<&'static str> {
        let emphasis = EMPHASIS.into_iter().zip(self.emphasis);
        let emphasis = emphasis.filter(|(_, is_set)| *is_set).map(|(name, _)| name);
        emphasis.chain(self.colour).collect()
    }

    /// Ends a piece, if it has any text.
    fn push(self, spans: &mut Vec<LogSpan>, plain: &mut String) {
        if plain.is_empty() {
            return;
        }
        let (text, looks) = (visible(plain).into_owned(), self.looks());
        plain.clear();
        match spans.last_mut() {
            Some(last) if last.looks == looks => last.text.push_str(&text),
            _ => spans.push(LogSpan { text, looks }),
        }
    }
}

/// The colour that follows code 38: one of the first sixteen by number, otherwise none.
fn indexed(codes: &mut impl Iterator<Item = u32>) -> Option<&'static str> {
    match codes.next()? {
        5 => {
            let number = codes.next().filter(|number| *number < 16)?;
            Some(COLOURS[(number % 8) as usize])
        }
        2 => {
            codes.nth(2);
            None
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `text` for each piece, or `text(looks)`.
    fn shown(text: &str) -> Vec<String> {
        let show = |span: &LogSpan| {
            if span.looks.is_empty() {
                span.text.clone()
            } else {
                format!("{}({})", span.text, span.looks.join(" "))
            }
        };
        spans(text).iter().map(show).collect()
    }

    #[test]
    fn colours_and_emphasis_are_named() {
        assert_eq!(
            shown("a\x1b[1;31mb\x1b[0mc\x1b[92md\x1b[me"),
            ["a", "b(bold red)", "c", "d(green)", "e"]
        );
        assert_eq!(
            shown("\x1b[38;5;4mb\x1b[38;2;1;2;3mx\x1b[4;48;5;1my"),
            ["b(blue)", "x", "y(underline)"]
        );
        assert_eq!(shown("\x1b[38;5;200;1mx"), ["x(bold)"]);
        assert!(shown("plain").is_empty());
        assert_eq!(shown("\x1b[1m\x1b[0m"), [""]);
    }

    #[test]
    fn other_sequences_stay_text() {
        assert!(shown("a\x1b[2Jb\x1b]0;title\x07").is_empty());
        assert_eq!(shown("\x1b[31ma\x1b[2Jb\x1b[31"), ["a\\u001b[2Jb\\u001b[31(red)"]);
        assert_eq!(shown("\x1b[31m<b>\x1b[0m"), ["<b>(red)"]);
    }

    proptest! {
        #[test]
        fn any_text_is_divided_without_loss(text in "([a-z]|\x1b|\\[|;|m|[0-9]|<|é){0,40}") {
            let found = spans(&text);
            let kept: String = plain_text(&found).chars().filter(char::is_ascii_lowercase).collect();
            if !found.is_empty() {
                // Only the letter that ends a sequence is left out.
                let letters: String = text.chars().filter(char::is_ascii_lowercase).collect();
                let without = |text: &str| text.replace(['m', 'u', 'b'], "");
                prop_assert_eq!(without(&kept), without(&letters));
                prop_assert!(!plain_text(&found).contains('\x1b'));
            }
        }
    }
}
