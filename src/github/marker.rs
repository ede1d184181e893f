//! The hidden comment at the end of a pull request's text: which run it belongs to, the hash of its title and text, and whether
//! the run is done.
//!
//! The run finds its pull request by it. The hash shows whether a person edited title or text, which ralph then leaves alone.
//! Whether the run is done is said here because servers without drafts do not show it.

use crate::digest::Digest;
use crate::id::RunId;

/// GitHub refuses texts above 65,536 characters. Bytes are counted, with room to spare.
const MAX_BYTES: usize = 60_000;
const TOO_LONG: &str = "\n\n*The rest was cut: the text is too long for GitHub. `ralph status` and the run directory have all of it.*";
const START: &str = "<!-- ralph-run: ";
const MIDDLE: &str = " text: ";
const DONE: &str = " done";
const END: &str = " -->";
const HASH_DIGITS: usize = 16;

/// A text that carries its marker, and fits GitHub's limit.
pub(super) fn mark(title: &str, text: &str, run: &RunId, is_done: bool) -> String {
    let room = MAX_BYTES - TOO_LONG.len() - 200;
    let text = if text.len() > room {
        format!("{}{TOO_LONG}", whole_lines(text, room))
    } else {
        text.trim_end().to_owned()
    };
    let done = if is_done { DONE } else { "" };
    format!(
        "{text}\n\n{START}{run}{MIDDLE}{}{done}{END}\n",
        hash(title, &text)
    )
}

/// Whether the last marker of a text says that this run is done.
pub(super) fn is_done(body: &str, run: &RunId) -> bool {
    let marker = body.rsplit_once(START).and_then(|(_, rest)| rest.split_once(END));
    let fields = marker.and_then(|(marker, _)| marker.split_once(MIDDLE));
    fields.is_some_and(|(found, rest)| found == run.as_str() && rest.ends_with(DONE))
}

/// A text whose last marker says that the run is done. Everything else stays, also what a person wrote.
pub(super) fn with_done(body: &str) -> String {
    let start = body.rfind(START).unwrap_or(body.len());
    match body[start..].find(END) {
        Some(end) => format!("{}{DONE}{}", &body[..start + end], &body[start + end..]),
        None => body.to_owned(),
    }
}

/// A text whose last marker names this run. Everything else stays.
pub(super) fn with_run(body: &str, run: &RunId) -> String {
    match body.rsplit_once(START) {
        Some((text, rest)) => match rest.split_once(MIDDLE) {
            Some((_, rest)) => format!("{text}{START}{run}{MIDDLE}{rest}"),
            None => body.to_owned(),
        },
        None => body.to_owned(),
    }
}

/// Whether a text ends with a marker, as those of ralph do. One that is quoted, or has text after it, does not count.
pub(super) fn is_of_ralph(body: &str) -> bool {
    let Some((run, hash)) = body
        .trim_end()
        .strip_suffix(END)
        .and_then(|body| body.rsplit_once(START))
        .and_then(|(_, marker)| marker.split_once(MIDDLE))
    else {
        return false;
    };
    let hash = hash.strip_suffix(DONE).unwrap_or(hash);
    let is_hash = hash.len() == HASH_DIGITS && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    RunId::parse(run).is_ok() && is_hash
}

/// The run that the marker of a text names.
pub(super) fn run_of(body: &str) -> Option<RunId> {
    let (_, rest) = body.rsplit_once(START)?;
    let (run, _) = rest.split_once(MIDDLE)?;
    RunId::parse(run).ok()
}

/// What a text says about its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkedText {
    /// This run wrote it.
    Ours,
    /// This run wrote it, and a person edited it since.
    Edited,
    /// It is not of this run.
    Foreign,
}

/// Whose title and text these are. Only the last marker counts: earlier ones may be quoted from the work.
pub(super) fn origin(title: &str, body: &str, run: &RunId) -> MarkedText {
    let Some((text, rest)) = body.rsplit_once(START) else {
        return MarkedText::Foreign;
    };
    let Some((found, known)) = rest
        .trim_end()
        .strip_suffix(END)
        .and_then(|rest| rest.split_once(MIDDLE))
    else {
        return if rest.starts_with(run.as_str()) {
            MarkedText::Edited
        } else {
            MarkedText::Foreign
        };
    };
    let known = known.strip_suffix(DONE).unwrap_or(known);
    match (found == run.as_str(), known == hash(title, text)) {
        (true, true) => MarkedText::Ours,
        (true, false) => MarkedText::Edited,
        (false, _) => MarkedText::Foreign,
    }
}

/// Ignores carriage returns: they may be in the text already, and a browser adds them to each line.
fn hash(title: &str, text: &str) -> String {
    let fields = [title.trim(), text.trim_end()].map(|field| field.replace('\r', ""));
    let hex = Digest::sha256_fields(fields).hex();
    hex.chars().take(HASH_DIGITS).collect()
}

/// The lines that fit. A code fence or a folded part that is cut open is closed.
pub(super) fn whole_lines(text: &str, room: usize) -> String {
    let end = (0..=room)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    let end = text[..end].rfind('\n').unwrap_or(end);
    let text = &text[..end];
    let fences = text.lines().filter(|line| line.starts_with("```")).count();
    let closed = text.matches("</details>").count();
    let open = text.matches("<details>").count().saturating_sub(closed);
    let mut whole = text.trim_end().to_owned();
    if fences % 2 == 1 {
        whole.push_str("\n```");
    }
    whole.push_str(&"\n</details>".repeat(open));
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> RunId {
        RunId::parse("r23456789").unwrap()
    }

    #[test]
    fn a_text_is_recognised_until_a_person_edits_it() {
        let body = mark("T", "# Done\n\nAll of it.\n", &run(), false);
        assert_eq!(origin("T", &body, &run()), MarkedText::Ours);
        assert_eq!(run_of(&body), Some(run()));
        assert_eq!(run_of("By hand."), None);
        assert_eq!(origin("T", &body.replace('\n', "\r\n"), &run()), MarkedText::Ours);
        assert_eq!(
            origin("T", &body.replace("All", "Most"), &run()),
            MarkedText::Edited
        );
        assert_eq!(origin("T", &format!("{body}LGTM"), &run()), MarkedText::Edited);
        assert_eq!(
            origin("T", &body, &RunId::parse("r99999999").unwrap()),
            MarkedText::Foreign
        );
        assert_eq!(origin("T", "By hand.", &run()), MarkedText::Foreign);
        assert_eq!(origin("Another title", &body, &run()), MarkedText::Edited);
    }

    #[test]
    fn carriage_returns_of_the_text_are_not_an_edit() {
        for text in ["a\r\nb", "a\r\r\nb", "a\rb", "a \r"] {
            let body = mark("T", text, &run(), false);
            assert_eq!(origin("T", &body, &run()), MarkedText::Ours, "{text:?}");
            let sent = body.replace("\r\n", "\n").replace('\n', "\r\n");
            assert_eq!(origin("T", &sent, &run()), MarkedText::Ours, "{text:?}");
        }
    }

    #[test]
    fn the_marker_says_whether_the_run_is_done() {
        let (open, done) = (
            mark("T", "All of it.", &run(), false),
            mark("T", "All of it.", &run(), true),
        );
        assert!(!is_done(&open, &run()) && is_done(&done, &run()));
        assert!(!is_done(&done, &RunId::parse("r99999999").unwrap()));
        assert!(!is_done("The run is done -->", &run()));
        assert_eq!(with_done(&open), done);
        assert_eq!(origin("T", &done, &run()), MarkedText::Ours);
        assert!(is_of_ralph(&done));
        let edited = open.replace("All", "Most") + "LGTM";
        let marked = with_done(&edited);
        assert!(is_done(&marked, &run()), "{marked}");
        assert_eq!(marked.replace(DONE, ""), edited);
        assert_eq!(origin("T", &marked, &run()), MarkedText::Edited);
    }

    #[test]
    fn a_quoted_marker_is_only_text() {
        let quoted = mark("T", "x", &RunId::parse("r99999999").unwrap(), false);
        assert_eq!(
            origin("T", &mark("T", &quoted, &run(), false), &run()),
            MarkedText::Ours
        );
    }

    #[test]
    fn only_a_whole_marker_at_the_end_makes_a_text_one_of_ralph() {
        let body = mark("T", "x", &run(), false);
        assert!(is_of_ralph(&body) && is_of_ralph(&body.replace('\n', "\r\n")));
        let marker = body.trim_start_matches('x').trim();
        for foreign in [
            format!("Compare with this:\n\n{marker}\n\nwhich is another one."),
            format!("> {marker}\nLGTM"),
            "By hand. <!-- ralph-run: r23456789 -->".to_owned(),
            "By hand. <!-- ralph-run: r23456789 text: 0 -->".to_owned(),
            "By hand. <!-- ralph-run: of me text: 0123456789abcdef -->".to_owned(),
            "By hand.".to_owned(),
        ] {
            assert!(!is_of_ralph(&foreign), "{foreign}");
        }
    }

    #[test]
    fn a_long_text_is_cut_at_a_line_and_stays_below_the_limit() {
        let row = "| ä box | `cargo test` | 0 |\n";
        let body = mark(
            "T",
            &format!("<details>\n```\n{}", row.repeat(5000)),
            &run(),
            false,
        );
        assert!(body.len() <= MAX_BYTES, "{}", body.len());
        assert_eq!(origin("T", &body, &run()), MarkedText::Ours);
        let (rows, _) = body.split_once(TOO_LONG).unwrap();
        assert!(
            rows.ends_with("| 0 |\n```\n</details>"),
            "{}",
            &rows[rows.len() - 60..]
        );
    }
}
