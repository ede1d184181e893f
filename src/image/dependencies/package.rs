//! The name of one Debian package, as `apt-get install` takes it.

use std::fmt;

use thiserror::Error;

/// A package by Debian's grammar: `jq`, `libc6:arm64`, `git=1:2.39.5-0+deb12u2`, `libpq-dev=15.*`. Contains no shell syntax but
/// `*` in the version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DebianPackage {
    name: String,
    architecture: Option<String>,
    version: Option<String>,
}

/// Why text is not a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum DebianPackageError {
    /// More than one word.
    #[error("expected one package per line")]
    SeveralWords,
    /// Not a name by Debian's grammar.
    #[error(
        "a name has at least two characters (lower-case letters, digits, `+`, `-` and `.`) and starts with a letter or \
         a digit"
    )]
    Name,
    /// apt would remove the package.
    #[error("apt removes a package whose name ends with `-`")]
    Removal,
    /// Not an architecture.
    #[error("an architecture has only lower-case letters, digits and `-`")]
    Architecture,
    /// Not a version by Debian's grammar.
    #[error(
        "a version starts with a digit, after an optional epoch like `1:`, and has only letters, digits, `.`, `+`, `~`, \
         `-` and, for any characters, `*`"
    )]
    Version,
}

impl DebianPackage {
    /// Parses `name[:architecture][=version]`. apt compares the version as a pattern, in which `*` stands for any characters.
    pub(super) fn parse(text: &str) -> Result<Self, DebianPackageError> {
        if text.contains(char::is_whitespace) {
            return Err(DebianPackageError::SeveralWords);
        }
        let (rest, version) = split(text, '=');
        let (name, architecture) = split(rest, ':');
        if !is_name(name) {
            return Err(DebianPackageError::Name);
        }
        if name.ends_with('-') {
            return Err(DebianPackageError::Removal);
        }
        if architecture.is_some_and(|architecture| !is_architecture(architecture)) {
            return Err(DebianPackageError::Architecture);
        }
        if version.is_some_and(|version| !is_version(version)) {
            return Err(DebianPackageError::Version);
        }
        Ok(Self {
            name: name.to_owned(),
            architecture: architecture.map(str::to_owned),
            version: version.map(str::to_owned),
        })
    }

    /// Whether both are the same package, apart from the version.
    pub(super) fn differs_only_in_version(&self, other: &Self) -> bool {
        (&self.name, &self.architecture) == (&other.name, &other.architecture)
    }
}

impl fmt::Display for DebianPackage {
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

/// Debian Policy 5.6.12: `[epoch:]upstream[-revision]`, or a pattern of it.
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
        && is_part(upstream, b".+~-*")
        && revision.is_none_or(|revision| is_part(revision, b".+~*"))
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
    #[case("libpq-dev=15.*")]
    #[case("libpq-dev=15*")]
    #[case("git=1:2.39.5-*")]
    #[case("libc6:amd64=2.*-9+deb12u*")]
    fn a_valid_package_is_printed_as_it_was_parsed(#[case] text: &str) {
        assert_eq!(DebianPackage::parse(text).unwrap().to_string(), text);
    }

    #[rstest]
    #[case("jq curl", DebianPackageError::SeveralWords)]
    #[case("jq\u{a0}curl", DebianPackageError::SeveralWords)]
    #[case("", DebianPackageError::Name)]
    #[case("j", DebianPackageError::Name)]
    #[case("Jq", DebianPackageError::Name)]
    #[case("-y", DebianPackageError::Name)]
    #[case("--allow-unauthenticated", DebianPackageError::Name)]
    #[case("jq;reboot", DebianPackageError::Name)]
    #[case("$(reboot)", DebianPackageError::Name)]
    #[case("jq\\", DebianPackageError::Name)]
    #[case("jq/stable", DebianPackageError::Name)]
    #[case("./local.deb", DebianPackageError::Name)]
    #[case("jqü", DebianPackageError::Name)]
    #[case("jq*", DebianPackageError::Name)]
    #[case("jq-", DebianPackageError::Removal)]
    #[case("jq:", DebianPackageError::Architecture)]
    #[case("jq:AMD64", DebianPackageError::Architecture)]
    #[case("jq:amd64:arm64", DebianPackageError::Architecture)]
    #[case("jq:-amd64", DebianPackageError::Architecture)]
    #[case("jq=", DebianPackageError::Version)]
    #[case("jq=1.6-", DebianPackageError::Version)]
    #[case("jq=*", DebianPackageError::Version)]
    #[case("jq=1.*;reboot", DebianPackageError::Version)]
    #[case("jq=1.?", DebianPackageError::Version)]
    #[case("jq=1.[0-9]", DebianPackageError::Version)]
    #[case("jq=1.*'", DebianPackageError::Version)]
    #[case("jq=1.*\\", DebianPackageError::Version)]
    #[case("jq=1.$(id)", DebianPackageError::Version)]
    #[case("jq=~1", DebianPackageError::Version)]
    #[case("jq=:1", DebianPackageError::Version)]
    #[case("jq=x:1", DebianPackageError::Version)]
    #[case("jq=1:2:3", DebianPackageError::Version)]
    #[case("jq=1=2", DebianPackageError::Version)]
    #[case("jq=1$x", DebianPackageError::Version)]
    fn anything_else_is_rejected(#[case] text: &str, #[case] expected: DebianPackageError) {
        assert_eq!(DebianPackage::parse(text), Err(expected));
    }
}
