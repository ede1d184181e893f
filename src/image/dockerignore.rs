//! `.dockerignore`: what a build context excludes.

mod pattern;

use super::error::ImageError;
use pattern::{Pattern, PatternError};

/// The patterns of a `.dockerignore`. The last one that matches a path or one of its parent directories decides.
#[derive(Clone, Debug, Default)]
pub(super) struct DockerIgnore(Vec<IgnoreRule>);

#[derive(Clone, Debug)]
struct IgnoreRule {
    /// `!`: includes what an earlier rule excluded.
    is_exception: bool,
    pattern: Pattern,
}

impl DockerIgnore {
    /// Parses one pattern per line. A line that starts with `#` is a comment. White space around a pattern is ignored.
    pub(super) fn parse(text: &str) -> Result<Self, ImageError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.starts_with('#'));
        let patterns = lines
            .map(|(index, line)| (index + 1, line.trim()))
            .filter(|(_, line)| !line.is_empty());
        let rules = patterns.map(|(line, text)| {
            rule(text).map_err(|error| {
                let text = text.escape_debug();
                ImageError::invalid(format!("line {line}: invalid pattern `{text}`")).with_cause(error)
            })
        });
        Ok(Self(rules.collect::<Result<_, _>>()?))
    }

    /// Whether a path, relative to the context and with slashes, is excluded.
    pub(super) fn excludes(&self, path: &str) -> bool {
        let decides = |rule: &&IgnoreRule| rule.matches_or_above(path);
        let last = self.0.iter().rev().find(decides);
        last.is_some_and(|rule| !rule.is_exception)
    }

    /// Whether something below an excluded directory may be included.
    pub(super) fn has_exceptions(&self) -> bool {
        self.0.iter().any(|rule| rule.is_exception)
    }
}

impl IgnoreRule {
    fn matches_or_above(&self, path: &str) -> bool {
        let directories = path.match_indices('/').map(|(at, _)| &path[..at]);
        self.pattern.matches(path)
            || directories
                .into_iter()
                .any(|directory| self.pattern.matches(directory))
    }
}

fn rule(text: &str) -> Result<IgnoreRule, PatternError> {
    let exception = text.strip_prefix('!').map(str::trim);
    let text = exception.unwrap_or(text);
    if text.is_empty() {
        return Err(PatternError::NothingExcepted);
    }
    Ok(IgnoreRule {
        is_exception: exception.is_some(),
        pattern: Pattern::parse(&cleaned(text))?,
    })
}

/// A relative path without empty parts, `.`, and `..` after a name.
fn cleaned(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if path.starts_with('/') && parts.is_empty() => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    // A directory excludes its content.
    #[case("docs", "docs/guide/a.md", true)]
    #[case("docs/", "docs/a.md", true)]
    #[case("/docs", "docs/a.md", true)]
    #[case("./docs//x/..", "docs/a.md", true)]
    #[case("docs", "src/docs", false)]
    #[case("../docs", "docs", false)]
    // Comments and space.
    #[case("# docs\n", "docs", false)]
    #[case("#docs", "#docs", false)]
    #[case(" #docs", "#docs", true)]
    #[case("\u{feff}docs  \t\r\n", "docs", true)]
    #[case("\n\n  docs\n", "docs", true)]
    // The last match decides.
    #[case("docs\n!docs/README.md", "docs/README.md", false)]
    #[case("docs\n!docs/README.md", "docs/other.md", true)]
    #[case("docs\n  ! docs/README.md  ", "docs/README.md", false)]
    #[case("!docs/README.md\ndocs", "docs/README.md", true)]
    #[case("*.md\n!README*.md\nREADME-secret.md", "README-secret.md", true)]
    #[case("*.md\n!README*.md\nREADME-secret.md", "README-old.md", false)]
    #[case("**\n!util/docker/web", "util/docker/web/foo", false)]
    #[case("**\n!util/docker/web\nutil/docker/web/foo", "util/docker/web/foo", true)]
    #[case("*\n!src/**/*.rs", "src/a/b.rs", false)]
    #[case("*\n!src/**/*.rs", "src/a/b.txt", true)]
    // The context itself is never excluded.
    #[case(".", "a", false)]
    #[case("/", "a", false)]
    fn paths_are_excluded_as_docker_does(#[case] text: &str, #[case] path: &str, #[case] expected: bool) {
        assert_eq!(DockerIgnore::parse(text).unwrap().excludes(path), expected);
    }

    #[rstest]
    #[case("docs\n\n[a-\n", "line 3: invalid pattern `[a-`")]
    #[case("!", "line 1: invalid pattern `!`")]
    #[case("# x\r\n! \r\n", "line 2: invalid pattern `!`")]
    fn a_bad_pattern_is_reported_with_its_line(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(DockerIgnore::parse(text).unwrap_err().to_string(), expected);
    }

    proptest! {
        #[test]
        fn no_text_and_no_path_panics(text in "(?s)([!#*?/.\\[\\]^\\\\-]|[a-c ]|\n|.){0,40}", path in "[a-c/.\\[*☺]{0,20}") {
            if let Ok(ignore) = DockerIgnore::parse(&text) {
                let _ = ignore.excludes(&path);
            }
        }

        #[test]
        fn a_plain_name_excludes_itself_and_an_exception_includes_it_again(name in "[a-z]{1,8}(/[a-z]{1,8}){0,3}") {
            prop_assert!(DockerIgnore::parse(&name).unwrap().excludes(&name));
            let with_exception = format!("{name}\n!{name}");
            prop_assert!(!DockerIgnore::parse(&with_exception).unwrap().excludes(&name));
        }
    }
}
