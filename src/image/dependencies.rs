//! `.agent-loop/dependencies`: the Debian packages that a project adds to its image.

mod package;

use std::collections::BTreeMap;

use minijinja::context;

use super::error::ImageError;
use super::templates;
use package::DebianPackage;

/// The longest list of names in one `RUN`. The kernel limits the shell's argument to 128 KiB.
const LONGEST_INSTALL: usize = 64 * 1024;

/// The packages of a project, sorted and without duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProjectDependencies(Vec<DebianPackage>);

impl ProjectDependencies {
    /// Parses one package per line. `#` starts a comment anywhere in a line. White space around a name is ignored.
    pub(super) fn parse(text: &str) -> Result<Self, ImageError> {
        let mut packages: BTreeMap<DebianPackage, usize> = BTreeMap::new();
        for (line, text) in named_lines(text) {
            let package = DebianPackage::parse(text).map_err(|error| {
                let text = text.escape_debug();
                ImageError::invalid(format!("line {line}: invalid package `{text}`")).with_cause(error)
            })?;
            packages.entry(package).or_insert(line);
        }
        match two_versions(&packages) {
            Some(error) => Err(error),
            None => Ok(Self(packages.into_keys().collect())),
        }
    }

    /// Whether the list is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The Dockerfile that installs them on top of `BASE_IMAGE`.
    pub(super) fn dockerfile(&self) -> Result<String, ImageError> {
        let names: Vec<String> = self.0.iter().map(shell_word).collect();
        templates::render(templates::DEPENDENCIES, context! { installs => installs(&names) })
    }
}

/// The lines that are not empty without comment and white space, with their numbers from 1.
fn named_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let without_comment = |line: &'_ str| line.find('#').unwrap_or(line.len());
    text.split('\n')
        .enumerate()
        .map(move |(index, line)| (index + 1, line[..without_comment(line)].trim()))
        .filter(|(_, name)| !name.is_empty())
}

/// Finds a package with two versions. They are neighbours, because packages are sorted.
fn two_versions(packages: &BTreeMap<DebianPackage, usize>) -> Option<ImageError> {
    let pairs = packages.iter().zip(packages.iter().skip(1));
    let mut contradictions = pairs.filter(|((one, _), (other, _))| one.differs_only_in_version(other));
    let (one, other) = contradictions.next()?;
    let (first, second) = if one.1 < other.1 {
        (one, other)
    } else {
        (other, one)
    };
    Some(ImageError::invalid(format!(
        "line {}: `{}` conflicts with `{}` in line {}",
        second.1, second.0, first.0, first.1
    )))
}

/// A package as a word for the shell, which would replace a `*` with the names of files.
fn shell_word(package: &DebianPackage) -> String {
    let name = package.to_string();
    if name.contains('*') {
        format!("'{name}'")
    } else {
        name
    }
}

/// Splits the names into lists that are short enough for one `RUN` each.
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

/// What is between two names after the builder joined the lines.
const SEPARATION: usize = "     ".len();

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        let dependencies = ProjectDependencies::parse(text).unwrap();
        dependencies.0.iter().map(DebianPackage::to_string).collect()
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
        "line 3: invalid package `curl && reboot`",
        "expected one package per line"
    )]
    #[case(
        "jq\r\n\r\nBad\tName\r\n",
        "line 3: invalid package `Bad\\tName`",
        "expected one package per line"
    )]
    #[case(
        "jq=v1.6",
        "line 1: invalid package `jq=v1.6`",
        "a version starts with a digit"
    )]
    #[case(
        "jq\rcurl",
        "line 1: invalid package `jq\\rcurl`",
        "expected one package per line"
    )]
    fn a_bad_name_is_reported_with_its_line(#[case] text: &str, #[case] message: &str, #[case] cause: &str) {
        let error = ProjectDependencies::parse(text).unwrap_err();
        assert_eq!(error.to_string(), message);
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.starts_with(cause), "{source}");
    }

    #[test]
    fn one_package_in_two_versions_is_reported_with_both_lines() {
        let error = ProjectDependencies::parse("jq=1.7\ncurl\n\njq\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 4: `jq` conflicts with `jq=1.7` in line 1"
        );
    }

    #[test]
    fn the_dockerfile_installs_the_packages_and_goes_back_to_the_agent() {
        let dockerfile = ProjectDependencies::parse("ripgrep\njq # JSON")
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
    fn a_version_pattern_is_quoted_so_that_the_shell_leaves_it_alone() {
        let dependencies =
            ProjectDependencies::parse("libpq-dev=15.*   # as in production\njq=1.6-2.1\n").unwrap();
        let dockerfile = dependencies.dockerfile().unwrap();
        let installed = "    jq=1.6-2.1 \\\n    'libpq-dev=15.*' \\\n    && rm";
        assert!(dockerfile.contains(installed), "{dockerfile}");
    }

    #[test]
    fn neither_comments_nor_order_change_the_dockerfile() {
        let one = ProjectDependencies::parse("jq\ncurl\n").unwrap();
        let other = ProjectDependencies::parse("# sorted otherwise\ncurl # HTTP\n\njq\njq").unwrap();
        assert_eq!(one.dockerfile().unwrap(), other.dockerfile().unwrap());
    }

    #[test]
    fn ten_thousand_packages_are_split_into_several_runs() {
        let names: Vec<String> = (0..10_000).map(|n| format!("some-package-{n}-dev")).collect();
        let dockerfile = ProjectDependencies::parse(&names.join("\n"))
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
        fn no_text_panics(text in "(?s).{0,200}") {
            let _ = ProjectDependencies::parse(&text);
        }

        #[test]
        fn no_package_means_more_to_a_shell_than_a_word(text in "[a-z0-9+.:=~# \t\r\n$;&|`()'\"\\\\*-]{0,80}") {
            if let Ok(dependencies) = ProjectDependencies::parse(&text) {
                for package in &dependencies.0 {
                    let name = package.to_string();
                    prop_assert!(!name.contains([' ', '\t', '\r', '\n', '$', ';', '&', '|', '`', '(', ')', '\'', '"', '\\', '#']), "{}", name);
                    prop_assert!(!name.starts_with('-') && text.contains(&name));
                    let word = shell_word(package);
                    prop_assert!(!word.contains('*') || word == format!("'{name}'"), "{}", word);
                }
            }
        }

        #[test]
        fn the_order_of_lines_does_not_matter(mut lines in prop::collection::vec("[a-z]{2}[a-z0-9+.]{0,4}", 0..20)) {
            let one = ProjectDependencies::parse(&lines.join("\n")).unwrap();
            lines.reverse();
            prop_assert_eq!(one, ProjectDependencies::parse(&lines.join("\n")).unwrap());
        }
    }
}
