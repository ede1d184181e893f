//! Transcripts: one JSON object a line.

use serde::de::DeserializeOwned;

/// How much of a transcript is kept: its beginning and, three times as much, its end, which is where the result is.
pub(super) const KEPT: usize = 4 << 20;

/// The events of a transcript, in order. What is no event (a line that was cut, a word of somebody else's) is passed over.
pub(super) fn events<'a, E: DeserializeOwned + 'a>(printed: &'a str) -> impl Iterator<Item = E> + 'a {
    printed
        .lines()
        .filter(|line| line.starts_with('{'))
        .filter_map(|line| serde_json::from_str(line).ok())
}
