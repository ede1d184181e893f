//! Agents: what edits the code in one iteration.
//!
//! An agent starts nothing. It is asked what to do next, says so as a [`Step`], and is told what came of it. The
//! runner does the steps: it calls the model, runs the command in the sandbox, performs the actions.

pub mod actions;

use crate::exec::{Command, Exit};
use crate::model::{Message, Reply};

use self::actions::{Action, Claims};

/// Knows one agent's way of working. Starts nothing.
pub trait Agent: Send + Sync {
    /// The agent's name, as in `[agent] name`.
    fn name(&self) -> &str;

    /// The part of the prompt that tells how to answer (the schema with examples, for `actions`); empty for agents
    /// that need none.
    fn answer_format(&self) -> String;

    /// Opens a fresh session. Nothing of an earlier one is known to it.
    fn session(&self, prompt: &Prompt) -> Box<dyn Session>;
}

/// One fresh session of an agent: a state machine without any I/O.
pub trait Session: Send {
    /// Says what to do next, given what came of the last step.
    fn next(&mut self, last: Done) -> Step;
}

/// What an iteration begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The whole text.
    pub text: String,
    /// The number of the iteration, from 1.
    pub iteration: u32,
}

/// What the runner is to do for the agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Ask the model.
    Ask(Vec<Message>),
    /// Run this in the sandbox.
    Exec(Command),
    /// Perform these actions, in order, in the clone.
    Perform(Vec<Action>),
    /// The iteration is over.
    Finish(Outcome),
}

/// What came of the last step.
#[derive(Debug)]
pub enum Done {
    /// Nothing yet: the session begins.
    Nothing,
    /// The model answered.
    Answered(Reply),
    /// The command ended.
    Exited(Exit),
    /// The actions were performed.
    Performed(Reached),
}

/// How far a list of actions went. The first that fails ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// To its end.
    End,
    /// To the action that failed.
    Failure,
}

/// How the agent left the iteration. What it claims is checked by the runner, never believed.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What it says it did.
    pub summary: String,
    /// What it says is finished.
    pub claims: Claims,
    /// What it asks for next.
    pub ending: Ending,
}

/// What an agent asks for at the end of an iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Another iteration.
    Continue,
    /// A fresh context, because this one leads nowhere.
    Rotate {
        /// Why.
        reason: String,
    },
    /// A person.
    Pause {
        /// Why.
        reason: String,
    },
    /// The end: it says the task is done.
    StopSuccess {
        /// Why.
        reason: String,
    },
    /// The end: it says the task cannot be done.
    StopFailure {
        /// Why.
        reason: String,
    },
    /// Nothing: its answer could not be used, even after a repair round.
    Unusable {
        /// What was wrong with it.
        error: String,
    },
}
