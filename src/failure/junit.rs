//! Failing tests in `JUnit` XML reports.

use std::collections::BTreeSet;

/// The test cases of a printed report that have a failure or an error.
#[expect(clippy::unnecessary_wraps, reason = "a report lists nothing but tests")]
pub(super) fn failing_tests(lines: &[&str]) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    if !lines.iter().any(|line| line.contains("<testsuite")) {
        return Some(names);
    }
    let report = lines.join("\n");
    let mut test = None;
    for tag in tags(&report) {
        let name = tag.split(|c: char| c.is_whitespace() || c == '/').next();
        match name.unwrap_or_default() {
            "testcase" => test = Some(test_name(tag)),
            "failure" | "error" => names.extend(test.take()),
            // "/testcase"
            "" if tag.starts_with("/testcase") => test = None,
            _ => {}
        }
    }
    Some(names)
}

/// The insides of the tags of an XML text, without comments and character data.
fn tags(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            rest = &rest[rest.find('<')? + 1..];
            let end = match rest {
                _ if rest.starts_with("![CDATA[") => "]]>",
                _ if rest.starts_with("!--") => "-->",
                _ => {
                    let (tag, after) = rest.split_at(tag_end(rest)?);
                    rest = after;
                    return Some(tag);
                }
            };
            rest = &rest[rest.find(end)?..];
        }
    })
}

/// Where the tag at the start of a text ends. Values in quotes may contain `>`.
fn tag_end(text: &str) -> Option<usize> {
    let mut quote = None;
    text.bytes().position(|byte| {
        match (quote, byte) {
            (None, b'>') => return true,
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
        false
    })
}

fn test_name(tag: &str) -> String {
    let class = attribute(tag, " classname=").or_else(|| attribute(tag, " file="));
    let name = attribute(tag, " name=").unwrap_or_default();
    format!("{}.{name}", class.unwrap_or_default())
}

fn attribute<'a>(tag: &'a str, key: &str) -> Option<&'a str> {
    let value = &tag[tag.find(key)? + key.len()..];
    let quote = value.chars().next().filter(|quote| ['"', '\''].contains(quote))?;
    value[1..].split(quote).next()
}
