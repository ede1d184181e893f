//! YAML as a tree in which every value knows its line.
//!
//! `serde` stops at the first thing it does not like; a task file is to be told everything that is wrong with it at
//! once, and text that looks like a number (a branch called `1.10`) is to stay text where text is expected.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput};

use super::error::TaskError;

/// One value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

/// What a value is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    /// Not quoted: text, or a number, or a truth value, as the reader likes.
    Plain(String),
    /// Quoted, or a block: text.
    Quoted(String),
    Sequence(Vec<Node>),
    Mapping(Vec<Entry>),
}

/// One `key: value`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) node: Node,
}

/// Reads a document that is one mapping; an empty one is an empty mapping.
pub(super) fn parse_mapping(text: &str) -> Result<Vec<Entry>, TaskError> {
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
                    Value::Mapping(entries) => Ok(entries),
                    Value::Null => Ok(Vec::new()),
                    _ => Err(problem(span.start, "expected lines of the form `key: value`")),
                };
            }
        }
    }
}

/// Deeper than any key of a task file lies.
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

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, TaskError> {
        if depth > DEEPEST {
            return Err(problem(span.start, "it is nested too deep"));
        }
        let value = match event {
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                return Err(problem(span.start, "tags (`!name`) are not supported"));
            }
            Event::Scalar(text, ScalarStyle::Plain, ..) if matches!(&*text, "" | "~" | "null") => Value::Null,
            Event::Scalar(text, ScalarStyle::Plain, ..) => Value::Plain(text.into_owned()),
            Event::Scalar(text, ..) => Value::Quoted(text.into_owned()),
            Event::SequenceStart(..) => Value::Sequence(self.items(depth)?),
            Event::MappingStart(..) => Value::Mapping(self.entries(depth)?),
            Event::Alias(_) => return Err(problem(span.start, "aliases (`*name`) are not supported")),
            _ => return Err(problem(span.start, "expected a value")),
        };
        Ok(Node {
            line: span.start.line(),
            value,
        })
    }

    fn items(&mut self, depth: usize) -> Result<Vec<Node>, TaskError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn entries(&mut self, depth: usize) -> Result<Vec<Entry>, TaskError> {
        let mut entries = Vec::new();
        loop {
            let (key, line) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(entries),
                (Event::Scalar(key, ..), span) => (key.into_owned(), span.start.line()),
                (_, span) => return Err(problem(span.start, "expected a key")),
            };
            let (event, span) = self.next()?;
            let node = self.node(event, span, depth + 1)?;
            entries.push(Entry { key, line, node });
        }
    }
}

fn problem(at: Marker, problem: &str) -> TaskError {
    TaskError::Yaml {
        line: at.line(),
        column: at.col() + 1,
        problem: problem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_nesting_is_refused() {
        for text in ["[".repeat(100_000), "- ".repeat(10_000), "{a: ".repeat(10_000)] {
            let error = parse_mapping(&format!("---\na:\n  {text}\n")).unwrap_err();
            assert_eq!(error.line(), 3, "{error}");
        }
    }

    #[test]
    fn nothing_is_an_empty_mapping() {
        for text in ["", "---\n", "---\n# a comment\n", "---\n~\n"] {
            assert_eq!(parse_mapping(text), Ok(Vec::new()), "{text:?}");
        }
    }
}
