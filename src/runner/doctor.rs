//! The doctor: a strong model that diagnoses a stuck run. The diagnosis goes to `.ralph/diagnostics.md`; its signs and
//! its choice of model are applied, or wait for a person.

use minijinja::{Environment, UndefinedBehavior, context};

use crate::event::EventKind;
use crate::model::{CallPurpose, ModelMessage, ModelReply, ModelRequest, Profile};
use crate::state::{
    DoctorReport, IterationRecord, IterationVerdict, JournalEntry, RunOutcomeKind, StateError,
    standing_records,
};
use crate::text::{counted, last_bytes};

use super::error::{Halt, RunError};
use super::interventions::until_rotated;
use super::model_calls;
use super::progress::RunProgress;
use super::prompt::PromptError;

const TEMPLATE: &str = include_str!("../../templates/prompt/doctor.md.j2");
/// How many iterations the doctor is shown.
const MAX_ITERATIONS: usize = 10;
/// How much of each text the doctor is shown, in bytes.
const MAX_TEXT: usize = 16_000;

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
        reporter.emit(EventKind::StepStarted {
            what: format!("asking the doctor (profile {})", profile.name),
        });
        let (inputs, timer) = (self.inputs, self.start_timer());
        tokio::select! {
            reply = model_calls::ask(self, request) => reply.map(Some),
            rotated = until_rotated(inputs) => rotated.map(|()| None),
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
        match DoctorReport::parse(answer) {
            Ok(report) => {
                self.apply_diagnosis(report, record)?;
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
        mut report: DoctorReport,
        record: &mut IterationRecord,
    ) -> Result<(), StateError> {
        let (settings, reporter) = (self.inputs.settings, self.inputs.reporter);
        if let Some(name) = report
            .profile
            .take_if(|name| !settings.profiles.callable().any(|known| known == name))
        {
            reporter.warn(format!(
                "the doctor suggests the model `{name}`, but there is no such profile that can be called"
            ));
        }
        let (pattern, iteration) = (report.failure_patterns.join(" "), record.iteration);
        self.files.append("diagnostics.md", &report.text(iteration))?;
        self.log_activity(&format!("doctor: {pattern}"))?;
        reporter.emit(EventKind::Diagnosed { pattern });
        let applied = settings.doctor.apply_diagnosis;
        if applied {
            for sign in &report.signs {
                self.files.append("guardrails.md", &sign.text(iteration))?;
            }
            if let Some(name) = &report.profile {
                record.next_profile.clone_from(name);
            }
        } else {
            let run = &self.facts().id;
            record.pause(format!(
                "a diagnosis waits in .ralph/diagnostics.md; `ralph doctor {run} --apply` applies it"
            ));
        }
        self.append(JournalEntry::Diagnosed {
            iteration,
            report: Box::new(report),
            applied,
        })
    }

    fn doctor_prompt(&self) -> Result<String, RunError> {
        let records = standing_records(self.journal.lines());
        let recent = &records[records.len().saturating_sub(MAX_ITERATIONS)..];
        let iterations: String = recent.iter().map(|record| iteration_text(record)).collect();
        let profiles: Vec<&str> = self.inputs.settings.profiles.callable().collect();
        let schema = serde_json::to_string_pretty(&schemars::schema_for!(DoctorReport))
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
    last_bytes(text, MAX_TEXT)
}
