//! Keeps the samples of a benchmark as JSON in the file `RALPH_BENCH_JSON`, with when and where they were taken.
//! docs/benchmarks.md and its plots are made from such files; `tests/tidy/benchmarks.rs` reads them.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::curve::Curve;
use super::quick;
use super::{Figure, MEDIAN, Samples, Target};

/// The most samples of one side that are kept. Of more, every n-th is kept; the percentiles are those of all.
const MOST_SAMPLES: usize = 1000;

/// The same for one point of a curve.
const MOST_POINT_SAMPLES: usize = 50;

/// A program that is compared with, or works for both sides, and the command that prints its version.
pub(crate) struct Tool {
    name: &'static str,
    command: Vec<String>,
}

impl Tool {
    /// A program on the PATH that knows `--version`.
    pub(crate) fn named(name: &'static str) -> Self {
        Self::at(name, Path::new(name))
    }

    /// A program elsewhere that knows `--version`.
    pub(crate) fn at(name: &'static str, path: &Path) -> Self {
        Self {
            name,
            command: vec![path.to_string_lossy().into_owned(), "--version".to_owned()],
        }
    }

    /// The container engine, not its command line.
    pub(crate) fn docker() -> Self {
        Self::by("docker", ["docker", "version", "--format", "{{.Server.Version}}"])
    }

    /// A program whose version this command prints.
    pub(crate) fn by<S: Into<String>>(name: &'static str, command: impl IntoIterator<Item = S>) -> Self {
        let command = command.into_iter().map(Into::into).collect();
        Self { name, command }
    }
}

/// The results of one benchmark, from its start.
pub(crate) struct Results {
    file: Option<PathBuf>,
    /// What is the same for all figures.
    circumstances: Map<String, Value>,
    figures: Vec<Value>,
    curves: Vec<Value>,
}

impl Results {
    /// Notes the circumstances, before anything is measured, and prints the load.
    pub(crate) fn begin(bench: &str, tools: &[Tool]) -> Self {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        if !load.is_empty() {
            println!("load of the host before: {}", load.trim());
        }
        let file = variable("RALPH_BENCH_JSON").map(PathBuf::from);
        // Asking all programs for their versions takes a moment.
        let circumstances = match file {
            Some(_) => circumstances(bench, &load, tools),
            None => Map::new(),
        };
        Self {
            file,
            circumstances,
            figures: Vec::new(),
            curves: Vec::new(),
        }
    }

    /// Prints figures and keeps their samples. The file is written each time, so that a benchmark that fails later has kept
    /// what it measured before.
    pub(crate) fn report(&mut self, figures: impl IntoIterator<Item = Figure>) -> io::Result<()> {
        for figure in figures {
            println!("{figure}");
            self.figures.push(record(&figure));
        }
        self.write()
    }

    /// The same for curves.
    pub(crate) fn report_curves(&mut self, curves: impl IntoIterator<Item = Curve>) -> io::Result<()> {
        for curve in curves {
            println!("{curve}");
            self.curves.push(record_curve(&curve));
        }
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        match &self.file {
            Some(file) => std::fs::write(file, self.text()),
            None => Ok(()),
        }
    }

    /// The document: one line for each figure and each curve, so that people can read the rest.
    fn text(&self) -> String {
        let head = self.circumstances.iter();
        let mut parts: Vec<String> = head
            .map(|(name, value)| format!("  {}: {value}", json!(name)))
            .collect();
        parts.push(list("figures", &self.figures));
        if !self.curves.is_empty() {
            parts.push(list("curves", &self.curves));
        }
        format!("{{\n{}\n}}\n", parts.join(",\n"))
    }
}

fn list(name: &str, records: &[Value]) -> String {
    let records: Vec<String> = records.iter().map(|one| format!("    {one}")).collect();
    format!("  \"{name}\": [\n{}\n  ]", records.join(",\n"))
}

/// What the names of figures end in, if the same benchmark is run in several ways.
pub(crate) fn suffix() -> String {
    variable("RALPH_BENCH_SUFFIX").unwrap_or_default()
}

fn circumstances(bench: &str, load: &str, tools: &[Tool]) -> Map<String, Value> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processor = field(&read("/proc/cpuinfo"), "model name").unwrap_or_default();
    let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
    let kilobytes: f64 = memory.trim_end_matches(" kB").parse().unwrap_or(0.0);
    let load: Option<f64> = load.split(' ').next().and_then(|one| one.parse().ok());
    let versions = tools
        .iter()
        .filter_map(|tool| Some((tool.name.to_owned(), json!(version(first_line(&tool.command)?)))));
    let noted = json!({
        "bench": format!("{bench}{}", suffix()),
        "date": jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
        "commit": commit(),
        "quick": quick::is_quick(),
        "optimized": !cfg!(debug_assertions),
        "processor": processor,
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "memory_gb": (kilobytes * 1.024 / 1e5).round() / 10.0,
        "load_before": load,
        "versions": versions.collect::<Map<_, _>>(),
    });
    match noted {
        Value::Object(noted) => noted,
        _ => Map::new(),
    }
}

/// The commit that is measured. Results do not make it dirty: the benchmark before has just written its own.
fn commit() -> Option<String> {
    let describe = ["git", "describe", "--always", "--abbrev=12", "--exclude=*"];
    let changes = [
        "git",
        "status",
        "--porcelain",
        "--",
        ":(top)",
        ":(top,exclude)benches/results",
    ];
    let commit = first_line(&describe.map(str::to_owned))?;
    let is_dirty = first_line(&changes.map(str::to_owned)).is_some();
    Some(if is_dirty {
        format!("{commit}-dirty")
    } else {
        commit
    })
}

fn record(figure: &Figure) -> Value {
    let (kind, most) = match figure.target {
        Target::Ratio(most) => ("ratio", most),
        Target::Most(most) => ("most", most),
    };
    let mut peer = Value::Null;
    if let Some(side) = &figure.peer {
        peer = samples(&side.samples, figure.at, MOST_SAMPLES);
        peer["name"] = json!(side.name);
    }
    json!({
        "name": format!("{}{}", figure.name, suffix()),
        "unit": figure.unit,
        "percentile": (figure.at * 100.0).round(),
        "target": { kind: most },
        "met": figure.is_reached(),
        "ours": samples(&figure.ours, figure.at, MOST_SAMPLES),
        "peer": peer,
    })
}

fn record_curve(curve: &Curve) -> Value {
    let points = curve.points.iter().map(|point| {
        let mut record = samples(&point.samples, MEDIAN, MOST_POINT_SAMPLES);
        record["size"] = json!(point.size);
        record
    });
    let law = curve.fit();
    json!({
        "name": format!("{}{}", curve.name, suffix()),
        "axis": curve.axis,
        "what": curve.what,
        "unit": curve.unit,
        "exponent": law.as_ref().map(|law| rounded(law.exponent)),
        "r_squared": law.as_ref().map(|law| rounded(law.r_squared)),
        "points": points.collect::<Vec<_>>(),
    })
}

fn samples(all: &Samples, at: f64, most: usize) -> Value {
    let every = all.0.len().div_ceil(most).max(1);
    let kept: Vec<f64> = all.0.iter().step_by(every).copied().map(rounded).collect();
    json!({
        "value": rounded(all.quantile(at)),
        "count": all.0.len(),
        "p5": rounded(all.quantile(0.05)),
        "p50": rounded(all.median()),
        "p95": rounded(all.p95()),
        "samples": kept,
    })
}

/// Five significant digits: more than any clock is good for.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The first word of a line that begins with a digit: `git version 2.47.3` is 2.47.3.
fn version(line: String) -> String {
    let words = line.split([' ', '(', ')', ',']);
    let number = words
        .map(|word| word.trim_start_matches('v'))
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    number.map(str::to_owned).unwrap_or(line)
}

/// The first line that a command prints and that is not empty; `None` if it is not there or fails.
#[expect(clippy::disallowed_methods, reason = "the peers are programs")]
fn first_line(command: &[String]) -> Option<String> {
    let output = std::process::Command::new(command.first()?)
        .args(&command[1..])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    output.status.success().then(|| line.to_owned())
}

#[expect(clippy::disallowed_methods, reason = "benches/run sets it")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
