//! Tests of the builder, and of what a resumed run keeps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use tempfile::TempDir;

use super::image::PreparedImage;
use super::spec::SandboxUse;
use super::{AssemblyContext, AssemblyError, AssemblyReporter, Local, Ralph, Surroundings};
use crate::config::{self, ConfigInputs};
use crate::id::{ObjectId, RunId};
use crate::sandbox::local::{LocalOptions, LocalProvider};
use crate::state::{RUN_FORMAT, RunDir, RunFacts};

const TASK: &str = include_str!("../../templates/demo/ralph_task.md");

/// A directory of ralph's data and an empty project.
struct Desk {
    dir: TempDir,
    surroundings: Surroundings,
}

impl Desk {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let env = BTreeMap::from([
            ("RALPH_HOME".to_owned(), dir.path().display().to_string()),
            ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
        ]);
        let surroundings = Surroundings::new(env, dir.path());
        Self { dir, surroundings }
    }

    fn run(&self, task: &str, project: Option<&Path>, overrides: &[(&str, &str)]) -> RunDir {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let facts = RunFacts {
            format: RUN_FORMAT,
            id: RunId::random(),
            created: Timestamp::UNIX_EPOCH,
            version: "0".to_owned(),
            repository: "/repo".into(),
            task: task.to_owned(),
            base: ObjectId::parse(&"a".repeat(40)).unwrap(),
            base_branch: None,
            branch: "ralph/t/x".to_owned(),
            project: project.map(Path::to_owned),
            overrides: overrides.iter().map(own).collect(),
            script: None,
            issue: None,
        };
        self.surroundings.runs().unwrap().create(facts).unwrap()
    }

    async fn resume(&self, overrides: &[(&str, &str)]) -> Result<Ralph, AssemblyError> {
        let run = self.run(TASK, None, overrides);
        let builder = Ralph::builder().surroundings(self.surroundings.clone());
        builder.resume(run.facts().id.clone()).build().await
    }
}

fn own_provider() -> LocalProvider {
    LocalProvider::new(LocalOptions {
        base: "/nowhere".into(),
        path: String::new(),
        passthrough: BTreeMap::new(),
    })
}

#[test]
fn the_last_sandbox_and_agent_win_and_set_wins_over_both() {
    let mut builder = Ralph::builder()
        .surroundings(Desk::new().surroundings)
        .set("agent.name", "codex")
        .set("budget.max_iterations", 5)
        .sandbox(own_provider())
        .sandbox(Local)
        .agent("claude")
        .agent("cursor");
    let context = builder.context().unwrap();
    assert!(context.provider.is_none());
    let given: Vec<String> = builder
        .given
        .overrides
        .iter()
        .map(|given| format!("{}={}", given.key, given.value))
        .collect();
    assert_eq!(
        given,
        [
            "sandbox.type=local",
            "agent.name=cursor",
            "agent.name=codex",
            "budget.max_iterations=5"
        ]
    );
    let mut own = Ralph::builder().sandbox(Local).sandbox(own_provider());
    assert!(own.context().unwrap().provider.is_some());
    assert!(own.given.is_empty());
}

#[tokio::test]
async fn a_run_with_settings_of_its_own_can_be_resumed_with_a_finished_configuration() {
    let desk = Desk::new();
    let run = desk.run(TASK, None, &[("sandbox.type", "docker")]);
    let resumed = |config| {
        let builder = Ralph::builder().surroundings(desk.surroundings.clone());
        builder.resume(run.facts().id.clone()).config(config)
    };
    let config = || config::load(&ConfigInputs::default()).unwrap();
    resumed(config()).sandbox(own_provider()).build().await.unwrap();
    let error = resumed(config()).sandbox(Local).build().await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "`config` replaces every setting: it cannot be combined with `set`, `config_file`, `sandbox` or `agent`"
    );
}

#[tokio::test]
async fn a_resumed_run_is_checked_like_a_new_one() {
    let desk = Desk::new();
    let local = ("sandbox.type", "local");
    desk.resume(&[local]).await.unwrap();
    let recording = desk.resume(&[local, ("sandbox.network.policy", "record")]).await;
    let error = recording.err().unwrap().to_string();
    assert!(
        error.starts_with("`policy = \"record\"` allows every connection"),
        "{error}"
    );
}

#[test]
fn a_run_with_a_task_that_cannot_be_read_has_no_sandbox() {
    let run = Desk::new().run("---\nbroken", None, &[]);
    let config = config::load(&ConfigInputs::default()).unwrap();
    assert!(SandboxUse::for_run(&run, &config, PreparedImage::default()).is_err());
}

#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl AssemblyReporter for Warnings {
    fn warn(&self, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }
}

#[test]
fn a_project_directory_that_is_gone_is_reported() {
    let desk = Desk::new();
    let gone = desk.dir.path().join("gone");
    let run = desk.run(TASK, Some(&gone), &[]);
    let warnings = Warnings::default();
    let context = AssemblyContext::new(desk.surroundings.clone(), Arc::new(warnings.clone()));
    let project: PathBuf = super::configuration::project_of(&context, &run);
    assert_eq!(project, desk.dir.path());
    let expected = format!(
        "the project directory `{}` of the run is gone: the configuration of `{}` is used",
        gone.display(),
        project.display()
    );
    assert_eq!(*warnings.0.lock().unwrap(), [expected]);
}
