//! The doctor: a strong model that diagnoses a stuck run. The diagnosis goes to `.ralph/diagnostics.md`; its signs and
//! its choice of model are applied, or wait for a person.

use minijinja::{Environment, UndefinedBehavior, context};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::EventKind;
use crate::model::{CallPurpose, ModelMessage, ModelReply, ModelRequest, Profile};
use crate::state::{IterationRecord, IterationVerdict, JournalEntry, RunOutcomeKind, StateError};
use crate::text::counted;

use super::error::{Halt, RunError};
use super::interventions::until_rotated;
use super::model_calls;
use super::progress::RunProgress;
use super::prompt::PromptError;
use super::text::{self, list};

const TEMPLATE: &str = include_str!("../../templates/prompt/doctor.md.j2");
/// How many iterations the doctor is shown.
const MAX_ITERATIONS: usize = 10;
/// How much of each text the doctor is shown, in bytes.
const MAX_TEXT: usize = 16_000;
const MAX_SIGNS: usize = 3;

/// The doctor's answer.
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

/// The result of a question that was not answered, for people.
const UNANSWERED: &str = "it gave no answer";

impl RunProgress<'_> {
    /// Diagnoses the run between two iterations, because a person asked for it.
    pub(super) async fn consult_doctor_now(&mut self) -> Result<(), Halt> {
        let Some(mut record) = self.last_record().cloned() else {
            self.inputs
                .reporter
                .warn("there is nothing to diagnose before the first iteration");
            return Ok(());
        };
        // The verdict of that iteration has already taken effect, and a person resumed the run if it was a pause.
        record.verdict = IterationVerdict::GoOn;
        let before = record.next_profile.clone();
        self.consult_doctor(&mut record).await?;
        if record.next_profile != before {
            let name = record.next_profile;
            self.append(JournalEntry::Profile { name })?;
        }
        Halt::from_verdict(record.verdict)
    }

    /// Asks the doctor, and returns the result for people. A suggested model becomes the `next_profile` of the record.
    ///
    /// A doctor that cannot be asked ends the run through the record's verdict, because the work of the iteration has to
    /// be recorded first.
    pub(super) async fn consult_doctor(
        &mut self,
        record: &mut IterationRecord,
    ) -> Result<&'static str, Halt> {
        let profiles = &self.inputs.settings.profiles;
        let Some(profile) = profiles.doctor.as_ref().and_then(|name| profiles.get(name)) else {
            self.inputs
                .reporter
                .warn("no doctor profile is configured (doctor_profile)");
            return Ok(UNANSWERED);
        };
        match self.ask_doctor(profile, record.iteration).await {
            Ok(Some(reply)) => return Ok(self.apply_answer(&reply.text, record)?),
            Ok(None) => {}
            Err(Halt::End {
                kind: RunOutcomeKind::Paused,
                reason,
            }) => record.pause(reason),
            Err(Halt::End {
                kind: RunOutcomeKind::Failed,
                reason,
            }) => record.fail(reason),
            Err(halt) => return Err(halt),
        }
        Ok(UNANSWERED)
    }

    /// Asks within the time limit of an iteration. `None` when the time is up, or a person asked for a fresh iteration.
    async fn ask_doctor(&mut self, profile: &Profile, iteration: u32) -> Result<Option<ModelReply>, Halt> {
        let request = ModelRequest {
            profile: profile.clone(),
            messages: vec![ModelMessage::user(self.doctor_prompt()?)],
            iteration,
            call: 0,
            purpose: CallPurpose::Doctor,
        };
        let (limit, reporter) = (self.time_limit(), self.inputs.reporter);
        let (inbox, timer) = (self.inputs.dir.inbox(), self.start_timer());
        tokio::select! {
            reply = model_calls::ask(self, request) => reply.map(Some),
            rotated = until_rotated(&inbox) => rotated.map(|()| None),
            () = timer.timeout(limit) => {
                reporter
                    .warn(format!("the doctor did not answer within {} s", limit.as_secs()));
                Ok(None)
            }
        }
    }

    /// Applies an answer, or logs why it cannot be used.
    fn apply_answer(
        &mut self,
        answer: &str,
        record: &mut IterationRecord,
    ) -> Result<&'static str, StateError> {
        match parse(answer) {
            Ok(diagnosis) => {
                self.apply_diagnosis(&diagnosis, record)?;
                Ok("see .ralph/diagnostics.md")
            }
            Err(reason) => {
                let what = format!("the doctor's answer could not be used: {reason}");
                self.log_error(record.iteration, &what)?;
                self.inputs.reporter.warn(what);
                Ok("its answer could not be used")
            }
        }
    }

    fn apply_diagnosis(
        &mut self,
        diagnosis: &Diagnosis,
        record: &mut IterationRecord,
    ) -> Result<(), StateError> {
        let (settings, reporter) = (self.inputs.settings, self.inputs.reporter);
        let pattern = diagnosis.failure_pattern.clone();
        let text = diagnosis_text(diagnosis, record.iteration);
        self.files.append("diagnostics.md", &text)?;
        self.log_activity(&format!("doctor: {pattern}"))?;
        reporter.emit(EventKind::Diagnosed { pattern });
        if !settings.doctor.apply_diagnosis {
            record.pause("a diagnosis waits in .ralph/diagnostics.md ([doctor] apply = \"wait\")".to_owned());
            return Ok(());
        }
        let heading = format!("### Signs of the doctor after iteration {}", record.iteration);
        let signs = format!("\n{heading}\n{}", list(&diagnosis.signs));
        self.files.append("guardrails.md", &signs)?;
        match &diagnosis.model_suggestion {
            Some(name) if settings.profiles.get(name).is_some() => record.next_profile.clone_from(name),
            Some(name) => reporter.warn(format!(
                "the doctor suggests the model `{name}`, but there is no such profile"
            )),
            None => {}
        }
        Ok(())
    }

    fn doctor_prompt(&self) -> Result<String, RunError> {
        let records: Vec<&IterationRecord> = self.journal.records().collect();
        let recent = &records[records.len().saturating_sub(MAX_ITERATIONS)..];
        let iterations: String = recent.iter().map(|record| iteration_text(record)).collect();
        let profiles: Vec<&str> = self
            .inputs
            .settings
            .profiles
            .all
            .keys()
            .map(String::as_str)
            .collect();
        let schema = serde_json::to_string_pretty(&schemars::schema_for!(Diagnosis))
            .map_err(StateError::encode("diagnosis.schema.json"))?;
        let mut templates = Environment::new();
        templates.set_undefined_behavior(UndefinedBehavior::Strict);
        let values = context! {
            task => shortened(&self.task_text()),
            guardrails => shortened(&self.files.read("guardrails.md")?),
            iterations => iterations,
            errors => shortened(&self.files.read("errors.log")?),
            tests => shortened(&self.test_output()?),
            schema => schema,
            profiles => profiles.join(", "),
        };
        let rendered = templates.render_str(TEMPLATE, values);
        Ok(rendered.map_err(PromptError::from)?)
    }
}

/// Parses the doctor's answer as strictly as an agent's.
fn parse(text: &str) -> Result<Diagnosis, String> {
    let diagnosis: Diagnosis = serde_json::from_str(text.trim()).map_err(|error| error.to_string())?;
    if diagnosis.signs.is_empty() || diagnosis.signs.len() > MAX_SIGNS {
        return Err(format!(
            "{}, expected 1 to {MAX_SIGNS}",
            counted(diagnosis.signs.len(), "sign")
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
        "- {}: {} [{}, loop score {:.2}, failures: {}]\n",
        record.iteration,
        record.summary,
        counted(record.changed_lines, "changed line"),
        record.score.total,
        if failures.is_empty() {
            "none".to_owned()
        } else {
            failures.join(", ")
        }
    )
}

/// The end of a text, which is its newest part.
fn shortened(text: &str) -> &str {
    text::last_bytes(text, MAX_TEXT)
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
        match (parse(text), refused) {
            (Ok(_), None) => {}
            (Err(reason), Some(expected)) => assert!(reason.contains(expected), "{reason}"),
            (result, _) => panic!("{result:?}"),
        }
    }
}
