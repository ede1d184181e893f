//! One session of an agent program: its files, its command, its transcript.

use std::sync::Arc;

use crate::exec::{Captured, Exit, Status};

use super::actions::Claims;
use super::transcript::KEPT;
use super::{Brief, Done, Ending, Outcome, Program, Session, Spent, Step};

/// A session of an agent program.
pub(super) struct ProgramSession {
    program: Arc<dyn Program>,
    brief: Brief,
    state: State,
}

/// What the session waits for.
enum State {
    /// To begin.
    Fresh,
    /// Its files.
    Writing,
    /// Its command.
    Running,
    /// More about why its command failed.
    LookingUp { status: Status, printed: String },
    /// Nothing any more.
    Finished,
}

impl ProgramSession {
    pub(super) fn new(program: Arc<dyn Program>, brief: &Brief) -> Self {
        Self {
            program,
            brief: brief.clone(),
            state: State::Fresh,
        }
    }

    fn run(&mut self) -> Step {
        self.state = State::Running;
        Step::Exec(self.program.command(&self.brief).keep(KEPT))
    }

    fn ended(&mut self, exit: &Exit) -> Step {
        let printed = exit.stdout.text();
        let failed = matches!(exit.status, Status::Code(code) if code != 0);
        let look_up = failed
            .then(|| self.program.look_up(&self.brief, &printed))
            .flatten();
        match look_up {
            Some(command) => {
                self.state = State::LookingUp {
                    status: exit.status,
                    printed,
                };
                Step::Exec(command.keep(KEPT))
            }
            None => self.report(exit.status, &printed),
        }
    }

    fn report(&self, status: Status, printed: &str) -> Step {
        self.program.read(printed).step(self.program.name(), status)
    }
}

impl Session for ProgramSession {
    fn next(&mut self, last: Done) -> Step {
        match (std::mem::replace(&mut self.state, State::Finished), last) {
            (State::Fresh, Done::Nothing) => match self.program.files(&self.brief) {
                files if files.is_empty() => self.run(),
                files => {
                    self.state = State::Writing;
                    Step::Write(files)
                }
            },
            (State::Writing, Done::Written) => self.run(),
            (State::Running, Done::Exited(exit)) => self.ended(&exit),
            (State::LookingUp { status, printed }, Done::Exited(found)) => {
                self.report(status, &format!("{printed}\n{}", found.stdout.text()))
            }
            (_, last) => Step::Finish(Outcome {
                summary: String::new(),
                claims: Claims::default(),
                ending: Ending::Unusable {
                    error: format!("the session was told `{}` out of turn", last.name()),
                },
            }),
        }
    }

    fn spent(&self, printed: &Captured) -> Option<Spent> {
        Some(self.program.read(&printed.text()).spent)
    }
}
