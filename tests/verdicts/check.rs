//! Comparing what came of an act with what was expected, and telling the difference so that it can be read.

use std::collections::BTreeSet;
use std::fmt::{Debug, Write};
use std::fs;
use std::path::Path;

use ralph::event::EventKind;
use ralph::runner::RunOutcome;
use ralph::state::{CommandFailure, IterationRecord, RunOutcomeKind};

use crate::agreement;
use crate::ci;
use crate::expected::{Climbed, Expected, ExpectedIteration, Signal, Tests};
use crate::stage::{Played, Stage};

/// What is wrong with an act: each expectation that did not hold, then what happened. `None` when nothing is.
pub async fn wrong(stage: &Stage<'_>, played: &Played, expected: &Expected) -> Option<String> {
    let mut check = Check {
        stage,
        played,
        expected,
        wrong: String::new(),
    };
    match &played.outcome {
        Err(error) => check.add(&format!("the run broke: {error:?}")),
        Ok(outcome) => {
            check.verdict(outcome);
            check.events();
            check.terminal();
            check.record();
            check.iterations();
            check.files(outcome).await;
            check.pull_request(outcome).await;
            for wrong in agreement::wrong(played, outcome) {
                check.add(&wrong);
            }
        }
    }
    check.always().await;
    check.no_secret().await;
    (!check.wrong.is_empty()).then(|| format!("{}{}", check.wrong, story(played)))
}

/// One comparison under way.
struct Check<'a> {
    stage: &'a Stage<'a>,
    played: &'a Played,
    expected: &'a Expected,
    /// What was found wrong so far, a line each.
    wrong: String,
}

impl Check<'_> {
    fn add(&mut self, what: &str) {
        let _ = writeln!(self.wrong, "  wrong: {what}");
    }

    fn equal<T: PartialEq + Debug>(&mut self, what: &str, expected: Option<&T>, found: &T) {
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            self.add(&format!("{what}: expected {expected:?}, found {found:?}"));
        }
    }

    fn part(&mut self, what: &str, part: &str, whole: &str) {
        if !whole.contains(part) {
            self.add(&format!("{what}: expected {part:?} in it, found {whole:?}"));
        }
    }

    fn no_part(&mut self, what: &str, part: &str, whole: &str) {
        if whole.contains(part) {
            self.add(&format!("{what}: {part:?} must not be in it: {whole:?}"));
        }
    }

    fn verdict(&mut self, outcome: &RunOutcome) {
        let (expected, played) = (self.expected, self.played);
        self.equal("outcome", Some(&expected.outcome), &outcome.kind);
        self.part("reason", &expected.reason, &outcome.reason);
        self.equal("iterations", Some(&expected.iterations), &outcome.used.iterations);
        self.equal("calls of a model", expected.calls.as_ref(), &played.calls);
        self.equal("tokens", expected.tokens.as_ref(), &outcome.used.tokens.total());
        let seconds = played.took.as_secs_f64();
        if expected.within_s.is_some_and(|limit| seconds > limit) {
            self.add(&format!("it took {seconds:.1} s"));
        }
    }

    fn events(&mut self) {
        let (mut waits, mut warnings) = (0, String::new());
        for event in &self.played.events {
            match &event.kind {
                EventKind::Waiting { .. } => waits += 1,
                EventKind::CiFailed { checks, .. } => {
                    let _ = writeln!(warnings, "CI failed: {}", checks.join(", "));
                }
                EventKind::Warning { message } => {
                    let _ = writeln!(warnings, "{message}");
                }
                _ => {}
            }
        }
        self.equal("waits", self.expected.waits.as_ref(), &waits);
        for part in &self.expected.warnings {
            self.part("warnings", part, &warnings);
        }
    }

    fn terminal(&mut self) {
        let shown = agreement::terminal(self.played);
        for part in &self.expected.terminal {
            self.part("the terminal", part, &shown);
        }
    }

    fn record(&mut self) {
        let record = serde_json::to_string(&self.played.records).unwrap();
        for part in &self.expected.record {
            self.part("the record", part, &record);
        }
        for part in &self.expected.not_in_record {
            self.no_part("the record", part, &record);
        }
    }

    fn iterations(&mut self) {
        for (number, expected) in &self.expected.each {
            match self
                .played
                .records
                .iter()
                .find(|record| record.iteration == *number)
            {
                Some(record) => self.iteration(record, expected),
                None => self.add(&format!("iteration {number} is not recorded")),
            }
        }
    }

    fn iteration(&mut self, record: &IterationRecord, expected: &ExpectedIteration) {
        let name = |what: &str| format!("iteration {}: {what}", record.iteration);
        let (score, ticked) = (&record.score, record.ticked.iter().cloned().collect());
        self.equal(&name("score"), expected.score.as_ref(), &score.total);
        self.equal(&name("gutter"), expected.gutter.as_ref(), &score.gutter);
        self.equal(
            &name("signals"),
            expected.signals.as_ref(),
            &Signal::seen(score.signals),
        );
        self.equal(&name("ticked"), expected.ticked.as_ref(), &ticked);
        self.equal(&name("rung"), expected.rung.as_ref(), &Climbed::from(record.rung));
        self.equal(&name("profile"), expected.profile.as_ref(), &record.profile);
        self.equal(&name("ending"), expected.ending.as_ref(), &record.ending);
        self.equal(&name("tests"), expected.tests.as_ref(), &tests(record));
        self.equal(&name("failures"), expected.failures.as_ref(), &failures(record));
    }

    /// Files of the last commit and of `.ralph/`, and the messages of the new commits.
    async fn files(&mut self, outcome: &RunOutcome) {
        for (path, text) in &self.expected.tree {
            let found = self
                .stage
                .try_git(&["show", &format!("{}:{path}", outcome.tip)])
                .await
                .ok();
            let text = text.as_ref().map(|text| text.trim_end().to_owned());
            self.equal(&format!("`{path}` in the last commit"), Some(&text), &found);
        }
        let new = format!("{}..{}", self.stage.base(), outcome.tip);
        let messages = self.stage.git(&["log", "--format=%B", &new]).await;
        for part in &self.expected.messages {
            self.part("the messages of the commits", part, &messages);
        }
        for (path, part) in &self.expected.ralph {
            let text = self.run_file(path);
            self.part(&format!("`.ralph/{path}`"), part, &text);
        }
    }

    /// There is a pull request when the run is done, it holds the last commit, and there is none otherwise. If CI paused the run,
    /// there is a draft.
    async fn pull_request(&mut self, outcome: &RunOutcome) {
        let text = fs::read_to_string(self.played.run.pull_request_file()).ok();
        let name = format!("refs/heads/{}", outcome.branch);
        let branch = self
            .stage
            .try_git(&["rev-parse", "--verify", "--quiet", &name])
            .await
            .ok();
        match (outcome.kind, text) {
            (RunOutcomeKind::Done, Some(text)) => {
                self.equal("the branch", Some(&Some(outcome.tip.to_string())), &branch);
                self.text_of_pull_request(&text);
            }
            (_, Some(text)) if ci::has_paused(outcome) => {
                self.part("the pull request", "State: draft", &text);
                self.text_of_pull_request(&text);
            }
            (RunOutcomeKind::Done, None) => self.add("it is done without a pull request"),
            (_, Some(_)) => self.add("it is not done and has a pull request"),
            (_, None) => self.equal("the branch of a run that is not done", Some(&None), &branch),
        }
    }

    fn text_of_pull_request(&mut self, text: &str) {
        for part in &self.expected.pull_request {
            self.part("the pull request", part, text);
        }
        for part in &self.expected.not_in_pull_request {
            self.no_part("the pull request", part, text);
        }
    }

    /// What holds after every act: the user's branch and files are untouched, each iteration is recorded
    /// once and is in the logs.
    async fn always(&mut self) {
        let main = self.stage.git(&["rev-parse", "main"]).await;
        self.equal("the user's branch", Some(&self.stage.base().to_owned()), &main);
        let status = self.stage.git(&["status", "--porcelain"]).await;
        self.equal("the user's files", Some(&String::new()), &status);
        let numbers: Vec<u32> = self
            .played
            .records
            .iter()
            .map(|record| record.iteration)
            .collect();
        let in_order: Vec<u32> = (1..).take(numbers.len()).collect();
        self.equal("the numbers of the iterations", Some(&in_order), &numbers);
        let activity = self.run_file("activity.log");
        for number in numbers {
            self.part("activity.log", &format!("iteration {number} ended"), &activity);
            let metrics = self.run_file(&format!("iterations/{number}/metrics.json"));
            self.part(
                &format!("metrics.json of iteration {number}"),
                "\"signals\"",
                &metrics,
            );
        }
    }

    async fn no_secret(&mut self) {
        if self.stage.secrets().is_empty() {
            return;
        }
        let objects = self
            .stage
            .git(&["cat-file", "--batch-all-objects", "--batch"])
            .await;
        let mut places = vec![
            ("a commit".to_owned(), objects.into_bytes()),
            (
                "an event".to_owned(),
                format!("{:?}", self.played.events).into_bytes(),
            ),
        ];
        read_all(self.stage.dir(), &mut places);
        for (place, bytes) in &places {
            let holds = |secret: &String| bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            if self.stage.secrets().iter().any(holds) {
                self.add(&format!("a secret stands in {place}"));
            }
        }
    }

    /// A file of the host's copy of `.ralph/`; empty when it is not there.
    fn run_file(&self, path: &str) -> String {
        fs::read_to_string(self.played.run.ralph_dir().join(path)).unwrap_or_default()
    }
}

/// Every file but those of a sandbox: what the agent does in there is its own.
fn read_all(dir: &Path, places: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() && !path.ends_with("sandbox") {
            read_all(&path, places);
        } else if kind.is_file() {
            places.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
}

fn tests(record: &IterationRecord) -> Tests {
    match &record.tests {
        Some(check) if check.passed() => Tests::Pass,
        Some(_) => Tests::Fail,
        None => Tests::NotRun,
    }
}

fn failures(record: &IterationRecord) -> BTreeSet<String> {
    let one = |failure: &CommandFailure| format!("{}: {}", failure.command, failure.code);
    record.failures.iter().map(one).collect()
}

/// What happened, an iteration a line, and how it ended.
fn story(played: &Played) -> String {
    let mut text = "  what happened:\n".to_owned();
    for record in &played.records {
        let gutter = if record.score.gutter { " GUTTER" } else { "" };
        let _ = writeln!(
            text,
            "  {:>3} {}: {}; score {:.2}{gutter} {:?}; {} lines; ticked {:?}; tests {:?}; failed {:?}; rung {:?}; {:?}",
            record.iteration,
            record.profile,
            record.ending,
            record.score.total,
            Signal::seen(record.score.signals),
            record.changed_lines,
            record.ticked,
            tests(record),
            failures(record),
            Climbed::from(record.rung),
            record.summary,
        );
    }
    for event in &played.events {
        let line = match &event.kind {
            EventKind::Warning { message } => format!("warning: {message}"),
            EventKind::Action {
                what,
                failed: Some(reason),
                ..
            } => format!("{what}: {reason}"),
            EventKind::RunEnded { outcome, reason } => format!("{outcome}: {reason}"),
            _ => continue,
        };
        let _ = writeln!(text, "      {line}");
    }
    let _ = write!(
        text,
        "      {} calls, {:.1} s",
        played.calls,
        played.took.as_secs_f64()
    );
    text
}
