//! One pattern of a `.dockerignore`, matched as Docker does.

use thiserror::Error;

/// A pattern that matches a whole path, whose parts are separated by slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(Vec<PatternToken>);

/// What is wrong with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PatternError {
    /// `!` without a pattern.
    #[error("`!` without a pattern")]
    NothingExcepted,
    /// A `[` without a valid character set.
    #[error("`[` without a valid character set like `[a-z]`")]
    Set,
    /// A `\` at the end.
    #[error("`\\` at the end")]
    Escape,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternToken {
    /// This character.
    Char(char),
    /// `?`: any character but a slash.
    One,
    /// `*`: any characters but slashes.
    Star,
    /// `**` at the end, or before a plain name: anything.
    Anything,
    /// `**` before more: nothing, or the directories of the next token.
    MaybeDirectories,
    /// Anything up to a slash.
    Directories,
    /// `[a-z]` or `[^a-z]`.
    Set {
        is_negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Pattern {
    /// Parses a pattern without `.`, `..` and empty parts.
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        let chars: Vec<char> = text.chars().collect();
        let mut tokens = Vec::with_capacity(chars.len());
        let mut rest = chars.as_slice();
        while let Some((first, tail)) = rest.split_first() {
            rest = match first {
                '*' if tail.first() == Some(&'*') => two_stars(&mut tokens, &tail[1..]),
                '*' => one(&mut tokens, PatternToken::Star, tail),
                '?' => one(&mut tokens, PatternToken::One, tail),
                '[' => set(&mut tokens, tail)?,
                '\\' => {
                    let (c, tail) = tail.split_first().ok_or(PatternError::Escape)?;
                    one(&mut tokens, PatternToken::Char(*c), tail)
                }
                c => one(&mut tokens, PatternToken::Char(*c), tail),
            };
        }
        Ok(Self(tokens))
    }

    /// Whether the pattern matches this whole path.
    ///
    /// Simulates all matches at once, so that no pattern takes exponential time.
    pub(super) fn matches(&self, path: &str) -> bool {
        let mut open = vec![false; self.0.len() + 1];
        open[0] = true;
        for c in path.chars() {
            self.pass_optional(&mut open);
            open = self.advance(&open, c);
        }
        self.pass_optional(&mut open);
        open[self.0.len()]
    }

    /// Also opens the tokens after one that may match nothing.
    fn pass_optional(&self, open: &mut [bool]) {
        for (index, token) in self.0.iter().enumerate() {
            match token {
                PatternToken::Star | PatternToken::Anything => open[index + 1] |= open[index],
                PatternToken::MaybeDirectories => {
                    open[index + 1] |= open[index];
                    open[index + 2] |= open[index];
                }
                _ => {}
            }
        }
    }

    /// The tokens that may come after `c`.
    fn advance(&self, open: &[bool], c: char) -> Vec<bool> {
        let mut next = vec![false; open.len()];
        for (index, token) in self.0.iter().enumerate().filter(|(index, _)| open[*index]) {
            match token {
                PatternToken::Char(wanted) => next[index + 1] |= c == *wanted,
                PatternToken::One => next[index + 1] |= c != '/',
                PatternToken::Set { is_negated, ranges } => {
                    let is_listed = ranges.iter().any(|(low, high)| (*low..=*high).contains(&c));
                    next[index + 1] |= is_listed != *is_negated;
                }
                PatternToken::Star => next[index] |= c != '/',
                PatternToken::Anything => next[index] = true,
                PatternToken::MaybeDirectories => {}
                PatternToken::Directories => {
                    next[index] = true;
                    next[index + 1] |= c == '/';
                }
            }
        }
        next
    }
}

fn one<'a>(tokens: &mut Vec<PatternToken>, token: PatternToken, rest: &'a [char]) -> &'a [char] {
    tokens.push(token);
    rest
}

/// Parses the rest after `**`. A slash that follows belongs to it.
fn two_stars<'a>(tokens: &mut Vec<PatternToken>, rest: &'a [char]) -> &'a [char] {
    let after_slash = rest.strip_prefix(&['/']);
    let left = after_slash.unwrap_or(rest);
    let is_plain_name = |text: &[char]| !text.iter().any(|c| "*?[]\\".contains(*c));
    let before_name = tokens.is_empty() && after_slash.is_none() && is_plain_name(left);
    if left.is_empty() || before_name {
        tokens.push(PatternToken::Anything);
    } else {
        tokens.extend([PatternToken::MaybeDirectories, PatternToken::Directories]);
    }
    left
}

/// Parses the rest after `[`.
fn set<'a>(tokens: &mut Vec<PatternToken>, rest: &'a [char]) -> Result<&'a [char], PatternError> {
    let negated = rest.strip_prefix(&['^']);
    let (is_negated, mut rest) = (negated.is_some(), negated.unwrap_or(rest));
    let mut ranges = Vec::new();
    while ranges.is_empty() || rest.first() != Some(&']') {
        let (low, left) = end_of_range(rest)?;
        let (high, left) = match left.strip_prefix(&['-']) {
            Some(left) => end_of_range(left)?,
            None => (low, left),
        };
        ranges.push((low, high));
        rest = left;
    }
    tokens.push(PatternToken::Set { is_negated, ranges });
    Ok(&rest[1..])
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
        assert_eq!(Pattern::parse(pattern), Err(expected));
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_time() {
        let pattern = Pattern::parse(&"**/a*".repeat(30)).unwrap();
        assert!(!pattern.matches(&"a/".repeat(200)));
    }
}
