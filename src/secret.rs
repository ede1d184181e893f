//! Values that must not be seen, and the redactor that keeps them out of everything ralph writes.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

/// A confidential value. It cannot be printed, compared in the open or serialised; it is wiped when dropped.
#[derive(Clone)]
pub struct Secret(Arc<Zeroizing<String>>);

impl Secret {
    /// Wraps a value that was just read.
    pub fn new(value: impl Into<String>) -> Self {
        Self(Arc::new(Zeroizing::new(value.into())))
    }

    /// The value itself, for the one place that must send it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

/// What stands where a secret stood.
pub const REDACTED: &str = "[redacted]";

/// Shorter values are left alone: replacing every `1` or `yes` would make logs unreadable and hide nothing.
const SHORTEST: usize = 8;

/// Replaces known secrets in text. Cheap to clone; every writer holds one.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    secrets: Arc<Vec<Secret>>,
    longest: usize,
}

impl Redactor {
    /// A redactor for these values. Longer ones are replaced first, so that one secret holding another is covered.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let mut secrets: Vec<Secret> = secrets
            .into_iter()
            .filter(|secret| secret.expose().len() >= SHORTEST)
            .collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        let longest = secrets.first().map_or(0, |secret| secret.expose().len());
        Self {
            secrets: Arc::new(secrets),
            longest,
        }
    }

    /// The text without secrets.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| {
            if text.contains(secret.expose()) {
                text.replace(secret.expose(), REDACTED)
            } else {
                text
            }
        })
    }

    /// Whether a known secret stands in these bytes.
    #[must_use]
    pub fn finds_secret_in(&self, bytes: &[u8]) -> bool {
        self.secrets
            .iter()
            .any(|secret| find(bytes, secret.expose().as_bytes()).is_some())
    }

    /// A filter for text that arrives in pieces: a secret split across two of them is found too.
    #[must_use]
    pub fn stream(&self) -> RedactingStream {
        RedactingStream {
            redactor: self.clone(),
            pending: String::new(),
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Redacts text that arrives in pieces, holding back only what could be the beginning of a secret.
#[derive(Debug)]
pub struct RedactingStream {
    redactor: Redactor,
    pending: String,
}

impl RedactingStream {
    /// Takes the next piece and returns what is safe to pass on.
    pub fn push(&mut self, piece: &str) -> String {
        self.pending.push_str(piece);
        let text = self.redactor.redact(&self.pending);
        let held = self.held_back(&text);
        let cut = text.len() - held;
        text[cut..].clone_into(&mut self.pending);
        text[..cut].to_owned()
    }

    /// Returns what was held back; the stream has ended.
    #[must_use]
    pub fn finish(self) -> String {
        self.redactor.redact(&self.pending)
    }

    /// The length of the longest end of `text` that a secret begins with.
    fn held_back(&self, text: &str) -> usize {
        let longest = self.redactor.longest.saturating_sub(1).min(text.len());
        (1..=longest)
            .rev()
            .filter(|length| text.is_char_boundary(text.len() - length))
            .find(|length| {
                let end = &text[text.len() - length..];
                self.redactor
                    .secrets
                    .iter()
                    .any(|secret| secret.expose().starts_with(end))
            })
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_secret_prints_as_stars() {
        let secret = Secret::new("hunter2hunter2");
        assert_eq!(format!("{secret} {secret:?}"), "*** Secret(***)");
    }

    #[test]
    fn a_secret_within_a_secret_is_covered() {
        let redactor = Redactor::new([Secret::new("abcdefgh"), Secret::new("abcdefghijkl")]);
        assert_eq!(
            redactor.redact("x abcdefghijkl y abcdefgh z"),
            "x [redacted] y [redacted] z"
        );
    }

    proptest! {
        #[test]
        fn a_split_secret_never_passes(before in "[a-z ]{0,20}", after in "[a-z ]{0,20}", cuts in prop::collection::vec(0usize..60, 0..6)) {
            let secret = "CANARY-0123456789";
            let whole = format!("{before}{secret}{after}");
            let mut at: Vec<usize> = cuts.into_iter().map(|cut| cut.min(whole.len())).collect();
            at.push(whole.len());
            at.sort_unstable();
            let mut stream = Redactor::new([Secret::new(secret)]).stream();
            let (mut out, mut from) = (String::new(), 0);
            for cut in at {
                out.push_str(&stream.push(&whole[from..cut]));
                from = cut;
            }
            out.push_str(&stream.finish());
            prop_assert_eq!(out, format!("{before}{REDACTED}{after}"));
        }
    }
}
