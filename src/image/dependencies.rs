//! `.agent-loop/dependencies`: the Debian packages that a project wants in its image.

mod package;

use std::collections::BTreeMap;

use minijinja::context;
use thiserror::Error;

use super::templates::{self, TemplateError};

pub use package::{Package, PackageError};

/// How many bytes of names one `RUN` holds. The kernel takes 128 KiB for the one argument that a `RUN` is to its shell.
const LONGEST_INSTALL: usize = 64 * 1024;

/// The packages of a project, each once, by name. Their order in the file, comments and repetitions mean nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependencies(Vec<Package>);

/// A line of `dependencies` that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DependenciesError {
    /// Not a package.
    #[error("line {line}: `{}` is not a package", text.escape_debug())]
    Package {
        /// The line, counted from 1.
        line: usize,
        /// What stands there.
        text: String,
        /// What is wrong with it.
        source: PackageError,
    },
    /// One package in two versions.
    #[error("line {line}: `{second}` contradicts `{first}` in line {first_line}")]
    TwoVersions {
        /// The later line, counted from 1.
        line: usize,
        /// What stands there.
        second: String,
        /// The earlier line.
        first_line: usize,
        /// What stands there.
        first: String,
    },
}

impl Dependencies {
    /// Reads one package a line. `#` starts a comment wherever it stands; space around a name, tabs and the line breaks
    /// of other systems are fine.
    pub fn parse(text: &str) -> Result<Self, DependenciesError> {
        let mut packages: BTreeMap<Package, usize> = BTreeMap::new();
        for (line, text) in named_lines(text) {
            let package = Package::parse(text).map_err(|source| DependenciesError::Package {
                line,
                text: text.to_owned(),
                source,
            })?;
            packages.entry(package).or_insert(line);
        }
        match two_versions(&packages) {
            Some(error) => Err(error),
            None => Ok(Self(packages.into_keys().collect())),
        }
    }

    /// Whether no package is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The packages, by name.
    pub fn packages(&self) -> impl Iterator<Item = &Package> {
        self.0.iter()
    }

    /// The Dockerfile that installs them on top of `BASE_IMAGE`.
    pub fn dockerfile(&self) -> Result<String, TemplateError> {
        let names: Vec<String> = self.0.iter().map(Package::to_string).collect();
        templates::render(templates::DEPENDENCIES, context! { installs => installs(&names) })
    }
}

/// What is left of each line without comment and space, where anything is; lines are counted from 1.
fn named_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let without_comment = |line: &'_ str| line.find('#').unwrap_or(line.len());
    text.split('\n')
        .enumerate()
        .map(move |(index, line)| (index + 1, line[..without_comment(line)].trim()))
        .filter(|(_, name)| !name.is_empty())
}

/// Versions of one package are neighbours, since packages are in order.
fn two_versions(packages: &BTreeMap<Package, usize>) -> Option<DependenciesError> {
    let pairs = packages.iter().zip(packages.iter().skip(1));
    let mut contradictions = pairs.filter(|((one, _), (other, _))| one.is_same_but_for_version(other));
    let (one, other) = contradictions.next()?;
    let (first, second) = if one.1 < other.1 {
        (one, other)
    } else {
        (other, one)
    };
    Some(DependenciesError::TwoVersions {
        line: *second.1,
        second: second.0.to_string(),
        first_line: *first.1,
        first: first.0.to_string(),
    })
}

/// Cuts the names into rows that are short enough for one `RUN` each.
fn installs(names: &[String]) -> Vec<&[String]> {
    let mut installs = Vec::new();
    let mut start = 0;
    let mut length = 0;
    for (index, name) in names.iter().enumerate() {
        if length > 0 && length + name.len() > LONGEST_INSTALL {
            installs.push(&names[start..index]);
            (start, length) = (index, 0);
        }
        length += name.len() + SEPARATION;
    }
    installs.push(&names[start..]);
    installs
}

/// What stands between two names once the builder has joined the lines.
const SEPARATION: usize = "     ".len();

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        let dependencies = Dependencies::parse(text).unwrap();
        dependencies.packages().map(Package::to_string).collect()
    }

    #[rstest]
    #[case::one_a_line("jq\ncurl\n", &["curl", "jq"])]
    #[case::comments("# tools\njq # for JSON\ncurl#too\n  # more\n", &["curl", "jq"])]
    #[case::space("\n\n\tjq\t\n   curl  \n \t \n", &["curl", "jq"])]
    #[case::other_line_breaks("\u{feff}jq\r\ncurl\r\n\r\n", &["curl", "jq"])]
    #[case::no_last_line_break("jq", &["jq"])]
    #[case::repetitions("jq\ncurl\njq\n", &["curl", "jq"])]
    #[case::two_architectures("libc6:arm64\nlibc6\nlibc6:amd64=2.36\n", &["libc6", "libc6:amd64=2.36", "libc6:arm64"])]
    #[case::nothing("# nothing yet\n", &[])]
    fn a_file_names_packages(#[case] text: &str, #[case] expected: &[&str]) {
        assert_eq!(names(text), expected);
    }

    #[rstest]
    #[case(
        "# tools\njq\ncurl && reboot\n",
        "line 3: `curl && reboot` is not a package",
        "one package a line is expected"
    )]
    #[case(
        "jq\r\n\r\nBad\tName\r\n",
        "line 3: `Bad\\tName` is not a package",
        "one package a line is expected"
    )]
    #[case(
        "jq=1.6*",
        "line 1: `jq=1.6*` is not a package",
        "a version after `=` starts with a digit"
    )]
    #[case(
        "jq\rcurl",
        "line 1: `jq\\rcurl` is not a package",
        "one package a line is expected"
    )]
    fn a_bad_name_is_reported_with_its_line(#[case] text: &str, #[case] message: &str, #[case] cause: &str) {
        let error = Dependencies::parse(text).unwrap_err();
        assert_eq!(error.to_string(), message);
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.starts_with(cause), "{source}");
    }

    #[test]
    fn one_package_in_two_versions_is_reported_with_both_lines() {
        let error = Dependencies::parse("jq=1.7\ncurl\n\njq\n").unwrap_err();
        assert_eq!(error.to_string(), "line 4: `jq` contradicts `jq=1.7` in line 1");
    }

    #[test]
    fn the_dockerfile_installs_the_packages_and_goes_back_to_the_agent() {
        let dockerfile = Dependencies::parse("ripgrep\njq # JSON")
            .unwrap()
            .dockerfile()
            .unwrap();
        let expected = "\
ARG BASE_IMAGE
FROM ${BASE_IMAGE}

ARG DEBIAN_FRONTEND=noninteractive
USER root
RUN apt-get update && apt-get install -y --no-install-recommends \\
    jq \\
    ripgrep \\
    && rm -rf /var/lib/apt/lists/*
USER agent
";
        assert_eq!(dockerfile, expected);
    }

    #[test]
    fn neither_comments_nor_order_change_the_dockerfile() {
        let one = Dependencies::parse("jq\ncurl\n").unwrap();
        let other = Dependencies::parse("# sorted otherwise\ncurl # HTTP\n\njq\njq").unwrap();
        assert_eq!(one.dockerfile().unwrap(), other.dockerfile().unwrap());
    }

    #[test]
    fn ten_thousand_packages_are_installed_in_runs_that_a_shell_takes() {
        let names: Vec<String> = (0..10_000).map(|n| format!("some-package-{n}-dev")).collect();
        let dockerfile = Dependencies::parse(&names.join("\n"))
            .unwrap()
            .dockerfile()
            .unwrap();
        let runs: Vec<&str> = dockerfile.split("\nRUN ").skip(1).collect();
        assert!(runs.len() > 1 && runs.iter().all(|run| run.len() < 128 * 1024));
        let installed = dockerfile
            .lines()
            .filter(|line| line.trim().starts_with("some-package-"));
        assert_eq!(installed.count(), 10_000);
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "(?s).{0,200}") {
            let _ = Dependencies::parse(&text);
        }

        #[test]
        fn what_was_read_holds_nothing_that_a_shell_would_read(text in "[a-z0-9+.:=~# \t\r\n$;&|`()'\"\\\\*-]{0,80}") {
            if let Ok(dependencies) = Dependencies::parse(&text) {
                for package in dependencies.packages() {
                    let name = package.to_string();
                    prop_assert!(!name.contains([' ', '\t', '\r', '\n', '$', ';', '&', '|', '`', '(', ')', '\'', '"', '\\', '*', '#']), "{}", name);
                    prop_assert!(!name.starts_with('-') && text.contains(&name));
                }
            }
        }

        #[test]
        fn the_order_of_lines_means_nothing(mut lines in prop::collection::vec("[a-z]{2}[a-z0-9+.]{0,4}", 0..20)) {
            let one = Dependencies::parse(&lines.join("\n")).unwrap();
            lines.reverse();
            prop_assert_eq!(one, Dependencies::parse(&lines.join("\n")).unwrap());
        }
    }
}
