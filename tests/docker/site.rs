//! A repository, and runs of its task in containers.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use ralph::engine::Engine;
use serde_json::Value;

use crate::support::engine::docker;
use crate::support::ralph::{Place, doing, eventually, run, script, whole_task};
use crate::support::{base, engine};

/// Held by a test that leaves a sandbox behind on purpose, or prunes: one test's prune removes what another has left.
pub static LEFT_BEHIND: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A repository whose tasks are worked on in containers.
pub struct Site {
    pub engine: Engine,
    pub place: Place,
}

impl Site {
    /// On the engine that answers, or why not.
    pub async fn new() -> Result<Self, String> {
        let engine = engine::engine().await?;
        let image = base::image(&engine).await?;
        Ok(Self::on(engine, &image))
    }

    /// On this engine, with this image.
    pub fn on(engine: Engine, image: &str) -> Self {
        let place = Place::new();
        place.write(
            "ralph.toml",
            &format!(
                "[agent]\nname = \"actions\"\n[sandbox]\ntype = \"docker\"\nimage = \"{image}\"\n\
                 [sandbox.network]\npolicy = \"deny\"\n[sandbox.resources]\nmemory = \"512m\"\ncpus = \"1\"\n{}",
                engine::seal_config()
            ),
        );
        Self { engine, place }
    }

    /// Lets its sandboxes reach what this line covers, at this address of the host.
    pub fn allow(&self, line: &str, address: &str) {
        let path = self.place.repo().join("ralph.toml");
        let config = fs::read_to_string(&path).unwrap();
        let allowed = format!(
            "policy = \"allowlist\"\nallowed = [\"{line}\"]\ndangerously_allow_addresses = [\"{address}\"]"
        );
        fs::write(path, config.replace("policy = \"deny\"", &allowed)).unwrap();
    }

    /// `ralph` with these arguments, on this engine.
    pub fn ralph(&self, args: &[&str]) -> Command {
        let mut command = self.place.ralph(args);
        command.env("DOCKER_HOST", self.engine.endpoint().to_string());
        command
    }

    /// `ralph run` with a scripted model, on this engine.
    pub fn scripted(&self, answers: &Value) -> Command {
        let mut command = self.place.scripted(answers, &[]);
        command.env("DOCKER_HOST", self.engine.endpoint().to_string());
        command
    }

    /// The containers that this place's agents work in.
    pub fn containers(&self) -> Vec<String> {
        let all = self.all_containers();
        let is_agents = |name: &String| !name.ends_with("-net") && !name.contains("-evidence");
        all.into_iter().filter(is_agents).collect()
    }

    /// Those, those of evidence, and the holders of their networks.
    pub fn all_containers(&self) -> BTreeSet<String> {
        let listed = docker(
            &self.engine,
            &[
                "ps",
                "--all",
                "--filter",
                "label=ralph.run",
                "--format",
                "{{.Names}}\t{{.Label \"ralph.workspace\"}}",
            ],
        );
        let home = self.place.home().display().to_string();
        let ours = listed.lines().filter_map(|line| line.split_once('\t'));
        ours.filter(|(_, workspace)| workspace.starts_with(&home))
            .map(|(name, _)| name.to_owned())
            .collect()
    }

    /// How many workspaces there are.
    pub fn sandboxes(&self) -> usize {
        fs::read_dir(self.place.home().join("sandboxes")).map_or(0, Iterator::count)
    }

    /// Whether the agent has begun its work in one of them.
    pub fn has_started(&self) -> bool {
        self.find("work/started").is_some()
    }

    /// What is known of this file in the first of them that has it.
    pub fn find(&self, file: &str) -> Option<fs::Metadata> {
        let mut places = fs::read_dir(self.place.home().join("sandboxes"))
            .into_iter()
            .flatten()
            .flatten();
        places.find_map(|place| fs::metadata(place.path().join("workspace").join(file)).ok())
    }

    /// Fails when a container or a workspace is left.
    pub fn expect_nothing_left(&self) {
        assert_eq!(self.all_containers(), BTreeSet::new());
        assert_eq!(self.sandboxes(), 0);
    }
}

/// A first iteration that takes its time, and one that does the task.
pub fn slow() -> Value {
    script([doing([run("touch started; sleep 8")]), whole_task(), whole_task()])
}

/// Waits until the agent is at work.
pub fn wait_until_started(site: &Site) {
    eventually("the first iteration begins", || site.has_started());
}
