//! The one driver of agent sessions: it asks the session for its next step and has a host carry it out.

use std::path::Path;

use crate::agent::actions::AgentAction;
use crate::agent::{AgentOutcome, AgentSession, AgentStep, ModelFailure, StepResult};
use crate::exec::{Command, Exit};
use crate::model::{ModelMessage, ModelReply};
use crate::sandbox::{Sandbox, SandboxError};

/// The most steps of one session. No agent needs more, and none may go on for ever.
const MAX_STEPS: u32 = 32;

/// Carries out the steps of one agent session.
pub(super) trait SessionHost {
    /// What ends the session early.
    type Error: From<SandboxError>;

    /// The session.
    fn session(&mut self) -> &mut dyn AgentSession;

    /// Where it runs.
    fn sandbox(&self) -> &dyn Sandbox;

    /// Its own directory in the sandbox.
    fn home(&self) -> &Path;

    /// Asks the model.
    async fn ask(&mut self, messages: Vec<ModelMessage>) -> Result<ModelReply, Self::Error>;

    /// Runs a command of the session.
    async fn exec(&mut self, command: Command) -> Result<Exit, Self::Error>;

    /// Performs actions in the clone. False when one of them failed.
    async fn perform(&mut self, actions: Vec<AgentAction>) -> Result<bool, Self::Error>;
}

/// How a session ended.
#[derive(Debug, PartialEq)]
pub(super) enum SessionEnd {
    /// The agent finished the iteration.
    Finished(AgentOutcome),
    /// The model behind the agent did not answer. Another session may succeed.
    Failed(ModelFailure),
}

/// Steps through a session until it ends.
pub(super) async fn run_session<H: SessionHost>(host: &mut H) -> Result<SessionEnd, H::Error> {
    let (mut done, mut has_home) = (StepResult::Started, false);
    for _ in 0..MAX_STEPS {
        let step = host.session().next(done);
        if !has_home && matches!(step, AgentStep::Write(_) | AgentStep::Exec(_)) {
            // Nothing of an earlier session stays in it.
            host.sandbox().files().remove(host.home()).await?;
            host.sandbox().files().mkdir(host.home()).await?;
            has_home = true;
        }
        done = match step {
            AgentStep::Ask(messages) => StepResult::Answered(host.ask(messages).await?),
            AgentStep::Write(files) => {
                for file in files {
                    let text = file.text.as_bytes();
                    host.sandbox().files().write(&file.path, text, 0o600).await?;
                }
                StepResult::Written
            }
            AgentStep::Exec(command) => StepResult::Exited(host.exec(command).await?),
            AgentStep::Perform(actions) => StepResult::Performed {
                completed: host.perform(actions).await?,
            },
            AgentStep::Finish(outcome) => return Ok(SessionEnd::Finished(outcome)),
            AgentStep::Fail(failure) => return Ok(SessionEnd::Failed(failure)),
        };
    }
    let error = format!("the session did not finish within {MAX_STEPS} steps");
    Ok(SessionEnd::Finished(AgentOutcome::unusable(error)))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::agent::actions::ReportedProgress;
    use crate::agent::{AgentConclusion, AgentFile};
    use crate::exec::Discard;
    use crate::runner::tests::TestRun;
    use crate::runner::workplace::Workplace;

    /// A session that takes these steps, and repeats the last one.
    struct Steps {
        steps: VecDeque<AgentStep>,
        results: Vec<String>,
    }

    impl AgentSession for Steps {
        fn next(&mut self, last: StepResult) -> AgentStep {
            let result = format!("{last:?}");
            let name = result.split(['(', ' ']).next().unwrap_or_default();
            self.results.push(name.to_owned());
            let step = self.steps.pop_front().unwrap();
            if self.steps.is_empty() {
                self.steps.push_back(step.clone());
            }
            step
        }
    }

    struct TestHost<'a> {
        session: Steps,
        workplace: &'a Workplace<'a>,
        home: std::path::PathBuf,
    }

    impl SessionHost for TestHost<'_> {
        type Error = SandboxError;

        fn session(&mut self) -> &mut dyn AgentSession {
            &mut self.session
        }

        fn sandbox(&self) -> &dyn Sandbox {
            self.workplace.sandbox()
        }

        fn home(&self) -> &Path {
            &self.home
        }

        async fn ask(&mut self, _messages: Vec<ModelMessage>) -> Result<ModelReply, SandboxError> {
            unreachable!("no step asks")
        }

        async fn exec(&mut self, command: Command) -> Result<Exit, SandboxError> {
            self.sandbox().exec(&command, &mut Discard).await
        }

        async fn perform(&mut self, actions: Vec<AgentAction>) -> Result<bool, SandboxError> {
            Ok(actions.is_empty())
        }
    }

    async fn run(
        steps: impl IntoIterator<Item = AgentStep>,
        home: &Path,
        workplace: &Workplace<'_>,
    ) -> (SessionEnd, Vec<String>) {
        let mut host = TestHost {
            session: Steps {
                steps: steps.into_iter().collect(),
                results: Vec::new(),
            },
            workplace,
            home: home.to_owned(),
        };
        let end = run_session(&mut host).await.unwrap();
        (end, host.session.results)
    }

    fn finished() -> AgentOutcome {
        AgentOutcome {
            summary: "done".to_owned(),
            progress: ReportedProgress::default(),
            conclusion: AgentConclusion::Continue,
        }
    }

    #[tokio::test]
    async fn each_step_is_carried_out_and_its_result_returned() {
        let test_run = TestRun::new().await;
        let workplace = test_run.workplace().await;
        let home = workplace.sandbox().root().join("agent");
        let file = AgentFile {
            path: home.join("a"),
            text: "text".to_owned(),
        };
        let steps = [
            AgentStep::Write(vec![file]),
            AgentStep::Exec(Command::new("cat").arg(home.join("a").display().to_string())),
            AgentStep::Perform(Vec::new()),
            AgentStep::Finish(finished()),
        ];
        let (end, results) = run(steps, &home, &workplace).await;
        assert_eq!(end, SessionEnd::Finished(finished()));
        assert_eq!(results, ["Started", "Written", "Exited", "Performed"]);
    }

    #[tokio::test]
    async fn a_session_starts_with_an_empty_home() {
        let test_run = TestRun::new().await;
        let workplace = test_run.workplace().await;
        let home = workplace.sandbox().root().join("agent");
        for _ in 0..2 {
            let empty = Command::shell("test -z \"$(ls -A)\" && touch left").cwd(&home);
            let steps = [AgentStep::Exec(empty), AgentStep::Finish(finished())];
            let (end, _) = run(steps, &home, &workplace).await;
            assert_eq!(end, SessionEnd::Finished(finished()));
            assert!(home.join("left").exists());
        }
    }

    #[tokio::test]
    async fn a_session_that_does_not_finish_is_unusable() {
        let test_run = TestRun::new().await;
        let workplace = test_run.workplace().await;
        let (end, results) = run(
            [AgentStep::Perform(Vec::new())],
            Path::new("/nowhere"),
            &workplace,
        )
        .await;
        assert_eq!(results.len(), MAX_STEPS as usize);
        let SessionEnd::Finished(outcome) = end else {
            panic!("{end:?}");
        };
        assert!(matches!(outcome.conclusion, AgentConclusion::Unusable { .. }));
    }
}
