//! The doctor: a strong model that looks at a stuck run and says what it sees. What it says goes to
//! `.ralph/diagnostics.md`; its signs and its choice of model are applied, or wait for a person.

use std::sync::atomic::Ordering;

use minijinja::{Environment, UndefinedBehavior, context};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::EventKind;
use crate::model::{CallPurpose, ModelMessage, Profile};
use crate::state::{IterationRecord, IterationVerdict, JournalEntry, RunOutcomeKind};

use super::ask::Call;
use super::error::{Halt, RunError};
use super::prompt::PromptError;
use super::run::Run;
use super::settings::DoctorApply;
use super::text::{self, list};
use super::watch::{self, Urgent};
use super::work::time_is_up;

const TEMPLATE: &str = include_str!("../../templates/prompt/doctor.md.j2");
/// How many iterations the doctor is shown.
const SHOWN: usize = 10;
/// How much of each text the doctor is shown.
const TEXT_SHOWN: usize = 16_000;
const MOST_SIGNS: usize = 3;

/// What the doctor says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Diagnosis {
    /// The pattern of failure, in one or two sentences.
    failure_pattern: String,
    /// One to three short lessons for the agent.
    signs: Vec<String>,
    /// Proposals for the task's text, for a person.
    #[serde(default)]
    spec_edits: Vec<String>,
    /// The profile to go on with; null keeps the current one.
    #[serde(default)]
    model_suggestion: Option<String>,
}

/// What came of asking the doctor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consulted {
    /// There is a diagnosis.
    Diagnosed,
    /// There is an answer, which is none.
    Unusable,
    /// The doctor gave no answer.
    NotAtAll,
}

impl Run<'_> {
    /// A diagnosis between two iterations, because a person asked for it.
    pub(super) async fn consult(&mut self) -> Result<(), Halt> {
        let Some(mut record) = self.journal.records().next_back().cloned() else {
            self.reporter
                .warn("there is nothing to diagnose before the first iteration");
            return Ok(());
        };
        // What followed from that iteration has happened; a person took the run up since, if it was a pause.
        record.verdict = IterationVerdict::GoOn;
        let before = record.next_profile.clone();
        self.diagnose(&mut record).await?;
        if record.next_profile != before {
            self.note(JournalEntry::Profile {
                name: record.next_profile,
            })?;
        }
        match record.verdict {
            IterationVerdict::Paused { reason } => Err(Halt::paused(reason)),
            IterationVerdict::Failed { reason } => Err(Halt::failed(reason)),
            IterationVerdict::GoOn | IterationVerdict::Complete => Ok(()),
        }
    }

    /// A diagnosis of a run that rests: kept, and returned.
    pub(super) async fn diagnosed(&mut self) -> Result<String, RunError> {
        let before = self.notebook.read("diagnostics.md")?.len();
        let rested = self.rested();
        let consulted = match self.consult().await {
            // With `apply = "wait"` the diagnosis is there and waits, which is all that was asked for.
            Err(Halt::End { .. }) | Ok(()) => self.checkpoint(rested).await,
            broken => broken,
        };
        match consulted {
            Err(Halt::Broken(error)) => Err(error),
            Ok(()) | Err(Halt::End { .. }) => Ok(self.notebook.read("diagnostics.md")?.split_off(before)),
        }
    }

    /// How the run had ended before it was opened for a diagnosis, after which it rests in the same way.
    fn rested(&self) -> Option<JournalEntry> {
        let before_opening = self.journal.lines().iter().rev().nth(1)?;
        matches!(before_opening.entry, JournalEntry::Ended { .. }).then(|| before_opening.entry.clone())
    }

    /// Asks the doctor. A suggestion of another model lands in the record's `next_profile`.
    ///
    /// A doctor who cannot be asked ends the run, but not before the iteration is recorded: its work has happened.
    pub(super) async fn diagnose(&mut self, record: &mut IterationRecord) -> Result<Consulted, Halt> {
        let Some(profile) = self.doctor_profile() else {
            self.reporter
                .warn("no doctor profile is configured (doctor_profile)");
            return Ok(Consulted::NotAtAll);
        };
        let prompt = self.doctor_prompt()?;
        let call = Call {
            iteration: record.iteration,
            number: 0,
            purpose: CallPurpose::Doctor,
        };
        let limit = self
            .settings
            .iteration_timeout
            .min(self.ledger().time_left(&self.settings.budget));
        let (inbox, waiting) = (self.dir.inbox(), self.waiting.clone());
        waiting.store(0, Ordering::Relaxed);
        let reply = tokio::select! {
            reply = self.ask(&profile, vec![ModelMessage::user(prompt)], call) => reply,
            urgent = watch::urgent(&inbox) => match urgent? {
                Urgent::Stop => return Err(Halt::stopped("stopped by a person")),
                Urgent::Rotate => return Ok(Consulted::NotAtAll),
            },
            () = time_is_up(limit, &waiting) => {
                self.reporter.warn("the doctor took too long and was not waited for");
                return Ok(Consulted::NotAtAll);
            }
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(Halt::End {
                kind: RunOutcomeKind::Paused,
                reason,
            }) => {
                record.verdict = IterationVerdict::Paused { reason };
                return Ok(Consulted::NotAtAll);
            }
            Err(Halt::End {
                kind: RunOutcomeKind::Failed,
                reason,
            }) => {
                record.verdict = IterationVerdict::Failed { reason };
                return Ok(Consulted::NotAtAll);
            }
            Err(halt) => return Err(halt),
        };
        self.heed(&reply.text, record)
    }

    /// Applies an answer, or puts on record that it is none.
    fn heed(&mut self, answer: &str, record: &mut IterationRecord) -> Result<Consulted, Halt> {
        match read(answer) {
            Ok(diagnosis) => {
                self.apply(&diagnosis, record)?;
                Ok(Consulted::Diagnosed)
            }
            Err(reason) => {
                let what = format!("the doctor's answer could not be used: {reason}");
                self.log_error(record.iteration, &what)?;
                self.reporter.warn(what);
                Ok(Consulted::Unusable)
            }
        }
    }

    fn doctor_profile(&self) -> Option<Profile> {
        let profiles = &self.settings.profiles;
        profiles
            .doctor
            .as_ref()
            .and_then(|name| profiles.get(name))
            .cloned()
    }

    fn apply(&mut self, diagnosis: &Diagnosis, record: &mut IterationRecord) -> Result<(), Halt> {
        let text = diagnosis_text(diagnosis, record.iteration);
        self.notebook.append("diagnostics.md", &text)?;
        self.log_activity(&format!("doctor: {}", diagnosis.failure_pattern))?;
        let detail = diagnosis.failure_pattern.clone();
        self.reporter.emit(EventKind::Diagnosed { pattern: detail });
        if self.settings.doctor.apply == DoctorApply::Wait {
            let reason = "a diagnosis waits in .ralph/diagnostics.md ([doctor] apply = \"wait\")".to_owned();
            record.verdict = IterationVerdict::Paused { reason };
            return Ok(());
        }
        let heading = format!("### Signs of the doctor after iteration {}", record.iteration);
        self.notebook.append(
            "guardrails.md",
            &format!("\n{heading}\n{}", list(&diagnosis.signs)),
        )?;
        if let Some(name) = &diagnosis.model_suggestion {
            if self.settings.profiles.get(name).is_some() {
                record.next_profile.clone_from(name);
            } else {
                self.reporter.warn(format!(
                    "the doctor suggests the model `{name}`, which is no profile here"
                ));
            }
        }
        Ok(())
    }

    fn doctor_prompt(&self) -> Result<String, Halt> {
        let records: Vec<&IterationRecord> = self.journal.records().collect();
        let recent = &records[records.len().saturating_sub(SHOWN)..];
        let iterations: String = recent.iter().map(|record| iteration_text(record)).collect();
        let tests = match self
            .seen
            .tests_file
            .as_deref()
            .and_then(|file| file.strip_prefix(".ralph/"))
        {
            Some(file) => self.notebook.read(file)?,
            None => String::new(),
        };
        let schema = serde_json::to_string_pretty(&schemars::schema_for!(Diagnosis)).unwrap_or_default();
        let mut templates = Environment::new();
        templates.set_undefined_behavior(UndefinedBehavior::Strict);
        let values = context! {
            task => end_of(&self.task_text()),
            guardrails => end_of(&self.notebook.read("guardrails.md")?),
            iterations => iterations,
            errors => end_of(&self.notebook.read("errors.log")?),
            tests => end_of(&tests),
            schema => schema,
            profiles => self.settings.profiles.all.keys().cloned().collect::<Vec<_>>().join(", "),
        };
        Ok(templates
            .render_str(TEMPLATE, values)
            .map_err(PromptError::from)?)
    }
}

/// Reads the doctor's answer as strictly as an agent's.
fn read(text: &str) -> Result<Diagnosis, String> {
    let diagnosis: Diagnosis = serde_json::from_str(text.trim()).map_err(|error| error.to_string())?;
    if diagnosis.signs.is_empty() || diagnosis.signs.len() > MOST_SIGNS {
        return Err(format!(
            "{} signs, expected 1 to {MOST_SIGNS}",
            diagnosis.signs.len()
        ));
    }
    Ok(diagnosis)
}

fn diagnosis_text(diagnosis: &Diagnosis, iteration: u32) -> String {
    let model = diagnosis
        .model_suggestion
        .as_deref()
        .unwrap_or("(keep the current one)");
    format!(
        "\n## Diagnosis after iteration {iteration}\n\n{}\n\nSigns:\n{}\nProposed edits of the task:\n{}\nModel: {model}\n",
        diagnosis.failure_pattern.trim(),
        list(&diagnosis.signs),
        list(&diagnosis.spec_edits),
    )
}

fn iteration_text(record: &IterationRecord) -> String {
    let failures: Vec<String> = record
        .failures
        .iter()
        .map(|failure| format!("`{}` exit {}", failure.command, failure.code))
        .collect();
    format!(
        "- {}: {} [{} changed lines, loop score {:.2}, failures: {}]\n",
        record.iteration,
        record.summary,
        record.changed_lines,
        record.score.total,
        if failures.is_empty() {
            "none".to_owned()
        } else {
            failures.join(", ")
        }
    )
}

fn end_of(text: &str) -> &str {
    text::end(text, TEXT_SHOWN)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::whole(r#"{"failure_pattern":"p","signs":["s"]}"#, None)]
    #[case::no_signs(r#"{"failure_pattern":"p","signs":[]}"#, Some("0 signs"))]
    #[case::too_many(r#"{"failure_pattern":"p","signs":["1","2","3","4"]}"#, Some("4 signs"))]
    #[case::unknown_field(r#"{"failure_pattern":"p","signs":["s"],"x":1}"#, Some("unknown field `x`"))]
    #[case::prose("I think it is stuck.", Some("expected value"))]
    fn an_answer_is_read_strictly(#[case] text: &str, #[case] refused: Option<&str>) {
        match (read(text), refused) {
            (Ok(_), None) => {}
            (Err(reason), Some(expected)) => assert!(reason.contains(expected), "{reason}"),
            (result, _) => panic!("{result:?}"),
        }
    }
}
