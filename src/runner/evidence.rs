//! Evidence: what the task's own commands say in a clean checkout of a commit the host has verified.
//!
//! Nothing of it comes through anything the agent's processes could touch: they are ended first, and the checkout is
//! planted from the host's objects, not copied from the clone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use crate::event::EventKind;
use crate::exec::{Command, Exit};
use crate::id::ObjectId;
use crate::sandbox::Sandbox;
use crate::scm::PrivateClone;
use crate::state::{CheckResult, CommandFailure};
use crate::task::{Checkbox, CheckboxId};

use super::error::Halt;
use super::gutter;
use super::perform::output_of;
use super::run::Run;

/// How much of each command's output `test_output.txt` holds.
const OUTPUT_KEPT: usize = 256 * 1024;

/// What a number of commands said.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Each command once, in order.
    pub(super) checks: Vec<CheckResult>,
    /// Their output, for `test_output.txt` and the next prompt.
    pub(super) output: String,
    /// Those that failed, for the loop score.
    pub(super) failures: Vec<CommandFailure>,
    /// What to tell the next iteration.
    pub(super) errors: Vec<String>,
}

impl Evidence {
    /// Whether this command ran and held.
    pub(super) fn holds(&self, command: &str) -> bool {
        self.checks
            .iter()
            .any(|check| check.command == command && check.passed())
    }

    /// Whether this command ran.
    pub(super) fn ran(&self, command: &str) -> bool {
        self.checks.iter().any(|check| check.command == command)
    }

    /// Adds what other commands said.
    pub(super) fn join(&mut self, other: Self) {
        self.checks.extend(other.checks);
        self.output.push_str(&other.output);
        self.failures.extend(other.failures);
        self.errors.extend(other.errors);
    }
}

/// What an iteration's claims came to.
#[derive(Debug, Default)]
pub(super) struct Verified {
    /// Everything that ran.
    pub(super) evidence: Evidence,
    /// The boxes that are ticked now.
    pub(super) ticked: BTreeSet<CheckboxId>,
    /// Whether the whole task holds on this commit.
    pub(super) complete: bool,
}

impl Run<'_> {
    /// Checks claims on a commit, and the whole task once every box is ticked.
    pub(super) async fn verify(
        &mut self,
        commit: &ObjectId,
        claimed: &BTreeSet<CheckboxId>,
    ) -> Result<Verified, Halt> {
        let mut ticked = self.ticked.clone();
        let to_check: Vec<Checkbox> = self
            .task
            .checkboxes
            .iter()
            .filter(|one| claimed.contains(&one.id) && !ticked.contains(&one.id))
            .cloned()
            .collect();
        let all_would_be = self
            .task
            .checkboxes
            .iter()
            .all(|one| claimed.contains(&one.id) || ticked.contains(&one.id));
        if to_check.is_empty() && !all_would_be {
            return Ok(Verified {
                ticked,
                ..Verified::default()
            });
        }
        // The last step looks at everything again: a box that held once may hold no longer.
        let boxes: Vec<Checkbox> = if all_would_be {
            self.task.checkboxes.clone()
        } else {
            to_check
        };
        let mut commands: Vec<String> = Vec::new();
        for command in boxes.iter().flat_map(|one| self.task.verify_commands(one)) {
            if !commands.contains(command) {
                commands.push(command.clone());
            }
        }
        let tests = self.task.frontmatter.test_command.clone();
        if all_would_be && !commands.contains(&tests) {
            commands.push(tests.clone());
        }
        let evidence = self.gather(commit, &commands).await?;
        for one in &boxes {
            let verification = self.task.verify_commands(one);
            // A box that nothing verifies is never ticked, whoever made the task.
            let holds =
                !verification.is_empty() && verification.iter().all(|command| evidence.holds(command));
            self.judge_box(one, holds, &mut ticked);
        }
        let complete = all_would_be
            && self.task.checkboxes.iter().all(|one| ticked.contains(&one.id))
            && evidence.holds(&tests);
        Ok(Verified {
            evidence,
            ticked,
            complete,
        })
    }

    fn judge_box(&self, one: &Checkbox, holds: bool, ticked: &mut BTreeSet<CheckboxId>) {
        let id = one.id.to_string();
        if holds {
            if ticked.insert(one.id.clone()) {
                self.reporter.emit(EventKind::Ticked { checkbox: id });
            }
        } else {
            let reason = if ticked.remove(&one.id) {
                "its verification holds no longer"
            } else {
                "its verification fails"
            };
            self.reporter.emit(EventKind::NotTicked {
                checkbox: id,
                reason: reason.into(),
            });
        }
    }

    /// Runs commands in a fresh checkout of a commit, with every process of the agent's gone.
    pub(super) async fn gather(&mut self, commit: &ObjectId, commands: &[String]) -> Result<Evidence, Halt> {
        self.sandbox.end_processes().await?;
        let dir = checkout_dir(self.sandbox.as_ref());
        self.sandbox.files().remove(&dir).await?;
        self.plant(&dir, commit).await?;
        let mut evidence = Evidence::default();
        for line in commands {
            let exit = self.run_check(line, &dir).await?;
            evidence.join(self.weigh(line, &exit, Some(commit.clone())));
        }
        self.sandbox.end_processes().await?;
        self.sandbox.files().remove(&dir).await?;
        Ok(evidence)
    }

    /// Runs the tests in the clone, as feedback for the next iteration. No box is ticked by that.
    pub(super) async fn feedback(&mut self, line: &str) -> Result<Evidence, Halt> {
        let clone = self.clone_dir();
        let exit = self.run_check(line, &clone).await?;
        self.sandbox.end_processes().await?;
        Ok(self.weigh(line, &exit, None))
    }

    async fn run_check(&mut self, line: &str, dir: &std::path::Path) -> Result<Exit, Halt> {
        let left = self.ledger().time_left(&self.settings.budget);
        let timeout = self
            .settings
            .iteration_timeout
            .min(left)
            .max(Duration::from_secs(1));
        let command = Command::shell(line).cwd(dir).timeout(timeout).keep(OUTPUT_KEPT);
        Ok(self
            .sandbox
            .exec_trusted(&command, &mut self.reporter.lines())
            .await?)
    }

    /// What one command says.
    fn weigh(&self, line: &str, exit: &Exit, commit: Option<ObjectId>) -> Evidence {
        let redactor = &self.parts.redactor;
        let mut evidence = Evidence::default();
        let status = exit.status.to_string();
        self.reporter.emit(EventKind::Checked {
            command: line.to_owned(),
            status: status.clone(),
            passed: exit.success(),
            clean: commit.is_some(),
        });
        let (stdout, stderr) = (exit.stdout.redacted(redactor), exit.stderr.redacted(redactor));
        let _ = writeln!(
            evidence.output,
            "$ {line}\n{stdout}{}\n[{status}]",
            stderr.trim_end()
        );
        if !exit.success() {
            let place = if commit.is_some() {
                "in a clean checkout"
            } else {
                "in the clone"
            };
            evidence.errors.push(format!(
                "`{line}` {place}: {status}\n{}",
                output_of(exit, redactor)
            ));
            evidence
                .failures
                .push(gutter::failure(line, exit, self.sandbox.as_ref()));
        }
        evidence.checks.push(CheckResult {
            command: line.to_owned(),
            code: exit.status.shell_code(),
            seconds: (exit.duration.as_secs_f64() * 1000.0).round() / 1000.0,
            commit,
        });
        evidence
    }

    /// A fresh clone at a commit, from packs the host made.
    pub(super) async fn plant(&mut self, dir: &std::path::Path, commit: &ObjectId) -> Result<(), Halt> {
        let packs = self.packs_for(commit).await?;
        PrivateClone::plant(
            self.sandbox.as_ref(),
            dir.to_owned(),
            &packs,
            self.start_at(commit),
        )
        .await?;
        Ok(())
    }
}

/// Where clean checkouts are made, beside the clone.
pub(super) fn checkout_dir(sandbox: &dyn Sandbox) -> PathBuf {
    sandbox.root().join("evidence")
}

/// The boxes a set of names means: ids of boxes, and ids of milestones for all of theirs. The rest is unknown.
pub(super) fn boxes_named(checkboxes: &[Checkbox], names: &[String]) -> (BTreeSet<CheckboxId>, Vec<String>) {
    let mut by_name: BTreeMap<String, Vec<CheckboxId>> = BTreeMap::new();
    for one in checkboxes {
        by_name
            .entry(one.id.to_string())
            .or_default()
            .push(one.id.clone());
        if let Some(milestone) = &one.milestone {
            by_name
                .entry(milestone.to_string())
                .or_default()
                .push(one.id.clone());
        }
    }
    let (known, unknown): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| by_name.contains_key(*name));
    let boxes = known.into_iter().flat_map(|name| by_name[name].clone()).collect();
    (boxes, unknown.into_iter().cloned().collect())
}
