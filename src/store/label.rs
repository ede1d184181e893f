//! Labels: what a queued run requires of a worker, and what a worker offers.

use std::fmt;

use super::StoreError;

/// A label such as `provider=tart`, `os=macos`, `arch=aarch64`, `host=build-7` or `repository=acme/site`.
///
/// A run is claimed by a worker that offers each label it requires. The value `*` of an offer matches every value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(String);

impl Label {
    /// Parses `key=value`.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let is_key = |key: &str| !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        let valid = text.split_once('=').is_some_and(|(key, value)| {
            is_key(key) && !value.is_empty() && !value.contains(|c: char| c.is_control() || c.is_whitespace())
        });
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(StoreError::Label {
                text: text.to_owned(),
            })
        }
    }

    /// The label as `key=value`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Labels as they are stored: a JSON array of texts.
pub(super) fn to_json(labels: &[Label]) -> String {
    let texts: Vec<&str> = labels.iter().map(Label::as_str).collect();
    serde_json::Value::from(texts).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_a_key_and_a_value() {
        for text in ["os=macos", "repository=acme/site", "provider=*", "host=a=b"] {
            assert_eq!(Label::parse(text).unwrap().as_str(), text);
        }
        for text in ["", "os", "=macos", "os=", "OS=macos", "os=mac os", "os=\u{1b}[2J"] {
            assert!(Label::parse(text).is_err(), "{text:?}");
        }
    }
}
