//! A log that grows while a page shows it, beside a page that appends every line, as other dashboards do.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;
use support::browser::{Browser, Dashboard};
use support::ralph::Place;

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::pages::number;

/// How many lines are written at once.
const LINES: usize = 100_000;
/// How many lines a second are written for minutes.
const RATE: u32 = 200;
/// How long the page may take to show the last line.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The run whose log is written to.
const RUN: &str = "rbench00001";

/// What a page uses.
struct PageUse {
    /// How long its main thread has worked, in seconds.
    busy: f64,
    nodes: f64,
    /// Memory of scripts after a garbage collection, in megabytes.
    heap: f64,
    /// Elements and texts that are in memory, also those that are not in the page.
    in_memory: f64,
}

impl PageUse {
    fn now(browser: &Browser) -> Fallible<Self> {
        browser.devtools("HeapProfiler.collectGarbage", &json!({}));
        let metrics = browser.devtools("Performance.getMetrics", &json!({}));
        let metrics = metrics["metrics"].as_array().cloned().unwrap_or_default();
        let value = |name: &str| {
            let found = metrics.iter().find(|one| one["name"] == name);
            number(&found.ok_or_else(|| format!("there is no {name}"))?["value"])
        };
        Ok(Self {
            busy: value("TaskDuration")?,
            nodes: number(&browser.eval("return document.getElementsByTagName('*').length"))?,
            heap: value("JSHeapUsedSize")? / 1_000_000.0,
            in_memory: value("Nodes")?,
        })
    }
}

pub(crate) fn measure(browser: &Browser, dashboard: &mut Dashboard, place: &Place) -> Fallible<Vec<Figure>> {
    let mut log = RunLog::open(place)?;
    browser.devtools("Performance.enable", &json!({}));
    browser.open(&dashboard.url(&format!("/runs/{RUN}/log?kinds=output")));
    wait_for_line(browser, &log.write(1)?)?;
    let (busy, ours) = many_lines(browser, &mut log)?;
    println!(
        "our page: busy {busy:.2} s, {} elements, {:.1} MB",
        ours.nodes, ours.heap
    );
    let (heap_growth, node_growth) = steady_lines(browser, &mut log)?;
    let reconnected = reconnect(browser, dashboard, place, &mut log)?;
    let (peer_busy, peer) = appending_page(browser, dashboard, &mut log)?;
    println!(
        "page that appends: busy {peer_busy:.2} s, {} elements, {:.1} MB",
        peer.nodes, peer.heap
    );
    let figure = |name, unit, ours, peer: Option<f64>, most| Figure {
        name,
        unit,
        at: MEDIAN,
        ours: Samples::one(ours),
        peer: peer.map(|value| PeerSamples::new("a page that appends", &Samples::one(value))),
        target: Target::Most(most),
    };
    Ok(vec![
        figure("log-100000-busy", "s", busy, Some(peer_busy), 1.0),
        figure("log-100000-nodes", "", ours.nodes, Some(peer.nodes), 6_000.0),
        figure("log-100000-heap", "MB", ours.heap, Some(peer.heap), 60.0),
        figure("log-heap-growth", "MB", heap_growth, None, 5.0),
        figure("log-node-growth", "", node_growth, None, 1_000.0),
        figure("reconnect", "s", reconnected, None, 2.0),
    ])
}

/// Writes many lines at once. Returns how long the main thread worked for them, and what the page uses then.
fn many_lines(browser: &Browser, log: &mut RunLog) -> Fallible<(f64, PageUse)> {
    let before = PageUse::now(browser)?;
    let last = log.write(LINES)?;
    wait_for_line(browser, &last)?;
    let after = PageUse::now(browser)?;
    Ok((after.busy - before.busy, after))
}

/// Writes lines for minutes. Returns how much more the page uses at the end than after the first tenth: memory in megabytes, and
/// elements.
fn steady_lines(browser: &Browser, log: &mut RunLog) -> Fallible<(f64, f64)> {
    let usual = quick::pick(10, 0);
    let minutes: u32 = std::env::var("RALPH_BENCH_MINUTES").map_or(Ok(usual), |text| text.parse())?;
    // Of the ten parts, in seconds.
    let each = (minutes * 6).max(1);
    let (mut heaps, mut nodes) = (Vec::new(), Vec::new());
    for _tenth in 0..10 {
        let began = Instant::now();
        for second in 1..=each {
            log.write(RATE as usize)?;
            std::thread::sleep(Duration::from_secs(second.into()).saturating_sub(began.elapsed()));
        }
        wait_for_line(browser, &log.write(1)?)?;
        let page = PageUse::now(browser)?;
        heaps.push(page.heap);
        nodes.push(page.in_memory);
    }
    println!(
        "memory over {} s at {RATE} lines a second, MB: {heaps:.1?}",
        each * 10
    );
    println!("elements and texts in memory: {nodes:.0?}");
    let growth = |values: &[f64]| match values {
        [first, .., last] => last - first,
        _ => 0.0,
    };
    Ok((growth(&heaps), growth(&nodes)))
}

/// The time from when the service listens again until the page shows a line that was written meanwhile, in seconds.
fn reconnect(browser: &Browser, dashboard: &mut Dashboard, place: &Place, log: &mut RunLog) -> Fallible<f64> {
    dashboard.end();
    browser.wait_for_text("#connection", "not connected");
    let last = log.write(1)?;
    *dashboard = Dashboard::start_on(place, &dashboard.address);
    let began = Instant::now();
    wait_for_line(browser, &last)?;
    Ok(began.elapsed().as_secs_f64())
}

/// The same lines in a page that keeps an element for each event.
fn appending_page(browser: &Browser, dashboard: &Dashboard, log: &mut RunLog) -> Fallible<(f64, PageUse)> {
    browser.open(&dashboard.url("/settings"));
    browser.eval(&format!(
        "document.body.innerHTML = '<ol id=\"log\"></ol>'; const list = document.getElementById('log'); \
         const socket = new WebSocket(`ws://${{location.host}}/api/events`); \
         socket.onopen = () => socket.send(JSON.stringify({{subscribe: '{RUN}'}})); \
         socket.onmessage = (message) => {{ const event = JSON.parse(message.data).event; if (!event) {{ window.isReady = true; return; }} \
           const item = document.createElement('li'); item.textContent = event.text; list.append(item); }};"
    ));
    let began = Instant::now();
    while browser.eval("return window.isReady === true") != true {
        if began.elapsed() > TIMEOUT {
            return Err("the page that appends gets no events".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    many_lines(browser, log)
}

/// Waits until the page shows a line. The look itself costs the page little.
fn wait_for_line(browser: &Browser, said: &str) -> Fallible<()> {
    let began = Instant::now();
    let look = format!(
        "return document.getElementById('log')?.lastElementChild?.textContent.includes('{said}') === true"
    );
    while browser.eval(&look) != true {
        if began.elapsed() > TIMEOUT {
            return Err(format!("the page does not show `{said}`").into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// The log of a run, written to as its runner does.
struct RunLog {
    file: BufWriter<File>,
    written: usize,
}

impl RunLog {
    fn open(place: &Place) -> Fallible<Self> {
        let path: PathBuf = place.home().join("runs").join(RUN).join("events.jsonl");
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self {
            file: BufWriter::new(file),
            written: 0,
        })
    }

    /// Writes lines of output. Returns the text of the last one.
    fn write(&mut self, lines: usize) -> Fallible<String> {
        for _ in 0..lines {
            self.written += 1;
            let text = format!(
                "line {} of the output of a command that prints much",
                self.written
            );
            let event = json!({"at": "2026-01-01T00:00:00Z", "run": RUN, "event": "output", "text": text});
            writeln!(self.file, "{event}")?;
        }
        self.file.flush()?;
        Ok(format!("line {} of", self.written))
    }
}
