//! Changes that weaken the checks of a task: deleted, skipped or shrunk tests, changed test runners, changed exit handling,
//! lowered thresholds. Only the texts before and after are looked at; nothing is run.

mod cases;
mod follow;
mod leads;
mod rules;

use std::collections::{BTreeMap, BTreeSet};

use crate::id::ObjectId;
use crate::scm::{Repository, ScmError, TextChange, text_changes, texts_at};
use crate::state::{WeakenedCheck, WeakeningKind};
use crate::text::counted;

use self::cases::{TestCase, TestFile, has_language, is_test_file, makes_assertion, runs_tests};
use self::follow::{RunnerPart, runner_parts};
use self::rules::{is_runner_settings, lax_lines, lowered_thresholds, new_lines, skip_marks};

/// How often unknown files are read to follow a command.
const MAX_ROUNDS: usize = 6;

/// What weakens the checks between two commits. `commands` are those of the task, the test command first.
pub(super) async fn find(
    repository: &Repository,
    base: &ObjectId,
    tip: &ObjectId,
    commands: &[&String],
) -> Result<Vec<WeakenedCheck>, ScmError> {
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
    let is_wanted = |path: &str| {
        let is_part = |part: &RunnerPart| part.path == path || part.shadowed_by.iter().any(|by| by == path);
        is_runner_settings(path) || is_test_file(path) || has_language(path) || parts.iter().any(is_part)
    };
    let changes = text_changes(repository, base, tip, is_wanted).await?;
    Ok(compare(&changes, &parts))
}

/// What weakens the checks in these changes, given the parts of files that the commands use.
fn compare(changes: &[TextChange], parts: &[RunnerPart]) -> Vec<WeakenedCheck> {
    let mut found = Vec::new();
    for part in parts {
        let change = changes.iter().find(|change| change.path == part.path);
        found.extend(change.and_then(|change| changed_part(part, change)));
        let is_new = |path: &&String| {
            changes
                .iter()
                .any(|change| change.path == **path && change.before.is_none())
        };
        found.extend(part.shadowed_by.iter().filter(is_new).map(|path| {
            let detail = format!("the new file takes the place of `{}`", part.path);
            of_command(&part.command, finding(WeakeningKind::Runner, path, detail))
        }));
    }
    let diffs: Vec<TestDiff<'_>> = changes.iter().map(TestDiff::new).collect();
    let mut new = NewTests::new(&diffs);
    for TestDiff { change, .. } in &diffs {
        let users = || parts.iter().filter(|part| part.path == change.path);
        for part in users() {
            found.extend(
                laxer(change)
                    .into_iter()
                    .map(|found| of_command(&part.command, found)),
            );
        }
        if is_runner_settings(&change.path) {
            found.extend(laxer(change));
        }
    }
    for diff in &diffs {
        let is_whole = parts
            .iter()
            .any(|part| part.path == diff.change.path && part.is_whole());
        if !is_whole && diff.change.before.is_some() {
            found.extend(changed_tests(diff, &mut new));
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
        tests: Vec::new(),
        green_at_base: None,
    }
}

fn of_command(command: &str, found: WeakenedCheck) -> WeakenedCheck {
    WeakenedCheck {
        command: Some(command.to_owned()),
        ..found
    }
}

/// A file, script or target that a command uses and that is not what it was.
fn changed_part(part: &RunnerPart, change: &TextChange) -> Option<WeakenedCheck> {
    let (before, after) = (change.before.as_deref()?, change.after.as_deref());
    let part_after = after.and_then(|text| part.text_in(text));
    let settings = |text| part.settings_in(text);
    let (kind, detail) = match part_after {
        None => (WeakeningKind::Runner, format!("{} is gone", part.name)),
        Some(now) if now != part.text => {
            let is_edited = part.is_data() || only_adds_checks(&part.text, &now);
            let kind = if is_edited {
                WeakeningKind::Edited
            } else {
                WeakeningKind::Runner
            };
            (kind, format!("{} was changed", part.name))
        }
        Some(_) if after.and_then(settings) != settings(before) => (
            WeakeningKind::Edited,
            format!("the settings beside {} were changed", part.name),
        ),
        Some(_) => return None,
    };
    Some(of_command(&part.command, finding(kind, &part.path, detail)))
}

/// Whether a script only got more lines, and none that hides a failure.
fn only_adds_checks(before: &str, after: &str) -> bool {
    new_lines(after, before).is_empty() && lax_lines(before, after).is_empty()
}

/// New lines that hide a failure, marks that skip tests, and lowered thresholds.
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
    lax.chain(lowered).chain(skips(change)).collect()
}

/// The tests of a file before and after.
struct TestDiff<'c> {
    change: &'c TextChange,
    /// Tests that are still in the file, before and after.
    kept: Vec<(TestCase, TestCase)>,
    gone: Vec<TestCase>,
    new: Vec<TestCase>,
    /// Lines outside of tests that are gone, and new ones.
    gone_lines: Vec<String>,
    new_lines: Vec<String>,
}

impl<'c> TestDiff<'c> {
    fn new(change: &'c TextChange) -> Self {
        let read = |text: &Option<String>| TestFile::new(&change.path, text.as_deref().unwrap_or_default());
        let (before, after) = (read(&change.before), read(&change.after));
        let (mut gone, mut new, mut kept) = (before.cases, after.cases, Vec::new());
        // Several tests may have one name: those that did not change belong together, the others in their order.
        let equal = |old: &TestCase, now: &TestCase| old.name == now.name && old.body == now.body;
        let same_name = |old: &TestCase, now: &TestCase| old.name == now.name;
        for is_pair in [equal as fn(&TestCase, &TestCase) -> bool, same_name] {
            for old in std::mem::take(&mut gone) {
                match new.iter().position(|now| is_pair(&old, now)) {
                    Some(at) => kept.push((old, new.remove(at))),
                    None => gone.push(old),
                }
            }
        }
        let (before, after) = (before.outside.join("\n"), after.outside.join("\n"));
        let difference = |from: &str, to: &str| new_lines(from, to).into_iter().map(str::to_owned).collect();
        Self {
            change,
            kept,
            gone,
            new,
            gone_lines: difference(&after, &before),
            new_lines: difference(&before, &after),
        }
    }
}

/// What is new in its file, so that what only moved or got another name is not missed.
struct NewTests<'c> {
    cases: Vec<TestCase>,
    lines: BTreeSet<&'c str>,
    files: Vec<&'c TextChange>,
}

impl<'c> NewTests<'c> {
    fn new(diffs: &'c [TestDiff<'c>]) -> Self {
        let of_tests = || diffs.iter().filter(|diff| runs_tests(&diff.change.path));
        let lines = |diff: &'c TestDiff<'c>| {
            let TextChange { before, after, .. } = diff.change;
            new_lines(
                before.as_deref().unwrap_or_default(),
                after.as_deref().unwrap_or_default(),
            )
        };
        Self {
            cases: of_tests().flat_map(|diff| diff.new.clone()).collect(),
            lines: of_tests().flat_map(lines).collect(),
            files: of_tests()
                .map(|diff| diff.change)
                .filter(|change| change.before.is_none())
                .collect(),
        }
    }

    /// Whether a file with this text is at another path where its tests run.
    fn has_file(&self, path: &str, text: &str) -> bool {
        let extension = |path: &str| path.rsplit_once('.').map(|(_, extension)| extension.to_owned());
        self.files.iter().any(|file| {
            file.after.as_deref() == Some(text)
                && is_test_file(&file.path)
                && extension(&file.path) == extension(path)
        })
    }

    /// What became of a test that is no longer in its file. A new test is what became of one only.
    fn moved(&mut self, case: &TestCase) -> Moved {
        let at = |is_it: &dyn Fn(&TestCase) -> bool| self.cases.iter().position(is_it);
        let moved = at(&|new| new.body == case.body).or_else(|| at(&|new| new.name == case.name));
        let Some(moved) = moved.map(|at| self.cases.remove(at)) else {
            return Moved::Gone;
        };
        if moved.asserts < case.asserts {
            Moved::Weakened(moved.asserts)
        } else {
            Moved::Whole
        }
    }
}

enum Moved {
    Whole,
    /// With the number of its assertions now.
    Weakened(usize),
    Gone,
}

fn changed_tests(diff: &TestDiff<'_>, new: &mut NewTests<'_>) -> Vec<WeakenedCheck> {
    let TestDiff {
        change, kept, gone, ..
    } = diff;
    let path = &change.path;
    let has_cases = !kept.is_empty() || !gone.is_empty();
    let before = change.before.as_deref().unwrap_or_default();
    if before.trim().is_empty() || !(has_cases || is_test_file(path)) {
        return Vec::new();
    }
    let is_empty = change.after.as_deref().is_some_and(|text| text.trim().is_empty());
    if change.after.is_none() && new.has_file(path, before) {
        return Vec::new();
    }
    let mut found: Vec<WeakenedCheck> = gone.iter().filter_map(|case| missing(path, case, new)).collect();
    if change.after.is_none() || is_empty {
        let is_deleted = |found: &&WeakenedCheck| found.kind == WeakeningKind::Deleted;
        let tests: Vec<String> = found
            .iter()
            .filter(is_deleted)
            .flat_map(|found| found.tests.clone())
            .collect();
        if has_cases && tests.is_empty() {
            return found;
        }
        let what = if is_empty { "is empty now" } else { "is gone" };
        let file = finding(
            WeakeningKind::Deleted,
            path,
            format!("a file of the tests {what}"),
        );
        return vec![WeakenedCheck { tests, ..file }];
    }
    let changed = || kept.iter().filter(|(old, now)| old.body != now.body);
    let shrunk = changed().filter(|(old, now)| now.asserts < old.asserts);
    found.extend(shrunk.map(|(old, now)| weakened(path, old, now.asserts)));
    found.extend(skips(change).map(|skip| {
        WeakenedCheck {
            tests: changed()
                .filter(|(old, now)| skip_marks(path, &now.body) != skip_marks(path, &old.body))
                .map(|(old, _)| old.name.clone())
                .collect(),
            ..skip
        }
    }));
    let (lines, lost) = lost_outside(diff, new);
    if lost > 0 {
        let detail = format!("{} gone outside of its tests", are(lost, "assertion"));
        found.push(finding(WeakeningKind::Weakened, path, detail));
    }
    if found.is_empty() && (!has_cases || changed().next().is_some() || lines > 0) {
        let detail = "tests that were there were changed";
        found.push(finding(WeakeningKind::Edited, path, detail));
    }
    found
}

/// How many lines outside of tests are gone and did not move, and how many assertions fewer there are.
fn lost_outside(diff: &TestDiff<'_>, new: &NewTests<'_>) -> (usize, usize) {
    let lost = || {
        diff.gone_lines
            .iter()
            .filter(|line| !new.lines.contains(line.as_str()))
    };
    let asserting = lost().filter(|line| makes_assertion(line)).count();
    let instead = diff.new_lines.iter().filter(|line| makes_assertion(line)).count();
    (lost().count(), asserting.saturating_sub(instead))
}

fn are(count: usize, noun: &str) -> String {
    let verb = if count == 1 { "is" } else { "are" };
    format!("{} {verb}", counted(count, noun))
}

/// A test that is no longer in its file, unless it only moved.
fn missing(path: &str, case: &TestCase, new: &mut NewTests<'_>) -> Option<WeakenedCheck> {
    match new.moved(case) {
        Moved::Whole => None,
        Moved::Weakened(now) => Some(weakened(path, case, now)),
        Moved::Gone => {
            let detail = format!("the test `{}` is gone", case.name);
            Some(of_test(case, finding(WeakeningKind::Deleted, path, detail)))
        }
    }
}

fn weakened(path: &str, case: &TestCase, asserts: usize) -> WeakenedCheck {
    let detail = format!("the test `{}` {}", case.name, fewer(case.asserts, asserts));
    of_test(case, finding(WeakeningKind::Weakened, path, detail))
}

fn of_test(case: &TestCase, found: WeakenedCheck) -> WeakenedCheck {
    WeakenedCheck {
        tests: vec![case.name.clone()],
        ..found
    }
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

#[cfg(test)]
mod tests;
