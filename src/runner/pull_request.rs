//! The text of the pull request: one function for each part of it.

use crate::scm::{FileChange, agent_settings, changed_files, flags_between};
use crate::state::{IterationRecord, JournalEntry, JournalLine, standing_records};
use crate::task::{
    AgentFact, CheckboxFact, EvidenceFact, FileFact, FlagFact, ImageFact, InterventionFact, IterationFact,
    PullRequestFacts, PullRequestText, Task, render_pull_request,
};
use crate::text::one_line;

use super::RunError;
use super::budget::Ledger;
use super::leftovers::named;
use super::progress::RunProgress;
use super::review::{flaky_reason, weakened_reason};
use super::text::{first_bytes, shell_word};
use super::workplace::Workplace;

/// How much of an iteration's summary is shown, in bytes.
const SUMMARY_BYTES: usize = 200;

/// The text of the pull request for a record whose evidence is complete.
pub(super) async fn pull_request_text(
    task: &Task,
    record: &IterationRecord,
    progress: &RunProgress<'_>,
    workplace: &Workplace<'_>,
) -> Result<PullRequestText, RunError> {
    let (run, spent) = (progress.facts(), progress.ledger());
    let (repo, base) = (&workplace.repo, base_name(progress));
    let settings = agent_settings(repo, &run.base).await?;
    let records = standing_records(progress.journal.lines());
    let files = changed_files(repo, &run.base, &record.tip).await?;
    let facts = PullRequestFacts {
        task_id: task.frontmatter.task_id.to_string(),
        title: task.title().to_owned(),
        run: run.id.to_string(),
        branch: run.branch.clone(),
        diff_command: diff_command(&base, &run.branch),
        base,
        checkboxes: checkboxes(task, progress),
        evidence: evidence(record),
        evidence_apart: record.evidence_apart,
        evidence_shares: record.evidence_shares.clone(),
        files: files.iter().map(file).collect(),
        iterations: spent.iterations,
        history: records.iter().copied().map(iteration).collect(),
        interventions: interventions(progress.journal.lines()),
        agents: agents(&records),
        image: image(workplace),
        tokens: spent.tokens.total(),
        cost: cost(&spent),
        flags: flags(task, progress, record, workplace).await?,
        agent_settings: settings.iter().map(ToString::to_string).collect(),
        summary: record.summary.clone(),
    };
    Ok(render_pull_request(&task.frontmatter.pr, &facts)?)
}

/// The branch that the pull request is for, or the base commit of a detached HEAD.
pub(super) fn base_name(progress: &RunProgress<'_>) -> String {
    let facts = progress.facts();
    facts
        .base_branch
        .clone()
        .unwrap_or_else(|| facts.base.to_string())
}

/// Three dots: commits that the base branch got since are not shown as removed.
fn diff_command(base: &str, branch: &str) -> String {
    format!("git diff {}", shell_word(&format!("{base}...{branch}")))
}

fn checkboxes(task: &Task, progress: &RunProgress<'_>) -> Vec<CheckboxFact> {
    let checkboxes = task.checkboxes.iter().map(|checkbox| CheckboxFact {
        id: checkbox.id.to_string(),
        text: checkbox.text.clone(),
        checked: progress.ticked.contains(&checkbox.id),
    });
    checkboxes.collect()
}

/// Each command once, with its last result and how often it ran.
fn evidence(record: &IterationRecord) -> Vec<EvidenceFact> {
    let mut facts: Vec<EvidenceFact> = Vec::new();
    for check in &record.evidence {
        let fact = EvidenceFact {
            command: check.command.clone(),
            exit: check.code,
            duration_s: check.seconds,
            // Evidence always has a commit: `judge` keeps only such checks.
            commit: check.commit.as_ref().map(ToString::to_string).unwrap_or_default(),
            runs: 1,
        };
        match facts.iter_mut().find(|fact| fact.command == check.command) {
            Some(known) => {
                let runs = known.runs + 1;
                *known = EvidenceFact { runs, ..fact };
            }
            None => facts.push(fact),
        }
    }
    facts
}

/// What a reviewer should look at: weakened checks first, then flaky commands, commits of the runner, then other changes.
async fn flags(
    task: &Task,
    progress: &RunProgress<'_>,
    record: &IterationRecord,
    workplace: &Workplace<'_>,
) -> Result<Vec<FlagFact>, RunError> {
    let flags = flags_between(&workplace.repo, &progress.facts().base, &record.tip).await?;
    let flags = flags.into_iter().map(|flag| FlagFact {
        path: flag.path.to_string(),
        reason: flag.reason,
    });
    let weakened = record.weakened.iter().map(|weakened| FlagFact {
        path: weakened.path.clone(),
        reason: weakened_reason(weakened, &task.frontmatter.test_command),
    });
    let flaky = record.flaky.iter().map(|flaky| FlagFact {
        path: flaky.command.clone(),
        reason: flaky_reason(flaky),
    });
    let standing = standing_records(progress.journal.lines());
    let by_runner = standing.into_iter().filter_map(runner_commit);
    Ok(weakened.chain(flaky).chain(by_runner).chain(flags).collect())
}

/// The commit that the runner made of what the agent left uncommitted in an iteration.
fn runner_commit(record: &IterationRecord) -> Option<FlagFact> {
    let work = record.uncommitted.as_ref()?;
    Some(FlagFact {
        path: work.commit.as_ref()?.to_string(),
        reason: format!(
            "ralph committed what the agent left uncommitted in iteration {}: {}",
            record.iteration,
            named(work)
        ),
    })
}

fn file(change: &FileChange) -> FileFact {
    FileFact {
        path: change.path.to_string(),
        change: change.word().to_owned(),
        added: change.lines.map(|lines| lines.added),
        removed: change.lines.map(|lines| lines.removed),
    }
}

/// What people asked for and the run did, in order.
fn interventions(lines: &[JournalLine]) -> Vec<InterventionFact> {
    let mut after = 0;
    let mut facts = Vec::new();
    for line in lines {
        match &line.entry {
            JournalEntry::Recorded(record) => after = record.iteration,
            JournalEntry::Intervened { asked, refused: None } => facts.push(InterventionFact {
                after,
                by: asked.by.clone(),
                what: asked.intervention.summary(),
            }),
            _ => {}
        }
    }
    facts
}

/// Each pair of agent and model once, in the order of their first iteration.
fn agents(records: &[&IterationRecord]) -> Vec<AgentFact> {
    let mut agents: Vec<AgentFact> = Vec::new();
    for record in records {
        let fact = AgentFact {
            name: record.agent.clone(),
            model: record.model.clone(),
        };
        if !agents.contains(&fact) {
            agents.push(fact);
        }
    }
    agents
}

fn image(workplace: &Workplace<'_>) -> Option<ImageFact> {
    let name = workplace.inputs.spec.image.clone()?;
    let digest = workplace.sandbox().image_digest();
    Some(ImageFact {
        name,
        digest: digest.unwrap_or_default(),
    })
}

fn iteration(record: &IterationRecord) -> IterationFact {
    let summary = one_line(&record.summary);
    let shown = first_bytes(&summary, SUMMARY_BYTES);
    IterationFact {
        number: record.iteration,
        summary: match shown {
            "" => format!("(no summary; it ended with {})", record.ending),
            shown if shown.len() < summary.len() => format!("{shown}..."),
            shown => shown.to_owned(),
        },
        changed_lines: record.changed_lines,
        tests: match &record.tests {
            Some(check) if check.passed() => "tests pass",
            Some(_) => "tests fail",
            None => "tests not run",
        }
        .to_owned(),
    }
}

fn cost(spent: &Ledger) -> String {
    if spent.unpriced_calls > 0 {
        "unknown".to_owned()
    } else {
        spent.cost.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::gutter::tests::uneventful;

    #[test]
    fn the_diff_command_survives_any_branch_name() {
        assert_eq!(diff_command("main", "ralph/t/x"), "git diff main...ralph/t/x");
        assert_eq!(diff_command("a;b", "c"), "git diff 'a;b...c'");
        assert_eq!(diff_command("it's", "c"), r"git diff 'it'\''s...c'");
    }

    #[test]
    fn each_agent_is_named_once() {
        let by = |agent: &str, model: &str| IterationRecord {
            agent: agent.to_owned(),
            model: model.to_owned(),
            ..uneventful()
        };
        let records = [
            by("claude", "large"),
            by("claude", "small"),
            by("claude", "large"),
        ];
        let found = agents(&records.iter().collect::<Vec<_>>());
        let models: Vec<&str> = found.iter().map(|fact| fact.model.as_str()).collect();
        assert_eq!(models, ["large", "small"]);
    }

    #[test]
    fn an_iteration_is_one_line() {
        let summed_up = |summary: &str| {
            iteration(&IterationRecord {
                summary: summary.to_owned(),
                ending: "rotate".to_owned(),
                ..uneventful()
            })
            .summary
        };
        assert_eq!(summed_up("Wrote a\n\nparser."), "Wrote a parser.");
        assert_eq!(summed_up(" "), "(no summary; it ended with rotate)");
        assert_eq!(summed_up(&"x".repeat(500)).len(), SUMMARY_BYTES + 3);
    }
}
