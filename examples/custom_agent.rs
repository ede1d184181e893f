//! An agent of one's own, without a model: it runs a program in the sandbox, commits what that changed and claims that
//! the task is done. The runner checks the claim as it checks everybody's.
//!
//! ```text
//! cargo run --example custom_agent
//! ```
//!
//! An agent starts nothing. Its session is a state machine: it says what is to be done next and is told what came of
//! it. That makes it easy to test: feed it answers.
#![expect(clippy::print_stdout, reason = "a program talks to its user")]

mod support;

use std::error::Error;
use std::sync::Arc;

use ralph::agent::actions::{Action, Claims};
use ralph::agent::{Agents, Brief, Done, Ending, Outcome, Step};
use ralph::exec::Command;
use ralph::{Agent, Session};

struct SpellChecker;

impl Agent for SpellChecker {
    fn name(&self) -> &'static str {
        "spell-checker"
    }

    /// Nobody has to be told how to answer.
    fn answer_format(&self) -> String {
        String::new()
    }

    /// Nothing of an earlier iteration is known to a session but what its brief says.
    fn session(&self, _brief: &Brief) -> Box<dyn Session> {
        Box::new(SpellCheck)
    }
}

struct SpellCheck;

impl Session for SpellCheck {
    fn next(&mut self, last: Done) -> Step {
        match last {
            Done::Nothing => Step::Exec(Command::shell(
                "sed 's/wrld/world/' greeting.txt >new && mv new greeting.txt",
            )),
            Done::Exited(exit) if exit.success() => Step::Perform(vec![Action::Commit {
                message: "Correct the spelling".to_owned(),
                paths: Vec::new(),
            }]),
            Done::Exited(exit) => finish(Ending::StopFailure {
                reason: format!("sed: {}", exit.status),
            }),
            Done::Performed(_) | Done::Answered(_) | Done::Written => finish(Ending::StopSuccess {
                reason: "every word is in the dictionary".to_owned(),
            }),
        }
    }
}

fn finish(ending: Ending) -> Step {
    Step::Finish(Outcome {
        summary: "Looked for misspelt words.".to_owned(),
        claims: Claims::default(),
        ending,
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut bench = support::Bench::new().await?;
    bench.parts.agents = Agents::one(Arc::new(SpellChecker));
    let outcome = bench.drive().await?;

    println!("{:?} after {} iteration", outcome.kind, outcome.iterations);
    println!("{}", outcome.reason);
    Ok(())
}
