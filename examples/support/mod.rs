//! What the examples share: a small repository with a mistake in it, a task that says so, and the parts of a run on
//! this machine. Everything is in a temporary directory and goes with it.
#![allow(
    unreachable_pub,
    reason = "each example is a crate of its own and includes this file"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use ralph::agent::Agents;
use ralph::agent::actions::ActionsAgent;
use ralph::event::NullSink;
use ralph::exec::{Command, Discard, Host};
use ralph::model::{Script, ScriptedModel};
use ralph::sandbox::connect::{Choice, connect};
use ralph::sandbox::local::LocalOptions;
use ralph::scm::LocalForge;
use ralph::secret::Redactor;
use ralph::state::RunOwner;
use ralph::{NewRun, Profile, Repository, RunDir, RunOutcome, RunParts, RunSettings, Runs, SandboxSpec};
use tempfile::TempDir;

const TASK: &str = "\
---
task_id: greeting
test_command: grep -qx 'Hello, world' greeting.txt
max_iterations: 5
max_wall_time_minutes: 5
max_tokens_total: 100000
---
# Correct the greeting

- [ ] M1.1 The greeting names the world
  - verify: `grep -q world greeting.txt`
- [ ] M1.2 The greeting is one line
  - verify: `test \"$(wc -l <greeting.txt)\" -eq 1`
";

/// What the scripted model answers: a wrong fix in the first iteration, the right one in the second.
const SCRIPT: &str = r#"
iterations:
  - - tokens: {input: 900, output: 60}
      cost_usd: 0
      answer:
        summary: Write the word in capitals.
        actions:
          - {type: write, path: greeting.txt, content: "Hello, WORLD\n"}
          - {type: commit, message: Shout}
        claims: {checkboxes_checked: [M1.1, M1.2]}
  - - tokens: {input: 1000, output: 60}
      cost_usd: 0
      answer:
        summary: The evidence looks for small letters.
        actions:
          - {type: write, path: greeting.txt, content: "Hello, world\n"}
          - {type: commit, message: Correct the greeting}
          - {type: stop_success, reason: Both checkboxes hold.}
"#;

/// A run that can begin, and the parts to begin it with: the `local` provider and forge, the `actions` agent, the
/// scripted model, and a sink that shows nothing. An example replaces the part it is about.
pub struct Bench {
    /// The run.
    pub run: RunDir,
    /// Its parts.
    pub parts: RunParts,
    _dir: TempDir,
}

impl Bench {
    /// Makes the repository and a run of the task in it.
    pub async fn new() -> Result<Self, Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let path = path_variable();
        let host = Host::new(BTreeMap::from([("PATH".to_owned(), path.clone())]));
        let project = dir.path().join("project");
        make_repository(&host, &project).await?;

        let repo = Repository::open(host.clone(), &project).await?;
        let runs = Runs::under(dir.path().join("runs"));
        let new = NewRun {
            created: jiff::Timestamp::now(),
            task: TASK.to_owned(),
            branch_prefix: "ralph".to_owned(),
            project: None,
            overrides: Vec::new(),
            script: None,
        };
        let run = ralph::create(&runs, &repo, &Redactor::default(), new).await?;
        let local = LocalOptions {
            base: runs.dir().to_owned(),
            path,
            passthrough: BTreeMap::new(),
        };
        let parts = RunParts {
            provider: connect(&Choice::Local(local))?,
            agents: Agents::new(Arc::new(ActionsAgent)),
            model: Arc::new(ScriptedModel::new(Script::parse(SCRIPT)?)),
            forge: Arc::new(LocalForge::new(repo, run.pull_request_file())),
            sink: Arc::new(NullSink),
            clock: ralph::clock::system(),
            host,
            redactor: Redactor::default(),
            owner: RunOwner::this_process("localhost"),
            metering: None,
            preconditions: Vec::new(),
        };
        Ok(Self {
            run,
            parts,
            _dir: dir,
        })
    }

    /// Works on the run until it ends.
    pub async fn drive(&self) -> Result<RunOutcome, Box<dyn Error>> {
        let settings = RunSettings::new(Profile::new("scripted", "scripted"));
        let spec = SandboxSpec::unrestricted(self.run.facts().id.clone());
        Ok(ralph::drive(&self.parts, &settings, &spec, &self.run).await?)
    }
}

async fn make_repository(host: &Host, dir: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir(dir)?;
    std::fs::write(dir.join("greeting.txt"), "Hello, wrld\n")?;
    let identity = ["-c", "user.name=you", "-c", "user.email=you@localhost"];
    let init = Command::new("git").args(["init", "--quiet", "--initial-branch=main"]);
    let add = Command::new("git").args(["add", "greeting.txt"]);
    let commit = Command::new("git")
        .args(identity)
        .args(["commit", "--quiet", "--message", "A greeting"]);
    for command in [init, add, commit] {
        let exit = host.run(&command.cwd(dir), &mut Discard).await?;
        if !exit.success() {
            return Err(exit.stderr.text().into());
        }
    }
    Ok(())
}

/// The library reads no environment: a program passes in what it needs.
#[expect(clippy::disallowed_methods, reason = "a program may read its environment")]
fn path_variable() -> String {
    std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned())
}
