//! What a run came to, so that two runs can be compared, and what it must not have touched.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use regex_lite::Regex;
use serde_json::Value;

use crate::world::{SCRIPT, World};

/// The outcome of an undisturbed run, and how long it takes.
pub static UNDISTURBED: LazyLock<(Ending, Duration)> = LazyLock::new(|| {
    let world = World::new(SCRIPT);
    let owner = Owners::of(&world);
    let started = Instant::now();
    let mut ralph = world.go_on();
    let status = ralph.finish();
    let took = started.elapsed();
    assert_eq!(status.code(), Some(0), "{}", ralph.stderr());
    owner.assert_untouched(&world);
    let ending = Ending::of(&world);
    assert_eq!(ending.iterations, [1, 2, 3, 4, 5]);
    (ending, took)
});

/// Everything a run leaves that must not depend on how often it was killed.
#[derive(Debug, PartialEq)]
pub struct Ending {
    iterations: Vec<u64>,
    parts: BTreeMap<String, String>,
}

impl Ending {
    /// Reads it, and makes sure that the run's own accounts agree with each other.
    pub fn of(world: &World) -> Self {
        let journal = fs::read_to_string(world.run_file("journal.jsonl")).unwrap();
        let lines: Vec<Value> = json_lines(&journal);
        json_lines(&fs::read_to_string(world.run_file("events.jsonl")).unwrap());
        let records: Vec<&Value> = lines.iter().filter(|line| line["entry"] == "recorded").collect();
        let seqs = lines.iter().map(|line| line["seq"].as_u64().unwrap());
        assert!(
            seqs.eq(1..=lines.len() as u64),
            "the journal has gaps:\n{journal}"
        );
        assert_eq!(lines.last().unwrap()["outcome"], "done", "{journal}");
        assert_state_ref(world, &journal, records.len());
        let mut parts = BTreeMap::new();
        let branch = "ralph/crash/convert-degrees-correctly";
        let log = ["log", "--format=%T %an <%ae>%n%B", &format!("main..{branch}")];
        parts.insert("branch".to_owned(), world.git(&log));
        for name in ["pull-request.md", "ralph_task.md"] {
            let text = fs::read_to_string(world.run_file(name)).unwrap();
            parts.insert(name.to_owned(), timeless(world, &text));
        }
        for record in &records {
            let name = format!("record {}", record["iteration"]);
            parts.insert(name, same_for_all(record));
        }
        let run_files = world.run_file("ralph");
        for name in files_below(&run_files, &run_files) {
            let text = fs::read_to_string(run_files.join(&name)).unwrap();
            if name == "activity.log" {
                assert_activity(&text, records.len());
            } else {
                // The text of the pull request, in a file of JSON, has its lines escaped.
                let text = text.replace("\\n", "\n");
                parts.insert(format!(".ralph/{name}"), timeless(world, &text));
            }
        }
        let iterations = records.iter().map(|record| record["iteration"].as_u64().unwrap());
        Self {
            iterations: iterations.collect(),
            parts,
        }
    }

    /// The same iterations and the same pull request. Loop scores differ: they start again when a person resumes the run.
    pub fn assert_same_result_as(&self, other: &Self) {
        assert_eq!(self.iterations, other.iterations);
        for name in ["branch", "pull-request.md", "ralph_task.md"] {
            assert_eq!(self.parts[name], other.parts[name], "{name}");
        }
    }

    pub fn assert_same_as(&self, other: &Self) {
        assert_eq!(self.iterations, other.iterations);
        let names = |ending: &Self| ending.parts.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(self), names(other));
        for (name, text) in &self.parts {
            let expected = &other.parts[name];
            assert!(
                text == expected,
                "{name} differs:\n{text}\nundisturbed:\n{expected}"
            );
        }
    }
}

/// What belongs to the repository's owner.
#[derive(Debug, PartialEq)]
pub struct Owners {
    head: String,
    index: Vec<u8>,
    config: String,
    refs: String,
    files: BTreeMap<String, Vec<u8>>,
}

impl Owners {
    pub fn of(world: &World) -> Self {
        let repo = world.repo();
        let read = |name: &str| fs::read_to_string(repo.join(".git").join(name)).unwrap();
        let files = files_below(repo, repo)
            .into_iter()
            .filter(|name| !name.starts_with(".git/"));
        Self {
            head: read("HEAD"),
            index: fs::read(repo.join(".git/index")).unwrap(),
            config: read("config"),
            refs: world.git(&["for-each-ref", "refs/heads/main", "refs/heads/other"]),
            files: files
                .map(|name| (name.clone(), fs::read(repo.join(&name)).unwrap()))
                .collect(),
        }
    }

    /// Nothing of the owner's has changed, nothing is broken, and nothing is left over.
    pub fn assert_untouched(&self, world: &World) {
        self.assert_intact(world);
        let git = world.repo().join(".git");
        let rubbish =
            Regex::new(r"\.lock$|(^|/)tmp_|^fast_import_crash|^info/fast-import/|^worktrees/").unwrap();
        let left = files_below(&git, &git)
            .into_iter()
            .filter(|name| rubbish.is_match(name));
        assert_eq!(left.collect::<Vec<_>>(), [""; 0]);
        assert_eq!(names_in(&world.run_dir().unwrap()), OF_A_RUN);
        assert_eq!(world.processes(), [""; 0]);
    }

    /// Nothing of the owner's has changed and nothing is broken.
    pub fn assert_intact(&self, world: &World) {
        assert_eq!(&Self::of(world), self);
        world.git(&["fsck", "--strict"]);
        let run = world.run_id();
        assert_eq!(
            world.git(&["for-each-ref", "--format=%(refname)"]),
            format!(
                "refs/heads/main\nrefs/heads/other\nrefs/heads/ralph/crash/convert-degrees-correctly\n\
                 refs/notes/ralph-evidence\nrefs/ralph/{run}/base\nrefs/ralph/{run}/state\n"
            )
        );
        let note = world.git(&[
            "notes",
            "--ref=ralph-evidence",
            "show",
            "ralph/crash/convert-degrees-correctly",
        ]);
        assert_eq!(note.lines().count(), 1, "signed once: {note}");
    }
}

/// What the directory of a run that is done holds.
const OF_A_RUN: [&str; 10] = [
    "events.jsonl",
    "journal.jsonl",
    "lock",
    "owner.json",
    "pull-request.md",
    "ralph",
    "ralph_task.md",
    "run.json",
    "seed",
    "written",
];

/// The state ref is the last checkpoint: it says so, and holds the same journal.
fn assert_state_ref(world: &World, journal: &str, iterations: usize) {
    let state = format!("refs/ralph/{}/state", world.run_id());
    let message = world.git(&["log", "-1", "--format=%B", &state]);
    assert!(
        message.contains(&format!("Iteration: {iterations}\n")),
        "{message}"
    );
    let segments = world.git(&["ls-tree", "-r", "--name-only", &state, "journal/"]);
    let saved: String = segments
        .lines()
        .map(|name| world.git(&["show", &format!("{state}:{name}")]))
        .collect();
    assert_eq!(saved, journal);
}

fn assert_activity(text: &str, iterations: usize) {
    let line = Regex::new(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \S").unwrap();
    assert!(
        text.ends_with('\n') && text.lines().all(|one| line.is_match(one)),
        "{text}"
    );
    for number in 1..=iterations {
        assert!(text.contains(&format!("iteration {number} ended")), "{text}");
    }
}

/// A record without what another run of the same script does otherwise: commit ids and durations.
fn same_for_all(record: &Value) -> String {
    let mut record = record.clone();
    for key in ["seq", "at", "monotonic_ms", "tip", "milliseconds"] {
        record.as_object_mut().unwrap().remove(key);
    }
    let checks = record["evidence"].as_array().cloned().unwrap_or_default();
    record["evidence"] = checks.into_iter().map(timeless_check).collect();
    record["tests"] = timeless_check(record["tests"].take());
    format!("{record:#}")
}

fn timeless_check(mut check: Value) -> Value {
    if let Some(fields) = check.as_object_mut() {
        fields.remove("started");
        fields.remove("seconds");
        fields.remove("commit");
    }
    check
}

/// A text without what another run of the same script does otherwise: names, ids, durations, and what was spent.
fn timeless(world: &World, text: &str) -> String {
    static VARIES: LazyLock<[Regex; 9]> = LazyLock::new(|| {
        [
            r#""(?:milliseconds|seconds|unpriced_calls_total)": ?[0-9.]+|"started": ?"[-0-9TZ:.]+""#,
            "[0-9a-f]{64}|[0-9a-f]{40}",
            "after [0-9.]+ s",
            "(?:Minutes left|Cost|Tokens): [$0-9.]+",
            "[0-9]+ tokens, cost [^ ]+",
            r"`[0-9a-f]{12}` \| [0-9.]+ s",
            r"In all: \S+ Per ticked checkbox: \S+",
            r"[0-9]+ tokens\.",
            r"(?m)\| (?:\$[0-9.]+|unknown) \|$",
        ]
        .map(|pattern| Regex::new(pattern).unwrap())
    });
    let text = text.replace(world.path().to_str().unwrap(), "<world>");
    let text = text.replace(&world.run_id(), "<run>");
    // Only a run that was stopped says so.
    let text = text.replace(
        "<details>\n<summary>Steered by people</summary>\n\n- After iteration 2, a person: stop\n\n</details>\n\n",
        "",
    );
    VARIES.iter().fold(text, |text, varies| {
        varies.replace_all(&text, "<varies>").into_owned()
    })
}

fn json_lines(text: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(parse).collect()
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The files below a directory, relative to `root`.
fn files_below(root: &Path, dir: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for name in names_in(dir) {
        let path = dir.join(name);
        if path.is_dir() {
            files.extend(files_below(root, &path));
        } else {
            files.push(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
        }
    }
    files
}
