//! Commands that a person asks for between two iterations.

use super::RunError;
use super::evidence::Evidence;
use super::run::Run;

impl Run<'_> {
    /// Runs a command in the clone, like the tests after an iteration. Its lines are in the log, and its whole output is in
    /// the run file `commands/NAME.txt`. It is no evidence.
    pub(super) async fn run_for_person(&mut self, name: &str, line: &str) -> Result<(), RunError> {
        let mut result = Evidence::default();
        self.feedback(line, &mut result).await?;
        let file = format!("commands/{name}.txt");
        Ok(self.progress.files.write(&file, &result.output)?)
    }
}
