//! The name of one Debian package, as `apt-get install` takes it.

use std::fmt;

use thiserror::Error;

/// A package by Debian's grammar: `jq`, `libc6:arm64`, `git=1:2.39.5-0+deb12u2`. Holds nothing that a shell would read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    name: String,
    architecture: Option<String>,
    version: Option<String>,
}

/// What is wrong with a package's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PackageError {
    /// More than one word.
    #[error("one package a line is expected")]
    SeveralWords,
    /// Not a name by Debian's grammar.
    #[error(
        "a package's name has at least two characters, lower-case letters, digits, `+`, `-` and `.`, and starts with \
         a letter or a digit"
    )]
    Name,
    /// A name that apt reads as a wish to remove the package.
    #[error("apt removes a package whose name ends with `-`")]
    Removal,
    /// Not an architecture.
    #[error("an architecture after `:` has lower-case letters, digits and `-`")]
    Architecture,
    /// Not a version by Debian's grammar.
    #[error(
        "a version after `=` starts with a digit and has letters, digits, `.`, `+`, `~` and `-`, after an epoch like \
         `1:` if it has one"
    )]
    Version,
}

impl Package {
    /// Reads `name[:architecture][=version]`.
    pub fn parse(text: &str) -> Result<Self, PackageError> {
        if text.contains(char::is_whitespace) {
            return Err(PackageError::SeveralWords);
        }
        let (rest, version) = split(text, '=');
        let (name, architecture) = split(rest, ':');
        if !is_name(name) {
            return Err(PackageError::Name);
        }
        if name.ends_with('-') {
            return Err(PackageError::Removal);
        }
        if architecture.is_some_and(|architecture| !is_architecture(architecture)) {
            return Err(PackageError::Architecture);
        }
        if version.is_some_and(|version| !is_version(version)) {
            return Err(PackageError::Version);
        }
        Ok(Self {
            name: name.to_owned(),
            architecture: architecture.map(str::to_owned),
            version: version.map(str::to_owned),
        })
    }

    /// Whether both are the same package, of whatever version.
    #[must_use]
    pub fn is_same_but_for_version(&self, other: &Self) -> bool {
        (&self.name, &self.architecture) == (&other.name, &other.architecture)
    }
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(architecture) = &self.architecture {
            write!(f, ":{architecture}")?;
        }
        match &self.version {
            Some(version) => write!(f, "={version}"),
            None => Ok(()),
        }
    }
}

fn split(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.split_once(separator) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// Debian Policy 5.6.1.
fn is_name(text: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() >= 2
        && text.bytes().next().is_some_and(is_letter)
        && text.bytes().all(|b| is_letter(b) || b"+-.".contains(&b))
}

fn is_architecture(text: &str) -> bool {
    let words =
        |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    text.split('-').all(words)
}

/// Debian Policy 5.6.12: `[epoch:]upstream[-revision]`.
fn is_version(text: &str) -> bool {
    let (epoch, rest) = match text.split_once(':') {
        Some((epoch, rest)) => (Some(epoch), rest),
        None => (None, text),
    };
    let (upstream, revision) = match rest.rsplit_once('-') {
        Some((upstream, revision)) => (upstream, Some(revision)),
        None => (rest, None),
    };
    let is_part = |part: &str, more: &[u8]| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || more.contains(&b))
    };
    epoch.is_none_or(|epoch| !epoch.is_empty() && epoch.bytes().all(|b| b.is_ascii_digit()))
        && upstream.starts_with(|c: char| c.is_ascii_digit())
        && is_part(upstream, b".+~-")
        && revision.is_none_or(|revision| is_part(revision, b".+~"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("jq")]
    #[case("g++")]
    #[case("libstdc++6")]
    #[case("0ad")]
    #[case("python3.11-venv")]
    #[case("libc6:arm64")]
    #[case("libc6:any")]
    #[case("libc6:kfreebsd-amd64=2.36-9+deb12u4")]
    #[case("git=1:2.39.5-0+deb12u2")]
    #[case("curl=7.88.1~rc1-10-1")]
    fn a_package_by_debians_grammar_is_read_and_written_the_same(#[case] text: &str) {
        assert_eq!(Package::parse(text).unwrap().to_string(), text);
    }

    #[rstest]
    #[case("jq curl", PackageError::SeveralWords)]
    #[case("jq\u{a0}curl", PackageError::SeveralWords)]
    #[case("", PackageError::Name)]
    #[case("j", PackageError::Name)]
    #[case("Jq", PackageError::Name)]
    #[case("-y", PackageError::Name)]
    #[case("--allow-unauthenticated", PackageError::Name)]
    #[case("jq;reboot", PackageError::Name)]
    #[case("$(reboot)", PackageError::Name)]
    #[case("jq\\", PackageError::Name)]
    #[case("jq/stable", PackageError::Name)]
    #[case("./local.deb", PackageError::Name)]
    #[case("jqü", PackageError::Name)]
    #[case("jq*", PackageError::Name)]
    #[case("jq-", PackageError::Removal)]
    #[case("jq:", PackageError::Architecture)]
    #[case("jq:AMD64", PackageError::Architecture)]
    #[case("jq:amd64:arm64", PackageError::Architecture)]
    #[case("jq:-amd64", PackageError::Architecture)]
    #[case("jq=", PackageError::Version)]
    #[case("jq=1.6-", PackageError::Version)]
    #[case("jq=1.6*", PackageError::Version)]
    #[case("jq=~1", PackageError::Version)]
    #[case("jq=:1", PackageError::Version)]
    #[case("jq=x:1", PackageError::Version)]
    #[case("jq=1:2:3", PackageError::Version)]
    #[case("jq=1=2", PackageError::Version)]
    #[case("jq=1$x", PackageError::Version)]
    fn anything_else_is_refused(#[case] text: &str, #[case] expected: PackageError) {
        assert_eq!(Package::parse(text), Err(expected));
    }
}
