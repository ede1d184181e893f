//! The commands that a person may have run in the sandbox of a run. There are no others, and there is no shell.

use schemars::JsonSchema;
use serde::Serialize;

use crate::state::{Intervention, InterventionRequest, RunDir, StructuredNote};
use crate::task::Task;

use super::{AssemblyError, RunControl};

/// The name of the task's own command.
const TESTS: &str = "test_command";

/// A command that a person may have run in the sandbox of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PersonCommand {
    /// Its name: `test_command`, or one of `dashboard.commands`.
    pub name: String,
    /// The command itself.
    pub line: String,
}

impl RunControl {
    /// The commands that may be run in the sandbox of this run: the tests of its task, and those of the configuration.
    pub fn person_commands(&self, run: &RunDir) -> Result<Vec<PersonCommand>, AssemblyError> {
        let tests = Task::parse(&run.next_task()?)?.frontmatter.test_command;
        let command = |name: &str, line: &str| PersonCommand {
            name: name.to_owned(),
            line: line.to_owned(),
        };
        let mut commands = vec![command(TESTS, &tests)];
        let configured = self.configuration(run)?.settings.dashboard.commands;
        commands.extend(
            configured
                .iter()
                .filter(|(name, _)| *name != TESTS)
                .map(|(name, line)| command(name, line)),
        );
        Ok(commands)
    }

    /// Asks a run to run a command of [`RunControl::person_commands`] in its sandbox before the next iteration.
    pub fn run_command(&self, run: &RunDir, name: &str) -> Result<InterventionRequest, AssemblyError> {
        let commands = self.person_commands(run)?;
        let names: Vec<&str> = commands.iter().map(|command| command.name.as_str()).collect();
        let hint = format!("these can be run: {}", names.join(", "));
        let Some(command) = commands.into_iter().find(|command| command.name == name) else {
            return Err(AssemblyError::usage(format!("there is no command `{name}`")).with_hint(hint));
        };
        let PersonCommand { name, line } = command;
        self.intervene(run, Intervention::Command { name, line })
    }

    /// Adds a note to the next prompt. What it is about must be a checkbox of the task.
    pub fn note(&self, run: &RunDir, note: &StructuredNote) -> Result<InterventionRequest, AssemblyError> {
        if let Some(about) = &note.about {
            let task = Task::parse(&run.next_task()?)?;
            let ids: Vec<String> = task.checkboxes.iter().map(|one| one.id.to_string()).collect();
            if !ids.contains(about) {
                let message = format!("the task has no checkbox `{about}`");
                let hint = format!("it has {}", ids.join(", "));
                return Err(AssemblyError::usage(message).with_hint(hint));
            }
        }
        let text = note.rendered();
        self.intervene(run, Intervention::Note { text })
    }
}
