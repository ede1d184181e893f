//! Verdicts: scripted histories, each with the right verdict, played through the real loop.
//!
//! Every `*.yaml` beside this file is one history and one test case; adding one is adding a file. What a file can say
//! is in [`history`]. The loop, git, the sandbox and the forge are the real ones; only the model's answers are
//! scripted. A wrong verdict is reported with what was expected and with what happened, iteration by iteration.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests read the environment and panic"
)]

mod agreement;
mod check;
mod ci;
mod expected;
mod history;
mod settings;
mod stage;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use history::History;

/// The complaints about comparable tools that must have a history each: false "stuck" verdicts (1), runaway loops (2),
/// exit 0 taken for done (7), rate limits that burn iterations (8), a finished command that hangs (9).
const COMPLAINTS: [u8; 5] = [1, 2, 7, 8, 9];

/// Some histories do little but wait, so more of them at once than there are processors.
const THREADS: usize = 6;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let histories = files("");
    let mut trials: Vec<Trial> = histories
        .iter()
        .cloned()
        .map(|file| Trial::test(name(&file), move || play(&file)))
        .collect();
    trials.push(Trial::test("every complaint has a history", every_complaint));
    for file in files("wrong") {
        let name = format!("a wrong verdict is noticed: {}", name(&file));
        trials.push(Trial::test(name, move || noticed(&file)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The histories in a directory below this one, by name.
fn files(below: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/verdicts")
        .join(below);
    let entries = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no histories in {}", dir.display());
    files
}

fn name(file: &Path) -> String {
    file.file_stem().unwrap().to_string_lossy().replace('_', " ")
}

fn read(file: &Path) -> Result<History, Failed> {
    let text = fs::read_to_string(file)?;
    History::parse(&text).map_err(|error| Failed::from(format!("{}: {error}", file.display())))
}

/// Plays a history, act by act, and compares each with what the file expects.
fn wrong_in(history: &History) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut stage = stage::Stage::set(history).await;
        for (number, act) in history.acts().enumerate() {
            let played = stage.play(&act).await;
            if let Some(wrong) = check::wrong(&stage, &played, act.expect).await {
                return Some(format!("{}\nact {}: {wrong}", history.why, number + 1));
            }
        }
        None
    })
}

fn play(file: &Path) -> Result<(), Failed> {
    match wrong_in(&read(file)?) {
        None => Ok(()),
        Some(wrong) => Err(format!("{}\n{wrong}", file.display()).into()),
    }
}

/// The histories in `wrong/` expect what does not happen; each must be caught, and the report must say what it is about.
fn noticed(file: &Path) -> Result<(), Failed> {
    let history = read(file)?;
    let report = wrong_in(&history).ok_or("nothing was noticed")?;
    match history
        .noticed
        .iter()
        .find(|part| !report.contains(part.as_str()))
    {
        None if !history.noticed.is_empty() => Ok(()),
        missing => Err(format!("{missing:?} is not in this report:\n{report}").into()),
    }
}

fn every_complaint() -> Result<(), Failed> {
    let histories = files("")
        .iter()
        .map(|file| read(file))
        .collect::<Result<Vec<_>, _>>()?;
    let covered: BTreeSet<u8> = histories.iter().filter_map(|history| history.complaint).collect();
    let missing: Vec<u8> = COMPLAINTS
        .into_iter()
        .filter(|one| !covered.contains(one))
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("no history is about {missing:?}").into())
    }
}
