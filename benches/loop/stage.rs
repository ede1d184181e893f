//! Where the measurements take place: repositories, and runs put together from the library's parts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ralph::agent::Agents;
use ralph::agent::actions::ActionsAgent;
use ralph::event::EventSink;
use ralph::evidence::SigningKey;
use ralph::exec::{Command, Discard, Host};
use ralph::id::RunId;
use ralph::model::{Model, ModelError, ModelReply, Profile};
use ralph::runner::{
    self, Budget, DoctorRules, DoneRules, NewRun, Profiles, RunOutcome, RunParts, RunSettings,
};
use ralph::sandbox::SandboxSpec;
use ralph::sandbox::local::{LocalOptions, LocalProvider};
use ralph::scm::{CommitIdentity, LocalForge, Repository};
use ralph::secret::Redactor;
use ralph::state::{RunDir, RunOwner, Rung, Runs};
use ralph::usage::{Tokens, Usd};
use tempfile::TempDir;

use super::Fallible;

/// The number of files in a large repository.
pub(crate) const LARGE: u64 = 50_000;
/// The number of files in a huge one.
#[allow(dead_code, reason = "other benchmarks use this module too")]
pub(crate) const HUGE: u64 = 500_000;
/// What every answer is said to use.
pub(crate) const TOKENS: Tokens = Tokens {
    input: 100,
    output: 10,
};

const FILES_PER_DIRECTORY: u64 = 100;

/// A temporary directory and the programs that are started in it.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) host: Host,
    path: String,
    dir: Arc<TempDir>,
}

/// A task that no iteration of the measurements completes by itself.
pub(crate) fn task(max_iterations: u32) -> String {
    format!(
        "---\ntask_id: bench\ntest_command: \"true\"\nmax_iterations: {max_iterations}\n\
         max_wall_time_minutes: 60\nmax_tokens_total: 1000000000\n---\n# Measure\n\n### Milestone M1\n\n\
         - [ ] M1.1 One\n  - verify: `true`\n- [ ] M1.2 Two\n  - verify: `true`\n"
    )
}

/// The path of a generated file.
pub(crate) fn file_name(number: u64) -> String {
    let directory = number / FILES_PER_DIRECTORY;
    format!("part{:02}/dir{directory:04}/file{number:06}.txt", directory % 20)
}

/// A model's reply with this answer.
pub(crate) fn reply(answer: &serde_json::Value) -> ModelReply {
    ModelReply {
        text: answer.to_string(),
        model: "scripted".to_owned(),
        tokens: Some(TOKENS),
        cost: Some(Usd::ZERO),
        cut_off: false,
        unmetered_attempts: 0,
    }
}

/// What a model says that cannot go on.
pub(crate) fn refusal(reason: &str) -> ModelError {
    ModelError::Refused {
        endpoint: "the benchmark".to_owned(),
        status: 500,
        message: reason.to_owned(),
    }
}

impl Stage {
    pub(crate) fn set_up() -> Fallible<Self> {
        #[expect(clippy::disallowed_methods, reason = "git is where the caller has it")]
        let path = std::env::var("PATH")?;
        let dir = tempfile::Builder::new().prefix("ralph-bench-").tempdir()?;
        let variables = [
            ("PATH", path.as_str()),
            ("HOME", &dir.path().to_string_lossy()),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_AUTHOR_NAME", "bench"),
            ("GIT_AUTHOR_EMAIL", "bench@localhost"),
            ("GIT_COMMITTER_NAME", "bench"),
            ("GIT_COMMITTER_EMAIL", "bench@localhost"),
        ];
        let env = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(Self {
            host: Host::new(BTreeMap::from(env)),
            path,
            dir: Arc::new(dir),
        })
    }

    /// A path of that name in the temporary directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a bare repository with one commit of so many files. Always the same bytes.
    pub(crate) async fn repository(&self, name: &str, files: u64) -> Fallible<PathBuf> {
        let path = self.path(name);
        let shown = path.to_string_lossy();
        self.git(
            self.dir.path(),
            &["init", "--quiet", "--bare", "-b", "main", &shown],
        )
        .await?;
        let mut stream =
            "commit refs/heads/main\ncommitter bench <bench@localhost> 0 +0000\ndata 0\n".to_owned();
        for number in 0..files {
            let content = format!("Line of file {number}.\n").repeat(20);
            let (name, length) = (file_name(number), content.len());
            write!(stream, "M 100644 inline {name}\ndata {length}\n{content}")?;
        }
        let import = Command::new("git")
            .args(["fast-import", "--quiet"])
            .cwd(&path)
            .stdin(stream);
        self.checked(&import).await?;
        Ok(path)
    }

    /// Clones a repository as git does by itself.
    pub(crate) async fn clone_of(&self, repository: &Path, name: &str) -> Fallible<PathBuf> {
        let (from, to) = (repository.to_string_lossy(), self.path(name));
        self.git(
            self.dir.path(),
            &["clone", "--quiet", &from, &to.to_string_lossy()],
        )
        .await?;
        Ok(to)
    }

    /// Runs git with everybody's defaults.
    pub(crate) async fn git(&self, dir: &Path, args: &[&str]) -> Fallible<()> {
        self.checked(&Command::new("git").args(args.iter().copied()).cwd(dir))
            .await
    }

    /// Works in a repository for at most so many iterations, with the `local` provider and the `actions` agent.
    pub(crate) async fn run(
        &self,
        repository: &Path,
        agent: (Arc<dyn Model>, Arc<dyn EventSink>),
        iterations: u32,
    ) -> Fallible<RunOutcome> {
        let dir = self.create(repository, task(iterations)).await?;
        self.drive(&dir, agent, &settings(iterations)?).await
    }

    /// Creates a run in a repository.
    pub(crate) async fn create(&self, repository: &Path, task: String) -> Fallible<RunDir> {
        let repo = Repository::open(self.host.clone(), repository).await?;
        let new = NewRun {
            id: RunId::random(),
            created: jiff::Timestamp::now(),
            task,
            branch_prefix: "ralph".to_owned(),
            branch: None,
            is_branch_own: false,
            taken_branches: Vec::new(),
            project: None,
            overrides: Vec::new(),
            script: None,
            issue: None,
        };
        Ok(runner::create(&self.runs(), &repo, &Redactor::default(), new).await?)
    }

    /// Works on a run, from its beginning or from its last checkpoint.
    pub(crate) async fn drive(
        &self,
        dir: &RunDir,
        (model, sink): (Arc<dyn Model>, Arc<dyn EventSink>),
        settings: &RunSettings,
    ) -> Fallible<RunOutcome> {
        let repo = Repository::open(self.host.clone(), &dir.facts().repository).await?;
        let parts = RunParts {
            provider: Arc::new(self.provider(&self.runs())),
            agents: Agents::new(Arc::new(ActionsAgent)),
            model,
            forge: Arc::new(LocalForge::new(repo, dir.pull_request_file())),
            sink,
            clock: ralph::clock::system(),
            host: self.host.clone(),
            redactor: Redactor::default(),
            owner: RunOwner {
                host: "bench".to_owned(),
                pid: std::process::id(),
                epoch: None,
            },
            metering: None,
            evidence_key: SigningKey::generate()?,
            preconditions: Vec::new(),
        };
        Ok(runner::drive(&parts, settings, &sandbox(dir), dir).await?)
    }

    /// The directories of the runs.
    fn runs(&self) -> Runs {
        Runs::under(self.path("runs"))
    }

    fn provider(&self, runs: &Runs) -> LocalProvider {
        LocalProvider::new(LocalOptions {
            base: runs.dir().to_owned(),
            path: self.path.clone(),
            passthrough: BTreeMap::new(),
        })
    }

    async fn checked(&self, command: &Command) -> Fallible<()> {
        let exit = self.host.run(command, &mut Discard).await?;
        if exit.success() {
            return Ok(());
        }
        Err(format!("`{command}` failed: {}", exit.stderr.text()).into())
    }
}

fn sandbox(dir: &RunDir) -> SandboxSpec {
    SandboxSpec {
        completion_grace: Duration::from_secs(2),
        ..SandboxSpec::unrestricted(dir.facts().id.clone())
    }
}

pub(crate) fn settings(max_iterations: u32) -> Fallible<RunSettings> {
    let profile = Profile {
        name: "scripted".to_owned(),
        litellm_model: "scripted".to_owned(),
        max_output_tokens: 2048,
        temperature: None,
        price: None,
        list_price: None,
        tags: Vec::new(),
    };
    Ok(RunSettings {
        budget: Budget {
            max_iterations,
            max_wall_time: Duration::from_secs(3600),
            max_cost: None,
            max_tokens: Some(1_000_000_000),
            max_consecutive_gutter: 3,
            max_rate_limit_wait: Duration::from_secs(60),
        },
        diff_line_threshold: 3,
        ladder: vec![Rung::Person],
        doctor: DoctorRules {
            every_iterations: None,
            apply_diagnosis: false,
        },
        done: DoneRules::default(),
        profiles: Profiles {
            default: profile.name.clone(),
            fallback: None,
            doctor: None,
            all: BTreeMap::from([(profile.name.clone(), profile)]),
            uncallable: BTreeSet::new(),
        },
        identity: CommitIdentity::new("bench", "bench@localhost")?,
        prompt_bytes: 200_000,
        pull_request_interval: Duration::from_secs(600),
        on_overlap: ralph::runner::OverlapRule::Warn,
        commit_statuses: false,
        iteration_timeout: Duration::from_secs(600),
        idle_timeout: Duration::from_secs(600),
        agent_env: BTreeMap::new(),
        max_hand_back_bytes: ralph::scm::DEFAULT_BUNDLE_LIMIT,
        commit_leftovers: false,
        setup_command: None,
        setup_cache: None,
        state_remote: None,
        allowable_hosts: ralph::network::AllowableHosts::PublicNames,
        model_wait: Duration::from_secs(1),
    })
}
