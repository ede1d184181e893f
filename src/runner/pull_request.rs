//! The text of the pull request: one function for each part of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::gateway::audit::{AuditLog, AuditTally};
use crate::scm::{ChangeFlag, FileChange, PullRequestBase, agent_settings, changed_files, flags_between};
use crate::state::{
    CheckResult, IterationRecord, IterationVerdict, JournalEntry, JournalLine, standing_records,
};
use crate::task::{
    AgentFact, BlockedHostFact, CheckboxCostFact, CheckboxFact, EvidenceFact, FileFact, FlagFact, ImageFact,
    InterventionFact, IterationFact, NetworkFact, PullRequestFacts, PullRequestText, RiskFacts, Task,
    render_pull_request,
};
use crate::text::{error_chain, first_bytes, one_line, shell_word};
use crate::usage::Usd;

use super::budget::Ledger;
use super::checkbox_costs::{CheckboxCost, checkbox_costs};
use super::compute_cost::ComputeCost;
use super::leftovers::named;
use super::progress::RunProgress;
use super::review::{flaky_reason, weakened_reason};
use super::run::Run;
use super::signature::signature_fact;
use super::workplace::Workplace;
use super::{RunError, RunInputs};

/// How much of an iteration's summary is shown, in bytes.
const SUMMARY_BYTES: usize = 200;

/// The text of the pull request for a record. `failed_checks` are the checks of CI that a person has to look at.
pub(super) async fn pull_request_text(
    driven: &Run<'_>,
    record: &IterationRecord,
    base: &PullRequestBase,
    failed_checks: &[String],
) -> Result<PullRequestText, RunError> {
    let (task, progress, workplace) = (&driven.task, &driven.progress, &driven.workplace);
    let (run, spent) = (progress.facts(), progress.ledger());
    let repo = &workplace.repo;
    let settings = agent_settings(repo, &run.base).await?;
    let lines = progress.journal.lines();
    let records = standing_records(lines);
    let files = changed_files(repo, &run.base, &record.tip).await?;
    let changes = flags_between(repo, &run.base, &record.tip).await?;
    let hourly = workplace.inputs.parts.provider.hourly_cost(workplace.inputs.spec);
    // A draft of unfinished work has nothing that is signed.
    let is_complete = record.verdict == IterationVerdict::Complete;
    let facts = PullRequestFacts {
        task_id: task.frontmatter.task_id.to_string(),
        title: task.title().to_owned(),
        run: run.id.to_string(),
        branch: run.branch.clone(),
        diff_command: diff_command(&base.branch, &run.branch),
        base: base.branch.clone(),
        stacked_on: base.below.clone().unwrap_or_default(),
        commit: record.tip.to_string(),
        checkboxes: checkboxes(task, progress),
        evidence: evidence(task, record),
        evidence_apart: record.evidence_apart,
        evidence_shares: record.evidence_shares.clone(),
        signature: is_complete.then(|| signature_fact(driven, record)),
        files: files.iter().map(file).collect(),
        iterations: spent.iterations,
        history: records.iter().copied().map(iteration).collect(),
        interventions: interventions(lines),
        agents: agents(&records),
        image: image(workplace),
        tokens: spent.tokens.total(),
        cost: cost(known_cost(&spent)),
        cost_per_checkbox: cost_per_checkbox(known_cost(&spent), progress.ticked.len()),
        costs: checkbox_costs(lines).into_iter().map(checkbox_cost).collect(),
        compute: hourly.map_or_else(String::new, |hourly| ComputeCost::new(hourly, &spent).to_string()),
        risks: RiskFacts {
            flagged_changes: changes.len() as u64,
            weakened_checks: record.weakened.len() as u64,
            searched_for_secrets: !workplace.inputs.parts.redactor.is_empty(),
        },
        network: network(workplace.inputs),
        flags: failed_checks
            .iter()
            .map(|name| failed_check(name))
            .chain(flags(task, record, &records, changes))
            .collect(),
        agent_settings: settings.iter().map(ToString::to_string).collect(),
        summary: record.summary.clone(),
    };
    Ok(render_pull_request(&task.frontmatter.pr, &facts)?)
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

/// The set-up, then the commands of each checkbox, then the tests.
fn evidence(task: &Task, record: &IterationRecord) -> Vec<EvidenceFact> {
    let (order, mut results) = results(record);
    let tests = &task.frontmatter.test_command;
    let mut rows = Vec::new();
    for checkbox in &task.checkboxes {
        for command in task.verify_commands(checkbox) {
            if let Some(result) = results.get(command.as_str()) {
                rows.push(EvidenceFact {
                    checkbox: checkbox.id.to_string(),
                    text: checkbox.text.clone(),
                    ..result.clone()
                });
            }
        }
    }
    let of_all = |text: &str, result: EvidenceFact| EvidenceFact {
        checkbox: "all".to_owned(),
        text: text.to_owned(),
        ..result
    };
    if let Some(result) = results.remove(tests.as_str()) {
        rows.push(of_all("(the tests)", result));
    }
    let shown: BTreeSet<&str> = rows.iter().map(|row| row.command.as_str()).collect();
    results.retain(|command, _| !shown.contains(command));
    let set_up = order.iter().filter_map(|command| results.remove(command));
    let mut all: Vec<EvidenceFact> = set_up.map(|result| of_all("(the set-up)", result)).collect();
    all.append(&mut rows);
    all
}

/// Each command in order, and its last result with how often it ran.
fn results(record: &IterationRecord) -> (Vec<&str>, BTreeMap<&str, EvidenceFact>) {
    let commands = repeated(record).into_iter().map(|(check, runs)| {
        let fact = EvidenceFact {
            command: check.command.clone(),
            exit: check.code,
            duration_s: check.seconds,
            // Evidence always has a commit: `judge` keeps only such checks.
            commit: check.commit.as_ref().map(ToString::to_string).unwrap_or_default(),
            runs,
            ..EvidenceFact::default()
        };
        (check.command.as_str(), fact)
    });
    let commands: Vec<(&str, EvidenceFact)> = commands.collect();
    let order = commands.iter().map(|(command, _)| *command).collect();
    (order, commands.into_iter().collect())
}

/// Each command of the evidence once, with its last result and how often it ran.
pub(super) fn repeated(record: &IterationRecord) -> Vec<(&CheckResult, u32)> {
    let mut commands: Vec<(&CheckResult, u32)> = Vec::new();
    for check in &record.evidence {
        match commands
            .iter_mut()
            .find(|(known, _)| known.command == check.command)
        {
            Some((known, runs)) => {
                *known = check;
                *runs += 1;
            }
            None => commands.push((check, 1)),
        }
    }
    commands
}

fn failed_check(name: &str) -> FlagFact {
    FlagFact {
        path: name.to_owned(),
        reason: "this check of CI failed on the commit, and the agent did not mend it".to_owned(),
    }
}

/// What a reviewer should look at: weakened checks first, then flaky commands, commits of the runner, then other changes.
fn flags(
    task: &Task,
    record: &IterationRecord,
    standing: &[&IterationRecord],
    changes: Vec<ChangeFlag>,
) -> Vec<FlagFact> {
    let changes = changes.into_iter().map(|flag| FlagFact {
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
    let by_runner = standing.iter().copied().filter_map(runner_commit);
    weakened.chain(flaky).chain(by_runner).chain(changes).collect()
}

/// The requests that the policy blocked so far. An audit that cannot be read is reported, and does not stop the run.
fn network(inputs: RunInputs<'_>) -> NetworkFact {
    let records = AuditLog::read(&inputs.dir.network_file()).unwrap_or_else(|error| {
        inputs.reporter.warn(format!(
            "the pull request does not list blocked requests: {}",
            error_chain(&error)
        ));
        Vec::new()
    });
    let tally: AuditTally = records.iter().collect();
    let mut requests: BTreeMap<String, u64> = BTreeMap::new();
    for entry in tally.blocked() {
        let name = match entry.key.port {
            None | Some(80 | 443) => entry.key.host,
            Some(port) => format!("{}:{port}", entry.key.host),
        };
        *requests.entry(name).or_default() += entry.count;
    }
    let blocked = requests.into_iter();
    let mut blocked: Vec<BlockedHostFact> = blocked
        .map(|(name, requests)| BlockedHostFact { name, requests })
        .collect();
    blocked.sort_by_key(|host| std::cmp::Reverse(host.requests));
    NetworkFact {
        is_recorded: !records.is_empty(),
        is_incomplete: tally.is_incomplete,
        blocked_requests: blocked.iter().map(|host| host.requests).sum(),
        blocked,
    }
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
pub(super) fn agents(records: &[&IterationRecord]) -> Vec<AgentFact> {
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

pub(super) fn image(workplace: &Workplace<'_>) -> Option<ImageFact> {
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

/// The cost of all calls; `None` if a price is unknown.
fn known_cost(spent: &Ledger) -> Option<Usd> {
    (spent.unpriced_calls == 0).then_some(spent.cost)
}

fn cost(cost: Option<Usd>) -> String {
    cost.map_or_else(|| "unknown".to_owned(), |cost| cost.to_string())
}

/// The cost divided by the number of ticked checkboxes.
fn cost_per_checkbox(total: Option<Usd>, ticked: usize) -> String {
    let count = u32::try_from(ticked).unwrap_or(u32::MAX);
    match total {
        _ if ticked == 0 => String::new(),
        None => cost(None),
        Some(total) => cost(total.split(count).next()),
    }
}

fn checkbox_cost(one: CheckboxCost) -> CheckboxCostFact {
    CheckboxCostFact {
        checkbox: one.checkbox.unwrap_or_default(),
        iteration: one.iteration,
        cost: cost(one.cost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;
    use crate::gateway::audit::{AuditProtocol, AuditRecord, AuditSink, AuditVerdict};
    use crate::runner::gutter::tests::uneventful;
    use crate::runner::tests::TestRun;
    use crate::state::CheckResult;

    #[test]
    fn the_diff_command_survives_any_branch_name() {
        assert_eq!(diff_command("main", "ralph/t/x"), "git diff main...ralph/t/x");
        assert_eq!(diff_command("a;b", "c"), "git diff 'a;b...c'");
        assert_eq!(diff_command("it's", "c"), r"git diff 'it'\''s...c'");
    }

    #[test]
    fn each_command_has_a_row_for_each_checkbox_that_it_verifies() {
        let task = Task::parse(
            "---\ntask_id: t-1\ntest_command: make test\nverify_commands: [make]\n---\n\n# T\n\n## Success Criteria\n\n\
             - [ ] M1.1 One\n- [ ] M1.2 Two\n  - verify: `make check`\n  - verify: `make test`\n- [ ] M1.3 Three\n",
        )
        .unwrap();
        let check = |command: &str, seconds| CheckResult {
            command: command.to_owned(),
            started: None,
            code: 0,
            seconds,
            commit: Some(uneventful().tip),
        };
        let record = IterationRecord {
            evidence: vec![
                check("npm ci", 9.0),
                check("make", 1.0),
                check("make", 2.0),
                check("make check", 3.0),
                check("make test", 4.0),
            ],
            ..uneventful()
        };
        let rows: Vec<String> = evidence(&task, &record)
            .iter()
            .map(|row| {
                format!(
                    "{} {} {} {}x {}",
                    row.checkbox, row.text, row.command, row.runs, row.duration_s
                )
            })
            .collect();
        let expected = [
            "all (the set-up) npm ci 1x 9",
            "M1.1 One make 2x 2",
            "M1.2 Two make check 1x 3",
            "M1.2 Two make test 1x 4",
            "M1.3 Three make 2x 2",
            "all (the tests) make test 1x 4",
        ];
        assert_eq!(rows, expected);
    }

    #[tokio::test]
    async fn blocked_requests_are_counted_by_host_name() {
        let run = TestRun::new().await;
        assert_eq!(network(run.inputs()), NetworkFact::default());
        let file = run.dir.network_file();
        let log = AuditLog::open(&file, run.parts.clock.clone()).unwrap();
        let ask = |host: &str, port, verdict, count| {
            log.record(AuditRecord {
                protocol: AuditProtocol::Tcp,
                host: Some(host.to_owned()),
                port: Some(port),
                verdict,
                rule: String::new(),
                needs: None,
                failed: None,
                sent: 0,
                received: 0,
                count,
            });
        };
        ask("a.example", 443, AuditVerdict::Denied, 1);
        ask("a.example", 80, AuditVerdict::Denied, 2);
        ask("b.example", 22, AuditVerdict::Denied, 4);
        ask("c.example", 443, AuditVerdict::Allowed, 9);
        drop(log);
        let found = network(run.inputs());
        let blocked: Vec<(&str, u64)> = found
            .blocked
            .iter()
            .map(|host| (host.name.as_str(), host.requests))
            .collect();
        assert_eq!(blocked, [("b.example:22", 4), ("a.example", 3)]);
        assert!(found.is_recorded && !found.is_incomplete);
        assert_eq!(found.blocked_requests, 7);
        std::fs::write(&file, "no JSON\n").unwrap();
        assert_eq!(network(run.inputs()), NetworkFact::default());
        let warned = |event: &EventKind| matches!(event, EventKind::Warning { message } if message.contains("network.jsonl"));
        assert!(run.events().iter().any(warned), "{:?}", run.events());
    }

    #[test]
    fn the_cost_of_a_checkbox_is_unknown_with_the_whole() {
        assert_eq!(cost_per_checkbox(Some(Usd::from_cents(10)), 4), "$0.0250");
        assert_eq!(cost_per_checkbox(Some(Usd::from_cents(10)), 0), "");
        assert_eq!(cost_per_checkbox(None, 4), "unknown");
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
