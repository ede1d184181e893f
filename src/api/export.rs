//! A run as one HTML file, for people who have no access to the service.
//!
//! The file has no script and loads nothing, which its own content security policy enforces. Known secrets are removed before
//! the values are escaped, so that none hides behind an escape.

use std::sync::{Arc, LazyLock};

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde_json::{Value, json};

use crate::assembly::{DiffRange, RunControl, RunStatus};
use crate::digest::Digest;
use crate::secret::Redactor;
use crate::state::{JournalLine, RunDir, standing_records};
use crate::text::visible;

use super::extract::NamedRun;
use super::iterations::IterationSummary;
use super::log::newest_lines;
use super::problem::Problem;
use super::runs::{blocking, newest_evidence};
use super::{Api, Caller};

/// The content type of an exported run.
pub(super) const HTML: &str = "text/html; charset=utf-8";

/// How much of the changes the file shows, in bytes.
const DIFF_SHOWN: usize = 1024 * 1024;

/// How many lines of the log the file shows.
const LINES_SHOWN: usize = 3000;

/// How much of each run file the file shows, in bytes.
const FILE_SHOWN: u64 = 256 * 1024;

/// The run files that the file shows.
const FILES: [(&str, &str); 5] = [
    ("Task", "ralph_task.md"),
    ("Guardrails", ".ralph/guardrails.md"),
    ("Notes", ".ralph/notes.md"),
    ("Progress", ".ralph/progress.md"),
    ("Diagnosis", ".ralph/diagnostics.md"),
];

const TEMPLATE: &str = include_str!("../../templates/dashboard/export.html");
const STYLE: &str = include_str!("../../templates/dashboard/export.css");

/// Allows the one style of the file, by its hash, and nothing else.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = Digest::sha256(STYLE.as_bytes());
    let hash = base64::engine::general_purpose::STANDARD.encode(hash.as_bytes());
    format!("default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'")
});

/// The run as a file to keep.
pub(super) async fn export(
    State(api): State<Arc<Api>>,
    caller: Caller,
    NamedRun(run): NamedRun,
) -> Result<Response, Problem> {
    let control = api.control(&caller);
    let redactor = control.redactor(&run).await?;
    let diff = control
        .diff_within(&run, DiffRange::Whole, false, DIFF_SHOWN, &redactor)
        .await?;
    let (bytes, text) = diff.map_or((0, String::new()), |diff| (diff.bytes, diff.text));
    let (id, journals) = (run.facts().id.clone(), api.index.journals());
    let exported = api.surroundings.now().to_string();
    let html = blocking(move || {
        let mut values = journals.read(&run, |lines| contents(&run, lines, &redactor))??;
        values["exported"] = exported.into();
        values["diff"] = diff_lines(&text);
        values["diff_is_cut"] = (bytes > DIFF_SHOWN as u64).into();
        let values = redactor.redact_json(values).map_err(|error| unrendered(&error))?;
        render(&values).map_err(|error| unrendered(&error))
    })
    .await?;
    let headers = [
        (header::CONTENT_TYPE, HTML.to_owned()),
        (header::CONTENT_SECURITY_POLICY, format!("{}; sandbox", *POLICY)),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"ralph-{id}.html\""),
        ),
    ];
    Ok((headers, html).into_response())
}

fn unrendered(error: &dyn std::error::Error) -> Problem {
    Problem::internal(format!("the run cannot be exported: {error}"))
}

/// What the file shows, besides the changes.
fn contents(run: &RunDir, lines: &[JournalLine], redactor: &Redactor) -> Result<Value, Problem> {
    let unreadable = |error: std::io::Error| unrendered(&error);
    let iterations = standing_records(lines).into_iter().map(IterationSummary::new);
    let mut files = Vec::new();
    let present = RunControl::files(run)?;
    for (title, path) in FILES {
        if present.iter().any(|file| file == path) {
            let file = RunControl::file(run, path, FILE_SHOWN)?.redacted(redactor);
            files.push(json!({"title": title, "text": file.text, "is_cut": file.is_cut}));
        }
    }
    let log = newest_lines(run, LINES_SHOWN).map_err(unreadable)?;
    Ok(json!({
        "run": RunStatus::with_journal(run, lines)?,
        "iterations": iterations.collect::<Vec<_>>(),
        "evidence": newest_evidence(lines),
        "files": files,
        "network": RunControl::network_use(run)?,
        "log": log,
    }))
}

/// The lines of a diff, each with what it is.
fn diff_lines(text: &str) -> Value {
    let line = |line: &str| {
        let kind = match line.as_bytes().first() {
            _ if line.starts_with("diff --git ") => "file",
            _ if line.starts_with("+++ ") || line.starts_with("--- ") => "note",
            Some(b'+') => "added",
            Some(b'-') => "removed",
            Some(b'@') => "note",
            _ => "same",
        };
        json!({"kind": kind, "text": visible(line)})
    };
    text.lines().map(line).collect()
}

/// An environment for pages: what is filled in is escaped, and a value that is missing is an error.
pub(crate) fn page_templates() -> Environment<'static> {
    let mut templates = Environment::new();
    templates.set_undefined_behavior(UndefinedBehavior::Strict);
    templates.set_auto_escape_callback(|_| AutoEscape::Html);
    templates.set_trim_blocks(true);
    templates.set_lstrip_blocks(true);
    templates
}

fn render(values: &Value) -> Result<String, minijinja::Error> {
    static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
        let mut templates = page_templates();
        templates.add_global("style", minijinja::Value::from_safe_string(STYLE.to_owned()));
        templates.add_global("policy", POLICY.as_str());
        templates
    });
    ENVIRONMENT.render_named_str("export.html", TEMPLATE, values)
}
