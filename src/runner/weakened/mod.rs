//! Changes that weaken the checks of a task: deleted, skipped or shrunk tests, changed test runners, changed exit handling,
//! lowered thresholds. Only the texts before and after are looked at; nothing is run.

mod cases;
mod follow;
mod rules;

use std::collections::{BTreeMap, BTreeSet};

use crate::id::ObjectId;
use crate::scm::{Repository, ScmError, TextChange, text_changes, texts_at};
use crate::state::{WeakenedCheck, WeakeningKind};

use self::cases::{TestCase, is_test_file, skip_marks, test_cases};
use self::follow::{RunnerPart, runner_parts};
use self::rules::{is_runner_settings, lax_lines, lowered_thresholds};

/// How often unknown files are read to follow a command.
const MAX_ROUNDS: usize = 6;

/// What weakens the checks between two commits. `commands` are those of the task, the test command first.
pub(super) async fn find(
    repository: &Repository,
    base: &ObjectId,
    tip: &ObjectId,
    commands: &[&String],
) -> Result<Vec<WeakenedCheck>, ScmError> {
    let changes = text_changes(repository, base, tip, |_| true).await?;
    if changes.iter().all(|change| change.before.is_none()) {
        // Nothing that was there is touched.
        return Ok(Vec::new());
    }
    let mut texts: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut parts = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let mut wanted = BTreeSet::new();
        parts = runner_parts(commands, &texts, &mut wanted);
        if wanted.is_empty() {
            break;
        }
        let paths: Vec<String> = wanted.into_iter().collect();
        let read = texts_at(repository, base, &paths).await?;
        texts.extend(paths.into_iter().zip(read));
    }
    Ok(compare(&changes, &parts))
}

/// What weakens the checks in these changes, given the parts of files that the commands run.
fn compare(changes: &[TextChange], parts: &[RunnerPart]) -> Vec<WeakenedCheck> {
    let mut found = Vec::new();
    let by_path: BTreeMap<&str, &TextChange> = changes
        .iter()
        .filter(|change| change.before.is_some())
        .map(|change| (change.path.as_str(), change))
        .collect();
    for part in parts {
        if let Some(change) = by_path.get(part.path.as_str()) {
            found.extend(changed_runner(part, change));
        }
    }
    let everywhere = Everywhere::new(changes);
    for change in by_path.values() {
        let is_runner = parts.iter().any(|part| part.path == change.path);
        if is_runner || is_runner_settings(&change.path) {
            found.extend(laxer(change));
        }
        if !is_runner {
            found.extend(changed_tests(change, &everywhere));
        }
    }
    found.sort();
    found.dedup();
    found
}

fn finding(kind: WeakeningKind, path: &str, detail: impl Into<String>) -> WeakenedCheck {
    WeakenedCheck {
        kind,
        path: path.to_owned(),
        detail: detail.into(),
        command: None,
        green_at_base: None,
    }
}

/// A file, script or target that a command runs and that is not what it was.
fn changed_runner(part: &RunnerPart, change: &TextChange) -> Option<WeakenedCheck> {
    let after = change.after.as_deref().and_then(|text| part.text_in(text));
    let detail = match after {
        Some(after) if after == part.text => return None,
        Some(_) => format!("{} was changed, which `{}` runs", part.name, part.command),
        None => format!("{} is gone, which `{}` runs", part.name, part.command),
    };
    Some(WeakenedCheck {
        command: Some(part.command.clone()),
        ..finding(WeakeningKind::Runner, &part.path, detail)
    })
}

/// New lines that hide a failure, and lowered thresholds.
fn laxer(change: &TextChange) -> Vec<WeakenedCheck> {
    let (before, after) = (
        change.before.as_deref().unwrap_or_default(),
        change.after.as_deref().unwrap_or_default(),
    );
    let lax = lax_lines(before, after)
        .into_iter()
        .map(|detail| finding(WeakeningKind::ExitHandling, &change.path, detail));
    let lowered = lowered_thresholds(before, after)
        .into_iter()
        .map(|detail| finding(WeakeningKind::Threshold, &change.path, detail));
    lax.chain(lowered).collect()
}

/// All tests after the change, so that one that only moved or got another name is not missed.
struct Everywhere {
    /// The number of assertions by name; the least, where several tests have the name.
    asserts: BTreeMap<String, usize>,
    bodies: BTreeSet<String>,
    files: BTreeSet<String>,
}

impl Everywhere {
    fn new(changes: &[TextChange]) -> Self {
        let cases: Vec<TestCase> = changes
            .iter()
            .flat_map(|change| test_cases(&change.path, change.after.as_deref().unwrap_or_default()))
            .collect();
        let mut asserts = BTreeMap::new();
        for case in &cases {
            let least = asserts.entry(case.name.clone()).or_insert(case.asserts);
            *least = case.asserts.min(*least);
        }
        Self {
            asserts,
            bodies: cases.into_iter().map(|case| case.body).collect(),
            files: changes.iter().filter_map(|change| change.after.clone()).collect(),
        }
    }

    /// What became of a test that is no longer in its file.
    fn moved(&self, case: &TestCase) -> Moved {
        if self.bodies.contains(&case.body) {
            return Moved::Whole;
        }
        match self.asserts.get(&case.name) {
            Some(now) if *now >= case.asserts => Moved::Whole,
            Some(now) => Moved::Weakened(*now),
            None => Moved::Gone,
        }
    }
}

enum Moved {
    Whole,
    /// With the number of its assertions now.
    Weakened(usize),
    Gone,
}

fn changed_tests(change: &TextChange, everywhere: &Everywhere) -> Vec<WeakenedCheck> {
    let path = &change.path;
    let before_text = change.before.as_deref().unwrap_or_default();
    let before = test_cases(path, before_text);
    if before.is_empty() && !is_test_file(path) {
        return settings_that_skip(change);
    }
    let Some(after_text) = change.after.as_deref() else {
        let moved = everywhere.files.contains(before_text) && !before_text.trim().is_empty();
        if moved {
            return Vec::new();
        }
        if before.is_empty()
            || before
                .iter()
                .any(|case| matches!(everywhere.moved(case), Moved::Gone))
        {
            return vec![finding(
                WeakeningKind::Deleted,
                path,
                "a file of the tests is gone",
            )];
        }
        return before
            .iter()
            .filter_map(|case| missing(path, case, everywhere))
            .collect();
    };
    if after_text.trim().is_empty() && !before_text.trim().is_empty() {
        return vec![finding(
            WeakeningKind::Deleted,
            path,
            "a file of the tests is empty now",
        )];
    }
    let after: BTreeMap<String, TestCase> = test_cases(path, after_text)
        .into_iter()
        .map(|case| (case.name.clone(), case))
        .collect();
    let mut found = Vec::new();
    let mut edited = before.is_empty();
    for case in before {
        match after.get(&case.name) {
            Some(now) if now.body == case.body => {}
            Some(now) if now.asserts < case.asserts => found.push(weakened(path, &case, now.asserts)),
            Some(_) => edited = true,
            None => found.extend(missing(path, &case, everywhere)),
        }
    }
    found.extend(skips(change));
    if edited && found.is_empty() {
        found.push(finding(
            WeakeningKind::Edited,
            path,
            "tests that were there were changed",
        ));
    }
    found
}

/// A test that is no longer in its file, unless it only moved.
fn missing(path: &str, case: &TestCase, everywhere: &Everywhere) -> Option<WeakenedCheck> {
    match everywhere.moved(case) {
        Moved::Whole => None,
        Moved::Weakened(now) => Some(weakened(path, case, now)),
        Moved::Gone => {
            let detail = format!("the test `{}` is gone", case.name);
            Some(finding(WeakeningKind::Deleted, path, detail))
        }
    }
}

fn weakened(path: &str, case: &TestCase, asserts: usize) -> WeakenedCheck {
    let detail = format!("the test `{}` {}", case.name, fewer(case.asserts, asserts));
    finding(WeakeningKind::Weakened, path, detail)
}

fn fewer(before: usize, after: usize) -> String {
    if after == 0 {
        "asserts nothing now".to_owned()
    } else {
        format!("asserts less: {after} in place of {before}")
    }
}

/// Marks that keep tests from running, where there are more of them than before.
fn skips(change: &TextChange) -> Option<WeakenedCheck> {
    let before = skip_marks(&change.path, change.before.as_deref().unwrap_or_default());
    let after = skip_marks(&change.path, change.after.as_deref().unwrap_or_default());
    let new = after
        .iter()
        .filter(|(mark, count)| before.get(*mark).is_none_or(|had| had < count));
    // The longest one says most.
    new.max_by_key(|(mark, _)| mark.len()).map(|(mark, _)| {
        let detail = format!("tests may not run any more: `{mark}`");
        finding(WeakeningKind::Skipped, &change.path, detail)
    })
}

/// A manifest that leaves tests out.
fn settings_that_skip(change: &TextChange) -> Vec<WeakenedCheck> {
    if is_runner_settings(&change.path) {
        skips(change).into_iter().collect()
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
