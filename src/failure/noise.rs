//! Removes from an output what differs between two runs that fail in the same way.

use super::duration::duration;
use super::number::{Place, identifier};
use super::scan::is_word;
use super::temp_path::temp_path;
use super::timestamp::{is_compared_value, timestamp};
use crate::text::without_escapes;

/// What cargo reports of a build, which depends on what was built before.
const CARGO_STATUS: [&str; 16] = [
    "Adding",
    "Blocking",
    "Building",
    "Checking",
    "Compiling",
    "Dirty",
    "Documenting",
    "Downloaded",
    "Downloading",
    "Finished",
    "Fresh",
    "Installing",
    "Locking",
    "Removed",
    "Running",
    "Updating",
];

/// How lines begin that tools print depending on what they did before.
const PROGRESS: [&str; 9] = [
    "go: downloading ",
    "warning: build failed, waiting for other jobs",
    "error: could not compile ",
    "-- Check for working ",
    "-- Detecting ",
    "-- Looking for ",
    "-- Performing Test ",
    "-- The ",
    "Your code has been rated at ",
];

/// What is noise in the name of a test, too: a time or a number in it says which test it is.
const NAME_NOISE: [&str; 5] = [" ", "<address>", "<hash>", "<temp>", "<uuid>"];

/// The text as a terminal shows it in the end: without escape sequences, and without what was overwritten after a
/// carriage return.
pub(super) fn plain_text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let line = line.strip_suffix('\n').unwrap_or(line);
        let shown = line.rsplit('\r').find(|part| !part.trim().is_empty());
        without_escapes(shown.unwrap_or_default(), &mut plain);
        plain.push('\n');
    }
    plain
}

/// The lines of a plain text with placeholders for noise. Lines that only report progress are left out.
pub(super) fn normalise(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    for line in text.lines().filter(|line| !is_progress(line)) {
        let start = normal.len();
        normalise_line(line.trim(), &mut normal);
        if normal.len() > start {
            normal.push('\n');
        }
    }
    normal
}

/// Whether a line depends on caches, on earlier runs or on the order of parallel work, or is only a rule.
fn is_progress(line: &str) -> bool {
    let trimmed = line.trim();
    if PROGRESS.iter().any(|start| trimmed.starts_with(start)) {
        return true;
    }
    let (word, rest) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
    let indent = line.len() - line.trim_start().len();
    let is_cargo = indent + word.len() == 12 && CARGO_STATUS.contains(&word);
    let is_passed_test = word == "test" && (rest.ends_with(" ... ok") || rest.ends_with(" ... ignored"));
    let is_total_time = word == "Time:" && rest.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let is_rule = trimmed.len() >= 3 && trimmed.bytes().all(|byte| b"-=_*~#".contains(&byte));
    is_cargo || is_passed_test || is_total_time || is_rule
}

/// The name of a test with placeholders for what can only be noise in it.
pub(super) fn normalise_name(name: &str) -> String {
    let mut normal = String::with_capacity(name.len());
    replace_noise(name, &mut normal, |found| NAME_NOISE.contains(&found));
    normal
}

/// Adds a line with placeholders for noise, and single spaces.
fn normalise_line(line: &str, normal: &mut String) {
    replace_noise(line, normal, |_| true);
}

fn replace_noise(line: &str, normal: &mut String, is_replaced: impl Fn(&str) -> bool) {
    let bytes = line.as_bytes();
    let (mut at, mut stamp) = (0, None);
    while at < bytes.len() {
        let place = Place {
            before: &bytes[..at],
            rest: &bytes[at..],
            since_stamp: stamp.map(|stamp| &bytes[stamp..at]),
        };
        at = match noise(place).filter(|(_, name)| is_replaced(name)) {
            Some((length, "<time>")) if is_compared_value(place.before) => {
                normal.push_str(&line[at..at + length]);
                at + length
            }
            Some((length, name)) => {
                let end = at + length;
                if name == "<time>" {
                    stamp.get_or_insert(end);
                }
                end + push_placeholder(name, &bytes[end..], normal)
            }
            None => copy(line, at, normal),
        };
    }
    while normal.ends_with(' ') {
        normal.pop();
    }
}

/// What stands here and differs from run to run: its length, and the placeholder for it.
fn noise(place: Place<'_>) -> Option<(usize, &'static str)> {
    let first = *place.rest.first()?;
    match first {
        b' ' | b'\t' => {
            let length = place.rest.iter().take_while(|byte| b" \t".contains(byte)).count();
            (length > 1 || first == b'\t').then_some((length, " "))
        }
        b'/' if !place
            .before
            .last()
            .is_some_and(|byte| is_word(*byte) || b"./".contains(byte)) =>
        {
            temp_path(place.rest).map(|length| (length, "<temp>"))
        }
        b'0'..=b'9' => timestamp(place.rest, place.before)
            .map(|length| (length, "<time>"))
            .or_else(|| duration(place.rest, place.before).map(|length| (length, "<duration>")))
            .or_else(|| identifier(place)),
        b'a'..=b'f' | b'h' => identifier(place),
        b'A'..=b'Z' => timestamp(place.rest, place.before)
            .map(|length| (length, "<time>"))
            .or_else(|| identifier(place)),
        _ => None,
    }
}

/// Adds a placeholder, and returns how many bytes after the noise go with it. A duration in parentheses is left out with
/// them, since some tools print it only when it is long.
fn push_placeholder(name: &str, after: &[u8], normal: &mut String) -> usize {
    if name == "<duration>" && after.starts_with(b")") && normal.ends_with('(') {
        normal.truncate(normal[..normal.len() - 1].trim_end().len());
        return 1;
    }
    normal.push_str(name);
    0
}

/// Copies a whole word, or one character, and returns where it ends. A number is copied with its decimal points, so that
/// a part of a version is not read as a number of its own.
fn copy(line: &str, at: usize, normal: &mut String) -> usize {
    let bytes = line.as_bytes();
    let in_number = bytes[at].is_ascii_digit();
    let mut end = at;
    while end < bytes.len() && (is_word(bytes[end]) || (in_number && is_inner_point(bytes, end))) {
        end += 1;
    }
    if end == at {
        end = at + 1;
    }
    normal.push_str(&line[at..end]);
    end
}

fn is_inner_point(bytes: &[u8], at: usize) -> bool {
    bytes[at] == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_alphanumeric)
}
