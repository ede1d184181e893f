//! One iteration: prompt, work, collection, evidence, verdict, record.

use crate::text::error_chain;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Instant;

use crate::agent::{AgentBrief, AgentConclusion};
use crate::event::EventKind;
use crate::model::Profile;
use crate::sandbox::SandboxErrorKind;
use crate::scm::{self, Diff, Head, Refusal, ScmError, Snapshot};
use crate::state::JournalEntry;
use crate::task::{CheckboxId, ticked_ids};
use crate::usage::Tokens;

use super::error::Halt;
use super::evidence::{Verified, boxes_named};
use super::gutter;
use super::logbook::Finished;
use super::prompt::{self, PromptState};
use super::run::Run;
use super::verdict::unjudged;
use super::watch;
use super::work::Work;

/// The longest task file read back from the clone.
const TASK_LIMIT: u64 = 4 * 1024 * 1024;
/// How often the clone's index is renewed, in iterations.
const RENEW_INDEX_EVERY: u32 = 10;
/// How many earlier loop scores the prompt shows.
const SCORES_SHOWN: usize = 5;

/// What an iteration changed.
pub(super) struct Collected {
    pub(super) snapshot: Snapshot,
    pub(super) diff: Diff,
    pub(super) new_work_committed: bool,
}

impl Run<'_> {
    /// One iteration, from prompt to checkpoint.
    pub(super) async fn iterate(&mut self) -> Result<(), Halt> {
        let (number, started, before) = (self.recorded() + 1, Instant::now(), self.ledger());
        self.reporter = self.reporter.in_iteration(number);
        let profile = self.profile()?;
        self.note(JournalEntry::IterationStarted { iteration: number })?;
        self.log_activity(&format!("iteration {number} began with profile {}", profile.name))?;
        self.reporter.emit(EventKind::IterationStarted {
            profile: profile.name.clone(),
        });

        self.change_sandbox().await?;
        self.sandbox.verify().await?;
        let brief = self.brief(number, &profile)?;
        let clone = self.clone_dir();
        self.notebook.show(self.sandbox.as_ref(), &clone).await?;
        let mut work = self.work(&brief, &profile).await?;
        let collected = self.collect(&mut work).await?;
        let inbox = self.dir.inbox();
        let verified = tokio::select! {
            verified = self.check(&work, &collected, number) => verified?,
            stopped = watch::stopped(&inbox) => return Err(stopped.map_or_else(Halt::from, |()| Halt::stopped("stopped by a person"))),
        };
        // Only now: what the agent wrote down belongs to work that is taken over.
        self.notebook.take_over(self.sandbox.as_ref(), &clone).await?;
        let mut record = unjudged(number, &profile.name, &work, &collected);
        self.judge(&mut record, &verified);
        self.decide(&mut record, &work).await?;
        let spent = self.ledger();
        record.milliseconds = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        record.tokens = Tokens {
            input: spent.tokens.input - before.tokens.input,
            output: spent.tokens.output - before.tokens.output,
        };
        record.cost = spent.cost.since(before.cost);
        let finished = Finished {
            record,
            work,
            collected,
            verified,
        };
        self.write_down(&finished)?;
        self.seal(finished).await
    }

    /// The profile of this iteration: what was decided last, else the default.
    fn profile(&self) -> Result<Profile, Halt> {
        let default = &self.settings.profiles.default;
        let decided = self
            .journal
            .lines()
            .iter()
            .rev()
            .find_map(|line| match &line.entry {
                JournalEntry::Recorded(record) => Some(&record.next_profile),
                JournalEntry::Profile { name } => Some(name),
                _ => None,
            });
        let name = decided.unwrap_or(default);
        // A profile that has since left the configuration gives way to the default.
        let profiles = &self.settings.profiles;
        let profile = profiles.get(name).or_else(|| profiles.get(default));
        Ok(profile
            .cloned()
            .ok_or_else(|| super::RunError::NoProfile(name.clone()))?)
    }

    fn brief(&mut self, number: u32, profile: &Profile) -> Result<AgentBrief, Halt> {
        let read = |file: &Option<String>| match file.as_deref().and_then(|file| file.strip_prefix(".ralph/"))
        {
            Some(name) => self.notebook.read(name),
            None => Ok(String::new()),
        };
        let state = PromptState {
            clone: self.clone_dir().display().to_string(),
            branch: self.dir.facts().branch.clone(),
            task: self.task_text(),
            guardrails: self.notebook.read("guardrails.md")?,
            progress: self.notebook.read("progress.md")?,
            notes: self.notebook.read("notes.md")?,
            errors: self.notebook.read("errors.log")?,
            tip: self.tip.to_string(),
            status: self.seen.status.clone(),
            diff_summary: self.seen.diff_summary.clone(),
            diff_file: self.seen.diff_file.clone(),
            tests: read(&self.seen.tests_file)?,
            tests_file: self.seen.tests_file.clone(),
            budgets: self.budgets(number),
            answer_format: self.parts.agents.for_profile(&profile.name).answer_format(),
        };
        let text = self
            .parts
            .redactor
            .redact(&prompt::render(&state, self.settings.prompt_bytes)?);
        self.notebook
            .write(&format!("iterations/{number}/prompt.md"), &text)?;
        Ok(AgentBrief {
            text,
            iteration: number,
            home: self.sandbox.root().join("agent"),
            cost_left: self.cost_left(),
        })
    }

    fn budgets(&self, number: u32) -> String {
        let (budget, spent) = (&self.settings.budget, self.ledger());
        let mut text = format!("Iteration {number} of {}\n", budget.max_iterations);
        let _ = writeln!(text, "Minutes left: {}", spent.time_left(budget).as_secs() / 60);
        if let Some(limit) = budget.max_cost {
            let _ = writeln!(text, "Cost: {} of {limit}", spent.cost);
        }
        if let Some(limit) = budget.max_tokens {
            let _ = writeln!(text, "Tokens: {} of {limit}", spent.tokens.total());
        }
        let scores: Vec<f64> = self.journal.records().map(|record| record.score.total).collect();
        let recent = &scores[scores.len().saturating_sub(SCORES_SHOWN)..];
        let recent: Vec<String> = recent.iter().map(|score| format!("{score:.2}")).collect();
        let shown = if recent.is_empty() {
            "none yet".to_owned()
        } else {
            recent.join(", ")
        };
        let _ = write!(
            text,
            "Recent loop scores (0 is fine, {} is going in circles): {shown}",
            gutter::GUTTER
        );
        text
    }

    /// What the clone holds now, handed back to the user's repository.
    ///
    /// What cannot be taken over (a rewritten history, a hostile name, a broken clone) fails the iteration: the clone
    /// is made afresh from the last checkpoint and the next iteration is told why. With a known secret in it, the same
    /// is done and a person must look.
    async fn collect(&mut self, work: &mut Work) -> Result<Collected, Halt> {
        let reason = match self.hand_back().await {
            Ok(collected) => return Ok(collected),
            Err(Halt::Broken(super::RunError::Scm(ScmError::Refused(refusal @ Refusal::Secret)))) => {
                let files = self.changed_files().await?;
                self.lay_out().await?;
                return Err(Halt::paused(format!(
                    "{refusal} ({files}); nothing of it was taken over"
                )));
            }
            Err(Halt::Broken(super::RunError::Scm(error))) if of_the_clone(&error) => error_chain(&error),
            Err(halt) => return Err(halt),
        };
        self.reporter
            .warn(format!("the work of this iteration is dropped: {reason}"));
        work.performed
            .failures
            .push(gutter::failure_of_text("hand-back", 1, &reason));
        work.performed
            .errors
            .push(format!("the work of this iteration was dropped: {reason}"));
        self.lay_out().await?;
        let snapshot = self.private_clone().snapshot().await?;
        Ok(Collected {
            snapshot,
            diff: Diff::default(),
            new_work_committed: false,
        })
    }

    /// The files that differ from the last checkpoint, for a person.
    async fn changed_files(&self) -> Result<String, Halt> {
        let clone = self.private_clone();
        let diff = clone.diff(&self.tree, &clone.snapshot().await?.tree).await?;
        let files: Vec<String> = diff.files.iter().map(|file| file.path.to_string()).collect();
        Ok(if files.is_empty() {
            "in its history".to_owned()
        } else {
            files.join(", ")
        })
    }

    async fn hand_back(&mut self) -> Result<Collected, Halt> {
        let clone = self.private_clone();
        clone.break_locks().await?;
        let snapshot = clone.snapshot().await?;
        let diff = clone.diff(&self.tree, &snapshot.tree).await?;
        let request = scm::Request {
            base: &self.dir.facts().base,
            snapshot: &snapshot,
            known: &self.known,
            limit: scm::DEFAULT_LIMIT,
            redactor: &self.parts.redactor,
        };
        let handed = scm::take(&self.repo, &clone, &request, self.dir.path()).await?;
        if snapshot.head != Head::Branch(self.dir.facts().branch.clone()) {
            self.reporter
                .warn("the agent left the run's branch; its work is put back onto it");
            clone.reset_to(&snapshot.tip).await?;
            clone.restore(&snapshot.tree).await?;
        }
        if (self.recorded() + 1).is_multiple_of(RENEW_INDEX_EVERY) {
            clone.renew_index().await?;
        }
        let had_before = self.journal.records().any(|record| record.tree == snapshot.tree);
        let new_work_committed = !handed.new_commits.is_empty() && !had_before;
        self.known = vec![handed.commit, snapshot.tip.clone()];
        Ok(Collected {
            snapshot,
            diff,
            new_work_committed,
        })
    }

    /// Evidence for what was claimed; otherwise the tests, as feedback, when there is something new to test.
    async fn check(&mut self, work: &Work, collected: &Collected, number: u32) -> Result<Verified, Halt> {
        let claimed = self.claims(work, number).await?;
        let mut verified = self.verify(&collected.snapshot.tip, &claimed).await?;
        if !verified.evidence.checks.is_empty() && !collected.snapshot.dirty.is_empty() {
            let hint = "there is uncommitted work: evidence is gathered from commits only".to_owned();
            verified.evidence.errors.push(hint);
        }
        let tests = self.task.frontmatter.test_command.clone();
        let untested = self.seen.tested_tree.as_ref() != Some(&collected.snapshot.tree);
        if untested && !verified.evidence.ran(&tests) {
            let feedback = self.feedback(&tests).await?;
            verified.evidence.join(feedback);
        }
        Ok(verified)
    }

    /// The boxes the agent says are done: in its answer, by editing the task file, or by calling the task done.
    async fn claims(&mut self, work: &Work, number: u32) -> Result<BTreeSet<CheckboxId>, Halt> {
        let claims = &work.outcome.progress;
        let names = [
            claims.checkboxes_checked.as_slice(),
            claims.milestones_completed.as_slice(),
        ]
        .concat();
        let (mut boxes, unknown) = boxes_named(&self.task.checkboxes, &names);
        for name in unknown {
            let reason = "the task has no such checkbox".to_owned();
            self.log_error(number, &format!("claimed `{name}`: {reason}"))?;
            self.reporter.emit(EventKind::NotTicked {
                checkbox: name,
                reason,
            });
        }
        let file = self.clone_dir().join("ralph_task.md");
        if let Ok(bytes) = self.sandbox.files().read(&file, TASK_LIMIT).await {
            boxes.extend(ticked_ids(&String::from_utf8_lossy(&bytes)));
        }
        if matches!(work.outcome.conclusion, AgentConclusion::StopSuccess { .. }) {
            boxes.extend(self.task.checkboxes.iter().map(|one| one.id.clone()));
        }
        boxes.retain(|id| self.task.checkboxes.iter().any(|one| &one.id == id));
        Ok(boxes)
    }
}

/// Whether the clone is at fault, not the host or the sandbox.
fn of_the_clone(error: &ScmError) -> bool {
    match error {
        ScmError::Refused(_)
        | ScmError::NoCommit
        | ScmError::Git { .. }
        | ScmError::OutputTooLong { .. }
        | ScmError::Unexpected { .. } => true,
        ScmError::Sandbox(error) => {
            matches!(error.kind(), SandboxErrorKind::TooLong | SandboxErrorKind::File)
        }
        _ => false,
    }
}
