//! One iteration: prompt, agent, hand-back, evidence, verdict, record.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Instant;

use crate::agent::{AgentBrief, AgentConclusion};
use crate::event::EventKind;
use crate::model::Profile;
use crate::state::{Intervention, JournalEntry};
use crate::task::{CheckboxId, ticked_ids};

use super::RunError;
use super::agent_request::take_request;
use super::agent_work::{AgentWork, run_agent};
use super::collect::{Collected, collect};
use super::error::{Halt, is_sandbox_fault};
use super::evidence::{Evidence, checkboxes_named};
use super::gutter;
use super::interventions::until_stopped;
use super::ladder::carry_out;
use super::leftovers::unseen_notice;
use super::progress::RunProgress;
use super::prompt::{self, PromptInput};
use super::run::Run;
use super::verdict::decide;

/// The largest task file that is read back from the clone, in bytes.
const MAX_TASK_FILE: u64 = 4 * 1024 * 1024;
/// How many recent loop scores the prompt shows.
const SCORES_SHOWN: usize = 5;

impl<'a> Run<'a> {
    /// One iteration, from the prompt to the checkpoint.
    pub(super) async fn iterate(&mut self) -> Result<(), Halt> {
        let (number, started) = (self.progress.iterations() + 1, Instant::now());
        let before = self.progress.ledger();
        let profile = self.start_iteration(number)?;
        self.workplace.prepare(&mut self.progress).await?;
        let brief = self.brief(number, profile)?;
        let clone = self.workplace.clone_dir();
        let sandbox = self.workplace.sandbox();
        self.progress.files.copy(sandbox, &clone).await?;
        let mut work = run_agent(&mut self.progress, &self.workplace, &brief, profile).await?;
        self.heed_request(&mut work).await?;
        let collected = collect(&mut self.workplace, &mut self.progress, &mut work.actions).await?;
        let inputs = self.inputs;
        let evidence = tokio::select! {
            evidence = self.verify(&work, &collected, number) => evidence?,
            halt = until_stopped(inputs) => return Err(halt),
        };
        // Only now: what the agent wrote into the run files belongs to work that was handed back.
        let sandbox = self.workplace.sandbox();
        self.progress.collect_hand_edits()?;
        let read_back = self.progress.files.read_back(sandbox, &clone).await?;
        work.has_notes = read_back.has_notes;
        if let Some(refused) = read_back.refused {
            self.inputs.reporter.warn(refused);
            self.progress.log_error(number, refused)?;
        }
        let mut record = self.judge(number, profile, &work, &collected, &evidence);
        self.progress
            .keep_round_open(&mut record, &work.outcome.conclusion);
        let decision = decide(&mut record, &work.outcome.conclusion, &self.progress);
        carry_out(decision, &mut record, &mut self.progress).await?;
        record.milliseconds = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        (record.tokens, record.cost) = self.progress.ledger().used_since(&before);
        self.write_iteration_files(&record, &work, &collected, &evidence)?;
        self.record_iteration(record, &collected, evidence).await
    }

    /// Ends the iteration as the agent asks for in its request file. A request that cannot be used is an error of the agent.
    async fn heed_request(&self, work: &mut AgentWork) -> Result<(), RunError> {
        let (sandbox, clone) = (self.workplace.sandbox(), self.workplace.clone_dir());
        match take_request(sandbox, &clone).await? {
            Some(Ok(conclusion)) => work.outcome.conclusion = conclusion,
            Some(Err(problem)) => {
                self.inputs.reporter.warn(problem.clone());
                work.actions.errors.push(problem);
            }
            None => {}
        }
        Ok(())
    }

    /// Records and reports that an iteration starts, and returns its profile.
    fn start_iteration(&mut self, number: u32) -> Result<&'a Profile, RunError> {
        self.inputs.reporter.begin_iteration(number);
        let profile = next_profile(&self.progress, true)?;
        let started = JournalEntry::IterationStarted { iteration: number };
        self.progress.append(started)?;
        let began = format!("iteration {number} began with profile {}", profile.name);
        self.progress.log_activity(&began)?;
        self.inputs.reporter.emit(EventKind::IterationStarted {
            profile: profile.name.clone(),
        });
        Ok(profile)
    }

    /// Renders the prompt and keeps it with the run files.
    fn brief(&mut self, number: u32, profile: &Profile) -> Result<AgentBrief, RunError> {
        let (inputs, progress) = (self.inputs, &mut self.progress);
        let input = PromptInput {
            clone: self.workplace.clone_dir().display().to_string(),
            branch: inputs.dir.facts().branch.clone(),
            task: progress.task_text(),
            reviews: progress.reviews()?,
            guardrails: progress.files.read("guardrails.md")?,
            progress: progress.files.read("progress.md")?,
            notes: progress.files.read("notes.md")?,
            errors: progress.files.read("errors.log")?,
            tip: progress.tip.to_string(),
            last: progress.last.clone(),
            tests: progress.test_output()?,
            budgets: budgets_text(number, progress),
            answer_format: inputs.parts.agents.for_profile(&profile.name).answer_format(),
        };
        let text = prompt::render(&input, inputs.settings.prompt_bytes)?;
        let text = inputs.parts.redactor.redact(&text);
        let file = format!("iterations/{number}/prompt.md");
        progress.files.write(&file, &text)?;
        Ok(AgentBrief {
            text,
            iteration: number,
            home: self.workplace.sandbox().root().join("agent"),
            cost_left: progress.cost_left(),
        })
    }

    /// Gathers evidence for the reported checkboxes. Otherwise runs the tests as feedback, when the tree is new.
    async fn verify(
        &mut self,
        work: &AgentWork,
        collected: &Collected,
        number: u32,
    ) -> Result<Evidence, RunError> {
        let reported = self.reported_checkboxes(work, number).await?;
        let mut found = self.verify_commit(&collected.snapshot.tip, &reported).await?;
        if let Some(work) = collected
            .uncommitted
            .as_ref()
            .filter(|work| work.commit.is_none())
        {
            let (tip, base) = (&collected.snapshot.tip, &self.inputs.dir.facts().base);
            let notice = unseen_notice(work, tip, base, !found.checks.is_empty());
            let warning =
                format!("{notice}, or set `git.commit_leftovers` to have ralph commit what is left");
            self.inputs.reporter.warn(warning);
            found.errors.push(notice);
        }
        let tests = &self.task.frontmatter.test_command;
        let untested = self.progress.last.tested_tree.as_ref() != Some(&collected.snapshot.tree);
        if untested && !found.ran(tests) {
            self.feedback(tests, &mut found).await?;
        }
        self.review(&collected.snapshot.tip, &mut found).await?;
        Ok(found)
    }

    /// The checkboxes that the agent reports as finished: in its answer, by editing the task file, or by reporting the
    /// whole task as done.
    async fn reported_checkboxes(
        &mut self,
        work: &AgentWork,
        number: u32,
    ) -> Result<BTreeSet<CheckboxId>, RunError> {
        let checkboxes = &self.task.checkboxes;
        let finished = &work.outcome.progress;
        let names = finished
            .checkboxes_checked
            .iter()
            .chain(&finished.milestones_completed);
        let (mut reported, unknown) = checkboxes_named(checkboxes, names.cloned());
        for checkbox in unknown {
            let reason = "the task has no such checkbox".to_owned();
            self.progress
                .log_error(number, &format!("reported `{checkbox}` as finished: {reason}"))?;
            self.inputs
                .reporter
                .emit(EventKind::NotTicked { checkbox, reason });
        }
        let file = self.workplace.clone_dir().join("ralph_task.md");
        match self.workplace.sandbox().files().read(&file, MAX_TASK_FILE).await {
            Ok(bytes) => reported.extend(ticked_ids(&String::from_utf8_lossy(&bytes))),
            Err(error) if is_sandbox_fault(error.kind()) => return Err(error.into()),
            // The agent removed it, or replaced it with something that is too large or not a file.
            Err(_) => {}
        }
        if matches!(work.outcome.conclusion, AgentConclusion::StopSuccess { .. }) {
            reported.extend(checkboxes.iter().map(|checkbox| checkbox.id.clone()));
        }
        reported.retain(|id| checkboxes.iter().any(|checkbox| &checkbox.id == id));
        Ok(reported)
    }
}

/// The profile of the next iteration: what was decided last, else the default. Without `with_once`, the profile to go on with
/// after that iteration.
pub(super) fn next_profile<'a>(progress: &RunProgress<'a>, with_once: bool) -> Result<&'a Profile, RunError> {
    let profiles = &progress.inputs.settings.profiles;
    let mut lines = progress.journal.lines().iter().rev();
    let decided = lines.find_map(|line| match &line.entry {
        JournalEntry::Recorded(record) => Some(&record.next_profile),
        JournalEntry::Profile { name } => Some(name),
        JournalEntry::Intervened { asked, refused: None } => match &asked.intervention {
            Intervention::Profile { name, once } if with_once || !once => Some(name),
            _ => None,
        },
        _ => None,
    });
    let name = decided.unwrap_or(&profiles.default);
    // A profile that was removed from the configuration since gives way to the default.
    let profile = profiles.get(name).or_else(|| profiles.get(&profiles.default));
    profile.ok_or_else(|| RunError::NoProfile(name.clone()))
}

/// What the prompt says about the budgets and the recent loop scores.
fn budgets_text(number: u32, progress: &RunProgress<'_>) -> String {
    let (budget, spent) = (&progress.budget, progress.ledger());
    let mut text = format!("Iteration {number} of {}\n", budget.max_iterations);
    let _ = writeln!(text, "Minutes left: {}", spent.time_left(budget).as_secs() / 60);
    if let Some(limit) = budget.max_cost {
        let _ = writeln!(text, "Cost: {} of {limit}", spent.cost);
    }
    if let Some(limit) = budget.max_tokens {
        let _ = writeln!(text, "Tokens: {} of {limit}", spent.tokens.total());
    }
    let records = progress.journal.records().rev().take(SCORES_SHOWN);
    let mut scores: Vec<String> = records
        .map(|record| format!("{:.2}", record.score.total))
        .collect();
    scores.reverse();
    let shown = if scores.is_empty() {
        "none yet".to_owned()
    } else {
        scores.join(", ")
    };
    let _ = write!(
        text,
        "Recent loop scores (0 is fine, {} is going in circles): {shown}",
        gutter::GUTTER_SCORE
    );
    text
}
