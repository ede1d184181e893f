//! The overview of 10,000 runs, and the page of a run with 5,000 iterations.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use support::browser::{Browser, Dashboard};

use super::Fallible;
use super::figure::{Figure, MEDIAN, P95, Samples, Target, quick};
use super::many_runs::{ITERATIONS, LONGEST};

/// How often each page is asked for, and how often it is opened.
const REQUESTS: usize = 50;
const VISITS: usize = 10;

pub(crate) fn measure(browser: &Browser, dashboard: &Dashboard) -> Fallible<Vec<Figure>> {
    let names = ["overview-answer-p95", "overview-size", "overview-interactive-p95"];
    let mut figures = page(browser, dashboard, "/", "Say hello", names)?;
    let names = ["run-answer-p95", "run-size", "run-interactive-p95"];
    let path = format!("/runs/{LONGEST}");
    figures.extend(page(browser, dashboard, &path, &ITERATIONS.to_string(), names)?);
    Ok(figures)
}

fn page(
    browser: &Browser,
    dashboard: &Dashboard,
    path: &str,
    said: &str,
    names: [&'static str; 3],
) -> Fallible<Vec<Figure>> {
    browser.open(&dashboard.url(path));
    let mut answers = Vec::new();
    let mut text = String::new();
    for _ in 0..quick::rounds(REQUESTS) {
        let answer = browser.eval_later(&format!(
            "const done = arguments[0], began = performance.now(); fetch('{path}').then((a) => a.text()).then((text) => \
             done([performance.now() - began, text]))"
        ));
        answers.push(number(&answer[0])?);
        answer[1].as_str().ok_or("no text")?.clone_into(&mut text);
    }
    if !text.contains(said) || text.contains("A part of this page is missing") {
        return Err(format!("{path} is another page: {text}").into());
    }
    let mut visits = Vec::new();
    for _ in 0..quick::rounds(VISITS) {
        browser.open(&dashboard.url(path));
        let loaded =
            browser.eval("return performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd");
        visits.push(number(&loaded)?);
    }
    let (answers, visits): (Samples, Samples) = (answers.into_iter().collect(), visits.into_iter().collect());
    println!(
        "{path}: answer, ms: {answers}; interactive, ms: {visits}; {} bytes",
        text.len()
    );
    let figure = |name, unit, at, ours, most| Figure {
        name,
        unit,
        at,
        ours,
        peer: None,
        target: Target::Most(most),
    };
    let [answer, size, interactive] = names;
    let size_of_page = Samples::one(gzipped_kilobytes(&text)?);
    Ok(vec![
        figure(answer, "ms", P95, answers, 50.0),
        figure(size, "KB", MEDIAN, size_of_page, 150.0),
        figure(interactive, "ms", P95, visits, 500.0),
    ])
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn gzipped_kilobytes(text: &str) -> Fallible<f64> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(text.as_bytes())?;
    Ok(gzip.finish()?.len() as f64 / 1000.0)
}

/// A number that a script returned.
pub(crate) fn number(value: &Value) -> Fallible<f64> {
    Ok(value.as_f64().ok_or_else(|| format!("not a number: {value}"))?)
}
