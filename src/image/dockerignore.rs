//! `.dockerignore`: what stays out of a build context.

mod pattern;

use thiserror::Error;

use pattern::Pattern;

pub use pattern::PatternError;

/// The patterns of a `.dockerignore`. The last one that matches a path, or a directory above it, decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignore(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    effect: Effect,
    pattern: Pattern,
}

/// What a rule does with the paths that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    LeaveOut,
    /// `!`: takes back in what an earlier rule left out.
    TakeIn,
}

/// A line of `.dockerignore` that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: `{}` is no pattern", text.escape_debug())]
pub struct IgnoreError {
    /// The line, counted from 1.
    pub line: usize,
    /// What stands there.
    pub text: String,
    /// What is wrong with it.
    pub source: PatternError,
}

impl Ignore {
    /// Reads one pattern a line. A line that starts with `#` is a comment; space around a pattern does not count.
    pub fn parse(text: &str) -> Result<Self, IgnoreError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.starts_with('#'));
        let patterns = lines
            .map(|(index, line)| (index + 1, line.trim()))
            .filter(|(_, line)| !line.is_empty());
        let rules = patterns.map(|(line, text)| {
            rule(text).map_err(|source| IgnoreError {
                line,
                text: text.to_owned(),
                source,
            })
        });
        Ok(Self(rules.collect::<Result<_, _>>()?))
    }

    /// Whether a path, relative to the context and with slashes, stays out.
    #[must_use]
    pub fn leaves_out(&self, path: &str) -> bool {
        self.0.iter().fold(false, |is_out, rule| match rule.effect {
            Effect::LeaveOut => is_out || rule.matches_or_above(path),
            Effect::TakeIn => is_out && !rule.matches_or_above(path),
        })
    }

    /// Whether something below a directory that stays out may still be in.
    #[must_use]
    pub fn has_exceptions(&self) -> bool {
        self.0.iter().any(|rule| rule.effect == Effect::TakeIn)
    }
}

impl Rule {
    fn matches_or_above(&self, path: &str) -> bool {
        let directories = path.match_indices('/').map(|(at, _)| &path[..at]);
        self.pattern.matches(path)
            || directories
                .into_iter()
                .any(|directory| self.pattern.matches(directory))
    }
}

fn rule(text: &str) -> Result<Rule, PatternError> {
    let (effect, text) = match text.strip_prefix('!') {
        Some(rest) => (Effect::TakeIn, rest.trim()),
        None => (Effect::LeaveOut, text),
    };
    if text.is_empty() {
        return Err(PatternError::NothingExcepted);
    }
    let pattern = Pattern::parse(&cleaned(text))?;
    Ok(Rule { effect, pattern })
}

/// The shortest way to write a path: without empty parts, `.`, and `..` behind a name; never absolute.
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
    // A directory takes all of its content along.
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
    // The context itself stays.
    #[case(".", "a", false)]
    #[case("/", "a", false)]
    fn a_path_stays_out_as_with_docker(#[case] text: &str, #[case] path: &str, #[case] expected: bool) {
        assert_eq!(Ignore::parse(text).unwrap().leaves_out(path), expected);
    }

    #[rstest]
    #[case("docs\n\n[a-\n", "line 3: `[a-` is no pattern")]
    #[case("!", "line 1: `!` is no pattern")]
    #[case("# x\r\n! \r\n", "line 2: `!` is no pattern")]
    fn a_bad_pattern_is_reported_with_its_line(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(Ignore::parse(text).unwrap_err().to_string(), expected);
    }

    proptest! {
        #[test]
        fn no_text_and_no_path_breaks_it(text in "(?s)([!#*?/.\\[\\]^\\\\-]|[a-c ]|\n|.){0,40}", path in "[a-c/.\\[*☺]{0,20}") {
            if let Ok(ignore) = Ignore::parse(&text) {
                let _ = ignore.leaves_out(&path);
            }
        }

        #[test]
        fn a_plain_name_leaves_itself_out_and_an_exception_takes_it_back(name in "[a-z]{1,8}(/[a-z]{1,8}){0,3}") {
            prop_assert!(Ignore::parse(&name).unwrap().leaves_out(&name));
            let taken_back = format!("{name}\n!{name}");
            prop_assert!(!Ignore::parse(&taken_back).unwrap().leaves_out(&name));
        }
    }
}
