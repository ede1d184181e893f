//! Where a history is played: a repository in a temporary directory and the real parts of a run.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use ralph::agent::actions::ActionsAgent;
use ralph::agent::{Agent, Agents, Claude, ModelAccess, ProgramAgent};
use ralph::clock::Clock;
use ralph::event::{Event, EventKind, EventSink, Fanout};
use ralph::evidence::SigningKey;
use ralph::exec::{Command, Discard, Host};
use ralph::id::RunId;
use ralph::model::ScriptedModel;
use ralph::runner::{self, NewRun, RunError, RunOutcome, RunParts};
use ralph::sandbox::SandboxSpec;
use ralph::sandbox::local::{LocalOptions, LocalProvider};
use ralph::scm::{LocalForge, Repository};
use ralph::secret::{Redactor, Secret};
use ralph::state::{
    Inbox, InterventionRequest, IterationRecord, JournalEntry, JournalLine, RunDir, RunOwner, Runs,
};
use tempfile::TempDir;

use crate::ci::ScriptedCi;
use crate::history::{Act, Again, Ask, Asked, FILES, History};
use crate::settings::SettingsShape;

/// A repository and the runs in it.
pub struct Stage<'a> {
    history: &'a History,
    dir: TempDir,
    host: Host,
    /// The `PATH` of commands. It begins with an empty directory that they can write to.
    path: String,
    /// The commit that the user's branch is at, and stays at.
    base: String,
    /// The run that was played last.
    run: Option<RunDir>,
}

/// Someone who watches the run and leaves requests.
struct Person {
    asked: Vec<Asked>,
    inbox: Inbox,
}

impl EventSink for Person {
    fn emit(&self, event: &Event) {
        if matches!(event.kind, EventKind::IterationStarted { .. }) {
            let now = |asked: &&Asked| Some(asked.iteration) == event.iteration;
            for asked in self.asked.iter().filter(now) {
                ask(&self.inbox, &asked.ask, event.at);
            }
        }
    }
}

/// Leaves a person's request.
fn ask(inbox: &Inbox, ask: &Ask, at: Timestamp) {
    let request = InterventionRequest::new(ask.request(), "someone", at);
    inbox.leave(&request).unwrap();
}

/// A wall clock that someone sets while the run is at work.
struct JumpingClock {
    jumps: BTreeMap<u32, i64>,
    ahead: AtomicI64,
}

impl Clock for JumpingClock {
    fn now(&self) -> Timestamp {
        let ahead = SignedDuration::from_secs(self.ahead.load(Ordering::Relaxed));
        Timestamp::now() + ahead
    }
}

impl EventSink for JumpingClock {
    fn emit(&self, event: &Event) {
        if matches!(event.kind, EventKind::IterationStarted { .. }) {
            let jump = event.iteration.and_then(|iteration| self.jumps.get(&iteration));
            self.ahead.fetch_add(*jump.unwrap_or(&0), Ordering::Relaxed);
        }
    }
}

/// What came of one act.
pub struct Played {
    pub outcome: Result<RunOutcome, RunError>,
    pub run: RunDir,
    /// Every recorded iteration of the run, also those of earlier acts.
    pub records: Vec<IterationRecord>,
    /// Calls of a model that the run has made, also in earlier acts.
    pub calls: u64,
    /// What was reported in this act.
    pub events: Vec<Event>,
    pub took: Duration,
}

impl<'a> Stage<'a> {
    /// A fresh repository as the history has it.
    pub async fn set(history: &'a History) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tools = dir.path().join("tools");
        std::fs::create_dir(&tools).unwrap();
        if let Some(program) = &history.program {
            let file = tools.join("claude");
            std::fs::write(&file, program).unwrap();
            std::fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
        let home = dir.path().join("home").display().to_string();
        let host = Host::new(BTreeMap::from([
            ("PATH".to_owned(), path.clone()),
            ("HOME".to_owned(), home),
        ]));
        let mut stage = Self {
            history,
            dir,
            host,
            path,
            base: String::new(),
            run: None,
        };
        stage.fill_repository().await;
        stage
    }

    async fn fill_repository(&mut self) {
        let mut files: BTreeMap<&str, &str> = FILES.into();
        files.extend(
            self.history
                .files
                .iter()
                .map(|(path, text)| (path.as_str(), text.as_str())),
        );
        for (path, text) in files {
            let path = self.repository().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        self.git(&["init", "--quiet", "--initial-branch=main"]).await;
        self.git(&["add", "--all"]).await;
        let identity = ["-c", "user.name=user", "-c", "user.email=user@localhost"];
        self.git(&[&identity[..], &["commit", "--quiet", "--message", "Begin"]].concat())
            .await;
        self.base = self.git(&["rev-parse", "HEAD"]).await;
    }

    /// Drives the run that the act is about until it ends or waits.
    pub async fn play(&mut self, act: &Act<'_>) -> Played {
        let repository = Repository::open(self.host.clone(), &self.repository())
            .await
            .unwrap();
        let run = match (act.again, self.run.take()) {
            (Again::Resume, Some(run)) => run,
            _ => self.new_run(&repository).await,
        };
        self.run = Some(run.clone());
        for asked in act.asked {
            ask(&run.inbox(), asked, Timestamp::now());
        }
        let events = Arc::new(Mutex::new(Vec::new()));
        let parts = self.parts(repository, &run, act.settings, events.clone());
        let sandbox = SandboxSpec {
            completion_grace: Duration::from_millis(act.settings.completion_grace_ms),
            network: act.settings.policy(),
            ..SandboxSpec::unrestricted(run.facts().id.clone())
        };
        let started = Instant::now();
        let outcome = runner::drive(&parts, &act.settings.settings(), &sandbox, &run).await;
        let took = started.elapsed();
        let journal = run.journal().unwrap();
        let record = |line: &JournalLine| match &line.entry {
            JournalEntry::Recorded(record) => Some(record.as_ref().clone()),
            _ => None,
        };
        let is_call = |line: &&JournalLine| matches!(line.entry, JournalEntry::Calling { .. });
        let events = events.lock().unwrap().clone();
        Played {
            outcome,
            records: journal.iter().filter_map(record).collect(),
            calls: journal.iter().filter(is_call).count() as u64,
            events,
            run,
            took,
        }
    }

    fn parts(
        &self,
        repository: Repository,
        run: &RunDir,
        settings: &SettingsShape,
        events: Arc<Mutex<Vec<Event>>>,
    ) -> RunParts {
        let forge = LocalForge::new(repository, run.pull_request_file());
        let ci = settings.ci.as_deref().unwrap_or_default();
        let person = Person {
            asked: self.history.asked.clone(),
            inbox: run.inbox(),
        };
        let clock = Arc::new(JumpingClock {
            jumps: self.history.clock_jumps.clone(),
            ahead: AtomicI64::new(0),
        });
        RunParts {
            provider: Arc::new(LocalProvider::new(LocalOptions {
                base: self.runs().dir().to_owned(),
                path: self.path.clone(),
                passthrough: BTreeMap::new(),
            })),
            agents: Agents::new(self.agent()),
            model: Arc::new(ScriptedModel::new(self.history.script.clone())),
            forge: Arc::new(ScriptedCi::new(forge, ci)),
            sink: Arc::new(Fanout(vec![events, Arc::new(person), clock.clone()])),
            clock,
            host: self.host.clone(),
            redactor: self.redactor(),
            owner: RunOwner {
                host: "localhost".to_owned(),
                pid: std::process::id(),
                epoch: None,
            },
            metering: None,
            evidence_key: SigningKey::generate().unwrap(),
            preconditions: Vec::new(),
        }
    }

    fn agent(&self) -> Arc<dyn Agent> {
        match self.history.program {
            Some(_) => Arc::new(ProgramAgent::new(Claude::new(), ModelAccess::default())),
            None => Arc::new(ActionsAgent),
        }
    }

    async fn new_run(&self, repository: &Repository) -> RunDir {
        let new = NewRun {
            id: RunId::random(),
            created: Timestamp::now(),
            task: self.history.task.text(),
            branch_prefix: "ralph".to_owned(),
            branch: None,
            is_branch_own: false,
            taken_branches: Vec::new(),
            project: None,
            overrides: Vec::new(),
            script: None,
            issue: None,
        };
        runner::create(&self.runs(), repository, &self.redactor(), new)
            .await
            .unwrap()
    }

    /// Runs git in the user's repository and returns what it printed.
    pub async fn git(&self, args: &[&str]) -> String {
        let exit = self.try_git(args).await;
        exit.unwrap_or_else(|error| panic!("git {args:?}: {error}"))
    }

    /// The same for a command that may fail.
    pub async fn try_git(&self, args: &[&str]) -> Result<String, String> {
        let command = Command::new("git")
            .args(args.iter().copied())
            .cwd(self.repository())
            .keep(1 << 24);
        let exit = self.host.run(&command, &mut Discard).await.unwrap();
        if exit.success() {
            Ok(exit.stdout.text().trim_end().to_owned())
        } else {
            Err(exit.stderr.text())
        }
    }

    /// The directory that everything is in.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The commit that the user's branch must still be at.
    pub fn base(&self) -> &str {
        &self.base
    }

    pub fn secrets(&self) -> &[String] {
        &self.history.secrets
    }

    fn redactor(&self) -> Redactor {
        Redactor::new(self.secrets().iter().map(|value| Secret::new(value.clone())))
    }

    fn repository(&self) -> PathBuf {
        self.dir.path().join("repository")
    }

    fn runs(&self) -> Runs {
        Runs::under(self.dir.path().join("runs"))
    }
}
