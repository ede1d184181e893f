//! Text of others as Markdown that has no effect: not on the layout, and not on the forge that shows it.
//!
//! Commands, paths and names become code spans. In a code span a forge follows no `@name`, no `#1` and no URL, closes no
//! issue and runs no HTML. Sentences stay sentences, because a page of code spans is hard to read. An HTML entity alone does
//! not help there: forges look for names and numbers in the rendered text, in which `&#64;` is an `@` again. So a zero-width
//! space follows each `@` and `#`. It is written as an entity, which a reader of the source can see.

use crate::text::{code_span, one_line};

/// The entity of the zero-width space.
const BREAK: &str = "&#8203;";

/// The text as part of one line: its code spans stay, anything else of Markdown, HTML and autolinks has no effect.
pub(super) fn prose(text: &str) -> String {
    let line = one_line(text);
    let mut shown = String::with_capacity(line.len() + 16);
    let mut rest = line.as_str();
    while let Some(start) = rest.find('`') {
        let from_ticks = &rest[start..];
        let ticks = leading_ticks(from_ticks);
        let after = &from_ticks[ticks..];
        escape(&rest[..start], &mut shown);
        if let Some(end) = closing_ticks(after, ticks) {
            shown.push_str(&code_span(&after[..end]));
            rest = &after[end + ticks..];
        } else {
            shown.push_str(&"\\`".repeat(ticks));
            rest = after;
        }
    }
    escape(rest, &mut shown);
    let space = |is_there: bool| if is_there { " " } else { "" };
    let (before, after) = (
        text.starts_with(char::is_whitespace),
        text.ends_with(char::is_whitespace),
    );
    // A template may print `", "`.
    format!(
        "{}{}{}",
        space(before),
        inline(shown),
        space(after && !line.is_empty())
    )
}

/// The text in a fenced code block, line by line.
pub(super) fn fence(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{}\n{fence}", text.trim_end())
}

/// Escapes what would end a cell of a table, also inside a code span.
pub(super) fn cell(markdown: &str) -> String {
    markdown.replace('|', "\\|")
}

/// The fence and the number of `<details>` that are open at the end of a text.
pub(super) fn open_blocks(text: &str) -> (Option<String>, usize) {
    let (mut fence, mut details): (Option<String>, usize) = (None, 0);
    for line in text.lines().map(str::trim_start) {
        let ticks = leading_ticks(line);
        match &fence {
            Some(open) if ticks >= open.len() && line.trim_end().len() == ticks => fence = None,
            None if ticks >= 3 && !line[ticks..].contains('`') => fence = Some("`".repeat(ticks)),
            None if line.starts_with("<details") => details += 1,
            None if line.starts_with("</details>") => details = details.saturating_sub(1),
            _ => {}
        }
    }
    (fence, details)
}

fn leading_ticks(text: &str) -> usize {
    text.len() - text.trim_start_matches('`').len()
}

/// Where exactly so many backticks start.
fn closing_ticks(text: &str, ticks: usize) -> Option<usize> {
    let mut from = 0;
    while let Some(start) = text[from..].find('`') {
        let found = leading_ticks(&text[from + start..]);
        if found == ticks {
            return Some(from + start);
        }
        from += start + found;
    }
    None
}

/// Escapes text that has no backticks.
fn escape(text: &str, shown: &mut String) {
    let lower = text.to_ascii_lowercase();
    for (at, c) in text.char_indices() {
        let (before, after) = (&lower[..at], &lower[at + c.len_utf8()..]);
        match c {
            '\\' | '*' | '_' | '[' | ']' | '~' | '$' => shown.extend(['\\', c]),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '&' => shown.push_str("&amp;"),
            '|' => shown.push_str("&#124;"),
            '@' | '#' => {
                shown.push(c);
                shown.push_str(BREAK);
            }
            // `https://...`: also a way to name an issue that is to be closed.
            ':' if after.starts_with("//") => {
                shown.push(c);
                shown.push_str(BREAK);
            }
            '.' if before.ends_with("www") => {
                shown.push_str(BREAK);
                shown.push(c);
            }
            // `GH-1` is `#1`.
            '-' if before.ends_with("gh") && after.starts_with(|c: char| c.is_ascii_digit()) => {
                shown.push(c);
                shown.push_str(BREAK);
            }
            c => shown.push(c),
        }
    }
}

/// Escapes what would start a list, a heading or a rule at the beginning of a line.
fn inline(line: String) -> String {
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if line.starts_with(['-', '+', '=']) {
        format!("\\{line}")
    } else if digits > 0 && line[digits..].starts_with(['.', ')']) {
        format!("{}\\{}", &line[..digits], &line[digits..])
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::html("a <b> & <!-- c", "a &lt;b&gt; &amp; &lt;!-- c")]
    #[case::cells("a | b", "a &#124; b")]
    #[case::lines("a\n\n# b\r\nc", "a #&#8203; b c")]
    #[case::a_person("ask @octo-cat", "ask @&#8203;octo-cat")]
    #[case::an_issue("Fixes #1, gh-2, o/r#3", "Fixes #&#8203;1, gh-&#8203;2, o/r#&#8203;3")]
    #[case::an_issue_by_url(
        "closes https://example.com/o/r/issues/1",
        "closes https:&#8203;//example.com/o/r/issues/1"
    )]
    #[case::a_link("![x](y) www.example.com", "!\\[x\\](y) www&#8203;.example.com")]
    #[case::emphasis("*a* __b__ ~~c~~ $d$", "\\*a\\* \\_\\_b\\_\\_ \\~\\~c\\~\\~ \\$d\\$")]
    #[case::code("run `a | @b` now", "run `a | @b` now")]
    #[case::code_with_ticks("``a ` b``", "``a ` b``")]
    #[case::half_a_code("a ``b` c", "a \\`\\`b\\` c")]
    #[case::a_fence("```sh\nrm\n```", "`sh rm`")]
    #[case::a_list("- a", "\\- a")]
    #[case::a_numbered_list("12. a", "12\\. a")]
    #[case::a_separator(", ", ", ")]
    #[case::blank(" \n ", " ")]
    #[case::a_version("1.2 a", "1\\.2 a")]
    fn text_of_others_has_no_effect(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(prose(text), shown);
    }

    #[test]
    fn a_fence_is_longer_than_any_in_it() {
        assert_eq!(fence("a\n```\nb\n"), "````text\na\n```\nb\n````");
        assert_eq!(fence("a"), "```text\na\n```");
    }

    #[test]
    fn open_blocks_are_found() {
        assert_eq!(
            open_blocks("<details>\n\n````text\n```\n</details>"),
            (Some("````".to_owned()), 1)
        );
        assert_eq!(open_blocks("<details>\n```\na\n```\n</details>"), (None, 0));
        assert_eq!(open_blocks("a `<details>`\n"), (None, 0));
    }
}
