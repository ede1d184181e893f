//! Parses `.env`: `NAME=value` lines, comments, quotes and `export `. Nothing is expanded, and no message contains a value.

use std::path::Path;

use super::error::ConfigFinding;
use super::layer::{FilePosition, SettingPlace};
use super::read::is_variable_name;

/// One variable that `.env` sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) place: FilePosition,
}

/// Reads every line; mistakes are reported and skipped.
pub(super) fn read(path: &Path, text: &str, findings: &mut Vec<ConfigFinding>) -> Vec<Assignment> {
    let mut assignments: Vec<Assignment> = Vec::new();
    let mut rest = text.trim_start_matches('\u{feff}');
    while !rest.is_empty() {
        let place = FilePosition::at_offset(path, text, text.len() - rest.len());
        let (parsed, after) = statement(rest);
        rest = after;
        let problem = match parsed {
            Ok(None) => continue,
            Ok(Some((name, value))) if assignments.iter().all(|earlier| earlier.name != name) => {
                let name = name.to_owned();
                assignments.push(Assignment { name, value, place });
                continue;
            }
            Ok(Some((name, _))) => format!("duplicate variable `{name}`"),
            Err(message) => message.to_owned(),
        };
        findings.push(ConfigFinding::new(SettingPlace::File(place), problem));
    }
    assignments
}

type Statement<'a> = Result<Option<(&'a str, String)>, &'static str>;

/// Parses one statement and returns the text after it. A quoted value may span lines.
fn statement(text: &str) -> (Statement<'_>, &str) {
    let (line, after_line) = text.split_once('\n').unwrap_or((text, ""));
    let trimmed = line.trim();
    if trimmed.is_empty() || trimmed.starts_with('#') {
        return (Ok(None), after_line);
    }
    let Some((name, value)) = line.split_once('=') else {
        return (Err("expected `NAME=value`"), after_line);
    };
    let name = name.trim();
    let name = name.strip_prefix("export ").unwrap_or(name).trim_start();
    if !is_variable_name(name) {
        return (
            Err("expected a name of letters, digits and `_` before the `=`"),
            after_line,
        );
    }
    let value_text = &text[line.len() - value.len()..];
    let indent = value.len() - value.trim_start_matches([' ', '\t']).len();
    match value_text[indent..].chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let (value, rest) = quoted(&value_text[indent + 1..], quote);
            match value {
                Ok(value) => (Ok(Some((name, value))), rest),
                Err(message) => (Err(message), after_line),
            }
        }
        _ => (Ok(Some((name, unquoted(value)))), after_line),
    }
}

/// A value without quotes ends at the line's end or at ` #`.
fn unquoted(value: &str) -> String {
    let end = value
        .match_indices('#')
        .map(|(at, _)| at)
        .find(|at| *at == 0 || value[..*at].ends_with([' ', '\t']));
    value[..end.unwrap_or(value.len())].trim().to_owned()
}

/// A value after its opening quote, and the text after its line. Escapes such as `\n` and `\"` apply in double quotes.
fn quoted(text: &str, quote: char) -> (Result<String, &'static str>, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => {
                let (tail, rest) = text[at + 1..].split_once('\n').unwrap_or((&text[at + 1..], ""));
                let tail = tail.trim();
                let clean = tail.is_empty() || tail.starts_with('#');
                let value = if clean {
                    Ok(value)
                } else {
                    Err("expected nothing but a comment after the closing quote")
                };
                return (value, rest);
            }
            '\\' if quote == '"' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 'r')) => value.push('\r'),
                Some((_, 't')) => value.push('\t'),
                Some((_, c @ ('"' | '\\' | '$'))) => value.push(c),
                _ => {
                    return (
                        Err("expected `\\n`, `\\r`, `\\t`, `\\\"`, `\\$` or `\\\\` after a backslash"),
                        "",
                    );
                }
            },
            c => value.push(c),
        }
    }
    (Err("the quote is not closed"), "")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let mut findings = Vec::new();
        let assignments = read(Path::new(".env"), text, &mut findings);
        assert_eq!(findings, [], "{text:?}");
        assignments.into_iter().map(|a| (a.name, a.value)).collect()
    }

    #[rstest::rstest]
    #[case::plain("A=b", "b")]
    #[case::spaces("  A = b c \t\r\n", "b c")]
    #[case::export("export A=b", "b")]
    #[case::comment("A=b # the letter\n", "b")]
    #[case::hash_within("A=b#c", "b#c")]
    #[case::empty("A=", "")]
    #[case::only_a_comment("A= # later", "")]
    #[case::equals_within("A=b=c", "b=c")]
    #[case::single_quotes(r"A='b \n $c'", r"b \n $c")]
    #[case::double_quotes(r#"A="b \"c\" \n\\" # x"#, "b \"c\" \n\\")]
    #[case::over_lines("A=\"b\nc\"\r\n", "b\nc")]
    #[case::nothing_is_expanded("A=$HOME/`x`", "$HOME/`x`")]
    #[case::byte_order_mark("\u{feff}A=b", "b")]
    fn a_line_sets_a_variable(#[case] text: &str, #[case] value: &str) {
        assert_eq!(pairs(text), [("A".to_owned(), value.to_owned())]);
    }

    #[test]
    fn a_quoted_value_does_not_swallow_the_next_line() {
        let text = "# keys\n\nPEM=\"-----BEGIN\nabc\n-----END\"\nB='x'\nC=y\n";
        let names: Vec<String> = pairs(text).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["PEM", "B", "C"]);
    }

    #[rstest::rstest]
    #[case::no_equals("A=ok\nSECRETVALUE\n", ".env:2:1: expected `NAME=value`")]
    #[case::bad_name(
        "1A=SECRETVALUE",
        ".env:1:1: expected a name of letters, digits and `_` before the `=`"
    )]
    #[case::open_quote("A='SECRETVALUE\nB=c", ".env:1:1: the quote is not closed")]
    #[case::tail(
        "A='b' SECRETVALUE",
        ".env:1:1: expected nothing but a comment after the closing quote"
    )]
    #[case::twice("A=b\nA=SECRETVALUE", ".env:2:1: duplicate variable `A`")]
    fn a_mistake_is_reported_with_its_line_and_without_its_value(#[case] text: &str, #[case] message: &str) {
        let mut findings = Vec::new();
        read(Path::new(".env"), text, &mut findings);
        let text: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(text, [message]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(?s).{0,200}") {
            read(Path::new(".env"), &text, &mut Vec::new());
        }

        #[test]
        fn a_quoted_value_comes_back_whole(value in "[^'\\x00]{0,60}") {
            prop_assert_eq!(pairs(&format!("A='{value}'\nB=c")), [("A".to_owned(), value), ("B".to_owned(), "c".to_owned())]);
        }
    }
}
