//! The name of a setting, for example `sandbox.network.policy`.

use std::fmt;

/// The path of a setting: its sections and its own name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyPath(Vec<String>);

impl KeyPath {
    /// The path of the whole configuration.
    pub(super) const ROOT: Self = Self(Vec::new());

    /// Parses a dotted key. A segment that contains dots is in double quotes: `models."gpt-4.1".tags`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut segments = Vec::new();
        let mut segment = String::new();
        let mut quoted = false;
        for c in text.chars() {
            match c {
                '"' => quoted = !quoted,
                '.' if !quoted => segments.push(std::mem::take(&mut segment)),
                c => segment.push(c),
            }
        }
        segments.push(segment);
        Self(segments)
    }

    /// The path of a name below this one.
    pub(super) fn child(&self, name: &str) -> Self {
        Self([self.segments(), &[name.to_owned()]].concat())
    }

    /// A path from its segments, outermost first.
    pub(super) fn from_segments(segments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(segments.into_iter().map(Into::into).collect())
    }

    /// The segments, outermost first.
    #[must_use]
    pub fn segments(&self) -> &[String] {
        &self.0
    }

    /// Whether it belongs to a model profile.
    pub(super) fn is_profile(&self) -> bool {
        matches!(self.0.as_slice(), [first, _, ..] if first == "models")
    }

    /// Whether this is `prefix` or below it.
    pub(super) fn starts_with(&self, prefix: &Self) -> bool {
        self.0.starts_with(&prefix.0)
    }

    /// The environment variable that sets it, for example `RALPH_SANDBOX__NETWORK__POLICY`.
    #[must_use]
    pub fn variable(&self) -> String {
        let spelled = self.0.join("__").to_ascii_uppercase();
        format!(
            "RALPH_{}",
            spelled.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
        )
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if !segment.is_empty() && segment.chars().all(bare) {
                f.write_str(segment)?;
            } else {
                write!(f, "\"{}\"", segment.escape_debug())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("default_profile", "RALPH_DEFAULT_PROFILE")]
    #[case("sandbox.network.policy", "RALPH_SANDBOX__NETWORK__POLICY")]
    #[case("models.\"gpt-4.1\".tags", "RALPH_MODELS__GPT_4_1__TAGS")]
    fn a_key_reads_back_and_names_its_variable(#[case] text: &str, #[case] variable: &str) {
        let key = KeyPath::parse(text);
        assert_eq!(key.to_string(), text);
        assert_eq!(key.variable(), variable);
    }
}
