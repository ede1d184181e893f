//! The packages of a flake.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A package of a flake for one system: `packages.x86_64-linux.dockerImage`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlakeOutput {
    /// The system as Nix names it: `x86_64-linux`.
    pub system: &'static str,
    /// The package's name.
    pub attribute: Attribute,
}

impl fmt::Display for FlakeOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "packages.{}.{}", self.system, self.attribute)
    }
}

/// The name of a package: a Nix identifier, so that it needs no quotes anywhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attribute(String);

/// Text that is not a valid package name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not a valid package name: expected letters, digits, `_`, `-` and `'`, beginning with a letter or `_`"
)]
pub struct AttributeError(String);

impl Attribute {
    /// The default name of a flake's image: `dockerImage`.
    #[must_use]
    pub fn docker_image() -> Self {
        Self("dockerImage".to_owned())
    }
}

impl FromStr for Attribute {
    type Err = AttributeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut chars = text.chars();
        let starts_with_letter = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        if starts_with_letter && chars.all(|c| c.is_ascii_alphanumeric() || "_-'".contains(c)) {
            Ok(Self(text.to_owned()))
        } else {
            Err(AttributeError(text.to_owned()))
        }
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("dockerImage")]
    #[case("_sandbox-image'")]
    fn an_identifier_is_a_valid_name(#[case] text: &str) {
        let output = FlakeOutput {
            system: "aarch64-linux",
            attribute: text.parse().unwrap(),
        };
        assert_eq!(output.to_string(), format!("packages.aarch64-linux.{text}"));
    }

    #[rstest]
    #[case("")]
    #[case("1a")]
    #[case("a.b")]
    #[case("a b")]
    #[case("a\"; builtins.abort")]
    #[case("${x}")]
    fn other_text_is_rejected(#[case] text: &str) {
        assert_eq!(text.parse::<Attribute>(), Err(AttributeError(text.to_owned())));
    }
}
