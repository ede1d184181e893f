//! Confidential values, and the redactor that keeps them out of everything that ralph writes.

use std::cmp::Reverse;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use zeroize::Zeroizing;

/// A confidential value. It cannot be printed or serialised, and its memory is wiped when it is dropped.
#[derive(Clone)]
pub struct Secret(Arc<Zeroizing<String>>);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(Arc::new(Zeroizing::new(value.into())))
    }

    /// The value itself, for the code that has to send it.
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

/// The text that replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// Shorter values are not replaced: replacing every `1` or `yes` would make logs unreadable and hide nothing.
const SHORTEST: usize = 8;

/// Replaces known secrets in text. Cheap to clone; clones share the secrets.
#[derive(Clone, Debug, Default)]
pub struct Redactor(Arc<RwLock<Known>>);

/// The secrets, longest first.
#[derive(Debug, Default)]
struct Known(Vec<Secret>);

impl Redactor {
    /// A redactor for these values. Longer ones are replaced first, because one secret may contain another.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let redactor = Self::default();
        redactor.learn(secrets);
        redactor
    }

    /// Adds values, such as an access token that was just renewed.
    pub fn learn(&self, secrets: impl IntoIterator<Item = Secret>) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        secrets.into_iter().for_each(|secret| known.add(secret));
        known.0.sort_by_key(|secret| Reverse(secret.expose().len()));
    }

    /// The text without secrets.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        self.known().0.iter().fold(text.to_owned(), |text, secret| {
            if text.contains(secret.expose()) {
                text.replace(secret.expose(), REDACTED)
            } else {
                text
            }
        })
    }

    /// The same value without secrets in any of its strings.
    ///
    /// The error means that the value cannot be represented as JSON, or that its type does not accept a string in which a
    /// secret was replaced.
    pub fn redact_json<T: Serialize + DeserializeOwned>(&self, value: T) -> serde_json::Result<T> {
        if !self.finds_secret_in(&serde_json::to_string(&value)?) {
            return Ok(value);
        }
        let mut json = serde_json::to_value(value)?;
        self.redact_strings(&mut json);
        serde_json::from_value(json)
    }

    fn redact_strings(&self, json: &mut Value) {
        match json {
            Value::String(text) => *text = self.redact(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_strings(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.redact_strings(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Whether it knows no secret at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known().0.is_empty()
    }

    /// Whether this text contains a known secret.
    #[must_use]
    pub fn finds_secret_in(&self, text: &str) -> bool {
        self.known().any(|secret| text.contains(secret))
    }

    /// The two ends of a text whose middle was cut out, without secrets and without parts of secrets at the cut.
    #[must_use]
    pub fn redact_cut(&self, head: &str, tail: &str) -> (String, String) {
        let (mut head, mut tail) = (self.redact(head), self.redact(tail));
        head.truncate(head.len() - self.torn_end(&head));
        tail.drain(..self.torn_beginning(&tail));
        (head, tail)
    }

    /// A filter for text that arrives in pieces. It also finds secrets that are split across pieces.
    #[must_use]
    pub fn stream(&self) -> RedactingStream {
        RedactingStream {
            redactor: self.clone(),
            pending: String::new(),
        }
    }

    /// The length of the longest suffix of `text` that is a prefix of a secret.
    pub(crate) fn torn_end(&self, text: &str) -> usize {
        let known = self.known();
        let torn = |length: &usize| {
            let end = text.get(text.len() - length..);
            end.is_some_and(|end| known.any(|secret| secret.starts_with(end)))
        };
        known.lengths(text).find(torn).unwrap_or(0)
    }

    /// The length of the longest prefix of `text` that is a suffix of a secret.
    fn torn_beginning(&self, text: &str) -> usize {
        let known = self.known();
        let torn = |length: &usize| {
            let beginning = text.get(..*length);
            beginning.is_some_and(|start| known.any(|secret| secret.ends_with(start)))
        };
        known.lengths(text).find(torn).unwrap_or(0)
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Adds a secret and its JSON form, unless it is known.
    fn add(&mut self, secret: Secret) {
        if secret.expose().len() < SHORTEST || self.any(|own| own == secret.expose()) {
            return;
        }
        self.0.extend(as_in_json(&secret));
        self.0.push(secret);
    }

    fn any(&self, holds: impl Fn(&str) -> bool) -> bool {
        self.0.iter().any(|secret| holds(secret.expose()))
    }

    /// The possible lengths of a part of a secret in this text, longest first.
    fn lengths(&self, text: &str) -> impl Iterator<Item = usize> + use<> {
        let longest = self.0.first().map_or(0, |secret| secret.expose().len());
        (1..=longest.saturating_sub(1).min(text.len())).rev()
    }
}

/// The secret as it appears in a JSON string, if that differs.
fn as_in_json(secret: &Secret) -> Option<Secret> {
    let quoted = serde_json::to_string(secret.expose()).ok()?;
    let inner = &quoted[1..quoted.len() - 1];
    (inner != secret.expose()).then(|| Secret::new(inner))
}

/// Redacts text that arrives in pieces. It holds back only what could be the beginning of a secret.
#[derive(Debug)]
pub struct RedactingStream {
    redactor: Redactor,
    pending: String,
}

impl RedactingStream {
    /// Adds the next piece, and returns the text that is safe to pass on.
    pub fn push(&mut self, piece: &str) -> String {
        self.pending.push_str(piece);
        let text = self.redactor.redact(&self.pending);
        let held = self.redactor.torn_end(&text);
        let cut = text.len() - held;
        text[cut..].clone_into(&mut self.pending);
        text[..cut].to_owned()
    }

    /// Ends the stream, and returns the text that was held back.
    #[must_use]
    pub fn finish(self) -> String {
        self.redactor.redact(&self.pending)
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

    #[test]
    fn what_is_learned_late_is_known_to_every_clone() {
        let redactor = Redactor::new([Secret::new("CANARY-OLD")]);
        let (writer, mut stream) = (redactor.clone(), redactor.stream());
        redactor.learn(["CANARY-RENEWED", "CANARY-OLD"].map(Secret::new));
        assert_eq!(
            writer.redact("CANARY-OLD, CANARY-RENEWED"),
            "[redacted], [redacted]"
        );
        assert_eq!(stream.push("CANARY-RENE") + &stream.push("WED."), "[redacted].");
    }

    #[test]
    fn a_secret_cut_in_two_leaves_no_part_of_it() {
        let redactor = Redactor::new([Secret::new("CANARY-0123456789")]);
        let (head, tail) = redactor.redact_cut("before CANARY-01", "456789 after");
        assert_eq!((head.as_str(), tail.as_str()), ("before ", " after"));
    }

    #[test]
    fn a_secret_is_removed_from_the_strings_of_a_value() {
        let redactor = Redactor::new([Secret::new("notes.md"), Secret::new("line\nbreak")]);
        let value = |text: &str| vec![("notes.md".len(), vec![text.to_owned()])];
        let redacted = redactor.redact_json(value("in notes.md, line\nbreak")).unwrap();
        assert_eq!(redacted, value("in [redacted], [redacted]"));
        let key = std::collections::BTreeMap::from([("notes.md".to_owned(), true)]);
        assert_eq!(redactor.redact_json(key.clone()).unwrap(), key);
    }

    #[test]
    fn a_value_that_cannot_be_redacted_is_an_error() {
        #[derive(Debug, Serialize, Deserialize)]
        enum Word {
            Password1,
        }
        let redactor = Redactor::new([Secret::new("Password1")]);
        assert!(redactor.redact_json(Word::Password1).is_err());
    }

    #[test]
    fn a_secret_is_found_as_json_writes_it() {
        let redactor = Redactor::new([Secret::new("say \"hello\" twice")]);
        let json = serde_json::to_string("I say \"hello\" twice.").unwrap();
        assert_eq!(redactor.redact(&json), r#""I [redacted].""#);
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
