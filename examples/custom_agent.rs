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

use ralph::agent::actions::{AgentAction, ReportedProgress};
use ralph::agent::{AgentBrief, AgentConclusion, AgentOutcome, AgentStep, Agents, StepResult};
use ralph::exec::Command;
use ralph::{Agent, AgentSession};

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
    let mut bench = support::Bench::new().await?;
    bench.parts.agents = Agents::new(Arc::new(SpellChecker));
    let outcome = bench.drive().await?;

    println!("{:?} after {} iteration", outcome.kind, outcome.iterations);
    println!("{}", outcome.reason);
    Ok(())
}
