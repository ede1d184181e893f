//! Evidence: the results of the task's own commands in a clean checkout of a commit that the host has verified.
//!
//! Where the provider has sandboxes for evidence alone, the commands run in one that the agent never was in. Elsewhere
//! they run in that of the agent, after its processes were ended. Always the checkout is created from the host's objects,
//! not copied from the clone, and the commands have a home and a temporary directory of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::event::EventKind;
use crate::exec::{Command, Discard};
use crate::id::ObjectId;
use crate::sandbox::{EvidenceSpace, Sandbox, clone_dir};
use crate::state::{CheckResult, CommandFailure, FlakyCheck, WeakenedCheck};
use crate::task::{Checkbox, CheckboxId};
use crate::text::error_chain;

use super::RunError;
use super::actions::output_text;
use super::gutter;
use super::run::Run;
use super::workplace::is_lost;

/// How much of each command's output `test_output.txt` keeps, in bytes.
const MAX_OUTPUT: usize = 256 * 1024;
/// How many files a reason names.
const MAX_NAMED: usize = 5;

/// The results of a number of commands, and what they show.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Each command once, in order.
    pub(super) checks: Vec<CheckResult>,
    /// Their output, for `test_output.txt` and the next prompt.
    pub(super) output: String,
    /// Those that failed, for the loop score.
    pub(super) failures: Vec<CommandFailure>,
    /// Failures as text, for the next prompt.
    pub(super) errors: Vec<String>,
    /// The checkboxes that are ticked now.
    pub(super) ticked: BTreeSet<CheckboxId>,
    /// Whether the whole task passes on one commit.
    pub(super) complete: bool,
    /// Whether the commands ran in a sandbox of their own.
    pub(super) apart: bool,
    /// What the commands shared with the agent, for people.
    pub(super) shared: Vec<String>,
    /// Why a person has to look before anything counts.
    pub(super) pause: Option<String>,
    /// Commands that failed before on the same files.
    pub(super) flaky: Vec<FlakyCheck>,
    /// Changes since the base that weaken checks.
    pub(super) weakened: Vec<WeakenedCheck>,
}

/// One time that commands run as evidence.
pub(super) struct EvidenceRound<'a> {
    pub(super) commit: &'a ObjectId,
    /// How often each command has to pass.
    pub(super) repeat: u32,
    /// Whether nothing is reported.
    pub(super) quiet: bool,
}

impl Evidence {
    /// Whether this command ran and passed each time.
    fn passed(&self, command: &str) -> bool {
        let mut checks = self.checks.iter().filter(|check| check.command == command);
        self.ran(command) && checks.all(CheckResult::passed)
    }

    /// Whether this command ran.
    pub(super) fn ran(&self, command: &str) -> bool {
        self.checks.iter().any(|check| check.command == command)
    }
}

impl Run<'_> {
    /// Verifies reported checkboxes on a commit, and the whole task once every checkbox is reported or ticked.
    pub(super) async fn verify_commit(
        &self,
        commit: &ObjectId,
        reported: &BTreeSet<CheckboxId>,
    ) -> Result<Evidence, RunError> {
        let mut ticked = self.progress.ticked.clone();
        let checkboxes = self.task.checkboxes.iter();
        let is_reported = |checkbox: &&Checkbox| reported.contains(&checkbox.id);
        let all = checkboxes
            .clone()
            .all(|checkbox| reported.contains(&checkbox.id) || ticked.contains(&checkbox.id));
        // The last step verifies everything again: a checkbox that passed once may fail now.
        let to_verify: Vec<&Checkbox> = checkboxes
            .filter(|checkbox| all || (is_reported(checkbox) && !ticked.contains(&checkbox.id)))
            .collect();
        if to_verify.is_empty() && !all {
            return Ok(Evidence {
                ticked,
                ..Evidence::default()
            });
        }
        let tests = &self.task.frontmatter.test_command;
        let mut commands: Vec<&String> = Vec::new();
        let verifications = to_verify
            .iter()
            .flat_map(|checkbox| self.task.verify_commands(checkbox));
        for command in verifications.chain(all.then_some(tests)) {
            if !commands.contains(&command) {
                commands.push(command);
            }
        }
        let repeat = if all { self.inputs.settings.done.repeat } else { 1 };
        let round = EvidenceRound {
            commit,
            repeat,
            quiet: false,
        };
        let mut evidence = self.gather(&round, &commands).await?;
        if evidence.pause.is_some() {
            evidence.ticked = ticked;
            return Ok(evidence);
        }
        for checkbox in to_verify {
            let verification = self.task.verify_commands(checkbox);
            // A checkbox without any verification is never ticked.
            let passed =
                !verification.is_empty() && verification.iter().all(|command| evidence.passed(command));
            self.update_tick(&checkbox.id, passed, &mut ticked);
        }
        let every_tick = self
            .task
            .checkboxes
            .iter()
            .all(|checkbox| ticked.contains(&checkbox.id));
        evidence.complete = all && every_tick && evidence.passed(tests);
        evidence.ticked = ticked;
        Ok(evidence)
    }

    fn update_tick(&self, id: &CheckboxId, passed: bool, ticked: &mut BTreeSet<CheckboxId>) {
        let checkbox = id.to_string();
        let event = match passed {
            true if !ticked.insert(id.clone()) => return,
            true => EventKind::Ticked { checkbox },
            false => EventKind::NotTicked {
                checkbox,
                reason: if ticked.remove(id) {
                    "its verification fails now".to_owned()
                } else {
                    "its verification fails".to_owned()
                },
            },
        };
        self.inputs.reporter.emit(event);
    }

    /// Runs commands in a fresh checkout of a commit and a fresh space, after ending every process of the agent.
    pub(super) async fn gather(
        &self,
        round: &EvidenceRound<'_>,
        commands: &[&String],
    ) -> Result<Evidence, RunError> {
        self.workplace.sandbox().end_processes().await?;
        let (started, reporter) = (Instant::now(), self.inputs.reporter);
        if !round.quiet {
            reporter.emit(EventKind::EvidenceStarted {
                commit: round.commit.to_string(),
                commands: commands.iter().map(ToString::to_string).collect(),
            });
        }
        let gathered = self.gather_with_retry(round, commands).await;
        if !round.quiet {
            let passed = |gathered: &Evidence| {
                gathered.pause.is_none() && gathered.checks.iter().all(CheckResult::passed)
            };
            reporter.emit(EventKind::EvidenceEnded {
                passed: gathered.as_ref().is_ok_and(passed),
                seconds: started.elapsed().as_secs_f64(),
            });
        }
        gathered
    }

    async fn gather_with_retry(
        &self,
        round: &EvidenceRound<'_>,
        commands: &[&String],
    ) -> Result<Evidence, RunError> {
        match self.gather_once(round, commands).await {
            Err((true, error)) if is_lost(&error) => {
                self.inputs.reporter.warn(format!(
                    "{}; gathering the evidence again in a new sandbox",
                    error_chain(&error)
                ));
                let again = self.gather_once(round, commands).await;
                again.map_err(|(_, error)| error)
            }
            gathered => gathered.map_err(|(_, error)| error),
        }
    }

    /// On an error, also whether the sandbox was one for evidence alone.
    async fn gather_once(
        &self,
        round: &EvidenceRound<'_>,
        commands: &[&String],
    ) -> Result<Evidence, (bool, RunError)> {
        let own = self.workplace.open_evidence().await;
        let Some(own) = own.map_err(|error| (false, error))? else {
            let gathered = self.gather_in(self.workplace.sandbox(), false, round, commands);
            return gathered.await.map_err(|error| (false, error));
        };
        let gathered = self.gather_in(own.as_ref(), true, round, commands).await;
        for notice in own.notices() {
            self.inputs.reporter.warn(notice);
        }
        self.workplace.end_evidence().await;
        let mut evidence = gathered.map_err(|error| (true, error))?;
        evidence.apart = true;
        Ok(evidence)
    }

    async fn gather_in(
        &self,
        sandbox: &dyn Sandbox,
        is_own: bool,
        round: &EvidenceRound<'_>,
        commands: &[&String],
    ) -> Result<Evidence, RunError> {
        let space = if is_own {
            // Nothing but evidence is in there, so it has the paths of the agent.
            EvidenceSpace {
                checkout: clone_dir(sandbox),
                ..EvidenceSpace::default()
            }
        } else {
            sandbox.evidence_space().await?
        };
        let mut evidence = Evidence {
            shared: space.shared.clone(),
            pause: written_reason(&space.written),
            ..Evidence::default()
        };
        if evidence.pause.is_none() {
            self.workplace
                .plant(sandbox, &space.checkout, round.commit, &self.progress)
                .await?;
            let place = EvidencePlace {
                sandbox,
                round,
                space: &space,
            };
            // Without its set-up no other command says anything.
            let is_set_up = match &self.workplace.setup {
                None => true,
                Some(_) if is_own && self.workplace.restore_setup(sandbox, round.commit).await? => true,
                Some(line) => {
                    self.check(line, Some(&place), &mut evidence).await?;
                    evidence.passed(line)
                }
            };
            for line in commands.iter().filter(|_| is_set_up) {
                for _ in 0..round.repeat {
                    self.check(line, Some(&place), &mut evidence).await?;
                    if !evidence.passed(line) {
                        break;
                    }
                }
            }
            sandbox.end_processes().await?;
        }
        sandbox.end_evidence().await?;
        Ok(evidence)
    }

    /// Runs a command in the clone, as feedback for the next iteration. It ticks no checkbox.
    pub(super) async fn feedback(&self, line: &str, evidence: &mut Evidence) -> Result<(), RunError> {
        self.inputs.reporter.emit(EventKind::StepStarted {
            what: format!("feedback: {line}"),
        });
        self.check(line, None, evidence).await?;
        Ok(self.workplace.sandbox().end_processes().await?)
    }

    /// Runs a command, reports its result and adds it. In a place for evidence it is evidence; otherwise it runs in the
    /// clone.
    async fn check(
        &self,
        line: &str,
        place: Option<&EvidencePlace<'_>>,
        evidence: &mut Evidence,
    ) -> Result<(), RunError> {
        let redactor = &self.inputs.parts.redactor;
        let sandbox = place.map_or(self.workplace.sandbox(), |place| place.sandbox);
        let dir = place.map_or_else(
            || self.workplace.clone_dir(),
            |place| place.space.checkout.clone(),
        );
        let commit = place.map(|place| place.round.commit);
        let quiet = place.is_some_and(|place| place.round.quiet);
        let timeout = self.progress.time_limit().max(Duration::from_secs(1));
        let mut command = Command::shell(line).cwd(dir).timeout(timeout).keep(MAX_OUTPUT);
        if let Some(place) = place {
            command.env.extend(place.space.env.clone());
        }
        let started = self.inputs.parts.clock.now();
        let exit = if quiet {
            sandbox.exec_trusted(&command, &mut Discard).await?
        } else {
            let mut lines = self.inputs.reporter.lines();
            sandbox.exec_trusted(&command, &mut lines).await?
        };
        let status = exit.status.to_string();
        if !quiet {
            self.inputs.reporter.emit(EventKind::Checked {
                command: line.to_owned(),
                status: status.clone(),
                passed: exit.success(),
                clean: commit.is_some(),
            });
        }
        let (stdout, stderr) = (exit.stdout.redacted(redactor), exit.stderr.redacted(redactor));
        let stderr = stderr.trim_end();
        let _ = writeln!(evidence.output, "$ {line}\n{stdout}{stderr}\n[{status}]");
        if !exit.success() {
            let place = commit.map_or("in the clone", |_| "in a clean checkout");
            let output = output_text(&exit, redactor);
            evidence
                .errors
                .push(format!("`{line}` {place}: {status}\n{output}"));
            let failure = gutter::command_failure(line, &exit, sandbox);
            evidence.failures.push(failure);
        }
        evidence.checks.push(CheckResult {
            command: line.to_owned(),
            code: exit.status.shell_code(),
            started: Some(started),
            seconds: (exit.duration.as_secs_f64() * 1000.0).round() / 1000.0,
            commit: commit.cloned(),
        });
        Ok(())
    }
}

/// Where evidence is gathered: a sandbox, a checked-out commit, and the directories and variables of its commands.
struct EvidencePlace<'a> {
    sandbox: &'a dyn Sandbox,
    round: &'a EvidenceRound<'a>,
    space: &'a EvidenceSpace,
}

/// Why files that evidence would read, and that were written since the sandbox was created, need a person.
fn written_reason(written: &[PathBuf]) -> Option<String> {
    let names: Vec<String> = written
        .iter()
        .take(MAX_NAMED)
        .map(|path| format!("`{}`", path.display()))
        .collect();
    let more = match written.len().saturating_sub(names.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!names.is_empty()).then(|| {
        format!(
            "evidence would read files outside the checkout that were written since the sandbox was created: {}{more}; \
             look at them, undo what should not be there, then resume the run, which accepts what is there",
            names.join(", ")
        )
    })
}

/// Where clean checkouts are created, next to the clone.
pub(super) fn checkout_dir(sandbox: &dyn Sandbox) -> PathBuf {
    EvidenceSpace::checkout_dir(sandbox.root())
}

/// The checkboxes that names stand for, and the names that stand for none. The id of a milestone stands for all of
/// its checkboxes.
pub(super) fn checkboxes_named(
    checkboxes: &[Checkbox],
    names: impl Iterator<Item = String>,
) -> (BTreeSet<CheckboxId>, Vec<String>) {
    let mut by_name: BTreeMap<String, Vec<&CheckboxId>> = BTreeMap::new();
    for Checkbox { id, milestone, .. } in checkboxes {
        let milestone = milestone.as_ref().map(ToString::to_string);
        for name in std::iter::once(id.to_string()).chain(milestone) {
            by_name.entry(name).or_default().push(id);
        }
    }
    let (known, unknown): (Vec<String>, Vec<String>) = names.partition(|name| by_name.contains_key(name));
    let ids = known.iter().flat_map(|name| &by_name[name]);
    (ids.map(|id| (*id).clone()).collect(), unknown)
}
