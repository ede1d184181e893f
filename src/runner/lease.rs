//! The lease in each checkpoint: the owner of a run, and the time until which no other host may take it over. A process with a
//! higher epoch of the queue need not wait for that time.

use std::cmp::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::ObjectId;
use crate::scm::{Checkpoint, Checkpoints};
use crate::state::{JournalEntry, JournalLine, RunOwner, StateError};

use super::{RunError, RunInputs};

/// The path of the lease in a checkpoint.
pub(super) const LEASE_FILE: &str = "lease.json";

/// The owner of a run, and the time until which no other host may take it over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Lease {
    pub(super) owner: RunOwner,
    pub(super) until: Timestamp,
}

impl Lease {
    /// A lease that outlasts the agent's work, its checks, and a wait until `waiting_until`.
    pub(super) fn new(
        inputs: RunInputs<'_>,
        owner: RunOwner,
        now: Timestamp,
        waiting_until: Option<Timestamp>,
    ) -> Self {
        let from = waiting_until.map_or(now, |until| until.max(now));
        let until = from + inputs.settings.iteration_timeout * 2 + Duration::from_secs(600);
        Self { owner, until }
    }

    /// The lease in a checkpoint.
    pub(super) async fn read(
        checkpoints: &Checkpoints,
        checkpoint: &ObjectId,
    ) -> Result<Option<Self>, RunError> {
        let bytes = checkpoints.file(checkpoint, LEASE_FILE).await?;
        let lease = bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose();
        Ok(lease.map_err(StateError::corrupt(LEASE_FILE))?)
    }
}

/// Refuses a run that another host works on, or that a process with a higher epoch took over. `journal` is the one in the
/// checkpoint.
pub(super) async fn check_lease(
    inputs: RunInputs<'_>,
    checkpoints: &Checkpoints,
    checkpoint: &Checkpoint,
    journal: &[JournalLine],
) -> Result<(), RunError> {
    let Some(lease) = Lease::read(checkpoints, &checkpoint.commit).await? else {
        return Ok(());
    };
    let (parts, run) = (inputs.parts, &inputs.dir.facts().id);
    let newest = lease.owner.epoch.unwrap_or(0);
    match parts.owner.epoch.map(|epoch| epoch.cmp(&newest)) {
        Some(Ordering::Greater) => return Ok(()),
        Some(Ordering::Less) => return Err(taken_over_by(&lease, inputs)),
        Some(Ordering::Equal) | None => {}
    }
    let last = journal.last().map(|line| &line.entry);
    let ended = matches!(last, Some(JournalEntry::Ended { .. }));
    // On one host the lock on the run directory has already decided.
    let elsewhere = lease.owner.host != parts.owner.host;
    if !ended && elsewhere && lease.until > parts.clock.now() {
        return Err(RunError::State(StateError::Owned {
            run: run.clone(),
            owner: format!("{} until {}", lease.owner, lease.until),
        }));
    }
    Ok(())
}

/// The error of a process that cannot save a checkpoint because the state ref moved. `None` if the ref does not name an owner.
pub(super) async fn taken_over(
    inputs: RunInputs<'_>,
    checkpoints: &Checkpoints,
) -> Result<Option<RunError>, RunError> {
    checkpoints.sync().await?;
    let Some(checkpoint) = checkpoints.load().await? else {
        return Ok(None);
    };
    let lease = Lease::read(checkpoints, &checkpoint.commit).await?;
    Ok(lease.map(|lease| taken_over_by(&lease, inputs)))
}

fn taken_over_by(lease: &Lease, inputs: RunInputs<'_>) -> RunError {
    RunError::State(StateError::TakenOver {
        run: inputs.dir.facts().id.clone(),
        owner: lease.owner.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use rstest::rstest;

    use super::*;
    use crate::evidence::NOTES_REF;
    use crate::runner::error::Halt;
    use crate::runner::gutter::tests::uneventful;
    use crate::runner::publish::publish;
    use crate::runner::run::Run;
    use crate::runner::saved::SavedRun;
    use crate::runner::tests::TestRun;
    use crate::scm::{
        CheckpointContent, Forge, ForgeError, LocalForge, OpenedPullRequest, PullRequest, PullRequestBase,
        StateFile,
    };
    use crate::state::{IterationRecord, IterationVerdict, RunOutcomeKind};

    fn owner(host: &str, epoch: Option<u64>) -> RunOwner {
        RunOwner {
            host: host.to_owned(),
            pid: 7,
            epoch,
        }
    }

    fn checkpoints(run: &TestRun) -> Checkpoints {
        Checkpoints::new(run.repo.clone(), run.dir.facts().id.clone())
    }

    async fn newest_owner(run: &TestRun) -> RunOwner {
        let checkpoints = checkpoints(run);
        let newest = checkpoints.load().await.unwrap().unwrap();
        let lease = Lease::read(&checkpoints, &newest.commit).await.unwrap();
        lease.unwrap().owner
    }

    /// The lease of the other host is valid in every case.
    #[rstest]
    #[case::higher(Some(4), Some(5), None)]
    #[case::first(None, Some(1), None)]
    #[case::equal(
        Some(4),
        Some(4),
        Some("is being worked on by process 7 on elsewhere (epoch 4) until")
    )]
    #[case::lower(Some(4), Some(3), Some("was taken over by process 7 on elsewhere (epoch 4)"))]
    #[case::no_queue(
        Some(4),
        None,
        Some("is being worked on by process 7 on elsewhere (epoch 4) until")
    )]
    #[tokio::test]
    async fn a_higher_epoch_takes_a_run_over_at_once(
        #[case] theirs: Option<u64>,
        #[case] ours: Option<u64>,
        #[case] refused: Option<&str>,
    ) {
        let mut run = TestRun::new().await;
        run.parts.owner = owner("elsewhere", theirs);
        run.progress().await.checkpoint(None).await.unwrap();
        run.parts.owner = owner("here", ours);
        let opened = SavedRun::read(run.inputs(), &checkpoints(&run)).await;
        let error = opened.err().map(|error| error.to_string());
        match refused {
            Some(refused) => assert!(error.unwrap().contains(refused)),
            None => assert_eq!(error, None),
        }
    }

    #[tokio::test]
    async fn a_process_without_a_queue_keeps_the_epoch() {
        let mut run = TestRun::new().await;
        run.parts.owner = owner("here", Some(4));
        let mut progress = run.progress().await;
        progress.log_activity("began").unwrap();
        progress.log_error(1, "failed").unwrap();
        progress.checkpoint(None).await.unwrap();
        drop(progress);
        run.parts.owner = owner("here", None);
        run.progress().await.checkpoint(None).await.unwrap();
        assert_eq!(newest_owner(&run).await, owner("here", Some(4)));
    }

    #[test]
    fn a_lease_of_0_1_0_has_no_epoch() {
        let text = r#"{"owner":{"host":"here","pid":7},"until":"2026-01-01T00:00:00Z"}"#;
        let lease: Lease = serde_json::from_str(text).unwrap();
        assert_eq!(lease.owner, owner("here", None));
        assert_eq!(serde_json::to_string(&lease).unwrap(), text);
    }

    /// When another process takes the run over.
    #[derive(Clone, Copy, PartialEq)]
    enum Takeover {
        Never,
        BeforePublishing,
        BeforePush,
    }

    /// Saves a checkpoint of a process with a higher epoch.
    async fn take_over(checkpoints: &Checkpoints) {
        let newest = checkpoints.load().await.unwrap().unwrap();
        let lease = Lease {
            owner: owner("elsewhere", Some(9)),
            until: Timestamp::UNIX_EPOCH,
        };
        let lease = StateFile {
            path: LEASE_FILE.to_owned(),
            bytes: serde_json::to_vec(&lease).unwrap(),
        };
        let content = CheckpointContent {
            iteration: newest.iteration,
            tip: &newest.tip,
            work_tree: &newest.work_tree,
            files: &[lease],
            at: Timestamp::UNIX_EPOCH,
        };
        checkpoints.save(Some(&newest.commit), &content).await.unwrap();
    }

    /// A forge that is asked for the base just before the pull request is opened.
    struct SlowForge {
        forge: LocalForge,
        checkpoints: Checkpoints,
        takeover: Takeover,
    }

    #[async_trait]
    impl Forge for SlowForge {
        async fn base(&self, base_branch: &str) -> Result<PullRequestBase, ForgeError> {
            if self.takeover == Takeover::BeforePush {
                take_over(&self.checkpoints).await;
            }
            self.forge.base(base_branch).await
        }

        async fn open(&self, request: &PullRequest) -> Result<OpenedPullRequest, ForgeError> {
            self.forge.open(request).await
        }

        async fn is_at(&self, branch: &str, commit: &ObjectId) -> Result<bool, ForgeError> {
            self.forge.is_at(branch, commit).await
        }
    }

    #[rstest]
    #[case(Takeover::Never)]
    #[case(Takeover::BeforePublishing)]
    #[case(Takeover::BeforePush)]
    #[tokio::test]
    async fn a_process_that_lost_the_run_publishes_nothing(#[case] takeover: Takeover) {
        let mut test_run = TestRun::new().await;
        test_run.parts.owner = owner("here", Some(4));
        test_run.parts.forge = Arc::new(SlowForge {
            forge: LocalForge::new(test_run.repo.clone(), test_run.dir.pull_request_file()),
            checkpoints: checkpoints(&test_run),
            takeover,
        });
        let mut run = Run {
            inputs: test_run.inputs(),
            task: test_run.task(),
            progress: test_run.progress().await,
            workplace: test_run.workplace().await,
            shared_evidence: None,
        };
        let complete = IterationRecord {
            tip: test_run.dir.facts().base.clone(),
            verdict: IterationVerdict::Complete,
            ..uneventful()
        };
        let recorded = JournalEntry::Recorded(Box::new(complete));
        run.progress.checkpoint(Some(recorded)).await.unwrap();
        if takeover == Takeover::BeforePublishing {
            take_over(&checkpoints(&test_run)).await;
        }
        let branch = &test_run.dir.facts().branch;
        let before = test_run.repo.resolve(branch).await.ok();
        let published = publish(&mut run).await.unwrap_err();
        let is_open = test_run.dir.pull_request_file().exists();
        if takeover == Takeover::Never {
            assert!(
                matches!(
                    published,
                    Halt::End {
                        kind: RunOutcomeKind::Done,
                        ..
                    }
                ),
                "{published:?}"
            );
            assert!(is_open);
            return;
        }
        let Halt::Broken(error) = published else {
            panic!("{published:?}");
        };
        assert!(error.is_taken_over(), "{error}");
        assert!(!is_open);
        assert_eq!(test_run.repo.resolve(branch).await.ok(), before);
        assert_eq!(newest_owner(&test_run).await, owner("elsewhere", Some(9)));
        let note = test_run.repo.note(NOTES_REF, &test_run.dir.facts().base).await;
        let is_signed = note.unwrap().is_some();
        assert_eq!(is_signed, takeover == Takeover::BeforePush);
    }
}
