//! What must hold when a round is over, whatever happened in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ralph::engine::Engine;
use regex_lite::Regex;
use serde_json::Value;

use crate::desk::Desk;
use crate::fault::Fault;
use crate::support::engine::docker;
use crate::support::ralph::{commit, doing, ending, process_ids_of, processes_of, run, script, write};

/// How long the parts of a sandbox may outlive its run.
const SOON: Duration = Duration::from_secs(15);

/// Four iterations, each with a commit of its own. The number of the run is in all of them: runs that work at the same time would
/// otherwise make the same commits.
pub fn steps(run_number: usize) -> Value {
    let step = |number: u32| {
        doing([
            run("sleep 0.3"),
            write("a.txt", &format!("hello {number} {run_number}\n")),
            commit(&format!("Step {number}")),
        ])
    };
    let last = ending([write("b.txt", "hello\n"), commit("Step 4")]);
    script([step(1), step(2), step(3), last])
}

/// The run has the result of [`steps`] without a fault: nothing is lost, and nothing is there twice. But a command whose processes were
/// killed in the sandbox has failed: the agent received the failure, and the scripted one does not repeat it.
pub fn assert_undisturbed(desk: &Desk, run: &str, fault: Fault) {
    let journal = desk.journal(run);
    let shown: Vec<String> = journal.iter().map(in_short).collect();
    let shown = format!("{run}:\n{}", shown.join("\n"));
    assert_eq!(desk.recorded(run), [1, 2, 3, 4], "iterations of {shown}");
    // A run that was paused by a fault has ended before.
    let done = journal.iter().filter(|line| line["outcome"] == "done").count();
    let last = &journal.last().unwrap()["outcome"];
    assert!(done == 1 && last == "done", "the end of {shown}");
    let seqs = journal.iter().map(|line| line["seq"].as_u64().unwrap());
    assert!(seqs.eq(1..=journal.len() as u64), "gaps in {shown}");
    let branch = desk.branch(run);
    let subjects = desk.subjects(run);
    let failed = if fault == Fault::KillInside {
        failed_steps(desk, run)
    } else {
        BTreeSet::new()
    };
    let mut expected = ["Step 4", "Step 3", "Step 2", "Step 1"]
        .map(str::to_owned)
        .to_vec();
    expected.retain(|step| !failed.contains(step) || subjects.contains(step));
    assert_eq!(subjects, expected, "{run}");
    let files = desk.place.git(&["ls-tree", "--name-only", &branch]);
    assert_eq!(files, "README.md\na.txt\nb.txt\ntest.sh\n", "{run}");
    let text = desk.place.git(&["show", &format!("{branch}:a.txt")]);
    let last_text = subjects[1].replace("Step", "hello");
    assert!(text.starts_with(&format!("{last_text} ")), "{run}: {text}");
    let note = desk
        .place
        .git(&["notes", "--ref=ralph-evidence", "show", &branch]);
    let parse = |line| serde_json::from_str::<Value>(line).unwrap()["signatures"][0]["keyid"].to_string();
    let keys: Vec<String> = note.lines().map(parse).collect();
    // A host that goes on with a run that another one has signed already signs it too.
    let once: BTreeSet<&String> = keys.iter().collect();
    assert!(
        !keys.is_empty() && once.len() == keys.len(),
        "evidence of {run}: {keys:?}"
    );
}

/// The steps of which an action failed, on any host.
fn failed_steps(desk: &Desk, run: &str) -> BTreeSet<String> {
    let logs =
        ["user", "first", "second"].map(|host| desk.home(host).join("runs").join(run).join("events.jsonl"));
    let text: String = logs
        .iter()
        .filter_map(|log| fs::read_to_string(log).ok())
        .collect();
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| event["event"] == "action" && !event["failed"].is_null())
        .map(|event| format!("Step {}", event["iteration"]))
        .collect()
}

/// A line of the journal, for people.
fn in_short(line: &Value) -> String {
    let keys = ["seq", "at", "entry", "iteration", "owner", "outcome", "reason"];
    let fields = keys.map(|key| line.get(key).map(ToString::to_string).unwrap_or_default());
    fields.join(" ")
}

/// The repository has the refs of these runs and nothing else that ralph made, and it is whole.
pub fn assert_repository(desk: &Desk, runs: &[String]) {
    let mut expected = vec![
        "refs/heads/main".to_owned(),
        "refs/notes/ralph-evidence".to_owned(),
    ];
    for run in runs {
        expected.push(format!("refs/heads/{}", desk.branch(run)));
        expected.push(format!("refs/ralph/{run}/base"));
        expected.push(format!("refs/ralph/{run}/state"));
    }
    expected.sort();
    let refs = desk.place.git(&["for-each-ref", "--format=%(refname)"]);
    let mut refs: Vec<&str> = refs.lines().collect();
    refs.sort_unstable();
    assert_eq!(refs, expected);
    desk.place.git(&["fsck", "--strict"]);
    let rubbish = Regex::new(r"\.lock$|(^|/)tmp_|^fast_import_crash|^worktrees/").unwrap();
    let git = desk.place.repo().join(".git");
    let left: Vec<PathBuf> = files_below(&git)
        .into_iter()
        .filter(|path| rubbish.is_match(&path.strip_prefix(&git).unwrap().to_string_lossy()))
        .collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}

/// Nothing of this desk is left but what lives on purpose: these processes and this socket.
pub fn assert_nothing_left(desk: &Desk, pids: &[u32], sockets: &[&Path], engine: Option<&Engine>) {
    let place = desk.place.path();
    let strangers = || {
        let ids = process_ids_of(place);
        let is_known = |id: &String| pids.iter().any(|pid| pid.to_string() == *id);
        ids.iter().filter(|id| !is_known(id)).count()
    };
    assert!(soon(|| strangers() == 0), "processes: {:#?}", processes_of(place));
    if let Some(engine) = engine {
        let left = || engine_traces(engine);
        assert!(soon(|| left().is_empty()), "on the engine: {:#?}", left());
    }
    let of_sandboxes = || {
        let homes = ["user", "first", "second"].map(|host| desk.home(host).join("sandboxes"));
        homes.iter().flat_map(|dir| entries(dir)).collect::<Vec<_>>()
    };
    assert!(soon(|| of_sandboxes().is_empty()), "{:#?}", of_sandboxes());
    assert_eq!(entries(&temporary_dir(desk)), Vec::<PathBuf>::new());
    let known: Vec<String> = sockets.iter().map(|path| path.display().to_string()).collect();
    let bound = || {
        bound_sockets(place)
            .into_iter()
            .filter(|path| !known.contains(path))
            .collect::<Vec<_>>()
    };
    assert!(soon(|| bound().is_empty()), "sockets: {:#?}", bound());
}

/// Where processes of this desk have their temporary files.
pub fn temporary_dir(desk: &Desk) -> PathBuf {
    desk.place.path().join("tmp")
}

/// Everything that an engine of the soak's own could be left with.
fn engine_traces(engine: &Engine) -> Vec<String> {
    let containers = docker(
        engine,
        &["ps", "--all", "--format", "container {{.Names}} {{.Status}}"],
    );
    let volumes = docker(engine, &["volume", "ls", "--format", "volume {{.Name}}"]);
    let networks = docker(
        engine,
        &[
            "network",
            "ls",
            "--filter",
            "type=custom",
            "--format",
            "network {{.Name}}",
        ],
    );
    let lines = [containers, volumes, networks].concat();
    lines.lines().map(str::to_owned).collect()
}

/// The socket files below a directory that a process has open.
fn bound_sockets(dir: &Path) -> Vec<String> {
    let dir = dir.display().to_string();
    let table = fs::read_to_string("/proc/net/unix").unwrap();
    let paths = table.lines().filter_map(|line| line.split_whitespace().nth(7));
    paths
        .filter(|path| path.starts_with(&dir))
        .map(str::to_owned)
        .collect()
}

fn soon(holds: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    while !holds() {
        if started.elapsed() > SOON {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let below = |path: PathBuf| {
        if path.is_dir() {
            files_below(&path)
        } else {
            vec![path]
        }
    };
    entries(dir).into_iter().flat_map(below).collect()
}
