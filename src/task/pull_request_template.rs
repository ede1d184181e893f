//! A template of a pull request: the filters, and how values are printed.

use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};
use serde::Serialize;

use super::inert_markdown::{cell, fence, prose};
use super::pull_request::PullRequestTemplateError;
use crate::text::{code_span, counted, first_bytes};

/// What a template is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TemplateUse {
    /// A title: plain text.
    Title,
    /// A body, in which each value has at most so many bytes before it is escaped.
    Body {
        /// The limit. It does not hold for the filter `fence`.
        longest: usize,
    },
}

/// A template of a pull request. In a body every value is printed without effect, unless a filter made it Markdown.
pub(super) struct PullRequestTemplate<'a> {
    environment: Environment<'static>,
    name: &'a str,
    source: &'a str,
}

impl<'a> PullRequestTemplate<'a> {
    pub(super) fn new(name: &'a str, source: &'a str, purpose: TemplateUse) -> Self {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.add_filter("counted", |count: u64, noun: String| counted(count, &noun));
        let longest = match purpose {
            TemplateUse::Title => usize::MAX,
            TemplateUse::Body { longest } => {
                environment.set_formatter(move |out, _, value| Ok(out.write_str(&inert(value, longest))?));
                longest
            }
        };
        environment.add_filter("code", move |text: String| {
            markdown(&code_span(&clipped(&text, longest)))
        });
        environment.add_filter("cell", move |value: Value| {
            if value.is_undefined() {
                return Err(Error::from(ErrorKind::UndefinedError));
            }
            Ok(markdown(&cell(&inert(&value, longest))))
        });
        environment.add_filter("fence", |text: String| markdown(&fence(&text)));
        environment.add_filter("more", |count: u64, noun: String, run: String| {
            markdown(&more(count, &noun, &run))
        });
        Self {
            environment,
            name,
            source,
        }
    }

    pub(super) fn render(&self, values: impl Serialize) -> Result<String, PullRequestTemplateError> {
        self.environment
            .render_named_str(self.name, self.source, values)
            .map_err(|source| PullRequestTemplateError {
                template: self.name.to_owned(),
                line: source.line(),
                source,
            })
    }
}

/// What a reader does about rows that are left out; empty if none are.
fn more(count: u64, noun: &str, run: &str) -> String {
    if count == 0 {
        return String::new();
    }
    format!("{}\n\n", left_out(&counted(count, &format!("more {noun}")), run))
}

/// Says that something is left out, and where it is.
pub(super) fn left_out(what: &str, run: &str) -> String {
    let status = code_span(&format!("ralph status {run}"));
    format!(
        "{what} left out here: {status} shows the run, and `journal.jsonl` in its directory has everything."
    )
}

/// A value as Markdown without effect.
fn inert(value: &Value, longest: usize) -> String {
    match value.as_str() {
        Some(markdown) if value.is_safe() => markdown.to_owned(),
        Some(text) => prose(&clipped(text, longest)),
        None if value.is_number() || value.is_none() => value.to_string(),
        None => prose(&clipped(&value.to_string(), longest)),
    }
}

/// Text that is Markdown already.
fn markdown(text: &str) -> Value {
    Value::from_safe_string(text.to_owned())
}

/// The beginning of a text, if it is too long.
fn clipped(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    format!("{}...", first_bytes(text, longest))
}
