//! A forge whose CI says what a history says.

use std::collections::VecDeque;
use std::sync::Mutex;

use async_trait::async_trait;
use ralph::id::ObjectId;
use ralph::runner::RunOutcome;
use ralph::scm::{CiFailure, CiReport, Forge, ForgeError, LocalForge, OpenedPullRequest, PullRequest};
use ralph::state::RunOutcomeKind;

/// The forge `local`, with the checks that fail at each question. After the last one CI passes.
pub struct ScriptedCi {
    forge: LocalForge,
    failures: Mutex<VecDeque<Vec<String>>>,
}

impl ScriptedCi {
    pub fn new(forge: LocalForge, failures: &[Vec<String>]) -> Self {
        Self {
            forge,
            failures: Mutex::new(failures.iter().cloned().collect()),
        }
    }
}

/// Whether the run has all its evidence, and waits for a person because of CI.
pub fn has_paused(outcome: &RunOutcome) -> bool {
    outcome.kind == RunOutcomeKind::Paused && outcome.reason.starts_with("CI failed ")
}

#[async_trait]
impl Forge for ScriptedCi {
    async fn open(&self, request: &PullRequest) -> Result<OpenedPullRequest, ForgeError> {
        self.forge.open(request).await
    }

    async fn ci(&self, _commit: &ObjectId) -> Result<CiReport, ForgeError> {
        let failed = self.failures.lock().unwrap().pop_front().unwrap_or_default();
        let failed: Vec<CiFailure> = failed
            .into_iter()
            .map(|name| CiFailure {
                log: format!("{name} objects"),
                conclusion: "failure".to_owned(),
                name,
            })
            .collect();
        Ok(CiReport {
            passed: vec!["build".to_owned()],
            failed,
            ..CiReport::default()
        })
    }

    async fn is_at(&self, branch: &str, commit: &ObjectId) -> Result<bool, ForgeError> {
        self.forge.is_at(branch, commit).await
    }
}
