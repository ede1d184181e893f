//! What the examples share: a small repository with a mistake in it, a task that asks to correct it, and a scripted model.
//! Everything is in a temporary directory.
#![allow(
    unreachable_pub,
    reason = "each example is a crate of its own and includes this file"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use ralph::exec::{Command, Discard, Host};
use ralph::{Local, Ralph, RalphBuilder, Surroundings};
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

/// A repository, and surroundings in which nothing of the user's own settings applies.
pub struct Example {
    /// The surroundings of the run.
    pub surroundings: Surroundings,
    _dir: TempDir,
}

impl Example {
    /// Creates the repository with the task.
    pub async fn new() -> Result<Self, Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let path = Surroundings::from_process()?
            .var("PATH")
            .unwrap_or_default()
            .to_owned();
        let env = BTreeMap::from([("PATH".to_owned(), path)]);
        let project = dir.path().join("project");
        let surroundings = Surroundings::new(env, &project)
            .with_var("RALPH_HOME", dir.path().join("ralph").display().to_string());
        make_repository(&surroundings.host(), &project).await?;
        Ok(Self {
            surroundings,
            _dir: dir,
        })
    }

    /// Builds a run with the `local` provider, the `actions` agent and the scripted model. An example replaces the part
    /// that it is about.
    pub fn builder(&self) -> RalphBuilder {
        Ralph::builder()
            .surroundings(self.surroundings.clone())
            .sandbox(Local)
            .agent("actions")
            .script(SCRIPT)
    }
}

async fn make_repository(host: &Host, dir: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir(dir)?;
    std::fs::write(dir.join("greeting.txt"), "Hello, wrld\n")?;
    std::fs::write(dir.join("ralph_task.md"), TASK)?;
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
