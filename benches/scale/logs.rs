//! The log of a run over the API of a real `ralph serve`: events by page and from the beginning, the end of the log and a search.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;
use support::ralph::{Place, script, whole_task};

use super::Fallible;
use super::figure::curve::Curve;
use super::figure::{Samples, quick};
use super::many_runs::{ManyRuns, copy_run};

const EVENTS: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
const QUICK_EVENTS: [u64; 3] = [1_000, 10_000, 100_000];
/// In bytes.
const LOGS: [u64; 4] = [1_000_000, 10_000_000, 100_000_000, 1_000_000_000];
const QUICK_LOGS: [u64; 3] = [1_000_000, 10_000_000, 100_000_000];
/// Requests of what does not depend on the size, and of what does.
const REQUESTS: usize = 30;
const LONG_REQUESTS: usize = 3;

/// A run and its log.
struct LoggedRun {
    id: String,
    log: PathBuf,
}

pub(crate) async fn measure() -> Fallible<Vec<Curve>> {
    let place = Place::new();
    place.run_script(&script([whole_task()])).expect(0, &[]);
    let example = place.run_dir();
    let events = new_run(&example, "rscaleevents", 1)?;
    let log = new_run(&example, "rscalelog", 2)?;
    let service = ManyRuns::over(place)?;
    let client = reqwest::Client::new();
    let mut curves = of_events(&service, &client, &events).await?;
    curves.extend(of_bytes(&service, &client, &log).await?);
    Ok(curves)
}

fn new_run(example: &Path, id: &str, number: usize) -> Fallible<LoggedRun> {
    let dir = example.parent().ok_or("the run has no parent")?.join(id);
    copy_run(example, &dir, number)?;
    Ok(LoggedRun {
        id: id.to_owned(),
        log: dir.join("events.jsonl"),
    })
}

async fn of_events(service: &ManyRuns, client: &reqwest::Client, run: &LoggedRun) -> Fallible<Vec<Curve>> {
    let axis = "events of the run";
    let what = "The newest event by `GET /api/runs/{run}/events`, as a client asks that follows.";
    let mut newest = Curve::new("events-newest", axis, what, "ms");
    let what = "All events by the same operation, page by page, as a client asks that was away.";
    let mut all = Curve::new("events-all", axis, what, "ms");
    for size in quick::pick(&EVENTS[..], &QUICK_EVENTS[..]) {
        let line = write_log(run, "one line of the output of a command", *size)?;
        let before_last = line * (size - 1);
        let path = format!("/api/runs/{}/events", run.id);
        let page = format!("{path}?after={before_last}");
        newest.add(
            *size,
            times(service, client, &page, quick::rounds(REQUESTS)).await?,
        );
        let mut samples = Vec::new();
        for _ in 0..quick::rounds(LONG_REQUESTS) {
            let began = Instant::now();
            let (mut after, mut found) = (0, 0);
            while after < line * size {
                let page = service.get(client, &format!("{path}?after={after}")).await?;
                found += page["events"].as_array().map_or(0, Vec::len);
                after = page["next"].as_u64().ok_or("the page has no next one")?;
            }
            samples.push(began.elapsed());
            if found as u64 != *size {
                return Err(format!("{found} events instead of {size}").into());
            }
        }
        all.add(*size, Samples::milliseconds(samples));
    }
    Ok(vec![newest, all])
}

async fn of_bytes(service: &ManyRuns, client: &reqwest::Client, run: &LoggedRun) -> Fallible<Vec<Curve>> {
    let axis = "bytes of the log";
    let what = "The last 500 lines by `GET /api/runs/{run}/log`.";
    let mut tail = Curve::new("log-tail", axis, what, "ms");
    let what = "A text that no line has, by the same operation: the whole log is read.";
    let mut search = Curve::new("log-search", axis, what, "ms");
    for size in quick::pick(&LOGS[..], &QUICK_LOGS[..]) {
        let text = "x".repeat(900);
        let line = write_log(run, &text, 1)?;
        write_log(run, &text, size / line)?;
        let bytes = std::fs::metadata(&run.log)?.len();
        let path = format!("/api/runs/{}/log?limit=500", run.id);
        tail.add(
            bytes,
            times(service, client, &path, quick::rounds(REQUESTS)).await?,
        );
        let path = format!("{path}&search=no+such+text");
        search.add(
            bytes,
            times(service, client, &path, quick::rounds(LONG_REQUESTS)).await?,
        );
    }
    Ok(vec![tail, search])
}

async fn times(service: &ManyRuns, client: &reqwest::Client, path: &str, rounds: usize) -> Fallible<Samples> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let began = Instant::now();
        service.get(client, path).await?;
        times.push(began.elapsed());
    }
    Ok(Samples::milliseconds(times))
}

/// Writes a log of so many equal events. Returns the length of one line in bytes.
fn write_log(run: &LoggedRun, text: &str, events: u64) -> Fallible<u64> {
    let event = json!({"at": "2026-01-01T00:00:00Z", "run": run.id, "event": "output", "text": text});
    let line = event.to_string() + "\n";
    let mut file = BufWriter::new(File::create(&run.log)?);
    for _ in 0..events {
        file.write_all(line.as_bytes())?;
    }
    file.flush()?;
    Ok(line.len() as u64)
}
