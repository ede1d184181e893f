//! A repository with a task, a model server, and a real agent program between them.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::container::Container;
use crate::support::model_server::{Api, ModelServer, Teller, Turn};
use crate::support::ralph::{Ended, Place, finish};

/// What the servers of these tests take for a key. It is known to ralph as a secret.
pub const KEY: &str = "sk-scripted-0123456789abcdef";

/// Which program is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Claude,
    Codex,
    Gemini,
    OpenCode,
}

impl Program {
    pub fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::OpenCode => "opencode",
        }
    }

    pub fn api(self) -> Api {
        match self {
            Self::Claude => Api::Messages,
            Self::Codex => Api::Responses,
            Self::Gemini => Api::GenerateContent,
            Self::OpenCode => Api::Chat,
        }
    }

    /// The host of its model, as its sandbox knows it.
    pub fn host(self) -> &'static str {
        match self {
            Self::Claude => "anthropic.ralph.internal",
            Self::Codex | Self::OpenCode => "openai.ralph.internal",
            Self::Gemini => "google.ralph.internal",
        }
    }

    /// The variable that holds its key.
    pub fn key_variable(self) -> &'static str {
        match self {
            Self::Claude => "ANTHROPIC_API_KEY",
            Self::Codex | Self::OpenCode => "OPENAI_API_KEY",
            Self::Gemini => "GEMINI_API_KEY",
        }
    }
}

/// Where it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// A directory of the host.
    Directory,
    /// A container on the bridge, with the program mounted into it and given the key itself.
    Container,
    /// The same with nothing to reach but its gateway, which has the key.
    Sealed,
}

/// A repository with a task whose agent is a program that asks a scripted server.
pub struct Bench {
    pub place: Place,
    pub server: ModelServer,
    program: Program,
    within: Within,
    folder: PathBuf,
    container: Option<Container>,
}

impl Bench {
    /// On the host with this script, or why the test cannot run.
    pub async fn new(program: Program, sessions: Vec<Vec<Turn>>) -> Result<Self, String> {
        Self::within(Within::Directory, program, Teller::of(sessions)).await
    }

    /// The same, wherever it works.
    pub async fn within(within: Within, program: Program, teller: Teller) -> Result<Self, String> {
        Self::of(within, program, teller, programs()?).await
    }

    /// The same with a program of this folder.
    pub async fn of(
        within: Within,
        program: Program,
        teller: Teller,
        folder: PathBuf,
    ) -> Result<Self, String> {
        let container = match within {
            Within::Directory => None,
            Within::Container | Within::Sealed => Some(Container::new().await?),
        };
        let address = match &container {
            Some(container) if within == Within::Container => container.address(),
            _ => Ipv4Addr::LOCALHOST.into(),
        };
        let bench = Self {
            place: Place::new(),
            server: ModelServer::listen(address, program.api(), KEY, teller).await,
            program,
            within,
            folder,
            container,
        };
        bench.configure("");
        Ok(bench)
    }

    /// Writes the configuration: the agent, where its model is, and this.
    pub fn configure(&self, more: &str) {
        self.configure_at(&self.server.base_url(), more);
    }

    /// The same with the model at this address. It is that of the profile `default-cheap` too, so that both share a service,
    /// and the agent gets the host name that it gets without any `base_url`.
    pub fn configure_at(&self, url: &str, more: &str) {
        let name = self.program.name();
        let sandbox = match &self.container {
            None => "[sandbox]\ntype = \"local\"\n[sandbox.network]\npolicy = \"allow-all\"\n".to_owned(),
            Some(container) => container.settings(name, &self.folder, self.within),
        };
        self.place.write(
            "ralph.toml",
            &format!(
                "default_profile = \"first\"\n{more}\n\
                 [agent]\nname = \"{name}\"\nmodel = \"first-model\"\n\
                 dangerously_pass_credential = {}\n\
                 [models.first]\nlitellm_model = \"x/first-model\"\nbase_url = \"{url}\"\n\
                 [models.default-cheap]\nbase_url = \"{url}\"\n{sandbox}",
                self.within == Within::Container
            ),
        );
    }

    /// `ralph` with these arguments, the programs on its `PATH` and the key in its environment.
    pub fn ralph(&self, args: &[&str]) -> Command {
        let mut command = self.place.ralph(args);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.folder.display()));
        command.env(self.program.key_variable(), KEY);
        if let Some(container) = &self.container {
            command.env("DOCKER_HOST", container.engine.endpoint().to_string());
        }
        command
    }

    /// Runs the task.
    pub fn run(&self, args: &[&str]) -> Ended {
        finish(&mut self.ralph(&[&["run"], args].concat()))
    }

    /// What there is of this place's sandboxes in containers.
    pub fn sandboxes(&self) -> String {
        let listed = finish(&mut self.ralph(&["sandbox", "ls", "--json"])).stdout;
        let place = self.place.path().display().to_string();
        let ours: Vec<&str> = listed.lines().filter(|line| line.contains(&place)).collect();
        ours.join("\n")
    }

    /// A file of the branch that the work went to.
    pub fn handed_back(&self, file: &str) -> String {
        let branch = self.place.status()["branch"].as_str().unwrap().to_owned();
        self.place.git(&["show", &format!("{branch}:{file}")])
    }

    /// A file of the last commit that a run without a pull request handed back.
    pub fn handed_back_so_far(&self, file: &str) -> String {
        let tip = self.place.noted("iterations/1/pr_state.json");
        let tip: serde_json::Value = serde_json::from_str(&tip).unwrap();
        self.place
            .git(&["show", &format!("{}:{file}", tip["tip"].as_str().unwrap())])
    }

    /// The models that the sessions asked for, by session.
    pub fn models(&self) -> Vec<String> {
        let mut models: Vec<String> = Vec::new();
        for asked in self.server.asked() {
            if asked.session == models.len() {
                models.push(asked.body["model"].as_str().unwrap().to_owned());
            }
        }
        models
    }
}

/// A run that rests keeps its sandbox, for a resume that no test comes to any more.
impl Drop for Bench {
    fn drop(&mut self) {
        let Some(container) = &self.container else {
            return;
        };
        for run in self.place.runs() {
            container.remove_sandboxes_of(run.file_name().unwrap().to_str().unwrap());
        }
    }
}

/// The folder of the real programs.
pub fn programs() -> Result<PathBuf, String> {
    let folder = std::env::var_os("RALPH_TEST_AGENTS").map(PathBuf::from);
    let installed = folder.filter(|folder| Path::new(folder).join("claude").exists());
    installed.ok_or_else(|| "the agent programs are not installed (tests/support/install-agents)".to_owned())
}

/// The session that writes a file and commits it, ticks a box, and says so.
pub fn says_hello_in(file: &str, checkbox: &str) -> Vec<Turn> {
    vec![
        Turn::run(format!(
            "echo hello > {file} && sh test.sh && git add {file} && git commit --quiet --message 'Say hello in {file}'"
        )),
        Turn::run(tick(checkbox)),
        Turn::say(format!("{file} says hello now.")),
    ]
}

/// Two sessions that do the task between them.
pub fn two_sessions() -> Vec<Vec<Turn>> {
    vec![says_hello_in("a.txt", "M1.1"), says_hello_in("b.txt", "M1.2")]
}

/// One session that does the task: for whatever a second one would not show again.
pub fn one_session() -> Vec<Vec<Turn>> {
    vec![whole_task()]
}

/// The session that does the whole task.
pub fn whole_task() -> Vec<Turn> {
    vec![
        Turn::run(
            "echo hello > a.txt && echo hello > b.txt && git add a.txt b.txt && git commit --quiet --message 'Say hello'",
        ),
        Turn::run(format!("{}; {}", tick("M1.1"), tick("M1.2"))),
        Turn::say("Both say hello."),
    ]
}

/// The shell line that claims a checkbox.
pub fn tick(checkbox: &str) -> String {
    format!("sed -i 's/- \\[ \\] {checkbox} /- [x] {checkbox} /' ralph_task.md")
}

/// One turn of a session that goes in circles: it claims what it has not done, again and again.
pub fn in_circles(turn: usize) -> Turn {
    match turn {
        0 => Turn::run(tick("M1.1")),
        _ => Turn::say("I looked around."),
    }
}
