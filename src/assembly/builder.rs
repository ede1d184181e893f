//! Collects what a run is made from, and checks it before the run exists.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::{Config, ConfigOverride, ForgeType, SettingPlace};
use crate::event::{EventSink, Fanout};
use crate::id::RunId;
use crate::image::Rebuild;
use crate::runner::{self, NewRun};
use crate::scm::Repository;
use crate::state::{Intervention, InterventionRequest, RunDir, StateError};
use crate::task::{Task, lint};

use super::broker::BrokeredServices;
use super::choice::{AgentChoice, SandboxChoice};
use super::configuration::{self, GivenSettings, TASK_FILE, TaskFile, project_dir};
use super::error::{check_findings, io_error};
use super::issue::ClaimedIssue;
use super::profile_choice::check_usable;
use super::ralph::RunTarget;
use super::state_remote::state_remote;
use super::{
    AssemblyContext, AssemblyError, AssemblyReporter, ErrorTopic, Ralph, SilentReporter, Surroundings,
    equipment, forge, image, reporting, writable,
};

/// The settings that a run uses only when it is created.
const FIXED: [&str; 2] = ["git.branch_prefix", "task.min_checkboxes"];

/// Builds a [`Ralph`]. Everything that is not given has the default of the command line: the configuration files of the
/// repository and of the user, the environment of the process, and `ralph_task.md`.
#[derive(Default)]
#[must_use]
pub struct RalphBuilder {
    surroundings: Option<Surroundings>,
    reporter: Option<Arc<dyn AssemblyReporter>>,
    sinks: Vec<Arc<dyn EventSink>>,
    repository: Option<PathBuf>,
    repo_url: Option<String>,
    task_file: Option<PathBuf>,
    task_text: Option<String>,
    issue: Option<Arc<ClaimedIssue>>,
    run_id: Option<RunId>,
    resumed: Option<RunId>,
    config: Option<Config>,
    pub(super) given: GivenSettings,
    script: Option<String>,
    rebuild: Rebuild,
    epoch: Option<u64>,
    sandbox: Option<SandboxChoice>,
    agent: Option<AgentChoice>,
}

/// A run with the configuration for it.
pub(super) struct ChosenRun {
    file: TaskFile,
    pub(super) config: Config,
    pub(super) target: RunTarget,
    /// The model profile that is given for a run that exists.
    profile: Option<String>,
}

impl RalphBuilder {
    /// Works in this directory in place of the current one. Relative paths start from it.
    pub fn repository(mut self, dir: impl Into<PathBuf>) -> Self {
        self.repository = Some(dir.into());
        self
    }

    /// Works on the task in this file; `ralph_task.md` by default.
    pub fn task_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.task_file = Some(path.into());
        self
    }

    /// Works on the task with this text in place of one in a file.
    pub fn task_text(mut self, text: impl Into<String>) -> Self {
        self.task_text = Some(text.into());
        self
    }

    /// Works in a mirror of the repository at this address, in place of the one that the task names or lies in.
    pub fn repo_url(mut self, url: impl Into<String>) -> Self {
        self.repo_url = Some(url.into());
        self
    }

    /// Works on an issue in place of a task in a file. Nothing is pushed once its claim is lost.
    pub(crate) fn issue(mut self, issue: Arc<ClaimedIssue>) -> Self {
        self.issue = Some(issue);
        self
    }

    /// Gives the new run this id in place of a random one.
    #[cfg(feature = "serve")]
    pub(crate) fn run_id(mut self, run: RunId) -> Self {
        self.run_id = Some(run);
        self
    }

    /// Continues this run in place of creating one. It keeps its task, and the settings that were given when it was
    /// created, unless they are given again. The configuration files are read again: those of its project directory or, if
    /// that is gone, of the current one.
    pub fn resume(mut self, run: RunId) -> Self {
        self.resumed = Some(run);
        self
    }

    /// Chooses the sandbox: [`super::Docker`], [`super::Local`], or a [`Provider`](crate::sandbox::Provider) of your own.
    /// The last call wins.
    pub fn sandbox(mut self, sandbox: impl Into<SandboxChoice>) -> Self {
        self.sandbox = Some(sandbox.into());
        self
    }

    /// Chooses the agent: one of those that ralph knows, or an [`Agent`](crate::agent::Agent) of your own. The last call
    /// wins.
    pub fn agent(mut self, agent: impl Into<AgentChoice>) -> Self {
        self.agent = Some(agent.into());
        self
    }

    /// Sets one configuration key, for example `budget.max_iterations` to `5`. It wins over every configuration file, and
    /// over the settings of [`RalphBuilder::sandbox`] and [`RalphBuilder::agent`].
    pub fn set(self, key: &str, value: impl Display) -> Self {
        self.overrides([setting(key, value.to_string())])
    }

    pub(crate) fn overrides(mut self, overrides: impl IntoIterator<Item = ConfigOverride>) -> Self {
        self.given.overrides.extend(overrides);
        self
    }

    /// Leaves out what was given about the budget.
    pub(super) fn without_budget(mut self) -> Self {
        self.given
            .overrides
            .retain(|given| !given.key.starts_with("budget."));
        self
    }

    /// Reads this configuration file in place of the repository's `ralph.toml`.
    pub fn config_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.given.config_file = Some(path.into());
        self
    }

    /// Takes this configuration as it is. No file is read, and the settings of the task file are ignored.
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// Answers from this script in place of a model, to try things out without an account.
    pub fn script(mut self, script: impl Into<String>) -> Self {
        self.script = Some(script.into());
        self
    }

    /// Whether the image is built again although it is up to date.
    pub fn rebuild(mut self, rebuild: Rebuild) -> Self {
        self.rebuild = rebuild;
        self
    }

    /// Works with the epoch of a claim in the queue. A run whose last checkpoint has a lower one is taken over at once, from
    /// any host; one with a higher epoch is refused, and a process that loses the run writes nothing any more.
    pub fn epoch(mut self, epoch: u64) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// Sends the run's events to this sink as well. By default only the run's own log gets them.
    pub fn sink(mut self, sink: impl EventSink + 'static) -> Self {
        self.sinks.push(Arc::new(sink));
        self
    }

    /// Sends warnings and progress there. By default they are ignored.
    pub fn reporter(mut self, reporter: impl AssemblyReporter + 'static) -> Self {
        self.reporter = Some(Arc::new(reporter));
        self
    }

    /// Works in these surroundings in place of those of the process.
    pub fn surroundings(mut self, surroundings: Surroundings) -> Self {
        self.surroundings = Some(surroundings);
        self
    }

    /// Reads the configuration, checks everything that can be checked before a run exists, and builds its image.
    pub async fn build(self) -> Result<Ralph, AssemblyError> {
        Box::pin(self.assemble()).await
    }

    async fn assemble(mut self) -> Result<Ralph, AssemblyError> {
        let context = self.context()?;
        let ChosenRun {
            file,
            config,
            target,
            profile,
        } = self.choose(&context).await?;
        reporting::check(&config)?;
        let services = BrokeredServices::new(&context, &config).await?;
        equipment::check(&context, &config, &services, target.script()).await?;
        forge::check(&context, &config, &target).await?;
        let state_remote = state_remote(&context, &config).await?;
        let prepared = image::prepare(&context, &config, &file.project, self.rebuild).await?;
        if let (RunTarget::Existing(dir), Some(name)) = (&target, profile) {
            choose_profile(&context, dir, name)?;
        }
        Ok(Ralph {
            context,
            config,
            services,
            target,
            issue: self.issue,
            image: prepared,
            state_remote,
            epoch: self.epoch,
            sink: Arc::new(Fanout(self.sinks)),
        })
    }

    /// Reads the task and the configuration.
    pub(super) async fn choose(&mut self, context: &AssemblyContext) -> Result<ChosenRun, AssemblyError> {
        if self.config.is_some() && !self.given.is_empty() {
            return Err(AssemblyError::usage(
                "`config` replaces every setting: it cannot be combined with `set`, `config_file`, `sandbox` or `agent`",
            ));
        }
        let mut profile = None;
        let (file, existing) = match self.resumed.take() {
            Some(run) => {
                let dir = find_run(context, &run, &self.given).await?;
                profile = check_resumed(&self.given.overrides, &dir)?;
                self.given.keep_those_of(&dir);
                (TaskFile::of_run(context, &dir)?, Some(dir))
            }
            None => (self.read_task(context)?, None),
        };
        let config = match self.config.take() {
            Some(config) => config,
            None => configuration::load(context, Some(&file), &self.given)?,
        };
        writable::check(context, &config, &file, existing.as_ref())?;
        check_claimed(&config, existing.as_ref(), self.issue.is_some())?;
        let target = match existing {
            Some(dir) => {
                if let Some(name) = profile.as_deref().filter(|_| context.agent.is_none()) {
                    check_usable(context, &config, name, dir.facts().script.is_some()).await?;
                }
                RunTarget::Existing(dir)
            }
            None => self.new_run(context, &config, &file).await?,
        };
        Ok(ChosenRun {
            file,
            config,
            target,
            profile,
        })
    }

    /// The context of the assembly. The settings of the chosen sandbox and agent come before those that are given.
    pub(super) fn context(&mut self) -> Result<AssemblyContext, AssemblyError> {
        let mut chosen = Vec::new();
        let provider = match self.sandbox.take() {
            Some(SandboxChoice::Own(provider)) => Some(provider),
            Some(SandboxChoice::Settings(settings)) => {
                chosen.extend(settings);
                None
            }
            None => None,
        };
        let agent = match self.agent.take() {
            Some(AgentChoice::Own(agent)) => Some(agent),
            Some(AgentChoice::Settings(settings)) => {
                chosen.extend(settings);
                None
            }
            None => None,
        };
        let chosen = chosen.into_iter().map(|(key, value)| setting(key, value));
        self.given.overrides.splice(..0, chosen);
        let surroundings = match self.surroundings.take() {
            Some(surroundings) => surroundings,
            None => Surroundings::from_process()?,
        };
        let dir = self.repository.as_ref().map(|dir| surroundings.dir().join(dir));
        Ok(AssemblyContext {
            surroundings: match dir {
                Some(dir) => surroundings.with_dir(dir),
                None => surroundings,
            },
            reporter: self.reporter.take().unwrap_or_else(|| Arc::new(SilentReporter)),
            provider,
            agent,
        })
    }

    async fn new_run(
        &mut self,
        context: &AssemblyContext,
        config: &Config,
        file: &TaskFile,
    ) -> Result<RunTarget, AssemblyError> {
        let overrides = std::mem::take(&mut self.given.overrides).into_iter();
        let issue = self.issue.as_deref();
        let repository = match &self.repo_url {
            Some(url) => mirror(context, config, url).await?,
            None => repository(context, config, file).await?,
        };
        let mut taken_branches = forge::taken_branches(context, config, &repository).await?;
        let own_branch = match issue {
            Some(issue) => issue.own_branch(&repository, &taken_branches).await?,
            None => None,
        };
        taken_branches.retain(|name, _| own_branch.as_ref() != Some(name));
        Ok(RunTarget::New {
            repository,
            run: NewRun {
                id: issue
                    .and_then(ClaimedIssue::new_run)
                    .or_else(|| self.run_id.take())
                    .unwrap_or_else(RunId::random),
                taken_branches: taken_branches.into_keys().collect(),
                is_branch_own: own_branch.is_some(),
                created: context.surroundings.now(),
                project: Some(file.project.clone()),
                task: file.text.clone(),
                branch_prefix: config.settings.git.branch_prefix.clone(),
                branch: own_branch.or_else(|| issue.and_then(ClaimedIssue::branch)),
                overrides: overrides.map(|given| (given.key, given.value)).collect(),
                script: self.script.take(),
                issue: issue.map(ClaimedIssue::number),
            },
        })
    }

    /// Reads the task file and refuses one that the linter objects to.
    fn read_task(&self, context: &AssemblyContext) -> Result<TaskFile, AssemblyError> {
        let name = self.task_file.as_deref().unwrap_or(Path::new(TASK_FILE));
        let path = context.surroundings.dir().join(name);
        let text = match (&self.issue, &self.task_text) {
            (Some(issue), _) => issue.task(),
            (None, Some(text)) => Some(text.clone()),
            (None, None) => Some(read_task_text(&path)?.ok_or_else(|| AssemblyError::missing_task(name))?),
        };
        let project = project_dir(path.parent().unwrap_or(context.surroundings.dir()));
        // The task itself must not change the linter's rules, so its settings are left out.
        let config = match &self.config {
            Some(config) => config.clone(),
            None => configuration::load_quietly(context, project.clone(), &self.given)?,
        };
        let min_checkboxes = match self.issue {
            Some(_) => 1,
            None => config.settings.task.min_checkboxes.get() as usize,
        };
        let findings = lint(text.as_deref(), min_checkboxes);
        check_findings(name, &findings, context.reporter.as_ref())?;
        Ok(TaskFile {
            text: text.unwrap_or_default(),
            path,
            project,
        })
    }
}

/// Refuses settings that a run cannot change any more. Returns the model profile that is given for it.
fn check_resumed(given: &[ConfigOverride], dir: &RunDir) -> Result<Option<String>, AssemblyError> {
    if let Some(given) = given.iter().find(|given| FIXED.contains(&given.key.as_str())) {
        let message = format!("`{}` is fixed when a run is created", given.key);
        return Err(AssemblyError::usage(message).with_hint("leave it out, or start another run"));
    }
    let edit = |request: &InterventionRequest| matches!(request.intervention, Intervention::Edit { .. });
    let budget = given.iter().find(|given| given.key.starts_with("budget."));
    if let Some(given) = budget
        && dir.inbox().pending()?.iter().any(edit)
    {
        let message = format!(
            "an edit of the task waits, whose budget wins over `{}`",
            given.key
        );
        return Err(AssemblyError::usage(message).with_hint("set it in the task with `ralph edit`"));
    }
    let profile = given.iter().rev().find(|given| given.key == "default_profile");
    Ok(profile.map(|given| given.value.clone()))
}

/// Refuses to push the work on an issue without the claim on it.
fn check_claimed(config: &Config, run: Option<&RunDir>, is_claimed: bool) -> Result<(), AssemblyError> {
    let facts = run.map(RunDir::facts);
    let issue = facts.and_then(|facts| facts.issue);
    match (facts, issue) {
        (Some(facts), Some(issue)) if !is_claimed && config.settings.forge.kind == ForgeType::Github => {
            let message = format!(
                "run `{}` works on issue #{issue}, which is not claimed here",
                facts.id
            );
            Err(AssemblyError::usage(message)
                .with_topic(ErrorTopic::Forge)
                .with_hint(format!("`ralph resume {}` claims it and goes on", facts.id)))
        }
        _ => Ok(()),
    }
}

/// Asks a run to go on with a model profile that can be used.
fn choose_profile(context: &AssemblyContext, dir: &RunDir, name: String) -> Result<(), AssemblyError> {
    let (by, now) = (context.surroundings.user(), context.surroundings.now());
    let request = InterventionRequest::new(Intervention::Profile { name, once: false }, by, now);
    dir.inbox().leave(&request)?;
    Ok(())
}

/// A setting that the caller gives.
fn setting(key: &str, value: String) -> ConfigOverride {
    ConfigOverride {
        key: key.to_owned(),
        value,
        place: SettingPlace::Flag(key.to_owned()),
    }
}

/// The text of a task file; `None` when it does not exist.
pub(crate) fn read_task_text(path: &Path) -> Result<Option<String>, AssemblyError> {
    match std::fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| {
            AssemblyError::usage(format!("`{}` is not UTF-8 text", path.display()))
                .with_topic(ErrorTopic::Task)
                .with_hint("name a text file, or save this one as UTF-8")
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("read", path)(error)),
    }
}

/// The repository of a task: the one its `repo_url` names, else the one that holds the task file.
async fn repository(
    context: &AssemblyContext,
    config: &Config,
    file: &TaskFile,
) -> Result<Repository, AssemblyError> {
    match &Task::parse(&file.text)?.frontmatter.repo_url {
        Some(url) => mirror(context, config, url).await,
        None => Ok(Repository::open(
            context.surroundings.host(),
            file.path.parent().unwrap_or(Path::new(".")),
        )
        .await?),
    }
}

/// A mirror of the repository at this address.
pub(super) async fn mirror(
    context: &AssemblyContext,
    config: &Config,
    url: &str,
) -> Result<Repository, AssemblyError> {
    let mirrors = context.surroundings.cache_dir()?.join("mirrors");
    let credential = forge::fetch_credential(context, config, url).await?;
    let host = context.surroundings.builder_host();
    Ok(Repository::mirror(host, url, &mirrors, credential.as_ref()).await?)
}

/// The directory of a run. A run that this host does not know is taken over from its state ref, in the state remote of the
/// current project or in its repository.
async fn find_run(
    context: &AssemblyContext,
    run: &RunId,
    given: &GivenSettings,
) -> Result<RunDir, AssemblyError> {
    let runs = context.surroundings.runs()?;
    match runs.open(run) {
        Err(StateError::NoSuchRun { .. }) => {
            let dir = context.surroundings.dir();
            let repository = Repository::open(context.surroundings.host(), dir).await?;
            let config = configuration::load_quietly(context, project_dir(dir), given)?;
            let remote = state_remote(context, &config).await?;
            Ok(runner::adopt(&runs, &repository, run, remote).await?)
        }
        found => Ok(found?),
    }
}
