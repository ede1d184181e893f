//! The fuzz body of what GitHub answers. Much of it was written by people that ralph does not know.

use jiff::Timestamp;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderValue, LINK, RETRY_AFTER};
use serde::de::DeserializeOwned;

use super::answer::{self, MAX_MESSAGE, asked_pause, error_message, has_next_page, is_rate_limit};
use super::ci::{CheckRuns, CombinedStatus};
use super::claims::ClaimRecord;
use super::graphql::ThreadPage;
use super::issues::Issue;
use super::marker::{self, MarkedText};
use super::reviews::{Below, LineComment, Review};
use super::wire::{
    Account, BranchRule, BranchTip, CommitParents, LabelEvent, Pull, PullFile, PullStack, RepositoryInfo,
};
use crate::id::RunId;

/// The longest pause, in seconds.
const LONGEST_PAUSE: u64 = 24 * 3600;

/// A response: the value of a header, a NUL, and the body. Without a NUL it has no header.
pub(crate) fn github_answer(bytes: &[u8]) {
    let (header, body) = match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (&[][..], bytes),
    };
    let text = &*String::from_utf8_lossy(body);
    refusal(header, text);
    objects(body);
    marked_text(text);
    if let Some(record) = read::<ClaimRecord>(body) {
        let written = serde_json::to_vec(&record).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read(&written), Some(record));
    }
}

fn refusal(header: &[u8], text: &str) {
    assert!(error_message(text).chars().count() <= MAX_MESSAGE);
    let Ok(value) = HeaderValue::from_bytes(header) else {
        return;
    };
    let now = Timestamp::UNIX_EPOCH;
    for name in [RETRY_AFTER.as_str(), "x-ratelimit-reset", LINK.as_str()] {
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-remaining", HeaderValue::from_static("0"));
        headers.insert(name, value.clone());
        assert!(is_rate_limit(StatusCode::FORBIDDEN, &headers, text));
        let pause = asked_pause(&headers, now);
        assert!(pause.is_none_or(|pause| (1..=LONGEST_PAUSE).contains(&pause.as_secs())));
        let _ = has_next_page(&headers);
    }
}

/// The body, as each object that ralph reads.
fn objects(body: &[u8]) {
    let _ = (read::<Vec<Pull>>(body), read::<RepositoryInfo>(body));
    let _ = (read::<Account>(body), read::<BranchTip>(body));
    let _ = (read::<CommitParents>(body), read::<Vec<PullStack>>(body));
    let _ = (read::<Vec<BranchRule>>(body), read::<Vec<LabelEvent>>(body));
    let _ = (read::<CheckRuns>(body), read::<CombinedStatus>(body));
    let _ = (read::<Vec<PullFile>>(body), read::<Vec<Review>>(body));
    let _ = (read::<Vec<LineComment>>(body), read::<Vec<Below>>(body));
    if let Some(pull) = read::<Pull>(body) {
        let _ = pull.is_within_repository();
        marked_text(pull.body.as_deref().unwrap_or_default());
    }
    for issue in read::<Vec<Issue>>(body).unwrap_or_default() {
        let _ = (issue.is_specification(), issue.is_open());
    }
    if let Some(page) = read::<ThreadPage>(body) {
        let _ = page.resolved().count();
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    answer::parse("GET /", body).ok()
}

/// A text that may have markers of its own.
fn marked_text(text: &str) {
    let (run, other) = (run_id("r23456789"), run_id("r99999999"));
    let _ = (
        marker::run_of(text),
        marker::is_of_ralph(text),
        marker::with_done(text),
    );

    // Markers in a text do not matter to the one that is added to it.
    let title = text.lines().next().unwrap_or_default();
    let marked = marker::mark(title, text, &run, false);
    assert_eq!(marker::run_of(&marked).as_ref(), Some(&run));
    assert_eq!(marker::origin(title, &marked, &run), MarkedText::Ours);
    assert_eq!(marker::origin(title, &marked, &other), MarkedText::Foreign);
    assert!(marker::is_of_ralph(&marked) && !marker::is_done(&marked, &run));

    let done = marker::with_done(&marked);
    assert!(marker::is_done(&done, &run) && !marker::is_done(&done, &other));
    assert_eq!(marker::origin(title, &done, &run), MarkedText::Ours);
    assert_eq!(done, marker::mark(title, text, &run, true));

    let moved = marker::with_run(&marked, &other);
    assert_eq!(marker::run_of(&moved), Some(other));
}

fn run_id(text: &str) -> RunId {
    RunId::parse(text).unwrap_or_else(|error| panic!("{error}"))
}
