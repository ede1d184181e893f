//! What the program costs: starting it, and the memory it holds while it runs.

use std::path::Path;
use std::time::{Duration, Instant};

use ralph::exec::{Command, Discard};
use serde_json::json;

use super::Fallible;
use super::figure::{Figure, MEDIAN, P95, PeerSamples, Samples, Target, quick};
use super::stage::{self, Stage};

const RALPH: &str = env!("CARGO_BIN_EXE_ralph");
const STARTS: usize = 50;
const ITERATIONS: u32 = 30;
const QUICK_ITERATIONS: u32 = 10;

pub(crate) async fn start_up(stage: &Stage) -> Fallible<Vec<Figure>> {
    let (mut ours, mut git) = (Vec::new(), Vec::new());
    for _ in 0..quick::rounds(STARTS) {
        ours.push(time_version(stage, RALPH).await?);
        git.push(time_version(stage, "git").await?);
    }
    let (ours, git) = (Samples::milliseconds(ours), Samples::milliseconds(git));
    println!("--version, ms: ralph {ours}; git {git}");
    Ok(vec![Figure {
        name: "version",
        unit: "ms",
        at: MEDIAN,
        ours,
        peer: Some(PeerSamples::new("git --version", &git)),
        target: Target::Most(10.0),
    }])
}

async fn time_version(stage: &Stage, program: &str) -> Fallible<Duration> {
    let command = Command::new(program).arg("--version");
    let started = Instant::now();
    stage.host.run(&command, &mut Discard).await?;
    Ok(started.elapsed())
}

/// Each iteration of a real `ralph run` writes down how much memory its parent, which is ralph, holds.
pub(crate) async fn memory(stage: &Stage, repository: &Path) -> Fallible<Vec<Figure>> {
    let iterations = quick::pick(ITERATIONS, QUICK_ITERATIONS);
    let kept = stage.path("resident");
    let look = format!(
        "grep VmRSS /proc/$PPID/status >> {}; date +%s%N > {}",
        kept.display(),
        stage::file_name(0)
    );
    let answer = json!({
        "summary": "Look",
        "actions": [{"type": "run", "command": look}, {"type": "commit", "message": "Look"}],
    });
    let call = json!({"answer": answer, "tokens": stage::TOKENS, "cost_usd": 0});
    let script = stage.path("script.json");
    std::fs::write(
        &script,
        json!({"iterations": [[call]], "then": "repeat"}).to_string(),
    )?;
    std::fs::write(repository.join("ralph_task.md"), stage::task(iterations))?;
    let run = Command::new(RALPH)
        .args([
            "run", "--type", "local", "--agent", "actions", "--json", "--script",
        ])
        .arg(script.to_string_lossy())
        .args([
            "--set",
            "sandbox.network.policy=allow-all",
            "--set",
            "forge.type=local",
        ])
        .env("RALPH_HOME", stage.path("home").to_string_lossy())
        .cwd(repository);
    let exit = stage.host.run(&run, &mut Discard).await?;
    let noted = std::fs::read_to_string(&kept).unwrap_or_default();
    let sizes: Samples = noted.lines().filter_map(megabytes).collect();
    if noted.lines().count() != iterations as usize {
        return Err(format!("`ralph run` did not run to its end: {}", exit.stderr.text()).into());
    }
    println!("resident, MB: {sizes}");
    Ok(vec![Figure {
        name: "run-resident",
        unit: "MB",
        at: P95,
        ours: sizes,
        peer: None,
        target: Target::Most(50.0),
    }])
}

/// Reads a line of `/proc/<pid>/status`: `VmRSS: 12345 kB`.
pub(crate) fn megabytes(line: &str) -> Option<f64> {
    let kilobytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes / 1024.0)
}
