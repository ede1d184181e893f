//! The store of this process: where it is, and its index of runs.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::id::RunId;
use crate::runner::StateRef;
use crate::scm::{Checkpoints, Repository, ScmError};
use crate::state::{JournalLine, RunDir, RunFacts};
use crate::store::{IndexedRun, Store, StoreAddress};

use super::state_remote::state_remote;
use super::summary::RunSummary;
use super::{AssemblyContext, AssemblyError, Surroundings, io_error};

/// The file of the store in the data directory.
const STORE_FILE: &str = "ralph.db";

/// The address of the store: `RALPH_DB_URL`, else a file in the data directory.
pub(crate) fn store_address(
    surroundings: &Surroundings,
    config: &Config,
) -> Result<StoreAddress, AssemblyError> {
    match config.database_url() {
        Some(url) => Ok(StoreAddress::parse(&url, surroundings.dir())?),
        None => Ok(StoreAddress::file(surroundings.data_dir()?.join(STORE_FILE))),
    }
}

/// Whether there is a queue, so that a command that only looks does not create one.
pub(crate) fn has_store(surroundings: &Surroundings, config: &Config) -> Result<bool, AssemblyError> {
    Ok(config.database_url().is_some() || surroundings.data_dir()?.join(STORE_FILE).exists())
}

/// Opens the store of this process.
pub(crate) async fn open_store(surroundings: &Surroundings, config: &Config) -> Result<Store, AssemblyError> {
    Ok(Store::open(&store_address(surroundings, config)?).await?)
}

/// What the index says about a run in a directory of this host.
fn indexed_run(surroundings: &Surroundings, run: &RunDir) -> Result<IndexedRun, AssemblyError> {
    indexed_run_with(surroundings, run, &run.journal()?)
}

/// What the index says about a run whose journal was read already.
pub(crate) fn indexed_run_with(
    surroundings: &Surroundings,
    run: &RunDir,
    lines: &[JournalLine],
) -> Result<IndexedRun, AssemblyError> {
    let host = run.last_owner()?.unwrap_or_else(|| surroundings.owner()).host;
    let is_running = run.holder()?.is_some();
    Ok(row(run.facts(), lines, host, is_running))
}

/// Of the runs that the index has for this host, those that are gone: without a directory, and without a state ref from which
/// they could go on.
pub(crate) async fn gone_runs(
    surroundings: &Surroundings,
    store: &Store,
) -> Result<Vec<RunId>, AssemblyError> {
    let runs = surroundings.runs()?;
    let mut missing = store.runs_of_host(&surroundings.owner().host).await?;
    missing.retain(|(run, _)| !runs.dir().join(run.as_str()).exists());
    let mut gone = Vec::new();
    let mut states: HashMap<String, Vec<RunId>> = HashMap::new();
    for (run, repository) in missing {
        if !states.contains_key(&repository) {
            let opened = Repository::open(surroundings.host(), Path::new(&repository)).await;
            let found = match opened {
                Ok(opened) => opened.runs_with_state().await?,
                Err(ScmError::NotARepository { .. }) => Vec::new(),
                Err(error) => return Err(error.into()),
            };
            states.insert(repository.clone(), found);
        }
        if !states[&repository].contains(&run) {
            gone.push(run);
        }
    }
    Ok(gone)
}

fn row(facts: &RunFacts, lines: &[JournalLine], host: String, is_running: bool) -> IndexedRun {
    let summary = RunSummary::new(facts, lines, is_running);
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    IndexedRun {
        id: facts.id.clone(),
        host,
        created: facts.created,
        updated: summary.updated,
        title: summary.title(),
        checkboxes: count(summary.task.as_ref().map_or(0, |task| task.checkboxes.len())),
        ticked: count(summary.ticked.len()),
        state: summary.state,
        reason: summary.reason,
        repository: facts.repository.display().to_string(),
        branch: facts.branch.clone(),
        project: facts.project.as_ref().map(|dir| dir.display().to_string()),
        iterations: summary.used.iterations,
        tokens: summary.used.tokens.total(),
        cost: summary.used.cost,
        unpriced_calls: summary.used.unpriced_calls,
        worked: summary.used.worked,
        pull_request: summary.pull_request,
    }
}

/// Writes the index of runs again: from the run directories of this host, and from the state refs of their repositories, of the
/// current one and of the state remote. The queue and what was spent stay; new epochs are above all that were found. Returns
/// the number of runs.
pub(crate) async fn rebuild_index(
    context: &AssemblyContext,
    config: &Config,
) -> Result<usize, AssemblyError> {
    let surroundings = &context.surroundings;
    let store = open_store(surroundings, config).await?;
    let dirs = surroundings.runs()?.list()?;
    let mut found = FoundRuns::default();
    for repository in repositories(context, &dirs).await {
        found.add_state_refs(context, &repository).await?;
    }
    if let Some(remote) = state_remote(context, config).await? {
        let dir = tempfile::tempdir().map_err(io_error("create", Path::new("temporary directory")))?;
        let copy = remote.copy_states(dir.path()).await?;
        found.add_state_refs(context, &copy).await?;
    }
    // The directory of a run may be ahead of its last checkpoint. Of two rows the newer one stays, else the later one.
    for run in &dirs {
        match indexed_run(surroundings, run) {
            Ok(row) => found.rows.push(row),
            // One unreadable run must not hide the others.
            Err(error) => {
                let id = &run.facts().id;
                context.reporter.warn(&format!("left out run `{id}`: {error}"));
            }
        }
    }
    store
        .replace_runs(&surroundings.owner().host, &found.rows)
        .await?;
    store.raise_epochs(found.highest_epoch).await?;
    store.close().await;
    let runs: BTreeSet<&RunId> = found.rows.iter().map(|run| &run.id).collect();
    Ok(runs.len())
}

#[derive(Default)]
struct FoundRuns {
    rows: Vec<IndexedRun>,
    highest_epoch: u64,
}

impl FoundRuns {
    async fn add_state_refs(
        &mut self,
        context: &AssemblyContext,
        repository: &Repository,
    ) -> Result<(), AssemblyError> {
        for run in repository.runs_with_state().await? {
            let checkpoints = Checkpoints::new(repository.clone(), run.clone());
            match StateRef::read(&checkpoints).await {
                Ok(Some(state)) => self.add(&state, &context.surroundings),
                Ok(None) => {}
                // One unreadable run must not hide the others.
                Err(error) => {
                    let place = repository.common_dir().display();
                    context
                        .reporter
                        .warn(&format!("left out run `{run}` in `{place}`: {error}"));
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, state: &StateRef, surroundings: &Surroundings) {
        let owner = state.owner.clone().unwrap_or_else(|| surroundings.owner());
        self.highest_epoch = self.highest_epoch.max(owner.epoch.unwrap_or(0));
        let is_running = state.is_leased(surroundings.now());
        self.rows
            .push(row(&state.facts, &state.journal, owner.host, is_running));
    }
}

/// The repositories of the runs, and the one that contains the current directory.
async fn repositories(context: &AssemblyContext, dirs: &[RunDir]) -> Vec<Repository> {
    let surroundings = &context.surroundings;
    let known = dirs.iter().map(|run| run.facts().repository.clone());
    let mut paths: BTreeSet<PathBuf> = known.collect();
    paths.insert(surroundings.dir().to_owned());
    let mut repositories: Vec<Repository> = Vec::new();
    for path in paths {
        match Repository::open(surroundings.host(), &path).await {
            Ok(one)
                if repositories
                    .iter()
                    .any(|other| other.common_dir() == one.common_dir()) => {}
            Ok(one) => repositories.push(one),
            // The user may have removed it, and the current directory need not be one.
            Err(ScmError::NotARepository { .. }) => {}
            Err(error) => context.reporter.warn(&format!(
                "left out the state refs of `{}`: {error}",
                path.display()
            )),
        }
    }
    repositories
}
