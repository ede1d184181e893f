//! Sessions of the agent: one an iteration, or more where the model behind it did not answer.

use crate::agent::actions::ReportedProgress;
use crate::agent::{
    AgentBrief, AgentConclusion, AgentFile, AgentOutcome, AgentSession, AgentStep, ModelFailure, StepResult,
};
use crate::exec::{CapturedOutput, Command, Exit, OutputLine, OutputSink, OutputStream};
use crate::model::{CallPurpose, Profile};

use super::ask::Call;
use super::error::Halt;
use super::gutter;
use super::metering::{AgentMetering, by_the_meter, refused_for_good};
use super::perform::{Bench, Performed, output_of};
use super::report::LineReporter;
use super::run::Run;
use super::work::cut_short;

/// The most steps one session takes: no session of ours needs more, and none goes on for ever.
const MOST_STEPS: u32 = 32;
/// How much of what a session's commands print is kept to find out what it used.
const PRINTED: usize = 4 << 20;

/// One session and what has come of it so far; it survives when the session is cut short.
pub(super) struct AgentAttempt {
    pub(super) session: Box<dyn AgentSession>,
    /// Its last answer or the end of its output.
    pub(super) response: String,
    /// Its actions and what failed.
    pub(super) performed: Performed,
    /// What its commands printed.
    pub(super) printed: CapturedOutput,
    /// The call that stands for it in the journal until what it used is settled.
    pub(super) account: Option<u64>,
    /// What counts its calls, where they go through the broker.
    pub(super) metering: Option<AgentMetering>,
    /// Whether its own directory is there.
    at_home: bool,
}

/// How a session ended.
pub(super) enum Ended {
    Finished(AgentOutcome),
    Failed(ModelFailure),
}

impl AgentAttempt {
    pub(super) fn new(session: Box<dyn AgentSession>) -> Self {
        Self {
            session,
            response: String::new(),
            performed: Performed::default(),
            printed: CapturedOutput::with_limit(PRINTED),
            account: None,
            metering: None,
            at_home: false,
        }
    }
}

impl Run<'_> {
    /// Opens sessions until one finishes.
    pub(super) async fn sessions(
        &mut self,
        brief: &AgentBrief,
        profile: &Profile,
        attempt: &mut AgentAttempt,
    ) -> Result<AgentOutcome, Halt> {
        let agent = self.parts.agents.for_profile(&profile.name);
        let mut backoff = self.settings.model_wait;
        loop {
            let metering = self.begin_metering(profile);
            attempt.metering.clone_from(&metering);
            let ended = tokio::select! {
                biased;
                ended = self.session(brief, profile, attempt) => ended?,
                () = refused_for_good(metering.as_ref()) => {
                    Ended::Finished(cut_short("every further call would be refused"))
                }
            };
            match by_the_meter(ended, metering.as_ref())? {
                Ended::Finished(outcome) => return Ok(outcome),
                Ended::Failed(trouble) => {
                    self.settle_account(attempt, profile)?;
                    self.sandbox.end_processes().await?;
                    self.endure(&trouble, agent.as_ref(), &mut backoff).await?;
                    let again = AgentBrief {
                        cost_left: self.cost_left(),
                        ..brief.clone()
                    };
                    *attempt = AgentAttempt::new(agent.session(&again));
                }
            }
        }
    }

    async fn session(
        &mut self,
        brief: &AgentBrief,
        profile: &Profile,
        attempt: &mut AgentAttempt,
    ) -> Result<Ended, Halt> {
        let mut done = StepResult::Started;
        let mut calls = 0;
        for _ in 0..MOST_STEPS {
            done = match attempt.session.next(done) {
                AgentStep::Ask(messages) => {
                    let call = Call {
                        iteration: brief.iteration,
                        number: calls,
                        purpose: CallPurpose::Agent,
                    };
                    calls += 1;
                    let reply = self.ask(profile, messages, call).await?;
                    attempt.response.clone_from(&reply.text);
                    StepResult::Answered(reply)
                }
                AgentStep::Write(files) => {
                    self.write_files(&files, brief, attempt).await?;
                    StepResult::Written
                }
                AgentStep::Exec(command) => StepResult::Exited(self.run_for(command, brief, attempt).await?),
                AgentStep::Perform(actions) => {
                    let bench = Bench {
                        sandbox: self.sandbox.as_ref(),
                        clone: &self.private_clone(),
                        reporter: &self.reporter,
                        redactor: &self.parts.redactor,
                        env: &self.settings.agent_env,
                    };
                    StepResult::Performed {
                        completed: bench.perform(&actions, &mut attempt.performed).await?,
                    }
                }
                AgentStep::Finish(outcome) => return Ok(Ended::Finished(self.cleaned(outcome))),
                AgentStep::Fail(trouble) => return Ok(Ended::Failed(trouble)),
            };
        }
        Ok(Ended::Finished(AgentOutcome {
            summary: String::new(),
            progress: ReportedProgress::default(),
            conclusion: AgentConclusion::Unusable {
                error: format!("the session did not finish within {MOST_STEPS} steps"),
            },
        }))
    }

    async fn write_files(
        &self,
        files: &[AgentFile],
        brief: &AgentBrief,
        attempt: &mut AgentAttempt,
    ) -> Result<(), Halt> {
        self.make_home(brief, attempt).await?;
        for file in files {
            self.sandbox
                .files()
                .write(&file.path, file.text.as_bytes(), 0o600)
                .await?;
        }
        Ok(())
    }

    /// Runs a command of the session's in the clone.
    async fn run_for(
        &mut self,
        command: Command,
        brief: &AgentBrief,
        attempt: &mut AgentAttempt,
    ) -> Result<Exit, Halt> {
        self.make_home(brief, attempt).await?;
        let calls_by_itself = attempt.session.reported_usage(&attempt.printed).is_some();
        if calls_by_itself && attempt.account.is_none() {
            attempt.account = Some(self.open_account(brief.iteration, attempt.metering.as_ref())?);
        }
        let command = command.cwd(self.clone_dir()).idle(self.settings.idle_timeout);
        let command = command.envs(&self.settings.agent_env);
        let mut output = Kept {
            lines: self.reporter.lines(),
            printed: &mut attempt.printed,
        };
        let exit = self.sandbox.exec(&command, &mut output).await?;
        attempt.response = output_of(&exit, &self.parts.redactor);
        if !exit.success() {
            let failure = gutter::failure(&command.program, &exit, self.sandbox.as_ref());
            attempt.performed.failures.push(failure);
            let error = format!("{}: {}\n{}", command.program, exit.status, attempt.response);
            attempt.performed.errors.push(error);
        }
        Ok(exit)
    }

    /// Makes the session's own directory, once: nothing of an earlier session is in it.
    async fn make_home(&self, brief: &AgentBrief, attempt: &mut AgentAttempt) -> Result<(), Halt> {
        if !attempt.at_home {
            self.sandbox.files().remove(&brief.home).await?;
            self.sandbox.files().mkdir(&brief.home).await?;
            attempt.at_home = true;
        }
        Ok(())
    }

    fn cleaned(&self, outcome: AgentOutcome) -> AgentOutcome {
        AgentOutcome {
            summary: self.parts.redactor.redact(&outcome.summary),
            ..outcome
        }
    }
}

/// Shows what a command prints, and keeps it where it outlives a command that is not waited for.
struct Kept<'a> {
    lines: LineReporter<'a>,
    printed: &'a mut CapturedOutput,
}

impl OutputSink for Kept<'_> {
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
