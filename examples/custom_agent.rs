//! An agent of your own, without a model: it runs a program in the sandbox, commits the changes and reports the task as
//! finished. The runner verifies the report like that of every agent.
//!
//! ```text
//! cargo run --example custom_agent
//! ```
//!
//! An agent starts nothing itself. Its session is a state machine: it returns the next step and gets its result. That
//! makes it easy to test.
#![expect(clippy::print_stdout, reason = "a program talks to its user")]

mod support;

use std::error::Error;

use ralph::agent::actions::{AgentAction, ReportedProgress};
use ralph::agent::{AgentBrief, AgentConclusion, AgentOutcome, AgentStep, StepResult};
use ralph::exec::Command;
use ralph::{Agent, AgentSession};

struct SpellChecker;

impl Agent for SpellChecker {
    fn name(&self) -> &'static str {
        "spell-checker"
    }

    /// A session knows nothing of earlier iterations but what its brief contains.
    fn session(&self, _brief: &AgentBrief) -> Box<dyn AgentSession> {
        Box::new(SpellCheck)
    }
}

struct SpellCheck;

impl AgentSession for SpellCheck {
    fn next(&mut self, last: StepResult) -> AgentStep {
        match last {
            StepResult::Started => AgentStep::Exec(Command::shell(
                "sed 's/wrld/world/' greeting.txt >new && mv new greeting.txt",
            )),
            StepResult::Exited(exit) if exit.success() => AgentStep::Perform(vec![AgentAction::Commit {
                message: "Correct the spelling".to_owned(),
                paths: Vec::new(),
            }]),
            StepResult::Exited(exit) => finish(AgentConclusion::StopFailure {
                reason: format!("sed: {}", exit.status),
            }),
            StepResult::Performed { .. } | StepResult::Answered(_) | StepResult::Written => {
                finish(AgentConclusion::StopSuccess {
                    reason: "every word is in the dictionary".to_owned(),
                })
            }
        }
    }
}

fn finish(conclusion: AgentConclusion) -> AgentStep {
    AgentStep::Finish(AgentOutcome {
        summary: "Looked for misspelt words.".to_owned(),
        progress: ReportedProgress::default(),
        conclusion,
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let example = support::Example::new().await?;
    let outcome = example.builder().agent(SpellChecker).build().await?.run().await?;

    println!("{:?} after {} iteration", outcome.kind, outcome.used.iterations);
    println!("{}", outcome.reason);
    Ok(())
}
