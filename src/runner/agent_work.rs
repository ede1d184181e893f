//! The agent's part of an iteration: sessions until one finishes, is interrupted, or the time is up.

use std::path::Path;

use crate::agent::actions::{AgentAction, ReportedProgress};
use crate::agent::{AgentBrief, AgentConclusion, AgentOutcome, AgentSession};
use crate::exec::{CapturedOutput, Command, Exit, OutputLine, OutputSink, OutputStream};
use crate::model::{CallPurpose, ModelMessage, ModelReply, ModelRequest, Profile};
use crate::sandbox::Sandbox;

use super::accounts::Accounts;
use super::actions::{ActionsLog, Performer, output_text};
use super::error::Halt;
use super::gutter;
use super::interventions::{Interruption, next_interruption};
use super::metering::{AgentMetering, refused_for_good, with_notices};
use super::model_calls;
use super::progress::RunProgress;
use super::report::LineReporter;
use super::session::{SessionEnd, SessionHost, run_session};
use super::workplace::Workplace;

/// How much output of a session's commands is kept to find out what it used, in bytes.
const MAX_PRINTED: usize = 4 << 20;

/// What the agent did in one iteration.
#[derive(Debug)]
pub(super) struct AgentWork {
    /// How it ended the iteration.
    pub(super) outcome: AgentOutcome,
    /// Its last answer, or the end of its output.
    pub(super) response: String,
    /// Its actions and their failures.
    pub(super) actions: ActionsLog,
}

/// The parts of a run that an agent session needs.
pub(super) struct AgentRunner<'r, 'a> {
    pub(super) progress: &'r mut RunProgress<'a>,
    pub(super) workplace: &'r Workplace<'a>,
    pub(super) accounts: &'r Accounts<'a>,
    pub(super) brief: &'r AgentBrief,
    pub(super) profile: &'r Profile,
}

/// One session and what it did so far. It outlives a session that is interrupted.
struct AgentAttempt {
    session: Box<dyn AgentSession>,
    /// Its last answer, or the end of its output.
    response: String,
    /// Its actions and their failures.
    actions: ActionsLog,
    /// What its commands printed.
    printed: CapturedOutput,
    /// Its call in the journal, until that is settled.
    open_call: Option<u64>,
    /// Counts its calls, where they go through the broker.
    metering: Option<AgentMetering>,
    /// Calls made through the runner.
    calls: u32,
}

impl AgentAttempt {
    fn new(session: Box<dyn AgentSession>) -> Self {
        Self {
            session,
            response: String::new(),
            actions: ActionsLog::default(),
            printed: CapturedOutput::with_limit(MAX_PRINTED),
            open_call: None,
            metering: None,
            calls: 0,
        }
    }
}

impl AgentRunner<'_, '_> {
    /// Lets the agent work within the time limit of the iteration, until it finishes or a person interrupts it.
    pub(super) async fn run(mut self) -> Result<AgentWork, Halt> {
        let agent = self.accounts.inputs.parts.agents.for_profile(&self.profile.name);
        let mut attempt = AgentAttempt::new(agent.session(self.brief));
        let limit = self.accounts.time_limit(self.progress);
        let (inbox, timer) = (self.accounts.inputs.dir.inbox(), self.accounts.start_timer());
        let ended = tokio::select! {
            outcome = self.sessions(&mut attempt) => outcome,
            interruption = next_interruption(&inbox) => match interruption {
                Ok(Interruption::Stop) => Err(Halt::stopped()),
                Ok(Interruption::Rotate) => Ok(interrupted("a person asked for a fresh context")),
                Err(error) => Err(error.into()),
            },
            () = timer.timeout(limit) => {
                let reason = format!("the iteration took longer than {} s and was ended", limit.as_secs());
                let failure = gutter::text_failure("iteration", 124, "timed out");
                attempt.actions.fail(failure, reason.clone());
                Ok(interrupted(&reason))
            }
        };
        self.settle(&mut attempt)?;
        let outcome = ended?;
        self.workplace.sandbox().end_processes().await?;
        if let AgentConclusion::Unusable { error } = &outcome.conclusion {
            let failure = gutter::text_failure("answer", 1, error);
            attempt
                .actions
                .fail(failure, format!("the answer could not be used: {error}"));
        }
        Ok(AgentWork {
            outcome,
            response: attempt.response,
            actions: attempt.actions,
        })
    }

    /// Opens sessions until one finishes.
    async fn sessions(&mut self, attempt: &mut AgentAttempt) -> Result<AgentOutcome, Halt> {
        let agent = self.accounts.inputs.parts.agents.for_profile(&self.profile.name);
        let mut backoff = self.accounts.inputs.settings.model_wait;
        loop {
            let metering = self.accounts.begin_metering(self.profile, self.progress);
            attempt.metering.clone_from(&metering);
            let mut host = RunHost {
                runner: &mut *self,
                attempt: &mut *attempt,
            };
            let end = tokio::select! {
                biased;
                end = run_session(&mut host) => end?,
                () = refused_for_good(metering.as_ref()) => {
                    SessionEnd::Finished(interrupted("every further call would be refused"))
                }
            };
            match with_notices(end, metering.as_ref())? {
                SessionEnd::Finished(outcome) => {
                    let summary = self.accounts.inputs.parts.redactor.redact(&outcome.summary);
                    return Ok(AgentOutcome { summary, ..outcome });
                }
                SessionEnd::Failed(failure) => {
                    self.settle(attempt)?;
                    self.workplace.sandbox().end_processes().await?;
                    self.accounts
                        .wait_out(&failure, agent.as_ref(), &mut backoff, self.progress)
                        .await?;
                    let brief = AgentBrief {
                        cost_left: self.accounts.cost_left(self.progress),
                        ..self.brief.clone()
                    };
                    *attempt = AgentAttempt::new(agent.session(&brief));
                }
            }
        }
    }

    /// Records what the session used, once.
    fn settle(&mut self, attempt: &mut AgentAttempt) -> Result<(), Halt> {
        let Some(call) = attempt.open_call.take() else {
            return Ok(());
        };
        // Only a session that reports its usage opens a call; one that reports nothing yet used nothing it knows of.
        let reported = attempt
            .session
            .reported_usage(&attempt.printed)
            .unwrap_or_default();
        let metering = attempt.metering.as_ref();
        self.accounts
            .settle_session(call, &reported, metering, self.profile, self.progress)
    }
}

/// Carries out the steps of a session within a run.
struct RunHost<'h, 'r, 'a> {
    runner: &'h mut AgentRunner<'r, 'a>,
    attempt: &'h mut AgentAttempt,
}

impl SessionHost for RunHost<'_, '_, '_> {
    type Error = Halt;

    fn session(&mut self) -> &mut dyn AgentSession {
        self.attempt.session.as_mut()
    }

    fn sandbox(&self) -> &dyn Sandbox {
        self.runner.workplace.sandbox()
    }

    fn home(&self) -> &Path {
        &self.runner.brief.home
    }

    async fn ask(&mut self, messages: Vec<ModelMessage>) -> Result<ModelReply, Halt> {
        let request = ModelRequest {
            profile: self.runner.profile.clone(),
            messages,
            iteration: self.runner.brief.iteration,
            call: self.attempt.calls,
            purpose: CallPurpose::Agent,
        };
        self.attempt.calls += 1;
        let reply = model_calls::ask(self.runner.accounts, self.runner.progress, request).await?;
        self.attempt.response.clone_from(&reply.text);
        Ok(reply)
    }

    async fn exec(&mut self, command: Command) -> Result<Exit, Halt> {
        let (runner, attempt) = (&mut *self.runner, &mut *self.attempt);
        let calls_by_itself = attempt.session.reported_usage(&attempt.printed).is_some();
        if calls_by_itself && attempt.open_call.is_none() {
            let metering = attempt.metering.as_ref();
            let iteration = runner.brief.iteration;
            let call = runner
                .accounts
                .open_session(iteration, metering, runner.progress)?;
            attempt.open_call = Some(call);
        }
        let (settings, sandbox) = (runner.accounts.inputs.settings, runner.workplace.sandbox());
        let command = command
            .cwd(runner.workplace.clone_dir())
            .idle(settings.idle_timeout)
            .envs(&settings.agent_env);
        let mut output = SessionOutput {
            lines: runner.accounts.reporter.lines(),
            printed: &mut attempt.printed,
        };
        let exit = sandbox.exec(&command, &mut output).await?;
        attempt.response = output_text(&exit, &runner.accounts.inputs.parts.redactor);
        if !exit.success() {
            let failure = gutter::command_failure(&command.program, &exit, sandbox);
            let error = format!("{}: {}\n{}", command.program, exit.status, attempt.response);
            attempt.actions.fail(failure, error);
        }
        Ok(exit)
    }

    async fn perform(&mut self, actions: Vec<AgentAction>) -> Result<bool, Halt> {
        let runner = &self.runner;
        let performer = Performer {
            sandbox: runner.workplace.sandbox(),
            clone: &runner.workplace.private_clone(&runner.progress.tip),
            reporter: &runner.accounts.reporter,
            redactor: &runner.accounts.inputs.parts.redactor,
            env: &runner.accounts.inputs.settings.agent_env,
        };
        Ok(performer.perform(&actions, &mut self.attempt.actions).await?)
    }
}

/// The outcome of a session that was ended from outside.
pub(super) fn interrupted(reason: &str) -> AgentOutcome {
    AgentOutcome {
        summary: format!("(cut short: {reason})"),
        progress: ReportedProgress::default(),
        conclusion: AgentConclusion::Rotate {
            reason: reason.to_owned(),
        },
    }
}

/// Reports what a command prints, and keeps it even when the command is interrupted.
struct SessionOutput<'a> {
    lines: LineReporter<'a>,
    printed: &'a mut CapturedOutput,
}

impl OutputSink for SessionOutput<'_> {
    fn line(&mut self, line: OutputLine) {
        self.lines.line(line);
    }

    fn bytes(&mut self, stream: OutputStream, bytes: &[u8]) {
        if stream == OutputStream::Stdout {
            self.printed.push(bytes);
        }
    }

    fn wants_lines(&self) -> bool {
        self.lines.wants_lines()
    }
}
