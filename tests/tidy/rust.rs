//! As much of Rust's grammar as the other tests need: comments and literals, test modules, paths.

use std::iter::Peekable;
use std::str::Chars;

/// One path in the code, `a::b::c`. An imported group yields one path for each name in it.
#[derive(Debug, PartialEq, Eq)]
pub struct Path {
    pub line: usize,
    pub segments: Vec<String>,
    /// It is a macro call: `a::b!`.
    pub called_as_macro: bool,
}

impl Path {
    /// Whether these segments follow each other somewhere in the path.
    pub fn contains(&self, wanted: &[&str]) -> bool {
        self.segments.windows(wanted.len()).any(|window| window == wanted)
    }
}

/// The lines that make up the product: everything before the `#[cfg(test)] mod tests {` at a file's end.
pub fn without_tests(source: &str) -> &str {
    let mut start = 0;
    for line in source.split_inclusive('\n') {
        if line.trim_end() == "#[cfg(test)]" && opens_a_module(&source[start + line.len()..]) {
            return &source[..start];
        }
        start += line.len();
    }
    source
}

/// Whether the first thing below, attributes aside, is a module with its body.
fn opens_a_module(below: &str) -> bool {
    let is_attribute = |line: &&str| line.starts_with(['#', ' ', ')']);
    let item = below.lines().find(|line| !is_attribute(line)).unwrap_or_default();
    item.contains("mod ") && item.ends_with('{')
}

/// The paths in the code; none from comments and literals.
pub fn paths(source: &str) -> Vec<Path> {
    let code = without_comments_and_literals(source);
    let tokens = tokens(&code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let next = tokens.get(at + 1).map(|token| token.text);
        if tokens[at].text == "use" && next != Some("<") {
            at = import(&tokens, at + 1, &[], &mut found);
        } else if tokens[at].is_word() {
            at = inline_path(&tokens, at, &mut found);
        } else {
            at += 1;
        }
    }
    found
}

#[derive(Clone, Copy)]
pub struct Token<'a> {
    pub line: usize,
    pub text: &'a str,
}

impl Token<'_> {
    pub fn is_word(self) -> bool {
        self.text.starts_with(is_word_character)
    }
}

pub fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    for (index, text) in code.lines().enumerate() {
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if is_word_character(first) {
                rest.find(|c| !is_word_character(c)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            tokens.push(Token {
                line: index + 1,
                text: &rest[..length],
            });
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

fn is_word_character(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Reads `a::b` from `at`; returns the index of what follows.
fn inline_path(tokens: &[Token<'_>], mut at: usize, found: &mut Vec<Path>) -> usize {
    let line = tokens[at].line;
    let mut segments = vec![tokens[at].text.to_owned()];
    at += 1;
    while let [colons, word, ..] = &tokens[at..]
        && colons.text == "::"
        && word.is_word()
    {
        segments.push(word.text.to_owned());
        at += 2;
    }
    let called_as_macro = tokens.get(at).is_some_and(|token| token.text == "!");
    found.push(Path {
        line,
        segments,
        called_as_macro,
    });
    at
}

/// Reads one tree of a `use` from `at`; returns the index of what ends it.
fn import(tokens: &[Token<'_>], mut at: usize, prefix: &[String], found: &mut Vec<Path>) -> usize {
    let mut segments = prefix.to_vec();
    let line = tokens.get(at).map_or(0, |token| token.line);
    while let Some(token) = tokens.get(at) {
        match token.text {
            ";" | "," | "}" => break,
            "::" => at += 1,
            "as" => at += 2,
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token.text != "}") {
                    at = import(tokens, at, &segments, found);
                    at += usize::from(tokens.get(at).is_some_and(|token| token.text == ","));
                }
                return at + 1;
            }
            name => {
                segments.push(name.to_owned());
                at += 1;
            }
        }
    }
    found.push(Path {
        line,
        segments,
        called_as_macro: false,
    });
    at
}

/// The same text with blanks where comments and the insides of literals were, line for line.
pub fn without_comments_and_literals(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source.chars().peekable();
    let mut before = ' ';
    while let Some(c) = rest.next() {
        match (c, rest.peek().copied()) {
            ('/', Some('/')) => while rest.next_if(|c| *c != '\n').is_some() {},
            ('/', Some('*')) => blank_until(&mut rest, &mut code, 1, "*/"),
            ('r', Some('"' | '#')) if !is_word_character(before) || before == 'b' => {
                blank_raw_string(&mut rest, &mut code);
            }
            ('"', _) => blank_string(&mut rest, &mut code),
            ('\'', Some('\\')) => blank_until(&mut rest, &mut code, 2, "'"),
            ('\'', Some(_)) if rest.clone().nth(1) == Some('\'') => {
                rest.nth(1);
            }
            _ => code.push(c),
        }
        before = c;
    }
    code
}

/// Leaves out `opening` characters, whatever they are, then everything up to `end`.
fn blank_until(rest: &mut Peekable<Chars<'_>>, code: &mut String, opening: usize, end: &str) {
    let skipped: String = rest.by_ref().take(opening).collect();
    let mut seen = String::new();
    while !seen.ends_with(end) {
        let Some(c) = rest.next() else { break };
        seen.push(c);
    }
    code.push(' ');
    code.extend(skipped.chars().chain(seen.chars()).filter(|c| *c == '\n'));
}

fn blank_string(rest: &mut Peekable<Chars<'_>>, code: &mut String) {
    code.push(' ');
    while let Some(c) = rest.next() {
        match c {
            '"' => break,
            '\\' => code.extend(rest.next().filter(|c| *c == '\n')),
            '\n' => code.push('\n'),
            _ => {}
        }
    }
}

/// `r"…"`, `r#"…"#`; also `r#name`, which ends at its first character.
fn blank_raw_string(rest: &mut Peekable<Chars<'_>>, code: &mut String) {
    let mut hashes = String::new();
    while let Some(hash) = rest.next_if_eq(&'#') {
        hashes.push(hash);
    }
    if rest.next_if_eq(&'"').is_some() {
        blank_until(rest, code, 0, &format!("\"{hashes}"));
    }
}

mod tests {
    use super::{paths, without_tests};

    #[track_caller]
    fn check(source: &str, expected: &[&str]) {
        let shown = |path: &super::Path| {
            let bang = if path.called_as_macro { "!" } else { "" };
            format!("{}:{}{bang}", path.line, path.segments.join("::"))
        };
        let found: Vec<String> = paths(source).iter().map(shown).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_imported_group_is_one_path_a_name() {
        check("use crate::{a::b, c as d};", &["1:crate::a::b", "1:crate::c"]);
        check(
            "pub use crate::a::{\n  b,\n  c::{D, E},\n};",
            &["1:pub", "2:crate::a::b", "3:crate::a::c::D", "3:crate::a::c::E"],
        );
        check("use a::*;\nx", &["1:a::*", "2:x"]);
    }

    #[test]
    fn a_path_within_an_expression_is_seen() {
        check(
            "let x = crate::a::f::<T>(y);",
            &["1:let", "1:x", "1:crate::a::f", "1:T", "1:y"],
        );
        check("std::println!(z)", &["1:std::println!", "1:z"]);
    }

    #[test]
    fn comments_and_literals_hold_no_paths() {
        check("// crate::a\n/// crate::b\nx /* crate::c\n */ y", &["3:x", "4:y"]);
        check(
            "f(\"crate::a \\\" \n\", r#\"crate::\"b\"#, '\"', '\\'', b'x') g",
            &["1:f", "2:b", "2:g"],
        );
        check(
            "fn f<'a>(x: &'a str)",
            &["1:fn", "1:f", "1:a", "1:x", "1:a", "1:str"],
        );
    }

    #[test]
    fn only_a_test_module_with_its_body_is_left_out() {
        assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests {\nb\n}\n"), "a\n");
        assert_eq!(
            without_tests("a\n#[cfg(test)]\n#[allow(\n    x,\n)]\nmod tests {\n"),
            "a\n"
        );
        let declared = "#[cfg(test)]\nmod tests;\nfn a() {}\n";
        assert_eq!(without_tests(declared), declared);
    }
}
