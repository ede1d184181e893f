//! What a person can do to the runs of this user. Command line, API and dashboard call these operations.

use std::sync::Arc;

use crate::config::Config;
use crate::id::RunId;
use crate::secret::Redactor;
use crate::state::{
    Intervention, InterventionRequest, JournalEntry, JournalLine, RunDir, RunOutcomeKind, StateError,
};
use crate::task::Task;

use super::configuration::{self, GivenSettings};
use super::{AssemblyContext, AssemblyError, SilentReporter, Surroundings};

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
    context: AssemblyContext,
    given: GivenSettings,
}

impl RunControl {
    /// The runs of these surroundings.
    #[must_use]
    pub fn new(surroundings: Surroundings) -> Self {
        let context = AssemblyContext::new(surroundings, Arc::new(SilentReporter));
        Self::with(context, GivenSettings::default())
    }

    pub(crate) fn with(context: AssemblyContext, given: GivenSettings) -> Self {
        Self { context, given }
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
            Err(_) => AssemblyError::usage(format!("no run is named `{name}`")).with_hint(
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
        let id = &run.facts().id;
        if let Some(problem) = intervention.problem() {
            return Err(AssemblyError::usage(problem));
        }
        if is_done(&run.journal()?) {
            let message = format!("run `{id}` is done, so nothing can be asked of it any more");
            return Err(AssemblyError::usage(message).with_hint("`ralph run` starts another run"));
        }
        let intervention = if intervention.is_order() {
            check_live(run)?;
            intervention
        } else {
            let config = self.configuration(run)?;
            check_applies(&intervention, &config)?;
            let redacted = Redactor::new(config.secrets()).redact_json(intervention);
            redacted.map_err(StateError::encode("request"))?
        };
        let surroundings = &self.context.surroundings;
        let request = InterventionRequest::new(intervention, surroundings.user(), surroundings.now());
        run.inbox().leave(&request)?;
        Ok(request)
    }

    /// The configuration that a resume of this run would have.
    fn configuration(&self, run: &RunDir) -> Result<Config, AssemblyError> {
        configuration::load_of_run(&self.context, run, &self.given)
    }
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

fn is_done(lines: &[JournalLine]) -> bool {
    let done = RunOutcomeKind::Done;
    lines
        .iter()
        .any(|line| matches!(line.entry, JournalEntry::Ended { outcome, .. } if outcome == done))
}

fn check_live(run: &RunDir) -> Result<(), AssemblyError> {
    if run.holder()?.is_some() {
        return Ok(());
    }
    let id = &run.facts().id;
    Err(AssemblyError::usage(format!("run `{id}` is not live"))
        .with_hint(format!("`ralph resume {id}` continues it")))
}

/// Refuses what the configuration of the run has no place for.
fn check_applies(intervention: &Intervention, config: &Config) -> Result<(), AssemblyError> {
    match intervention {
        Intervention::Profile { name, .. } if !config.profiles.contains_key(name) => {
            let known: Vec<&str> = config.profiles.keys().map(String::as_str).collect();
            Err(
                AssemblyError::usage(format!("there is no model profile `{name}`"))
                    .with_hint(format!("the profiles are {}", known.join(", "))),
            )
        }
        _ => Ok(()),
    }
}
