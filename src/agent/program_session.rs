//! One session of an agent program: its files, its command, its transcript.

use crate::exec::{CapturedOutput, Exit, ExitStatus};

use super::transcript::KEPT_OUTPUT;
use super::{
    AgentBrief, AgentOutcome, AgentSession, AgentStep, ProgramAgent, ReportedAction, ReportedUsage,
    StepResult,
};

/// A session of an agent program.
pub(super) struct ProgramSession {
    agent: ProgramAgent,
    brief: AgentBrief,
    state: ProgramState,
}

/// What the session waits for.
enum ProgramState {
    Fresh,
    WritingFiles,
    Running,
    ReadingDetails { status: ExitStatus, printed: String },
    Finished,
}

impl ProgramSession {
    pub(super) fn new(agent: ProgramAgent, brief: &AgentBrief) -> Self {
        Self {
            agent,
            brief: brief.clone(),
            state: ProgramState::Fresh,
        }
    }

    fn run(&mut self) -> AgentStep {
        self.state = ProgramState::Running;
        let command = self.agent.program.command(&self.brief, &self.agent.access);
        AgentStep::Exec(command.keep(KEPT_OUTPUT))
    }

    fn exited(&mut self, exit: &Exit) -> AgentStep {
        let printed = exit.stdout.text();
        let failed = matches!(exit.status, ExitStatus::Code(code) if code != 0);
        let details = failed
            .then(|| self.agent.program.failure_details(&self.brief, &printed))
            .flatten();
        match details {
            Some(command) => {
                self.state = ProgramState::ReadingDetails {
                    status: exit.status,
                    printed,
                };
                AgentStep::Exec(command.keep(KEPT_OUTPUT))
            }
            None => self.finish(exit.status, &printed),
        }
    }

    fn finish(&self, status: ExitStatus, printed: &str) -> AgentStep {
        let program = &self.agent.program;
        program
            .parse_transcript(printed)
            .into_step(program.name(), status)
    }
}

impl AgentSession for ProgramSession {
    fn next(&mut self, last: StepResult) -> AgentStep {
        match (std::mem::replace(&mut self.state, ProgramState::Finished), last) {
            (ProgramState::Fresh, StepResult::Started) => {
                match self.agent.program.files(&self.brief, &self.agent.access) {
                    files if files.is_empty() => self.run(),
                    files => {
                        self.state = ProgramState::WritingFiles;
                        AgentStep::Write(files)
                    }
                }
            }
            (ProgramState::WritingFiles, StepResult::Written) => self.run(),
            (ProgramState::Running, StepResult::Exited(exit)) => self.exited(&exit),
            (ProgramState::ReadingDetails { status, printed }, StepResult::Exited(details)) => {
                self.finish(status, &format!("{printed}\n{}", details.stdout.text()))
            }
            (_, last) => AgentStep::Finish(AgentOutcome::unusable(last.unexpected())),
        }
    }

    fn reported_usage(&self, printed: &CapturedOutput) -> Option<ReportedUsage> {
        Some(self.agent.program.parse_transcript(&printed.text()).usage)
    }

    fn reported_actions(&self, line: &str) -> Option<Vec<ReportedAction>> {
        self.agent.program.reported_actions(line)
    }
}
