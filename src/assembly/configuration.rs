//! Loads the configuration of a task or of a run that exists.

use std::path::{Path, PathBuf};

use crate::config::{self, Config, ConfigInputs, ConfigOverride, FilePosition, SettingPlace};
use crate::state::RunDir;
use crate::task::Task;

use super::{AssemblyContext, AssemblyError, ErrorTopic, describe_finding, read_task_text};

/// What a task file is called where no other name is given.
pub(super) const TASK_FILE: &str = "ralph_task.md";

/// A task file, and the directory whose configuration goes with it.
pub(crate) struct TaskFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    pub(crate) project: PathBuf,
}

impl TaskFile {
    /// The task in the current directory: `None` without a task file, an error if the file cannot be parsed.
    pub(crate) fn here(context: &AssemblyContext) -> Result<Option<Self>, AssemblyError> {
        let dir = context.surroundings.dir();
        let path = dir.join(TASK_FILE);
        let Some(text) = read_task_text(&path)? else {
            return Ok(None);
        };
        if let Err(error) = Task::parse(&text) {
            let problem = describe_finding(Path::new(TASK_FILE), &error);
            return Err(AssemblyError::usage(problem).with_topic(ErrorTopic::Task));
        }
        let project = project_dir(dir);
        Ok(Some(Self { path, text, project }))
    }

    /// The task of a run that exists, as its next iteration will have it.
    pub(crate) fn of_run(context: &AssemblyContext, dir: &RunDir) -> Result<Self, AssemblyError> {
        Ok(Self {
            path: dir.task_file(),
            text: dir.next_task()?,
            project: project_of(context, dir),
        })
    }
}

/// What a caller gives besides the files.
#[derive(Clone, Default)]
pub(crate) struct GivenSettings {
    /// A file to read in place of `ralph.toml`.
    pub(crate) config_file: Option<PathBuf>,
    /// Single values, which win over every file.
    pub(crate) overrides: Vec<ConfigOverride>,
}

impl GivenSettings {
    /// Adds the settings that a run was created with. Those that are given now win. Notifications start programs on this host,
    /// and the run may come from another one: they are those of this user alone.
    pub(super) fn keep_those_of(&mut self, run: &RunDir) {
        let overrides = run.facts().overrides.iter();
        let overrides = overrides.filter(|(key, _)| key.as_str() != "notify" && !key.starts_with("notify."));
        let kept = overrides.map(|(key, value)| ConfigOverride {
            place: SettingPlace::Flag(format!("{key}, given when the run was created")),
            key: key.clone(),
            value: value.clone(),
        });
        self.overrides.splice(..0, kept);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.config_file.is_none() && self.overrides.is_empty()
    }
}

/// Reads the configuration and reports its warnings.
pub(crate) fn load(
    context: &AssemblyContext,
    task: Option<&TaskFile>,
    given: &GivenSettings,
) -> Result<Config, AssemblyError> {
    let config = load_silently(context, task, given)?;
    for warning in config.warnings() {
        context.reporter.warn(&warning);
    }
    Ok(config)
}

/// Reads the configuration, its warnings not reported.
pub(super) fn load_silently(
    context: &AssemblyContext,
    task: Option<&TaskFile>,
    given: &GivenSettings,
) -> Result<Config, AssemblyError> {
    config::load(&inputs(context, task, given)?).map_err(Into::into)
}

pub(super) fn inputs(
    context: &AssemblyContext,
    task: Option<&TaskFile>,
    given: &GivenSettings,
) -> Result<ConfigInputs, AssemblyError> {
    let surroundings = &context.surroundings;
    Ok(ConfigInputs {
        env: surroundings.env().clone(),
        user_file: surroundings.user_config(),
        project_dir: task.map_or_else(|| project_dir(surroundings.dir()), |task| task.project.clone()),
        config_file: given
            .config_file
            .as_ref()
            .map(|file| surroundings.dir().join(file)),
        task: task.map(task_overrides).transpose()?.unwrap_or_default(),
        flags: given.overrides.clone(),
    })
}

/// The configuration without a task, its warnings not reported, for a look at one setting.
pub(crate) fn load_quietly(
    context: &AssemblyContext,
    project: PathBuf,
    given: &GivenSettings,
) -> Result<Config, AssemblyError> {
    let inputs = ConfigInputs {
        project_dir: project,
        ..inputs(context, None, given)?
    };
    config::load(&inputs).map_err(Into::into)
}

/// The configuration that a resume of this run would have, its warnings not reported. `task` replaces its task.
pub(crate) fn load_of_run(
    context: &AssemblyContext,
    run: &RunDir,
    task: Option<&str>,
    given: &GivenSettings,
) -> Result<Config, AssemblyError> {
    let mut given = given.clone();
    given.keep_those_of(run);
    let file = match task {
        Some(text) => TaskFile {
            path: run.task_file(),
            text: text.to_owned(),
            project: project_of(context, run),
        },
        None => TaskFile::of_run(context, run)?,
    };
    load_silently(context, Some(&file), &given)
}

/// The directory whose configuration a run was started with. If it is gone, the current project replaces it, with a warning.
pub(crate) fn project_of(context: &AssemblyContext, run: &RunDir) -> PathBuf {
    let current = || project_dir(context.surroundings.dir());
    match &run.facts().project {
        Some(project) if project.is_dir() => project.clone(),
        Some(gone) => {
            let current = current();
            context.reporter.warn(&format!(
                "the project directory `{}` of the run is gone: the configuration of `{}` is used",
                gone.display(),
                current.display()
            ));
            current
        }
        // The run was created on another host.
        None => current(),
    }
}

/// The directory that holds the project's configuration: the nearest one upwards with a `ralph.toml` or a `.git`.
pub(crate) fn project_dir(cwd: &Path) -> PathBuf {
    let marked = |dir: &&Path| dir.join("ralph.toml").exists() || dir.join(".git").exists();
    cwd.ancestors().find(marked).unwrap_or(cwd).to_owned()
}

fn task_overrides(file: &TaskFile) -> Result<Vec<ConfigOverride>, AssemblyError> {
    let task = Task::parse(&file.text)?;
    let placed = task.frontmatter.placed_overrides(&file.text).into_iter();
    Ok(placed
        .map(|(key, value, (line, column))| ConfigOverride {
            key: key.to_owned(),
            value,
            place: SettingPlace::File(FilePosition {
                path: file.path.clone(),
                line,
                column,
            }),
        })
        .collect())
}
