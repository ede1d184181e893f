//! What a person can do to the runs of this user. Command line, API and dashboard call these operations.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::config::{Config, ConfigLayer};
use crate::id::RunId;
use crate::network::{AllowableHosts, PackageConfig, Policy};
use crate::sandbox::{Isolation, check_policy};
use crate::secret::Redactor;
use crate::state::{
    CheckResult, Intervention, InterventionRequest, IterationRecord, RunDir, StateError, is_done,
    standing_records,
};
use crate::task::{Task, lint, render_ticks};
use crate::text::cut_middle;

use super::configuration::{self, GivenSettings};
use super::error::check_findings;
use super::profile_choice::check_profile;
use super::provider::create_provider;
use super::{AssemblyContext, AssemblyError, SilentReporter, Surroundings};

/// How much of a name that means no run is shown, in characters.
const LONGEST_NAME: usize = 100;

/// Finds and steers the runs of this user.
///
/// ```no_run
/// use ralph::state::Intervention;
/// use ralph::{RunControl, Surroundings};
///
/// # fn example() -> Result<(), ralph::AssemblyError> {
/// let control = RunControl::new(Surroundings::from_process()?);
/// let run = control.find("fix-login")?;
/// let text = "Mind the time zones.".to_owned();
/// control.intervene(&run, Intervention::Note { text })?;
/// # Ok(())
/// # }
/// ```
pub struct RunControl {
    pub(super) context: AssemblyContext,
    pub(super) given: GivenSettings,
    /// Who asks, if that is not the user of this process.
    asked_by: Option<String>,
}

impl RunControl {
    /// The runs of these surroundings.
    #[must_use]
    pub fn new(surroundings: Surroundings) -> Self {
        let context = AssemblyContext::new(surroundings, Arc::new(SilentReporter));
        Self::with(context, GivenSettings::default())
    }

    pub(crate) fn with(context: AssemblyContext, given: GivenSettings) -> Self {
        Self {
            context,
            given,
            asked_by: None,
        }
    }

    /// Records another name for who asks than that of the user of this process.
    #[must_use]
    pub fn asked_by(mut self, name: impl Into<String>) -> Self {
        self.asked_by = Some(name.into());
        self
    }

    /// Who asks.
    pub(super) fn asking(&self) -> String {
        let user = || self.context.surroundings.user();
        self.asked_by.clone().unwrap_or_else(user)
    }

    /// The run of this name: its id, the id of its task, or the beginning of its id. Of several runs of one task the newest;
    /// `TASK-v2` is the one whose branch ends in `-v2`.
    pub fn find(&self, name: &str) -> Result<RunDir, AssemblyError> {
        if let Some(run) = self.look_up(name)? {
            return Ok(run);
        }
        let runs = self.context.surroundings.runs()?.dir().to_owned();
        Err(match RunId::parse(name) {
            Ok(run) => StateError::NoSuchRun { run, runs }.into(),
            Err(_) => AssemblyError::usage(format!("no run is named `{}`", cut_middle(name, LONGEST_NAME))).with_hint(
                "the id of a run names it, the beginning of its id, or the id of its task; `ralph status` lists the runs",
            ),
        })
    }

    /// The run of this name, if this host has one.
    pub(crate) fn look_up(&self, name: &str) -> Result<Option<RunDir>, AssemblyError> {
        let runs = self.context.surroundings.runs()?.list()?;
        let is = |run: &&RunDir| run.facts().id.as_str() == name;
        let by_task = |run: &&RunDir| is_of_task(run, name);
        if let Some(run) = runs.iter().find(is).or_else(|| runs.iter().rev().find(by_task)) {
            return Ok(Some(run.clone()));
        }
        let begins = |run: &&RunDir| !name.is_empty() && run.facts().id.as_str().starts_with(name);
        let found: Vec<&RunDir> = runs.iter().filter(begins).collect();
        if found.len() > 1 {
            let ids: Vec<&str> = found.iter().map(|run| run.facts().id.as_str()).collect();
            let message = format!("`{name}` is the beginning of several ids: {}", ids.join(", "));
            return Err(AssemblyError::usage(message).with_hint("give more of the id"));
        }
        Ok(found.first().copied().cloned())
    }

    /// Asks a run for something, and returns the request. A live run carries it out before its next iteration, or at once if
    /// it is an order; a run at rest when it is resumed.
    pub fn intervene(
        &self,
        run: &RunDir,
        intervention: Intervention,
    ) -> Result<InterventionRequest, AssemblyError> {
        self.leave(run, None, intervention)
    }

    /// Leaves a request with this id, or with one of its own.
    pub(super) fn leave(
        &self,
        run: &RunDir,
        id: Option<String>,
        intervention: Intervention,
    ) -> Result<InterventionRequest, AssemblyError> {
        let intervention = match self.check(run, &intervention)? {
            None => intervention,
            Some(config) => {
                let redacted = Redactor::new(config.secrets()).redact_json(intervention);
                redacted.map_err(StateError::encode("request"))?
            }
        };
        let surroundings = &self.context.surroundings;
        let mut request = InterventionRequest::new(intervention, self.asking(), surroundings.now());
        if let Some(id) = id {
            request.id = id;
        }
        run.inbox().leave(&request)?;
        Ok(request)
    }

    /// Refuses what cannot be asked of this run. Returns the configuration of the run, unless it is an order.
    pub(crate) fn check(
        &self,
        run: &RunDir,
        intervention: &Intervention,
    ) -> Result<Option<Config>, AssemblyError> {
        let id = &run.facts().id;
        if let Some(problem) = intervention.problem() {
            return Err(AssemblyError::usage(problem));
        }
        let is_review = matches!(intervention, Intervention::Review(_));
        if is_done(&run.journal()?) && !is_review {
            let message = format!("run `{id}` is done, so nothing can be asked of it any more");
            return Err(AssemblyError::usage(message).with_hint("`ralph run` starts another run"));
        }
        if intervention.is_order() {
            check_live(run)?;
            return Ok(None);
        }
        let config = self.configuration(run)?;
        match intervention {
            Intervention::Profile { name, .. } => check_profile(name, &config, run.facts().script.is_some())?,
            Intervention::AllowHosts { hosts } => self.check_hosts(hosts, &config)?,
            _ => {}
        }
        Ok(Some(config))
    }

    /// Refuses hosts that may not be added to the policy, and a policy that cannot be widened.
    fn check_hosts(&self, hosts: &[String], config: &Config) -> Result<(), AssemblyError> {
        let provider = create_provider(&self.context, config)?;
        if !provider.capabilities().widens_policy() {
            let message = format!(
                "the provider `{}` takes the network policy only when it creates a sandbox",
                provider.name()
            );
            return Err(AssemblyError::usage(message)
                .with_hint("add the host to sandbox.network.allowed, then stop and resume the run"));
        }
        let policy = config.network_policy(&PackageConfig::EMPTY);
        let policy = match check_policy(provider.as_ref(), &policy) {
            Ok(()) => policy,
            Err(_) => Policy::allow_all(),
        };
        let allowable = AllowableHosts::from(config.settings.sandbox.network.may_be_allowed.clone());
        for host in hosts {
            let rule = allowable.rule(host).map_err(AssemblyError::usage)?;
            if let Some(objection) = policy.objection_to(&rule) {
                return Err(AssemblyError::usage(format!(
                    "`{host}` cannot be added to the policy: {objection}"
                )));
            }
        }
        Ok(())
    }

    /// Gives a run another text of its task. The linter checks it first; nothing is changed if it or its profile is refused.
    pub async fn edit(&self, run: &RunDir, text: &str) -> Result<InterventionRequest, AssemblyError> {
        let (edit, profile) = self.checked_edit(run, text)?;
        if let Some(profile) = &profile {
            self.check_usable(run, profile).await?;
        }
        let request = self.intervene(run, edit)?;
        if let Some(profile) = profile {
            self.intervene(run, profile)?;
        }
        Ok(request)
    }

    /// An edit of the task that the linter and the run accept, and the choice of a profile that is part of it.
    pub(super) fn checked_edit(
        &self,
        run: &RunDir,
        text: &str,
    ) -> Result<(Intervention, Option<Intervention>), AssemblyError> {
        // Only the runner ticks.
        let text = render_ticks(text, &BTreeSet::new());
        let name = Path::new("ralph_task.md");
        let rules = configuration::load_quietly(
            &self.context,
            configuration::project_of(&self.context, run),
            &self.given,
        )?;
        let min_checkboxes = match run.facts().issue {
            Some(_) => 1,
            None => rules.settings.task.min_checkboxes.get() as usize,
        };
        let findings = lint(Some(&text), min_checkboxes);
        check_findings(name, &findings, self.context.reporter.as_ref())?;
        let (before, after) = (Task::parse(&run.next_task()?)?, Task::parse(&text)?);
        let config = self.configuration_with(run, Some(&text))?;
        check_edit(run, &before, &after, &config)?;
        let chosen = before.frontmatter.profile_chosen(&after.frontmatter);
        let profile = chosen.map(|name| Intervention::Profile {
            name: name.to_owned(),
            once: false,
        });
        Ok((Intervention::Edit { task: text }, profile))
    }

    /// Takes a run back to the code as it was after the iteration `from`, by default the last good one before the newest.
    pub fn retry(&self, run: &RunDir, from: Option<u32>) -> Result<InterventionRequest, AssemblyError> {
        let lines = run.journal()?;
        let mut earlier = standing_records(&lines);
        if earlier.pop().is_none() {
            let id = &run.facts().id;
            return Err(
                AssemblyError::usage(format!("run `{id}` has no iteration to take back"))
                    .with_hint(format!("`ralph resume {id}` continues it")),
            );
        }
        let is_good = |record: &&&IterationRecord| {
            !record.score.gutter && record.tests.as_ref().is_none_or(CheckResult::passed)
        };
        let good = earlier
            .iter()
            .rev()
            .find(is_good)
            .map_or(0, |record| record.iteration);
        let from = from.unwrap_or(good);
        if from > 0 && !earlier.iter().any(|record| record.iteration == from) {
            let numbers: Vec<String> = earlier
                .iter()
                .map(|record| record.iteration.to_string())
                .collect();
            let known = format!("0 (the beginning) {}", numbers.join(" "));
            return Err(
                AssemblyError::usage(format!("there is no iteration {from} to go back to"))
                    .with_hint(format!("one of these: {}", known.trim())),
            );
        }
        self.intervene(run, Intervention::Retry { from })
    }

    /// Whether the commands of this run have no isolation from the host.
    pub fn is_unisolated(&self, run: &RunDir) -> Result<bool, AssemblyError> {
        let provider = create_provider(&self.context, &self.configuration(run)?)?;
        Ok(provider.capabilities().isolation == Isolation::DirectoryOnly)
    }

    /// The configuration that a resume of this run would have.
    pub(super) fn configuration(&self, run: &RunDir) -> Result<Config, AssemblyError> {
        self.configuration_with(run, None)
    }

    /// The same with this task, if it is known already.
    pub(super) fn configuration_with(
        &self,
        run: &RunDir,
        task: Option<&str>,
    ) -> Result<Config, AssemblyError> {
        configuration::load_of_run(&self.context, run, task, &self.given)
    }
}

/// Refuses an edit that the run cannot follow.
fn check_edit(run: &RunDir, before: &Task, after: &Task, config: &Config) -> Result<(), AssemblyError> {
    let id = &run.facts().id;
    let quoted = |keys: &[&str]| {
        let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
        keys.join(", ")
    };
    let fixed = before.fixed_keys_changed(after);
    if !fixed.is_empty() {
        let message = format!("{} cannot change after a run was created", quoted(&fixed));
        return Err(AssemblyError::usage(message).with_hint("`ralph run` starts another run"));
    }
    let restart = before.restart_keys_changed(after);
    if !restart.is_empty() && run.holder()?.is_some() {
        let message = format!("{} cannot change while run `{id}` is live", quoted(&restart));
        return Err(AssemblyError::usage(message).with_hint(format!("`ralph pause {id}` first")));
    }
    for key in before.settings_changed(after) {
        if let Some(origin) = config
            .origin(key)
            .filter(|origin| origin.layer != ConfigLayer::Task)
        {
            let message = format!("`{key}` of the task cannot apply: {} wins over it", origin.place);
            return Err(AssemblyError::usage(message));
        }
    }
    Ok(())
}

/// Whether a run works on this task; `name` may end in the `-v2` of its branch.
fn is_of_task(run: &RunDir, name: &str) -> bool {
    let Ok(task) = Task::parse(&run.facts().task) else {
        return false;
    };
    let rest = name.strip_prefix(task.frontmatter.task_id.as_str());
    rest.is_some_and(|rest| {
        let number = rest
            .strip_prefix("-v")
            .and_then(|number| number.parse::<u32>().ok());
        rest.is_empty() || (number.is_some() && run.facts().branch.ends_with(rest))
    })
}

fn check_live(run: &RunDir) -> Result<(), AssemblyError> {
    if run.holder()?.is_some() {
        return Ok(());
    }
    let id = &run.facts().id;
    Err(AssemblyError::usage(format!("run `{id}` is not live"))
        .with_hint(format!("`ralph resume {id}` continues it")))
}
