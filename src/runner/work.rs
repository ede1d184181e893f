//! The agent's part of an iteration: its session is stepped through until it finishes, is cut short, or time is up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::agent::actions::Claims;
use crate::agent::{Done, Ending, Outcome, Prompt, Step};
use crate::exec::Exit;
use crate::model::{Profile, Purpose};
use crate::state::Failure;

use super::ask::Call;
use super::error::Halt;
use super::gutter;
use super::perform::{Bench, Performed, output_of};
use super::run::Run;
use super::watch::{self, Urgent};

/// The most steps one session takes: no session of ours needs more, and none goes on for ever.
const MOST_STEPS: u32 = 32;

/// What an agent did in one iteration.
#[derive(Debug)]
pub(super) struct Work {
    /// How it left the iteration.
    pub(super) outcome: Outcome,
    /// Its last answer or the end of its output.
    pub(super) response: String,
    /// Its actions and what failed.
    pub(super) performed: Performed,
}

/// What has come of a session so far; it survives when the session is cut short.
#[derive(Default)]
struct Progress {
    response: String,
    performed: Performed,
}

/// What cut a session short.
enum Cut {
    Person(Urgent),
    Time,
}

impl Run<'_> {
    /// Lets the agent work, within the iteration's time, as long as no person ends it.
    pub(super) async fn work(&mut self, prompt: &Prompt, profile: &Profile) -> Result<Work, Halt> {
        let mut progress = Progress::default();
        let limit = self
            .settings
            .iteration_timeout
            .min(self.ledger().time_left(&self.settings.budget));
        let (inbox, waiting) = (self.dir.inbox(), self.waiting.clone());
        waiting.store(0, Ordering::Relaxed);
        let ended = tokio::select! {
            outcome = self.session(prompt, profile, &mut progress) => Ok(outcome?),
            urgent = watch::urgent(&inbox) => Err(Cut::Person(urgent?)),
            () = time_is_up(limit, &waiting) => Err(Cut::Time),
        };
        self.sandbox.end_processes().await?;
        let Progress {
            response,
            mut performed,
        } = progress;
        let outcome = match ended {
            Ok(outcome) => outcome,
            Err(Cut::Person(Urgent::Stop)) => return Err(Halt::stopped("stopped by a person")),
            Err(Cut::Person(Urgent::Rotate)) => cut_short("a person asked for a fresh context"),
            Err(Cut::Time) => {
                let reason = format!(
                    "the iteration took longer than {} s and was ended",
                    limit.as_secs()
                );
                performed
                    .failures
                    .push(gutter::failure_of_text("iteration", 124, "timed out"));
                performed.errors.push(reason.clone());
                cut_short(&reason)
            }
        };
        if let Ending::Unusable { error } = &outcome.ending {
            performed
                .failures
                .push(gutter::failure_of_text("answer", 1, error));
            performed
                .errors
                .push(format!("the answer could not be used: {error}"));
        }
        Ok(Work {
            outcome,
            response,
            performed,
        })
    }

    async fn session(
        &mut self,
        prompt: &Prompt,
        profile: &Profile,
        progress: &mut Progress,
    ) -> Result<Outcome, Halt> {
        let mut session = self.parts.agent.session(prompt);
        let mut done = Done::Nothing;
        let mut calls = 0;
        for _ in 0..MOST_STEPS {
            done = match session.next(done) {
                Step::Ask(messages) => {
                    let call = Call {
                        iteration: prompt.iteration,
                        number: calls,
                        purpose: Purpose::Agent,
                    };
                    calls += 1;
                    let reply = self.ask(profile, messages, call).await?;
                    progress.response.clone_from(&reply.text);
                    Done::Answered(reply)
                }
                Step::Exec(command) => {
                    let command = command.cwd(self.clone_dir()).idle(self.settings.idle_timeout);
                    let exit = self.sandbox.exec(&command, &mut self.reporter.lines()).await?;
                    self.note_exit(&command.program, &exit, progress);
                    Done::Exited(exit)
                }
                Step::Perform(actions) => {
                    let bench = Bench {
                        sandbox: self.sandbox.as_ref(),
                        clone: &self.private_clone(),
                        reporter: &self.reporter,
                        redactor: &self.parts.redactor,
                    };
                    Done::Performed(bench.perform(&actions, &mut progress.performed).await?)
                }
                Step::Finish(outcome) => return Ok(self.cleaned(outcome)),
            };
        }
        Ok(Outcome {
            ending: Ending::Unusable {
                error: format!("the session did not finish within {MOST_STEPS} steps"),
            },
            ..cut_short("")
        })
    }

    fn note_exit(&self, program: &str, exit: &Exit, progress: &mut Progress) {
        progress.response = output_of(exit, &self.parts.redactor);
        if !exit.success() {
            let failure: Failure = gutter::failure(program, exit, self.sandbox.as_ref());
            progress.performed.failures.push(failure);
            progress
                .performed
                .errors
                .push(format!("{program}: {}\n{}", exit.status, progress.response));
        }
    }

    fn cleaned(&self, outcome: Outcome) -> Outcome {
        Outcome {
            summary: self.parts.redactor.redact(&outcome.summary),
            ..outcome
        }
    }
}

fn cut_short(reason: &str) -> Outcome {
    Outcome {
        summary: format!("(cut short: {reason})"),
        claims: Claims::default(),
        ending: Ending::Rotate {
            reason: reason.to_owned(),
        },
    }
}

/// Returns when `limit` has passed, not counting what was spent waiting.
pub(super) async fn time_is_up(limit: Duration, waiting: &Arc<AtomicU64>) {
    let started = Instant::now();
    loop {
        let waited = Duration::from_millis(waiting.load(Ordering::Relaxed));
        let left = (limit + waited).saturating_sub(started.elapsed());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}
