//! The agent's part of an iteration: sessions until one finishes, is interrupted, or the time is up.

use std::path::Path;

use crate::agent::actions::{AgentAction, ReportedProgress};
use crate::agent::{AgentBrief, AgentConclusion, AgentOutcome, AgentSession};
use crate::exec::{CapturedOutput, Command, Exit};
use crate::model::{CallPurpose, ModelMessage, ModelReply, ModelRequest, Profile};
use crate::sandbox::Sandbox;

use super::actions::{ActionsLog, Performer, output_text};
use super::error::Halt;
use super::gutter;
use super::interventions::until_rotated;
use super::metering::{AgentMetering, refused_for_good, with_notices};
use super::model_calls;
use super::progress::RunProgress;
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
    /// Whether it wrote into the run files that are its own.
    pub(super) has_notes: bool,
    /// Whether it called a model through the runner.
    pub(super) called_model: bool,
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

/// Lets the agent work within the time limit of the iteration, until it finishes or a person interrupts it.
pub(super) async fn run_agent<'a>(
    progress: &mut RunProgress<'a>,
    workplace: &Workplace<'a>,
    brief: &AgentBrief,
    profile: &Profile,
) -> Result<AgentWork, Halt> {
    let agent = progress.inputs.parts.agents.for_profile(&profile.name);
    let (limit, timer) = (progress.time_limit(), progress.start_timer());
    let inputs = progress.inputs;
    let mut runner = AgentRunner {
        progress,
        workplace,
        brief,
        profile,
        attempt: AgentAttempt::new(agent.session(brief)),
    };
    let ended = tokio::select! {
        outcome = runner.sessions() => outcome,
        rotated = until_rotated(inputs) => rotated.map(|()| interrupted("a person asked for a fresh context")),
        () = timer.timeout(limit) => {
            let reason = format!("the iteration took longer than {} s and was ended", limit.as_secs());
            let failure = gutter::text_failure("iteration", 124, "timed out");
            runner.attempt.actions.fail(failure, reason.clone());
            Ok(interrupted(&reason))
        }
    };
    runner.settle()?;
    runner.progress.log_actions(&mut runner.attempt.actions)?;
    let outcome = ended?;
    workplace.sandbox().end_processes().await?;
    let AgentAttempt {
        response,
        mut actions,
        calls,
        ..
    } = runner.attempt;
    if let AgentConclusion::Unusable { error } = &outcome.conclusion {
        let failure = gutter::text_failure("answer", 1, error);
        actions.fail(failure, format!("the answer could not be used: {error}"));
    }
    Ok(AgentWork {
        outcome,
        response,
        actions,
        has_notes: false,
        called_model: calls > 0,
    })
}

/// Carries out the steps of the sessions of one iteration.
struct AgentRunner<'r, 'a> {
    progress: &'r mut RunProgress<'a>,
    workplace: &'r Workplace<'a>,
    brief: &'r AgentBrief,
    profile: &'r Profile,
    /// The newest session.
    attempt: AgentAttempt,
}

impl AgentRunner<'_, '_> {
    /// Opens sessions until one finishes.
    async fn sessions(&mut self) -> Result<AgentOutcome, Halt> {
        let inputs = self.progress.inputs;
        let agent = inputs.parts.agents.for_profile(&self.profile.name);
        let mut backoff = inputs.settings.model_wait;
        loop {
            let metering = self.progress.begin_metering(self.profile);
            self.attempt.metering.clone_from(&metering);
            let end = tokio::select! {
                biased;
                end = run_session(self) => end?,
                () = refused_for_good(metering.as_ref()) => {
                    SessionEnd::Finished(interrupted("every further call would be refused"))
                }
            };
            match with_notices(end, metering.as_ref())? {
                SessionEnd::Finished(outcome) => {
                    let summary = inputs.parts.redactor.redact(&outcome.summary);
                    return Ok(AgentOutcome { summary, ..outcome });
                }
                SessionEnd::Failed(failure) => {
                    self.settle()?;
                    self.workplace.sandbox().end_processes().await?;
                    self.progress
                        .wait_out(&failure, agent.as_ref(), &mut backoff)
                        .await?;
                    let brief = AgentBrief {
                        cost_left: self.progress.cost_left(),
                        ..self.brief.clone()
                    };
                    self.attempt = AgentAttempt::new(agent.session(&brief));
                }
            }
        }
    }

    /// Records what the session used, once.
    fn settle(&mut self) -> Result<(), Halt> {
        let attempt = &mut self.attempt;
        let Some(call) = attempt.open_call.take() else {
            return Ok(());
        };
        // Only a session that reports its usage opens a call; one that reports nothing yet used nothing it knows of.
        let reported = attempt
            .session
            .reported_usage(&attempt.printed)
            .unwrap_or_default();
        let metering = attempt.metering.as_ref();
        self.progress
            .settle_session(call, &reported, metering, self.profile)
    }
}

impl SessionHost for AgentRunner<'_, '_> {
    type Error = Halt;

    fn session(&mut self) -> &mut dyn AgentSession {
        self.attempt.session.as_mut()
    }

    fn sandbox(&self) -> &dyn Sandbox {
        self.workplace.sandbox()
    }

    fn home(&self) -> &Path {
        &self.brief.home
    }

    async fn ask(&mut self, messages: Vec<ModelMessage>) -> Result<ModelReply, Halt> {
        let request = ModelRequest {
            profile: self.profile.clone(),
            messages,
            iteration: self.brief.iteration,
            call: self.attempt.calls,
            purpose: CallPurpose::Agent,
        };
        self.attempt.calls += 1;
        let reply = model_calls::ask(self.progress, request).await?;
        self.attempt.response.clone_from(&reply.text);
        Ok(reply)
    }

    async fn exec(&mut self, command: Command) -> Result<Exit, Halt> {
        let (inputs, attempt) = (self.progress.inputs, &mut self.attempt);
        let calls_by_itself = attempt.session.reported_usage(&attempt.printed).is_some();
        if calls_by_itself && attempt.open_call.is_none() {
            let metering = attempt.metering.as_ref();
            let call = self.progress.open_session(self.brief.iteration, metering)?;
            attempt.open_call = Some(call);
        }
        let (settings, sandbox) = (inputs.settings, self.workplace.sandbox());
        let command = command
            .cwd(self.workplace.clone_dir())
            .idle(settings.idle_timeout)
            .envs(&settings.agent_env);
        let mut output = inputs.reporter.lines();
        output.kept = Some(&mut attempt.printed);
        output.session = Some(attempt.session.as_mut());
        output.log = Some(&mut attempt.actions);
        let exit = sandbox.exec(&command, &mut output).await?;
        drop(output);
        let seconds = exit.duration.as_secs_f64();
        let ran = format!("command: {}: {}, {seconds:.1} s", command.program, exit.status);
        attempt.actions.activity.push(ran);
        self.progress.log_actions(&mut attempt.actions)?;
        attempt.response = output_text(&exit, &inputs.parts.redactor);
        if !exit.success() {
            let failure = gutter::command_failure(&command.program, &exit, sandbox);
            let error = format!("{}: {}\n{}", command.program, exit.status, attempt.response);
            attempt.actions.fail(failure, error);
        }
        Ok(exit)
    }

    async fn perform(&mut self, actions: Vec<AgentAction>) -> Result<bool, Halt> {
        let performer = Performer {
            inputs: self.progress.inputs,
            sandbox: self.workplace.sandbox(),
            clone: &self.workplace.private_clone(&self.progress.tip),
        };
        let is_done = performer.perform(&actions, &mut self.attempt.actions).await?;
        self.progress.log_actions(&mut self.attempt.actions)?;
        Ok(is_done)
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
