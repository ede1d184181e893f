//! What a reviewer has to know about complete evidence: commands that are flaky, and checks that were weakened. The
//! commands of the task run once on the base commit too, so that what passed before the agent came is known.

use crate::id::ObjectId;
use crate::state::{CheckResult, CommandFailure, FlakyCheck, JournalEntry, WeakenedCheck, WeakeningKind};
use crate::task::{LOCK_FILES, proposed_setup};
use crate::text::code_span;

use super::RunError;
use super::evidence::{Evidence, EvidenceRound};
use super::gutter::MAX_TESTS;
use super::run::Run;
use super::weakened;

/// How many changes a reason names.
const MAX_NAMED: usize = 3;
/// The exit code of a command that took too long.
const TIMED_OUT: i32 = 124;

impl Run<'_> {
    /// Adds to the evidence of a commit what a reviewer has to know, and pauses the run where the settings ask for it.
    pub(super) async fn review(&mut self, tip: &ObjectId, found: &mut Evidence) -> Result<(), RunError> {
        if found.complete {
            let facts = self.inputs.dir.facts();
            found.flaky = self.flaky_checks(tip, found).await?;
            let commands = self.all_commands();
            found.weakened = weakened::find(&self.workplace.repo, &facts.base, tip, &commands).await?;
        }
        // A command that takes too long here may do so there, too.
        let too_long = found.checks.iter().any(|check| check.code == TIMED_OUT);
        let is_needed = !found.complete || !found.weakened.is_empty();
        if found.pause.is_none() && is_needed && !too_long {
            found.pause = self.run_on_base().await?;
        }
        if let Some((checks, failures)) = self.base_evidence() {
            let tests = &self.task.frontmatter.test_command;
            for weakened in &mut found.weakened {
                let command = weakened.command.as_ref().unwrap_or(tests);
                let check = checks.iter().find(|check| check.command == *command);
                let failure = failures.iter().find(|failure| failure.command == *command);
                weakened.green_at_base =
                    check.map(|check| check.passed() || passed_then(&weakened.tests, failure));
            }
        }
        once_each(&mut found.weakened);
        self.report_review(found);
        Ok(())
    }

    fn report_review(&self, found: &mut Evidence) {
        for flaky in &found.flaky {
            self.inputs.reporter.warn(flaky_text(flaky));
        }
        if found.weakened.is_empty() {
            return;
        }
        let count = found.weakened.len();
        let changes = if count == 1 {
            "change weakens"
        } else {
            "changes weaken"
        };
        let warning = format!(
            "{count} {changes} checks, or may do so: {}",
            named(&found.weakened)
        );
        self.inputs.reporter.warn(warning);
        let green: Vec<WeakenedCheck> = found
            .weakened
            .iter()
            .filter(|found| is_grave(found))
            .cloned()
            .collect();
        if self.inputs.settings.done.pause_when_weakened && !green.is_empty() && found.pause.is_none() {
            found.pause = Some(format!(
                "checks that passed on the base commit were weakened: {}; leave a note for the agent and resume the run, or \
                 set `done.weakened_tests` to `flag` to accept it",
                named(&green)
            ));
        }
    }

    /// All commands of the task, each once, the tests first.
    fn all_commands(&self) -> Vec<&String> {
        let mut commands = vec![&self.task.frontmatter.test_command];
        let checkboxes = self.task.checkboxes.iter();
        for command in checkboxes.flat_map(|checkbox| self.task.verify_commands(checkbox)) {
            if !commands.contains(&command) {
                commands.push(command);
            }
        }
        commands
    }

    /// What the commands of the task showed on the base commit, if they ran there, and how they failed.
    fn base_evidence(&self) -> Option<(&[CheckResult], &[CommandFailure])> {
        let mut lines = self.progress.journal.lines().iter().rev();
        lines.find_map(|line| match &line.entry {
            JournalEntry::BaseEvidence { checks, failures } => Some((checks.as_slice(), failures.as_slice())),
            _ => None,
        })
    }

    /// How the commands of the task failed on the base commit, as far as they ran there.
    pub(super) fn base_failures(&self) -> &[CommandFailure] {
        self.base_evidence().map_or(&[], |(_, failures)| failures)
    }

    /// Runs the commands of the task on the base commit, once in a run, as evidence: in a checkout and a space of their
    /// own, when no process of the agent runs. One that fails gets a second try before its failure excuses anything.
    /// Returns why a person has to look first, if so.
    async fn run_on_base(&mut self) -> Result<Option<String>, RunError> {
        if self.base_evidence().is_some() {
            return Ok(None);
        }
        let base = self.inputs.dir.facts().base.clone();
        let round = EvidenceRound {
            commit: &base,
            repeat: 1,
            quiet: true,
        };
        let first = self.gather(&round, &self.all_commands()).await?;
        let (mut checks, mut failures) = (first.checks, first.failures);
        // One that took too long shows nothing.
        checks.retain(|check| check.code != TIMED_OUT);
        failures.retain(|failure| failure.code != TIMED_OUT);
        let red: Vec<&String> = checks
            .iter()
            .filter(|check| !check.passed())
            .map(|check| &check.command)
            .collect();
        let second = match first.pause {
            None if !red.is_empty() => self.gather(&round, &red).await?,
            pause => Evidence {
                pause,
                ..Evidence::default()
            },
        };
        if second.pause.is_some() {
            return Ok(second.pause);
        }
        for check in second.checks.into_iter().filter(CheckResult::passed) {
            if let Some(first) = checks.iter_mut().find(|first| first.command == check.command) {
                failures.retain(|failure| failure.command != check.command);
                *first = check;
            }
        }
        let has_failed = !failures.is_empty();
        self.progress
            .append(JournalEntry::BaseEvidence { checks, failures })?;
        if has_failed {
            self.propose_setup(&base).await?;
        }
        Ok(None)
    }

    /// Names `setup_command` as the next step after commands failed on the base commit, if a lock file lists dependencies
    /// that nothing gets.
    async fn propose_setup(&self, base: &ObjectId) -> Result<(), RunError> {
        if self.workplace.setup.is_some() {
            return Ok(());
        }
        let names = LOCK_FILES.iter().map(|(file, _)| *file);
        let tracked = self.workplace.repo.tracked(base, names).await?;
        let tracked: Vec<String> = tracked.iter().map(ToString::to_string).collect();
        if let Some(command) = proposed_setup(|file| tracked.iter().any(|found| found == file)) {
            self.inputs.reporter.warn(format!(
                "commands of the task fail on the base commit already ({}); if they lack dependencies, set `setup_command` in \
                 the task, for example to `{command}`",
                tracked.join(", ")
            ));
        }
        Ok(())
    }

    /// The commands that pass now and failed before, on this commit or on another one with the same files.
    async fn flaky_checks(&self, tip: &ObjectId, found: &Evidence) -> Result<Vec<FlakyCheck>, RunError> {
        let mut flaky: Vec<FlakyCheck> = Vec::new();
        let records: Vec<_> = self.progress.journal.records().cloned().collect();
        for record in records {
            let failed = record.evidence.into_iter().filter(|check| !check.passed());
            for CheckResult {
                command,
                code,
                commit,
                ..
            } in failed
            {
                let is_known = flaky.iter().any(|flaky| flaky.command == command);
                let Some(commit) = commit.filter(|_| !is_known && found.ran(&command)) else {
                    continue;
                };
                let repo = &self.workplace.repo;
                if commit == *tip || repo.tree_of(&commit).await? == repo.tree_of(tip).await? {
                    let iteration = record.iteration;
                    flaky.push(FlakyCheck {
                        command,
                        code,
                        iteration,
                        commit,
                    });
                }
            }
        }
        Ok(flaky)
    }
}

/// Whether a change takes something away from a check that passed on the base commit.
fn is_grave(weakened: &WeakenedCheck) -> bool {
    weakened.kind != WeakeningKind::Edited && weakened.green_at_base == Some(true)
}

/// Whether one of these tests is not among those that a failure on the base commit names.
fn passed_then(tests: &[String], failure: Option<&CommandFailure>) -> bool {
    let failing = failure.map_or(&[][..], |failure| &failure.tests);
    let is_whole_list = !failing.is_empty() && failing.len() < MAX_TESTS;
    let failed = |test: &String| failing.iter().any(|name| has_word(name, test));
    is_whole_list && tests.iter().any(|test| !failed(test))
}

/// Whether a text contains another one that is not a part of a longer word.
fn has_word(text: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word))
}

/// Leaves one of the findings that differ only in their command: one that was green, if there is one.
fn once_each(weakened: &mut Vec<WeakenedCheck>) {
    weakened.sort_by_cached_key(|found| {
        let is_green = found.green_at_base == Some(true);
        (found.kind, found.path.clone(), found.detail.clone(), !is_green)
    });
    weakened.dedup_by(|next, kept| {
        (next.kind, &next.path, &next.detail) == (kept.kind, &kept.path, &kept.detail)
    });
}

fn named(weakened: &[WeakenedCheck]) -> String {
    let name = |found: &WeakenedCheck| format!("{}: {}", code_span(&found.path), what(found));
    let mut names: Vec<String> = weakened.iter().take(MAX_NAMED).map(name).collect();
    if weakened.len() > MAX_NAMED {
        names.push(format!("and {} more", weakened.len() - MAX_NAMED));
    }
    names.join("; ")
}

/// What the terminal says about a flaky command.
fn flaky_text(flaky: &FlakyCheck) -> String {
    format!("{} ({})", flaky_reason(flaky), flaky.command)
}

/// What the pull request says about it, beside the command.
pub(super) fn flaky_reason(flaky: &FlakyCheck) -> String {
    let FlakyCheck {
        code,
        iteration,
        commit,
        ..
    } = flaky;
    format!(
        "flaky: it passed, and failed with exit {code} in iteration {iteration} on the same files (commit {commit})"
    )
}

/// What was done, and which command uses it.
fn what(weakened: &WeakenedCheck) -> String {
    let detail = &weakened.detail;
    let is_part = matches!(weakened.kind, WeakeningKind::Runner | WeakeningKind::Edited);
    match &weakened.command {
        Some(command) if is_part => format!("{detail}, which {} uses", code_span(command)),
        _ => detail.clone(),
    }
}

/// What the pull request says about a weakened check. `tests` is the test command.
pub(super) fn weakened_reason(weakened: &WeakenedCheck, tests: &String) -> String {
    let command = code_span(weakened.command.as_ref().unwrap_or(tests));
    let base = match weakened.green_at_base {
        Some(true) => "; that check passed on the base commit".to_owned(),
        Some(false) => format!("; {command} failed on the base commit"),
        None => String::new(),
    };
    format!("{}{base}", what(weakened))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::another_one_failed(&["test_add"], &["tests/test_a.py::test_adds", "tests/test_a.py::test_sub[1]"], true)]
    #[case::it_failed(&["test_sub"], &["tests/test_a.py::test_sub[1]"], false)]
    #[case::one_of_two_failed(&["test_sub", "test_add"], &["tests/test_a.py::test_sub"], true)]
    #[case::no_list(&["test_add"], &[], false)]
    #[case::no_test(&[], &["tests::adds"], false)]
    fn a_test_that_a_failure_does_not_name_passed(
        #[case] tests: &[&str],
        #[case] failing: &[&str],
        #[case] expected: bool,
    ) {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let failure = CommandFailure {
            command: "pytest".to_owned(),
            code: 1,
            signature: String::new(),
            tests: owned(failing),
        };
        assert_eq!(passed_then(&owned(tests), Some(&failure)), expected);
    }

    #[test]
    fn of_two_commands_that_use_a_script_the_green_one_counts() {
        let found = |command: &str, green| WeakenedCheck {
            kind: WeakeningKind::Runner,
            path: "t.sh".to_owned(),
            detail: "the file was changed".to_owned(),
            command: Some(command.to_owned()),
            tests: Vec::new(),
            green_at_base: Some(green),
        };
        let mut weakened = vec![found("a", false), found("b", true)];
        once_each(&mut weakened);
        assert_eq!(weakened, [found("b", true)]);
    }
}
