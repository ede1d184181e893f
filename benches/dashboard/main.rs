//! What the dashboard costs in a real browser: pages of many runs and iterations, and a log that grows. `benches/run dashboard` runs
//! it.
#![expect(clippy::print_stdout, reason = "the figures are the output")]
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    reason = "nothing here is called by others, and the peer is a page"
)]

#[path = "../loop/figure.rs"]
#[allow(dead_code, reason = "the loop needs more of it")]
mod figure;
mod log;
#[path = "../service/many_runs.rs"]
#[allow(dead_code, reason = "the service needs more of it")]
mod many_runs;
mod pages;

use std::error::Error;

use figure::results::{Results, Tool};
use support::browser::{Browser, Dashboard};

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Fallible<()> {
    let mut results = Results::begin("dashboard", &[Tool::named("chromium")]);
    let place = many_runs::make_runs()?;
    let browser = Browser::start()?;
    let mut dashboard = Dashboard::start(&place);
    dashboard.log_in(&browser);
    results.report(pages::measure(&browser, &dashboard)?)?;
    results.report(log::measure(&browser, &mut dashboard, &place)?)?;
    Ok(())
}
