//! One pattern of a `.dockerignore`, matched as Docker does.

use regex_lite::{Regex, escape};
use thiserror::Error;

/// A pattern that matches a whole path, whose parts are separated by slashes.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Regex);

/// What is wrong with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum PatternError {
    /// `!` without a pattern.
    #[error("`!` without a pattern")]
    NothingExcepted,
    /// A `[` without a valid character set.
    #[error("`[` without a valid character set like `[a-z]`")]
    Set,
    /// A `\` at the end.
    #[error("`\\` at the end")]
    Escape,
    /// Too many characters.
    #[error("it is too long")]
    TooLong,
}

impl Pattern {
    /// Parses a pattern without `.`, `..` and empty parts.
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        let chars: Vec<char> = text.chars().collect();
        let mut regex = String::new();
        let mut rest = chars.as_slice();
        while let Some((first, tail)) = rest.split_first() {
            rest = tail;
            match first {
                '*' if tail.first() == Some(&'*') => rest = two_stars(&mut regex, &tail[1..]),
                '*' => regex.push_str("[^/]*"),
                '?' => regex.push_str("[^/]"),
                '[' => rest = set(&mut regex, tail)?,
                '\\' => {
                    let (c, tail) = tail.split_first().ok_or(PatternError::Escape)?;
                    regex.push_str(&literal(*c));
                    rest = tail;
                }
                c => regex.push_str(&literal(*c)),
            }
        }
        let regex = Regex::new(&format!("^(?s:{regex})$"));
        regex.map(Self).map_err(|_| PatternError::TooLong)
    }

    /// Whether the pattern matches this whole path. Takes linear time.
    pub(super) fn matches(&self, path: &str) -> bool {
        self.0.is_match(path)
    }
}

fn literal(c: char) -> String {
    escape(c.encode_utf8(&mut [0; 4]))
}

/// Adds `**`, and returns the rest after it. A slash that follows belongs to it. At the end, and before a plain name, it
/// matches anything, else any directories.
fn two_stars<'a>(regex: &mut String, rest: &'a [char]) -> &'a [char] {
    let after_slash = rest.strip_prefix(&['/']);
    let left = after_slash.unwrap_or(rest);
    let is_plain_name = |text: &[char]| !text.iter().any(|c| "*?[]\\".contains(*c));
    let before_name = regex.is_empty() && after_slash.is_none() && is_plain_name(left);
    let is_anything = left.is_empty() || before_name;
    regex.push_str(if is_anything { ".*" } else { "(?:.*/)?" });
    left
}

/// Adds a character set, and returns the rest after it.
fn set<'a>(regex: &mut String, rest: &'a [char]) -> Result<&'a [char], PatternError> {
    let negated = rest.strip_prefix(&['^']);
    let mut rest = negated.unwrap_or(rest);
    let mut ranges = String::new();
    loop {
        let (low, left) = end_of_range(rest)?;
        let (high, left) = match left.strip_prefix(&['-']) {
            Some(left) => end_of_range(left)?,
            None => (low, left),
        };
        // A range that ends before it begins contains nothing.
        if low <= high {
            ranges.extend([&*literal(low), "-", &*literal(high)]);
        }
        rest = left;
        if let Some(left) = rest.strip_prefix(&[']']) {
            match (negated, ranges.as_str()) {
                (None, "") => regex.push_str(r"[^\s\S]"),
                (Some(_), "") => regex.push('.'),
                (None, ranges) => regex.extend(["[", ranges, "]"]),
                (Some(_), ranges) => regex.extend(["[^", ranges, "]"]),
            }
            return Ok(left);
        }
    }
}

fn end_of_range(rest: &[char]) -> Result<(char, &[char]), PatternError> {
    match rest {
        [] | ['-' | ']', ..] => Err(PatternError::Set),
        ['\\', c, rest @ ..] | [c, rest @ ..] => Ok((*c, rest)),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    // Plain names: the whole path, and only it.
    #[case("abc.def", "abc.def", true)]
    #[case("abc.def", "abcZdef", false)]
    #[case("a(b)c/d", "a(b)c/d", true)]
    #[case("abc", "abc/def", false)]
    // `*` and `?` stay within one name.
    #[case("*", "abc", true)]
    #[case("*", "a/b", false)]
    #[case("a*/b", "abc/b", true)]
    #[case("a*/b", "a/c/b", false)]
    #[case("a*b*c*d*e*/f", "axbxcxdxexxx/f", true)]
    #[case("a*b*c*d*e*/f", "axbxcxdxexxx/fff", false)]
    #[case("a?b", "a☺b", true)]
    #[case("a?b", "a/b", false)]
    #[case("a???b", "a☺b", false)]
    #[case(".*", ".foo", true)]
    #[case(".*", "foo", false)]
    // `**` crosses directories, none of them too.
    #[case("**", "dir/file", true)]
    #[case("**/**", "dir/file", true)]
    #[case("dir/**", "dir/sub/file", true)]
    #[case("dir/**", "dir", false)]
    #[case("**/dir", "dir", true)]
    #[case("**/dir", "x/y/dir", true)]
    #[case("**/.foo", "bar.foo", false)]
    #[case("**file", "dir/file", true)]
    #[case("**file", "myfile", true)]
    #[case("**file*", "myfile", false)]
    #[case("**/file*.txt", "a/b/file-1.txt", true)]
    #[case("**/file*.txt", "a/b/my-file-1.txt", false)]
    #[case("**/**/*.txt", "file.txt", true)]
    #[case("**/**/*.txt2", "dir/file.txt", false)]
    #[case("a**/*.txt", "a/dir/file.txt", true)]
    #[case("a/**/b", "a/b", true)]
    #[case("a/**/b", "a/x/y/b", true)]
    #[case("a/**/b", "a/xb", false)]
    #[case("a/*.txt**", "a/file.txt.old/x", true)]
    // Sets and escapes.
    #[case("a[b-d]e", "ace", true)]
    #[case("a[b-d]e", "aae", false)]
    #[case("a[^b-d]e", "aze", true)]
    #[case("[a-ζ]*", "α", true)]
    #[case("[\\]a]", "]", true)]
    #[case("[\\-x]", "-", true)]
    #[case("[x\\-]", "z", false)]
    #[case("a\\*b", "a*b", true)]
    #[case("a\\*b", "axb", false)]
    #[case("a\\\\", "a\\", true)]
    fn a_pattern_matches_as_dockers_does(#[case] pattern: &str, #[case] path: &str, #[case] expected: bool) {
        assert_eq!(Pattern::parse(pattern).unwrap().matches(path), expected);
    }

    #[rstest]
    #[case("[]a]", PatternError::Set)]
    #[case("[-]", PatternError::Set)]
    #[case("[x-]", PatternError::Set)]
    #[case("[a-b-c]", PatternError::Set)]
    #[case("[", PatternError::Set)]
    #[case("[^", PatternError::Set)]
    #[case("[^bc", PatternError::Set)]
    #[case("a[b\\", PatternError::Set)]
    #[case("a\\", PatternError::Escape)]
    fn a_malformed_pattern_is_refused_as_docker_does(#[case] pattern: &str, #[case] expected: PatternError) {
        assert_eq!(Pattern::parse(pattern).unwrap_err(), expected);
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_time() {
        let pattern = Pattern::parse(&"**/a*".repeat(30)).unwrap();
        assert!(!pattern.matches(&"a/".repeat(200)));
    }
}
