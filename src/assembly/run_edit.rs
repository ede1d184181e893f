//! Changes of a run that exists, and of its files, by the rules of the run.

use crate::state::{HandFile, Intervention, InterventionRequest, RunDir, if_exists};

use super::error::io_error;
use super::run_view::{RUN_FILES, TASK};
use super::{AssemblyError, RunControl};

/// What of a run can be changed after its creation. Nothing is changed where there is `None`.
#[derive(Clone, Debug, Default)]
pub struct RunUpdate {
    /// Another text of its task.
    pub task: Option<String>,
    /// Another model profile.
    pub profile: Option<String>,
    /// More hosts that its sandbox may reach, each as `HOST[:PORT]`.
    pub hosts: Vec<String>,
}

impl RunControl {
    /// Asks a run for several changes. Nothing is changed if any of them is refused.
    pub async fn update(
        &self,
        run: &RunDir,
        update: RunUpdate,
    ) -> Result<Vec<InterventionRequest>, AssemblyError> {
        let mut wanted = Vec::new();
        if let Some(text) = &update.task {
            let (edit, profile) = self.checked_edit(run, text)?;
            wanted.push(edit);
            wanted.extend(profile);
        }
        if let Some(name) = update.profile {
            wanted.push(Intervention::Profile { name, once: false });
        }
        if !update.hosts.is_empty() {
            wanted.push(Intervention::AllowHosts { hosts: update.hosts });
        }
        for intervention in &wanted {
            self.check_usable(run, intervention).await?;
        }
        let ask = |intervention| self.intervene(run, intervention);
        wanted.into_iter().map(ask).collect()
    }

    /// Gives a file of a run another text: the task any that the linter accepts, `.ralph/guardrails.md` and `.ralph/notes.md`
    /// one that begins with what is there. All other files are ralph's own.
    pub async fn write_file(
        &self,
        run: &RunDir,
        path: &str,
        text: &str,
    ) -> Result<InterventionRequest, AssemblyError> {
        if path == TASK {
            return self.edit(run, text).await;
        }
        let name = path
            .strip_prefix(RUN_FILES)
            .and_then(|name| name.strip_prefix('/'));
        let Some(file) = HandFile::ALL.into_iter().find(|file| Some(file.name()) == name) else {
            let message = format!("`{path}` cannot be written: only ralph and the agent do");
            let files = HandFile::ALL.map(|file| format!("`{RUN_FILES}/{}`", file.name()));
            return Err(AssemblyError::usage(message).with_hint(format!(
                "these can: `{TASK}`; by appending, {}",
                files.join(" and ")
            )));
        };
        let host_path = run.ralph_dir().join(file.name());
        let present = if_exists(std::fs::read_to_string(&host_path)).map_err(io_error("read", &host_path))?;
        let present = present.unwrap_or_default();
        let appended = text.strip_prefix(&present).filter(|text| !text.trim().is_empty());
        let Some(appended) = appended else {
            let message =
                format!("`{path}` can only be appended to, and this text does not begin with what is there");
            return Err(AssemblyError::usage(message).with_hint("read the file again and add to its end"));
        };
        let text = appended.to_owned();
        self.intervene(run, Intervention::Append { file, text })
    }
}
