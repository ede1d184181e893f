//! YAML as a tree in which every value has its line.
//!
//! `serde` stops at the first error, but the linter reports all of them. And text that looks like a number (a branch
//! called `1.10`) has to stay text.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput};

use super::error::{LintRule, TaskError};

/// One value with its position; line and column count from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct YamlNode {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) value: YamlValue,
}

/// A YAML value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum YamlValue {
    Null,
    /// Unquoted: text, a number or a boolean; the reader decides.
    Plain(String),
    /// Quoted or a block: text.
    Quoted(String),
    Sequence(Vec<YamlNode>),
    Mapping(Vec<YamlEntry>),
}

/// One `key: value`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct YamlEntry {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) node: YamlNode,
}

/// Parses a document that is one mapping. An empty document is an empty mapping.
pub(super) fn parse_mapping(text: &str) -> Result<Vec<YamlEntry>, TaskError> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
    };
    loop {
        match reader.next()? {
            (Event::StreamStart | Event::DocumentStart(_), _) => {}
            (Event::StreamEnd | Event::DocumentEnd, _) => return Ok(Vec::new()),
            (event, span) => {
                let node = reader.node(event, span, 0)?;
                return match node.value {
                    YamlValue::Mapping(entries) => Ok(entries),
                    YamlValue::Null => Ok(Vec::new()),
                    _ => Err(problem(span.start, "expected lines of the form `key: value`")),
                };
            }
        }
    }
}

/// Maximum nesting. The keys of a task file are less deep.
const DEEPEST: usize = 8;

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), TaskError> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(problem(*error.marker(), error.info())),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<YamlNode, TaskError> {
        if depth > DEEPEST {
            return Err(problem(span.start, "nested too deeply"));
        }
        let value = match event {
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                return Err(problem(span.start, "tags (`!name`) are not supported"));
            }
            Event::Scalar(text, ScalarStyle::Plain, ..) if matches!(&*text, "" | "~" | "null") => {
                YamlValue::Null
            }
            Event::Scalar(text, ScalarStyle::Plain, ..) => YamlValue::Plain(text.into_owned()),
            Event::Scalar(text, ..) => YamlValue::Quoted(text.into_owned()),
            Event::SequenceStart(..) => YamlValue::Sequence(self.items(depth)?),
            Event::MappingStart(..) => YamlValue::Mapping(self.entries(depth)?),
            Event::Alias(_) => return Err(problem(span.start, "aliases (`*name`) are not supported")),
            _ => return Err(problem(span.start, "expected a value")),
        };
        Ok(YamlNode {
            line: span.start.line(),
            column: span.start.col() + 1,
            value,
        })
    }

    fn items(&mut self, depth: usize) -> Result<Vec<YamlNode>, TaskError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn entries(&mut self, depth: usize) -> Result<Vec<YamlEntry>, TaskError> {
        let mut entries = Vec::new();
        loop {
            let (key, line) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(entries),
                (Event::Scalar(key, ..), span) => (key.into_owned(), span.start.line()),
                (_, span) => return Err(problem(span.start, "expected a key")),
            };
            let (event, span) = self.next()?;
            let node = self.node(event, span, depth + 1)?;
            entries.push(YamlEntry { key, line, node });
        }
    }
}

fn problem(at: Marker, problem: &str) -> TaskError {
    TaskError::new(
        at.line(),
        LintRule::Frontmatter,
        format!(
            "the frontmatter is not valid YAML: {problem} (column {})",
            at.col() + 1
        ),
        "fix the YAML; put text with `: `, `#` or quotes in quotes",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_nesting_is_refused() {
        for text in ["[".repeat(100_000), "- ".repeat(10_000), "{a: ".repeat(10_000)] {
            let error = parse_mapping(&format!("---\na:\n  {text}\n")).unwrap_err();
            assert_eq!(error.line, Some(3), "{error}");
        }
    }

    #[test]
    fn nothing_is_an_empty_mapping() {
        for text in ["", "---\n", "---\n# a comment\n", "---\n~\n"] {
            assert_eq!(parse_mapping(text), Ok(Vec::new()), "{text:?}");
        }
    }
}
