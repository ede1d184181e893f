//! How many writes 50 runs make at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use support::fake_github::Recorded;
use support::ralph::{commit, doing, ending, script, write};

use super::Fallible;
use super::figure::{Figure, MEDIAN, Samples, Target, quick};
use super::stage::{REPO, Stage, figure_of, let_work, most_in_a_minute, specification};

const RUNS: usize = 50;
/// Long enough for the writes of an hour, a second apart; and long enough for some minutes.
const TIME: Duration = Duration::from_secs(540);
const QUICK_TIME: Duration = Duration::from_secs(70);

pub(crate) fn measure() -> Fallible<Vec<Figure>> {
    let time = quick::pick(TIME, QUICK_TIME);
    let stage = Stage::set_up();
    for number in 1..=RUNS {
        stage.open_issue(number, &specification(number, 0), &["status:ready"]);
    }
    let answers = script([
        doing([write("a.txt", "hello\n"), commit("Write a.txt")]),
        ending([write("b.txt", "hello\n"), commit("Write b.txt")]),
    ]);
    let mut poller = stage.poll(&answers, &["--max-parallel", &RUNS.to_string()])?;
    let_work(&mut poller, time)?;
    let requests = stage.requests();
    // It is killed: to give up its claims it would have to wait for the limit of the hour.
    drop(poller);
    let mut times: Vec<Instant> = requests
        .iter()
        .filter(|request| is_write(request))
        .map(|request| request.began)
        .collect();
    times.sort();
    describe(&stage, &requests, time);
    let done = done_issues(&stage);
    if done < RUNS && !quick::is_quick() {
        return Err(format!("{done} of {RUNS} issues are done after {} s", time.as_secs()).into());
    }
    let figure = |name, ours, target| Figure {
        name,
        unit: "",
        at: MEDIAN,
        ours: Samples::one(figure_of(ours)),
        peer: None,
        target: Target::Most(target),
    };
    let refused = requests
        .iter()
        .filter(|request| [403, 429].contains(&request.status));
    let mut figures = vec![
        figure("50-runs-writes-minute", most_in_a_minute(&times), 60.0),
        figure("50-runs-limits-hit", refused.count(), 0.0),
    ];
    if !quick::is_quick() {
        figures.push(figure("50-runs-writes-hour", times.len(), 400.0));
    }
    Ok(figures)
}

/// What GitHub counts as a write of an account: every call but those that only read, and pushes.
fn is_write(request: &Recorded) -> bool {
    let only_reads = ["GET", "HEAD"].contains(&request.method.as_str());
    !only_reads && !request.path.ends_with("/git-upload-pack")
}

fn done_issues(stage: &Stage) -> usize {
    let is_done = |number: &usize| {
        let labels = stage.github.labels(REPO, *number as u64);
        labels.iter().any(|label| label == "status:done")
    };
    (1..=RUNS).filter(is_done).count()
}

fn describe(stage: &Stage, requests: &[Recorded], time: Duration) {
    let writes: Vec<&Recorded> = requests.iter().filter(|request| is_write(request)).collect();
    let span = match (writes.first(), writes.last()) {
        (Some(first), Some(last)) => last.began.saturating_duration_since(first.began),
        _ => Duration::ZERO,
    };
    let counted = requests.iter().filter(|request| request.counted).count();
    println!(
        "{RUNS} runs: {} s; {} writes within {} s; {} requests in all, {counted} of them counted; {} issues done, {} pull requests",
        time.as_secs(),
        writes.len(),
        span.as_secs(),
        requests.len(),
        done_issues(stage),
        stage.github.pulls(REPO).len(),
    );
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for write in writes {
        *kinds.entry(kind(write)).or_default() += 1;
    }
    for (kind, count) in kinds {
        println!("  {count:4} {kind}");
    }
}

/// The call without the numbers and names in it.
fn kind(request: &Recorded) -> String {
    let path = request.path.trim_start_matches('/').trim_start_matches("repos/");
    let path = path
        .trim_start_matches(REPO)
        .split('?')
        .next()
        .unwrap_or_default();
    let words = path.split('/').map(|word| {
        if word.bytes().any(|byte| byte.is_ascii_digit()) || word.contains(':') {
            "N"
        } else {
            word
        }
    });
    format!("{} {}", request.method, words.collect::<Vec<_>>().join("/"))
}
