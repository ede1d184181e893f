//! Commands that a person asks for between two iterations.

use std::time::Duration;

use tokio::time::timeout;

use crate::text::error_chain;

use super::RunError;
use super::error::Halt;
use super::evidence::Evidence;
use super::interventions::until_stopped;
use super::run::Run;

/// The longest time of a command: meanwhile the run does nothing else.
const LIMIT: Duration = Duration::from_secs(10 * 60);

impl Run<'_> {
    /// Runs a command in the clone, like the tests after an iteration. Its lines are in the log, and its whole output is in
    /// the run file `commands/NAME.txt`. It is no evidence. Returns why it could not be run; it is not run again then.
    pub(super) async fn run_for_person(&mut self, name: &str, line: &str) -> Result<Option<String>, Halt> {
        let inputs = self.inputs;
        let mut result = Evidence::default();
        let ran = tokio::select! {
            ran = timeout(LIMIT, self.feedback(line, &mut result)) => ran,
            halt = until_stopped(inputs) => return Err(halt),
        };
        let failed = match ran {
            Ok(Ok(())) => None,
            // The next iteration finds a sandbox that is lost.
            Ok(Err(error @ RunError::Sandbox(_))) => Some(error_chain(&error)),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => {
                let ended = self.workplace.sandbox().end_processes().await;
                let ended =
                    ended.map_or_else(|error| format!("; {}", error_chain(&error)), |()| String::new());
                Some(format!(
                    "it took longer than {} minutes{ended}",
                    LIMIT.as_secs() / 60
                ))
            }
        };
        if failed.is_none() {
            let file = format!("commands/{name}.txt");
            self.progress.files.write(&file, &result.output)?;
        }
        Ok(failed.map(|why| format!("the command `{name}` failed: {why}")))
    }
}
