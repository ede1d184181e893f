//! The notices of a run, from its journal.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::secret::Redactor;
use crate::state::{Intervention, JournalEntry, JournalLine, RunFacts, RunOutcomeKind};
use crate::task::Task;
use crate::text::{first_bytes, one_line, without_hidden};

use super::NotifyEvent;

/// The longest title and the longest text, in bytes.
const MAX_TITLE: usize = 200;
const MAX_TEXT: usize = 2_000;

/// The share of a budget that is notified about, in percent.
const BUDGET_PERCENT: u32 = 80;

/// One thing to notify about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The same for every attempt to deliver it, so that a receiver can ignore a repetition.
    pub id: String,
    /// What happened.
    pub event: NotifyEvent,
    /// When it happened.
    pub at: Timestamp,
    /// One line.
    pub title: String,
    /// More about it.
    pub text: String,
    /// The pull request, if there is one yet.
    pub pull_request: Option<String>,
    run: String,
    task: String,
    branch: String,
}

impl Notice {
    /// The notice for programs: the body of a webhook, and the standard input of a command.
    #[must_use]
    pub fn payload(&self) -> Value {
        json!({
            "type": format!("run.{}", self.event.name()),
            "timestamp": self.at.to_string(),
            "data": {
                "id": self.id,
                "run": self.run,
                "task": self.task,
                "branch": self.branch,
                "title": self.title,
                "text": self.text,
                "pull_request": self.pull_request,
            },
        })
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The notice without secrets.
    pub(super) fn redacted(self, redactor: &Redactor) -> Self {
        let redact = |text: String| redactor.redact(&text);
        Self {
            title: redact(self.title),
            text: redact(self.text),
            pull_request: self.pull_request.map(redact),
            task: redact(self.task),
            branch: redact(self.branch),
            ..self
        }
    }
}

/// What is worth a notice in a journal, oldest first. A run that ends again in the same way without an iteration since gives no
/// second notice, and neither does an update of a pull request.
#[must_use]
pub fn notices(facts: &RunFacts, lines: &[JournalLine]) -> Vec<Notice> {
    let task = Task::parse(&facts.task).map_or_else(|_| facts.branch.clone(), |task| task.title().to_owned());
    let task = plain(&one_line(&task), MAX_TITLE);
    let mut found = Vec::new();
    let mut state = JournalState::default();
    for line in lines {
        let Some((event, text)) = state.read(&line.entry) else {
            continue;
        };
        found.push(Notice {
            id: format!("{}-{}-{}", facts.id, line.seq, line.at.as_millisecond()),
            event,
            at: line.at,
            title: format!("ralph: {}: {task}", event.words()),
            text: plain(&text, MAX_TEXT),
            pull_request: state.pull_request.clone(),
            run: facts.id.to_string(),
            task: task.clone(),
            branch: facts.branch.clone(),
        });
    }
    found
}

/// What the lines so far say.
#[derive(Default)]
struct JournalState {
    pull_request: Option<String>,
    /// The last end since the last iteration started.
    ended: Option<JournalEntry>,
    /// Whether a person asked for a pause since the run was opened.
    is_asked_to_pause: bool,
}

impl JournalState {
    /// Takes the next entry. Returns the event and its text if a notice is due.
    fn read(&mut self, entry: &JournalEntry) -> Option<(NotifyEvent, String)> {
        match entry {
            JournalEntry::Opened { .. } => {
                self.is_asked_to_pause = false;
                None
            }
            JournalEntry::IterationStarted { .. } => {
                self.ended = None;
                None
            }
            JournalEntry::Intervened { asked, refused: None } => {
                self.is_asked_to_pause |= asked.intervention == Intervention::Pause;
                None
            }
            JournalEntry::BudgetWarned {
                budget,
                limit,
                percent: BUDGET_PERCENT,
            } => Some((
                NotifyEvent::Budget,
                format!("{BUDGET_PERCENT} % of {budget} ({limit}) is used"),
            )),
            JournalEntry::PullRequest { location, .. } => {
                let is_new = self.pull_request.as_ref() != Some(location);
                self.pull_request = Some(location.clone());
                is_new.then(|| (NotifyEvent::PullRequest, location.clone()))
            }
            JournalEntry::CiFailed { commit, checks } => Some((
                NotifyEvent::CiFailed,
                format!("CI failed on commit {}: {}", commit.short(), checks.join(", ")),
            )),
            JournalEntry::Ended { .. } | JournalEntry::Broken { .. } => self.end(entry),
            _ => None,
        }
    }

    fn end(&mut self, entry: &JournalEntry) -> Option<(NotifyEvent, String)> {
        let is_repeated = self.ended.as_ref() == Some(entry);
        self.ended = Some(entry.clone());
        if is_repeated {
            return None;
        }
        match entry {
            JournalEntry::Ended { outcome, reason } => {
                let event = match outcome {
                    RunOutcomeKind::Done => NotifyEvent::Done,
                    RunOutcomeKind::Failed => NotifyEvent::Failed,
                    RunOutcomeKind::Paused if self.is_asked_to_pause => NotifyEvent::Paused,
                    RunOutcomeKind::Paused => NotifyEvent::NeedsAttention,
                    RunOutcomeKind::Stopped => return None,
                };
                Some((event, reason.clone()))
            }
            JournalEntry::Broken { reason } => Some((NotifyEvent::Failed, reason.clone())),
            _ => None,
        }
    }
}

fn plain(text: &str, limit: usize) -> String {
    first_bytes(&without_hidden(text), limit).to_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use rstest::rstest;

    use super::*;
    use crate::id::{ObjectId, RunId};
    use crate::state::{InterventionRequest, RUN_FORMAT};

    pub(crate) fn facts() -> RunFacts {
        RunFacts {
            format: RUN_FORMAT,
            id: RunId::parse("r2345").unwrap(),
            created: Timestamp::UNIX_EPOCH,
            version: String::new(),
            repository: "/repo".into(),
            task: "---\ntask_id: t1\ntest_command: make test\n---\n\n# Say\u{1b}[31m hello\n\n## Success Criteria\n\n\
                   - [ ] M1.1 one\n"
                .to_owned(),
            base: commit(),
            base_branch: None,
            branch: "ralph/t1".to_owned(),
            project: None,
            overrides: Vec::new(),
            script: None,
            issue: None,
        }
    }

    pub(crate) fn lines(entries: impl IntoIterator<Item = JournalEntry>) -> Vec<JournalLine> {
        (1..)
            .zip(entries)
            .map(|(seq, entry)| JournalLine {
                seq,
                at: Timestamp::from_second(i64::try_from(seq).unwrap()).unwrap(),
                monotonic_ms: None,
                entry,
            })
            .collect()
    }

    fn commit() -> ObjectId {
        ObjectId::parse("a".repeat(40).as_str()).unwrap()
    }

    fn opened() -> JournalEntry {
        JournalEntry::Opened {
            owner: String::new(),
            format: 1,
        }
    }

    fn started() -> JournalEntry {
        JournalEntry::IterationStarted { iteration: 1 }
    }

    pub(crate) fn ended(outcome: RunOutcomeKind) -> JournalEntry {
        JournalEntry::Ended {
            outcome,
            reason: "because".to_owned(),
        }
    }

    fn broken() -> JournalEntry {
        JournalEntry::Broken {
            reason: "no engine".to_owned(),
        }
    }

    fn pause() -> JournalEntry {
        let asked = InterventionRequest::new(Intervention::Pause, "ada".to_owned(), Timestamp::UNIX_EPOCH);
        JournalEntry::Intervened {
            asked: Box::new(asked),
            refused: None,
        }
    }

    fn warned(percent: u32) -> JournalEntry {
        JournalEntry::BudgetWarned {
            budget: "max_iterations".to_owned(),
            limit: "10".to_owned(),
            percent,
        }
    }

    fn pull_request(location: &str) -> JournalEntry {
        JournalEntry::PullRequest {
            location: location.to_owned(),
            commit: commit(),
        }
    }

    fn ci_failed() -> JournalEntry {
        JournalEntry::CiFailed {
            commit: commit(),
            checks: vec!["lint".to_owned(), "test".to_owned()],
        }
    }

    #[rstest]
    #[case::nothing(vec![opened(), started()], &[])]
    #[case::done(vec![ended(RunOutcomeKind::Done)], &["done"])]
    #[case::failed(vec![ended(RunOutcomeKind::Failed)], &["failed"])]
    #[case::broken(vec![broken()], &["failed"])]
    #[case::stopped_by_a_person(vec![ended(RunOutcomeKind::Stopped)], &[])]
    #[case::paused_by_a_rule(vec![opened(), ended(RunOutcomeKind::Paused)], &["needs_attention"])]
    #[case::paused_by_a_person(vec![opened(), pause(), ended(RunOutcomeKind::Paused)], &["paused"])]
    #[case::an_earlier_pause(vec![pause(), opened(), ended(RunOutcomeKind::Paused)], &["needs_attention"])]
    #[case::shares(vec![warned(50), warned(80), warned(95)], &["budget"])]
    #[case::an_updated_pull_request(vec![pull_request("u/1"), pull_request("u/1")], &["pull_request"])]
    #[case::ci(vec![ci_failed(), started(), ci_failed()], &["ci_failed", "ci_failed"])]
    #[case::the_same_end_again(vec![broken(), opened(), broken()], &["failed"])]
    #[case::the_same_end_after_work(vec![broken(), started(), broken()], &["failed", "failed"])]
    #[case::another_end(vec![broken(), ended(RunOutcomeKind::Paused)], &["failed", "needs_attention"])]
    fn the_journal_decides_what_is_notified(#[case] entries: Vec<JournalEntry>, #[case] expected: &[&str]) {
        let found = notices(&facts(), &lines(entries));
        let names: Vec<&str> = found.iter().map(|notice| notice.event.name()).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn a_notice_says_what_happened_to_which_task() {
        let lines = lines([pull_request("https://u/1"), ended(RunOutcomeKind::Done)]);
        let found = notices(&facts(), &lines);
        let payload = found[1].payload();
        assert_eq!(
            payload,
            json!({
                "type": "run.done",
                "timestamp": "1970-01-01T00:00:02Z",
                "data": {
                    "id": "r2345-2-2000",
                    "run": "r2345",
                    "task": "Say[31m hello",
                    "branch": "ralph/t1",
                    "title": "ralph: done: Say[31m hello",
                    "text": "because",
                    "pull_request": "https://u/1",
                },
            })
        );
    }
}
