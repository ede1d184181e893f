//! A real `ralph serve` over many runs, made by the example of one real run.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use support::ralph::{Place, eventually, script, whole_task};

use super::Fallible;

/// The number of runs.
pub(crate) const RUNS: usize = 10_000;
/// The number of iterations of the longest one.
pub(crate) const ITERATIONS: u64 = 5_000;
/// The length of its log, in bytes.
pub(crate) const LOG_BYTES: u64 = 100 * 1024 * 1024;

/// The id of the longest one.
pub(crate) const LONGEST: &str = "rbench05000";

/// A service over the runs of a place; ended when dropped.
pub(crate) struct ManyRuns {
    pub(crate) place: Place,
    child: Child,
    pub(crate) address: String,
    pub(crate) token: String,
    /// The run with the long journal and the long log.
    pub(crate) longest: String,
}

impl Drop for ManyRuns {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ManyRuns {
    pub(crate) fn start() -> Fallible<Self> {
        Self::over(make_runs()?)
    }

    /// A service over the runs of this place.
    pub(crate) fn over(place: Place) -> Fallible<Self> {
        let ended = place.run(&["api-token", "create", "bench", "--scope", "admin"]);
        let token = ended.expect(0, &[]).stdout.trim().to_owned();
        let (child, address) = serve(&place)?;
        Ok(Self {
            place,
            child,
            address,
            token,
            longest: LONGEST.to_owned(),
        })
    }

    /// The log of the longest run.
    pub(crate) fn log(&self) -> PathBuf {
        self.place
            .home()
            .join("runs")
            .join(&self.longest)
            .join("events.jsonl")
    }

    /// Memory of the service that is in use, in bytes.
    pub(crate) fn resident(&self) -> Fallible<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB"));
        Ok(kilobytes.ok_or("no VmRSS")?.trim().parse::<u64>()? * 1024)
    }

    /// Processor time that the service used so far.
    pub(crate) fn processor_time(&self) -> Fallible<Duration> {
        processor_time(&format!("/proc/{}/stat", self.child.id()))
    }

    /// A request of a script.
    pub(crate) async fn get(&self, client: &reqwest::Client, path: &str) -> Fallible<Value> {
        let answer = client
            .get(format!("http://{}{path}", self.address))
            .bearer_auth(&self.token);
        Ok(serde_json::from_str(
            &answer.send().await?.error_for_status()?.text().await?,
        )?)
    }
}

/// A place with that many runs.
pub(crate) fn make_runs() -> Fallible<Place> {
    let place = Place::new();
    place.run_script(&script([whole_task()])).expect(0, &[]);
    let example = place.run_dir();
    let runs = example.parent().ok_or("the run has no parent")?.to_owned();
    for number in 1..RUNS {
        copy_run(&example, &runs.join(format!("rbench{number:05}")), number)?;
    }
    let longest = runs.join(LONGEST);
    lengthen_journal(&longest.join("journal.jsonl"))?;
    lengthen_log(&longest.join("events.jsonl"))?;
    Ok(place)
}

/// User and system time of a process, which the kernel counts in hundredths of a second.
pub(crate) fn processor_time(stat: &str) -> Fallible<Duration> {
    let text = fs::read_to_string(stat)?;
    let (_, fields) = text.rsplit_once(") ").ok_or("another form of /proc/PID/stat")?;
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 10))
}

fn serve(place: &Place) -> Fallible<(Child, String)> {
    let said = place.path().join("serve.log");
    let mut child = place
        .ralph(&["serve", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::null())
        .stderr(File::create(&said)?)
        .spawn()?;
    let mut text = String::new();
    eventually("the service listens", || {
        text = fs::read_to_string(&said).unwrap_or_default();
        text.contains("Serving the API on ") || !matches!(child.try_wait(), Ok(None))
    });
    let (_, address) = text.split_once("Serving the API on ").ok_or(text.clone())?;
    let address = address.lines().next().unwrap_or_default();
    let address = address.trim().trim_end_matches('.').trim_start_matches("http://");
    Ok((child, address.to_owned()))
}

/// Makes a run by the example of another one, without its log.
pub(crate) fn copy_run(example: &Path, dir: &Path, number: usize) -> Fallible<()> {
    fs::create_dir(dir)?;
    let mut facts: Value = serde_json::from_slice(&fs::read(example.join("run.json"))?)?;
    facts["id"] = json!(dir.file_name().and_then(|name| name.to_str()));
    let created = Timestamp::from_second(1_760_000_000 + i64::try_from(number)?)?;
    facts["created"] = json!(created.to_string());
    fs::write(dir.join("run.json"), facts.to_string())?;
    fs::copy(example.join("journal.jsonl"), dir.join("journal.jsonl"))?;
    fs::write(dir.join("lock"), "")?;
    Ok(())
}

/// Repeats the recorded iteration of a journal.
fn lengthen_journal(journal: &Path) -> Fallible<()> {
    let text = fs::read_to_string(journal)?;
    let mut lines = Vec::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line)?;
        let is_record = line["entry"] == "recorded";
        for iteration in 1..=if is_record { ITERATIONS } else { 1 } {
            let mut line = line.clone();
            if is_record {
                line["iteration"] = json!(iteration);
            }
            line["seq"] = json!(lines.len() + 1);
            lines.push(line.to_string());
        }
    }
    Ok(fs::write(journal, lines.join("\n") + "\n")?)
}

fn lengthen_log(log: &Path) -> Fallible<()> {
    let mut file = BufWriter::new(File::create(log)?);
    let line = json!({"event": "output", "text": "x".repeat(1000)}).to_string() + "\n";
    for _ in 0..LOG_BYTES / line.len() as u64 {
        file.write_all(line.as_bytes())?;
    }
    Ok(file.flush()?)
}
