//! The pull request of a run, by what was recorded when it was opened.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::ObjectId;
use crate::state::{JournalEntry, JournalLine, RunDir, StateError, if_exists, standing_records};

use super::AssemblyError;
use super::error::io_error;

/// The pull request of a run. Without one, everything is `null` or empty.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct RunPullRequest {
    /// A URL or a file.
    pub location: Option<String>,
    /// The commit that it contained when it was opened or updated last.
    pub commit: Option<String>,
    /// Whether there is a pull request. Otherwise only its branch was pushed.
    pub is_opened: bool,
    /// Whether it is a draft.
    pub is_draft: bool,
    /// Its title; `null` if an older version of ralph opened it.
    pub title: Option<String>,
    /// Its body, in Markdown; `null` if an older version of ralph opened it.
    pub body: Option<String>,
    /// The checks of the forge that failed, newest last. What the forge says now is not known.
    pub failed_checks: Vec<FailedChecks>,
}

/// Checks of the forge that failed on a commit.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FailedChecks {
    /// The commit.
    pub commit: String,
    /// The names of the checks.
    pub checks: Vec<String>,
}

/// `pr_state.json` of an iteration.
#[derive(Deserialize)]
struct RecordedState {
    opened: bool,
    #[serde(default)]
    location: Option<String>,
    #[serde(default)]
    draft: bool,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    body: Option<String>,
}

impl RunPullRequest {
    /// What the run recorded about its pull request.
    pub(crate) fn new(run: &RunDir, lines: &[JournalLine]) -> Result<Self, AssemblyError> {
        let mut found = Self {
            failed_checks: lines.iter().filter_map(failed_checks).collect(),
            ..Self::default()
        };
        let newest = lines.iter().rev().find_map(|line| match &line.entry {
            JournalEntry::PullRequest { location, commit } => Some((location, commit)),
            _ => None,
        });
        let Some((location, commit)) = newest else {
            return Ok(found);
        };
        found.location = Some(location.clone());
        found.commit = Some(commit.to_string());
        if let Some(state) = recorded_state(run, lines, commit)? {
            found.is_opened = state.opened;
            found.is_draft = state.draft;
            found.title = state.title;
            found.body = state.body;
        }
        Ok(found)
    }
}

/// What was recorded for the iteration whose commit the pull request contains.
fn recorded_state(
    run: &RunDir,
    lines: &[JournalLine],
    commit: &ObjectId,
) -> Result<Option<RecordedState>, AssemblyError> {
    for record in standing_records(lines).iter().rev() {
        if record.tip != *commit {
            continue;
        }
        let file = run
            .ralph_dir()
            .join(format!("iterations/{}/pr_state.json", record.iteration));
        let Some(bytes) = if_exists(std::fs::read(&file)).map_err(io_error("read", &file))? else {
            continue;
        };
        let state: RecordedState = serde_json::from_slice(&bytes).map_err(StateError::corrupt(&file))?;
        if state.location.is_some() {
            return Ok(Some(state));
        }
    }
    Ok(None)
}

fn failed_checks(line: &JournalLine) -> Option<FailedChecks> {
    match &line.entry {
        JournalEntry::CiFailed { commit, checks } => Some(FailedChecks {
            commit: commit.to_string(),
            checks: checks.clone(),
        }),
        _ => None,
    }
}
