//! What a poller asks of GitHub while there is nothing to do.

use std::time::{Duration, Instant};

use serde_json::json;

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::stage::{Stage, figure_of, let_work, most_in_a_minute, specification, wait_for};

const ISSUES: usize = 100;
/// A full page of issues, and the one after it, which is empty.
const PAGES: usize = 2;
const TIME: Duration = Duration::from_secs(180);
const QUICK_TIME: Duration = Duration::from_secs(70);
/// How often it looks at them in that time, at least.
const LOOKS: usize = 5;
const QUICK_LOOKS: usize = 2;

/// With the interval of half a minute. None of the issues is ready: they are new, done, or need a person.
pub(crate) fn measure() -> Fallible<Vec<Figure>> {
    let time = quick::pick(TIME, QUICK_TIME);
    let stage = Stage::set_up();
    let labels: [&[&str]; 3] = [&[], &["status:done"], &["status:needs-attention"]];
    for number in 1..=ISSUES {
        stage.open_issue(number, &specification(number, 0), labels[number % labels.len()]);
    }
    let mut poller = stage.poll(&json!({"iterations": []}), &["--interval", "30"])?;
    // The first look has ended when the second one begins: it also reads the claims and the pull requests.
    wait_for(&mut poller, || stage.looks(PAGES).len() > 1)?;
    let at_first = stage.requests().len();
    let_work(&mut poller, time)?;
    drop(poller);
    let requests = stage.requests();
    let (first, later) = requests.split_at(at_first);
    let looks = stage.looks(PAGES).len();
    if looks < quick::pick(LOOKS, QUICK_LOOKS) {
        return Err(format!("only {looks} looks at the issues in {} s", time.as_secs()).into());
    }
    let counted: Vec<Instant> = later
        .iter()
        .filter(|request| request.counted)
        .map(|request| request.began)
        .collect();
    let all: Vec<Instant> = later.iter().map(|request| request.began).collect();
    for request in later.iter().filter(|request| request.counted) {
        println!(
            "  counted: {} {} {}",
            request.method, request.path, request.status
        );
    }
    println!(
        "idle: {} s with {ISSUES} issues: {} requests after the first look, {} of them counted; {} in the first look",
        time.as_secs(),
        later.len(),
        counted.len(),
        first.len()
    );
    Ok(vec![Figure {
        name: "idle-counted-requests-minute",
        unit: "",
        at: MEDIAN,
        ours: Samples::one(figure_of(most_in_a_minute(&counted))),
        // Without the tags, all of them would count.
        peer: Some(PeerSamples::new(
            "all requests",
            &Samples::one(figure_of(most_in_a_minute(&all))),
        )),
        target: Target::Most(2.0),
    }])
}
