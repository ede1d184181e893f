//! A run over real parts, for the unit tests of the runner: a repository, a run directory and a `local` sandbox.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use tempfile::TempDir;

use super::progress::RunProgress;
use super::report::Reporter;
use super::saved::SavedRun;
use super::workplace::{Workplace, open_sandbox};
use super::{NewRun, RunInputs, RunParts, RunSettings, create};
use crate::agent::Agents;
use crate::agent::actions::ActionsAgent;
use crate::clock::Clock;
use crate::event::{Event, EventKind};
use crate::evidence::SigningKey;
use crate::exec::tests::search_path;
use crate::exec::{Command, Discard, Host};
use crate::id::RunId;
use crate::model::{Profile, Script, ScriptedModel};
use crate::sandbox::SandboxSpec;
use crate::sandbox::local::{LocalOptions, LocalProvider};
use crate::scm::{Checkpoints, LocalForge, Repository};
use crate::secret::{Redactor, Secret};
use crate::state::{RunDir, RunOwner, Runs};
use crate::task::Task;

/// The secret that the redactor of a test run knows.
pub(super) const SECRET: &str = "CANARY-0123456789";

const TASK: &str = "---\ntask_id: t-1\ntest_command: make test\n---\n\n# Build it\n\n## Success Criteria\n\n\
                    - [ ] M1.1 It builds\n  - verify: `make`\n- [ ] M1.2 It works\n  - verify: `make check`\n";

/// A clock that stands still.
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_000_000).unwrap()
    }
}

/// A run that was created and not started.
pub(super) struct TestRun {
    pub(super) parts: RunParts,
    pub(super) settings: RunSettings,
    pub(super) spec: SandboxSpec,
    pub(super) dir: RunDir,
    pub(super) repo: Repository,
    reporter: Reporter,
    events: Arc<Mutex<Vec<Event>>>,
    _temp: TempDir,
}

impl TestRun {
    pub(super) async fn new() -> Self {
        Self::with_files(&["Makefile"]).await
    }

    /// A run in a repository that contains these files.
    pub(super) async fn with_files(files: &[&str]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let path = search_path();
        let host = Host::new(BTreeMap::from([("PATH".to_owned(), path.clone())]));
        let repo = repository(&host, &temp.path().join("repository"), files).await;
        let runs = Runs::under(temp.path().join("runs"));
        let redactor = Redactor::new([Secret::new(SECRET)]);
        let new = NewRun {
            id: RunId::random(),
            created: FixedClock.now(),
            task: TASK.to_owned(),
            branch_prefix: "ralph".to_owned(),
            branch: None,
            is_branch_own: false,
            taken_branches: Vec::new(),
            project: None,
            overrides: Vec::new(),
            script: None,
            issue: None,
        };
        let dir = create(&runs, &repo, &redactor, new).await.unwrap();
        let events = Arc::new(Mutex::new(Vec::new()));
        let local = LocalOptions {
            base: runs.dir().to_owned(),
            path,
            passthrough: BTreeMap::new(),
        };
        let parts = RunParts {
            provider: Arc::new(LocalProvider::new(local)),
            agents: Agents::new(Arc::new(ActionsAgent)),
            model: Arc::new(ScriptedModel::new(Script::parse("iterations: []").unwrap())),
            forge: Arc::new(LocalForge::new(repo.clone(), dir.pull_request_file())),
            sink: events.clone(),
            clock: Arc::new(FixedClock),
            host,
            redactor,
            owner: RunOwner::this_process("test"),
            metering: None,
            evidence_key: SigningKey::generate().unwrap(),
            preconditions: Vec::new(),
        };
        Self {
            settings: RunSettings::new(Profile::new("default", "model")),
            spec: SandboxSpec::unrestricted(dir.facts().id.clone()),
            reporter: Reporter::new(&parts, &dir.facts().id),
            parts,
            dir,
            repo,
            events,
            _temp: temp,
        }
    }

    pub(super) fn inputs(&self) -> RunInputs<'_> {
        RunInputs {
            parts: &self.parts,
            settings: &self.settings,
            spec: &self.spec,
            dir: &self.dir,
            reporter: &self.reporter,
        }
    }

    pub(super) fn task(&self) -> Task {
        Task::parse(&self.dir.facts().task).unwrap()
    }

    /// The progress that is saved: that of a new run, or that of the last checkpoint.
    pub(super) async fn progress(&self) -> RunProgress<'_> {
        let checkpoints = Checkpoints::new(self.repo.clone(), self.dir.facts().id.clone());
        let saved = SavedRun::read(self.inputs(), &checkpoints).await.unwrap();
        let tree = self.repo.tree_of(&self.dir.facts().base).await.unwrap();
        let mut progress = RunProgress::new(self.inputs(), checkpoints, saved.journal, tree);
        if let Some(checkpoint) = saved.checkpoint {
            progress.restore(&checkpoint, saved.saved_seq).await.unwrap();
        }
        progress
    }

    /// The workplace, in a new sandbox and without a clone.
    pub(super) async fn workplace(&self) -> Workplace<'_> {
        let sandbox = open_sandbox(&self.parts, &self.spec).await.unwrap();
        Workplace::new(self.inputs(), sandbox, self.repo.clone(), None)
            .await
            .unwrap()
    }

    pub(super) fn events(&self) -> Vec<EventKind> {
        let events = self.events.lock().unwrap();
        events.iter().map(|event| event.kind.clone()).collect()
    }
}

/// A repository with one commit.
async fn repository(host: &Host, dir: &Path, files: &[&str]) -> Repository {
    std::fs::create_dir(dir).unwrap();
    for file in files {
        let file = dir.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "all test check:\n\ttrue\n").unwrap();
    }
    let commit = [
        "-c",
        "user.name=user",
        "-c",
        "user.email=user@localhost",
        "commit",
        "-qm",
        "Begin",
    ];
    for args in [&["init", "-q", "-b", "main"][..], &["add", "."], &commit] {
        let command = Command::new("git").args(args.iter().copied()).cwd(dir);
        let exit = host.run(&command, &mut Discard).await.unwrap();
        assert!(exit.success(), "{}", exit.stderr.text());
    }
    Repository::open(host.clone(), dir).await.unwrap()
}
