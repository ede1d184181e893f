//! The driver of a run: the loop, interventions between iterations, and the end.

use crate::event::EventKind;
use crate::id::ObjectId;
use crate::scm::{self, CommitState};
use crate::state::{Intervention, IterationVerdict, Journal, JournalEntry, JournalLine, RunOutcomeKind};
use crate::task::Task;
use crate::text::error_chain;

use super::budget::{Ledger, since_rest};
use super::error::Halt;
use super::leftovers::unseen_at_the_end;
use super::progress::RunProgress;
use super::publish::{end_status, publish, publish_progress};
use super::workplace::Workplace;
use super::{ComputeCost, RunError, RunInputs, RunOutcome};

/// A run that this process drives.
pub(super) struct Run<'a> {
    pub(super) inputs: RunInputs<'a>,
    pub(super) task: Task,
    pub(super) progress: RunProgress<'a>,
    pub(super) workplace: Workplace<'a>,
    /// The newest commit whose signed evidence the forge's server has.
    pub(super) shared_evidence: Option<ObjectId>,
}

impl Run<'_> {
    /// Iterates until a rule or an error ends the run.
    pub(super) async fn run_to_end(&mut self) -> Result<RunOutcome, RunError> {
        let mut losses = 0;
        loop {
            let mut stepped = self.step().await;
            if let Err(Halt::Broken(error)) = stepped {
                losses += 1;
                stepped = self.workplace.recover(error, losses, &mut self.progress).await;
            } else {
                losses = 0;
            }
            self.workplace.report_notices();
            match stepped {
                Ok(()) => {}
                Err(Halt::End { kind, reason }) => return self.finish(kind, &reason).await,
                Err(Halt::Broken(error)) => {
                    self.leave(&error).await?;
                    return Err(error);
                }
            }
        }
    }

    /// Leaves a run that an error ended. Its sandbox waits for a resume, unless another process works on the run elsewhere:
    /// then nothing would ever use it again.
    pub(super) async fn leave(&self, error: &RunError) -> Result<(), RunError> {
        if error.is_taken_over() {
            return self.workplace.remove().await;
        }
        self.workplace.close_evidence().await;
        let reason = format!("an error ended the run: {}", error_chain(error));
        let reason = self.inputs.parts.redactor.redact(&reason);
        end_status(self, CommitState::Error, &reason).await;
        Ok(())
    }

    /// Everything that happens between two iterations, and one iteration.
    async fn step(&mut self) -> Result<(), Halt> {
        self.carry_out_interventions().await?;
        match standing_verdict(self.progress.journal.lines()) {
            IterationVerdict::GoOn => {}
            IterationVerdict::Complete => return publish(self).await,
            // The run crashed between this record and its end.
            verdict => return Halt::from_verdict(verdict),
        }
        let interval = self.inputs.settings.pull_request_interval;
        publish_progress(self, interval).await?;
        self.progress.warn_about_budget()?;
        self.progress.check_budget()?;
        let iterated = self.iterate().await;
        if let Err(Halt::End {
            kind: RunOutcomeKind::Failed | RunOutcomeKind::Paused,
            ..
        }) = iterated
        {
            // A person looks now, and the first draft may still be missing. Why the run ends matters more than the draft.
            let problem = match publish_progress(self, interval).await {
                Ok(()) => return iterated,
                Err(Halt::Broken(error)) if error.is_taken_over() => return Err(Halt::Broken(error)),
                Err(Halt::Broken(error)) => error_chain(&error),
                Err(Halt::End { reason, .. }) => reason,
            };
            let problem = format!("the draft of the pull request is not up to date: {problem}");
            self.inputs.reporter.warn(problem);
        }
        iterated
    }

    /// Asks the doctor, without an iteration, and returns the new part of `diagnostics.md`.
    pub(super) async fn diagnose_only(&mut self) -> Result<String, RunError> {
        let before = self.progress.files.read("diagnostics.md")?.len();
        // The entry before the one that opened the run: it ends again in the same way.
        let previous = self.progress.journal.lines().iter().rev().nth(1);
        let ended = previous
            .map(|line| line.entry.clone())
            .filter(|entry| matches!(entry, JournalEntry::Ended { .. } | JournalEntry::Broken { .. }));
        match self.progress.consult_doctor_now().await {
            Err(Halt::Broken(error)) => return Err(error),
            // With `apply = "wait"` the diagnosis pauses the run, which is at rest anyway.
            Ok(()) | Err(Halt::End { .. }) => self.progress.checkpoint(ended).await?,
        }
        let diagnostics = self.progress.files.read("diagnostics.md")?;
        Ok(diagnostics.get(before..).unwrap_or(&diagnostics).to_owned())
    }

    /// Ends the run by rule: recorded, checkpointed, reported.
    async fn finish(&mut self, kind: RunOutcomeKind, reason: &str) -> Result<RunOutcome, RunError> {
        match self.record_allowed_hosts().await {
            Err(Halt::Broken(error)) => return Err(error),
            Ok(()) | Err(Halt::End { .. }) => {}
        }
        let mut reason = self.inputs.parts.redactor.redact(reason);
        if let RunOutcomeKind::Failed | RunOutcomeKind::Paused = kind {
            let base = &self.inputs.dir.facts().base;
            let unseen = self
                .progress
                .last_record()
                .and_then(|record| unseen_at_the_end(record, base));
            reason.extend(unseen.map(|notice| format!("; {notice}")));
        }
        if let Err(error) = self.workplace.sandbox().end_processes().await {
            self.inputs
                .reporter
                .warn(format!("cannot end the processes of the sandbox: {error}"));
        }
        self.progress
            .log_activity(&format!("the run ended: {kind}: {reason}"))?;
        let ended = JournalEntry::Ended {
            outcome: kind,
            reason: reason.clone(),
        };
        self.progress.checkpoint(Some(ended)).await?;
        self.workplace.release(kind).await?;
        let state = match kind {
            RunOutcomeKind::Done => None,
            RunOutcomeKind::Failed => Some(CommitState::Failure),
            RunOutcomeKind::Paused | RunOutcomeKind::Stopped => Some(CommitState::Error),
        };
        match state {
            Some(state) => end_status(self, state, &format!("{kind}: {reason}")).await,
            None => scm::release_branch(&self.workplace.repo, &self.inputs.dir.facts().branch).await?,
        }
        let (journal, tip) = (&self.progress.journal, self.progress.tip.clone());
        Ok(report_end(self.inputs, journal, kind, reason, tip))
    }
}

/// The verdict of the newest record, unless the run has ended since and a person resumed it. A complete run stays
/// complete: only its pull request is missing.
fn standing_verdict(lines: &[JournalLine]) -> IterationVerdict {
    // An edit, a retry or a review changes what the verdict was about, and CI that failed refutes it.
    let is_change = |line: &JournalLine| {
        if matches!(line.entry, JournalEntry::CiFailed { .. }) {
            return true;
        }
        let asked = line.intervention();
        matches!(
            asked,
            Some(Intervention::Edit { .. } | Intervention::Retry { .. } | Intervention::Review(_))
        )
    };
    let changed = lines.iter().rposition(is_change).map_or(0, |at| at + 1);
    let lines = &lines[changed..];
    let newest = |lines: &[JournalLine]| {
        lines.iter().rev().find_map(|line| match &line.entry {
            JournalEntry::Recorded(record) => Some(record.verdict.clone()),
            _ => None,
        })
    };
    newest(since_rest(lines))
        .or_else(|| newest(lines).filter(|verdict| *verdict == IterationVerdict::Complete))
        .unwrap_or(IterationVerdict::GoOn)
}

/// Reports the end of a run, and returns its outcome with the totals of the journal.
pub(super) fn report_end(
    inputs: RunInputs<'_>,
    journal: &Journal,
    kind: RunOutcomeKind,
    reason: String,
    tip: ObjectId,
) -> RunOutcome {
    inputs.reporter.emit(EventKind::RunEnded {
        outcome: kind.into(),
        reason: reason.clone(),
    });
    let (parts, facts) = (inputs.parts, inputs.dir.facts());
    let used = Ledger::from_journal(journal.lines(), journal.since_last_line());
    let mut newest = journal.lines().iter().rev();
    let pull_request = newest.find_map(|line| match &line.entry {
        JournalEntry::PullRequest { location, .. } => Some(location.clone()),
        _ => None,
    });
    let hourly = parts.provider.hourly_cost(inputs.spec);
    RunOutcome {
        run: facts.id.clone(),
        kind,
        reason,
        branch: facts.branch.clone(),
        tip,
        pull_request,
        compute: hourly.map(|hourly| ComputeCost::new(hourly, &used)),
        used,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use rstest::rstest;

    use super::*;
    use crate::runner::gutter::tests::uneventful;
    use crate::state::IterationRecord;

    fn recorded(verdict: IterationVerdict) -> JournalEntry {
        JournalEntry::Recorded(Box::new(IterationRecord {
            verdict,
            ..uneventful()
        }))
    }

    fn failed() -> IterationVerdict {
        IterationVerdict::Failed {
            reason: "stuck".to_owned(),
        }
    }

    fn ci_failed() -> JournalEntry {
        JournalEntry::CiFailed {
            commit: uneventful().tip,
            checks: vec!["build".to_owned()],
        }
    }

    fn ended() -> JournalEntry {
        JournalEntry::Ended {
            outcome: RunOutcomeKind::Failed,
            reason: "stuck".to_owned(),
        }
    }

    #[rstest]
    #[case::new(vec![], IterationVerdict::GoOn)]
    #[case::working(vec![recorded(IterationVerdict::GoOn)], IterationVerdict::GoOn)]
    #[case::crashed_before_its_end(vec![recorded(failed())], failed())]
    #[case::resumed_after_its_end(vec![recorded(failed()), ended()], IterationVerdict::GoOn)]
    #[case::complete_and_refuted_by_ci(vec![recorded(IterationVerdict::Complete), ci_failed()], IterationVerdict::GoOn)]
    #[case::complete_and_resumed(vec![recorded(IterationVerdict::Complete), ended()], IterationVerdict::Complete)]
    fn a_verdict_stands_until_the_run_is_resumed(
        #[case] entries: Vec<JournalEntry>,
        #[case] expected: IterationVerdict,
    ) {
        let line = |(seq, entry)| JournalLine {
            seq,
            at: Timestamp::UNIX_EPOCH,
            monotonic_ms: None,
            entry,
        };
        let lines: Vec<JournalLine> = (1..).zip(entries).map(line).collect();
        assert_eq!(standing_verdict(&lines), expected);
    }
}
