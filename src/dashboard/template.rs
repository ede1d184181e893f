//! Pages from templates. All values are escaped.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use jiff::Timestamp;
use minijinja::{Environment, Value};
use serde::Serialize;

use crate::api::page_templates;
use crate::text::{cut_middle, error_chain, url_part};

use super::assets;
use super::client::PageError;

/// What pages may load and send: only from and to this service, and nothing inline.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                                       img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// How many characters of a reason the overview shows.
const LONGEST_REASON: usize = 120;

macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../templates/dashboard/", $name)))),*]
    };
}

const TEMPLATES: &[(&str, &str)] = &templates![
    "compare.html",
    "credentials.html",
    "diagnosis.html",
    "diff.html",
    "diff_files.html",
    "error.html",
    "images.html",
    "iteration.html",
    "iterations.html",
    "layout.html",
    "log.html",
    "log_lines.html",
    "login.html",
    "network.html",
    "new.html",
    "notes.html",
    "overview.html",
    "pull_request.html",
    "run.html",
    "run_layout.html",
    "sandbox.html",
    "settings.html",
    "task.html",
    "workers.html",
];

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut templates = page_templates();
    templates.add_filter("short_time", short_time);
    templates.add_filter("clock_time", clock_time);
    templates.add_filter("truncate_text", truncate_text);
    templates.add_filter("duration", duration);
    templates.add_filter("dollars", dollars);
    templates.add_filter("percent", percent);
    templates.add_filter("count", count);
    templates.add_filter("mebibytes", mebibytes);
    templates.add_filter("encoded", url_part);
    templates.add_function("asset", assets::address);
    for (name, text) in TEMPLATES {
        if let Err(error) = templates.add_template(name, text) {
            tracing::error!(name, error = %error_chain(&error), "a template of the dashboard is not valid");
        }
    }
    templates
});

/// A page, by its template and values.
pub(super) struct Page {
    template: &'static str,
    values: BTreeMap<&'static str, Value>,
}

impl Page {
    pub(super) fn new(template: &'static str, title: &str) -> Self {
        let values = BTreeMap::from([
            ("title", Value::from(title)),
            ("session", Value::from(())),
            ("version", Value::from(env!("CARGO_PKG_VERSION"))),
        ]);
        Self { template, values }
    }

    #[must_use]
    pub(super) fn with(mut self, name: &'static str, value: impl Serialize) -> Self {
        self.values.insert(name, Value::from_serialize(value));
        self
    }

    /// Adds markup that our own code made.
    #[must_use]
    pub(super) fn with_markup(mut self, name: &'static str, markup: String) -> Self {
        self.values.insert(name, Value::from_safe_string(markup));
        self
    }

    pub(super) fn render(&self) -> Result<String, PageError> {
        let rendered = ENVIRONMENT
            .get_template(self.template)
            .and_then(|template| template.render(&self.values));
        rendered.map_err(|error| {
            tracing::error!(template = self.template, error = %error_chain(&error), "cannot render a page");
            PageError::internal("the page cannot be rendered")
        })
    }

    pub(super) fn respond(&self) -> Result<Response, PageError> {
        let mut response = Html(self.render()?).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(CONTENT_SECURITY_POLICY),
        );
        headers.insert(
            HeaderName::from_static("cross-origin-opener-policy"),
            HeaderValue::from_static("same-origin"),
        );
        Ok(response)
    }
}

/// `2026-01-02T03:04:05.678Z` as `2026-01-02 03:04:05`.
fn short_time(time: &str) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => time.to_owned(),
    }
}

/// The same as `03:04:05`.
fn clock_time(time: &str) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => time.strftime("%H:%M:%S").to_string(),
        Err(_) => time.to_owned(),
    }
}

/// The beginning and the end of a long text.
fn truncate_text(text: &str) -> String {
    cut_middle(text, LONGEST_REASON).into_owned()
}

/// Seconds as `1 h 02 min`, `3 min 04 s` or `5.6 s`.
fn duration(seconds: f64) -> String {
    let total = std::time::Duration::from_secs_f64(seconds.max(0.0)).as_secs();
    match total {
        3600.. => format!("{} h {:02} min", total / 3600, total / 60 % 60),
        60.. => format!("{} min {:02} s", total / 60, total % 60),
        _ => format!("{seconds:.1} s"),
    }
}

fn dollars(dollars: f64) -> String {
    if dollars > 0.0 && dollars < 0.01 {
        return format!("${dollars:.4}");
    }
    format!("${dollars:.2}")
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// A number with thousands apart.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes as mebibytes.
fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", count(bytes >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_is_valid() {
        for (name, _) in TEMPLATES {
            ENVIRONMENT.get_template(name).unwrap();
        }
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [1.25, 61.0, 3725.0].map(duration),
            ["1.2 s", "1 min 01 s", "1 h 02 min"]
        );
        assert_eq!([0.0, 0.004, 1.5].map(dollars), ["$0.00", "$0.0040", "$1.50"]);
    }
}
