//! How long a user waits until the agent asks its model for the first time: the real programs in a sealed container. The peer is
//! `docker run` of the same command, with the network of the host.
//!
//! Every profile has the address of the same model, so that the program gets the name that a user's program gets. A profile
//! with an address of its own would get another name, `1.models.ralph.internal`, at which no program behaves as at its
//! vendor's.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ralph::agent::{AgentBrief, AgentCredential, AgentProgram, Claude, Codex, ModelAccess, OpenCode};
use ralph::exec::{Command, Discard, Host};
use ralph::model::AuthMethod;
use ralph::secret::Secret;

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::support::engine::{docker, engine};
use super::support::model_server::{Api, ModelServer, Teller, Turn};
use super::support::ralph::{Place, finish};
use super::support::{base, skip};

const RUNS: usize = 9;
const KEY: &str = "sk-scripted-0123456789abcdef";
const MODEL: &str = "first-model";

/// An agent program to measure.
struct Program {
    name: &'static str,
    figure: &'static str,
    api: Api,
    key: &'static str,
    /// Says which command ralph starts.
    agent: fn() -> Box<dyn AgentProgram>,
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "claude",
        figure: "first-request",
        api: Api::Messages,
        key: "ANTHROPIC_API_KEY",
        agent: || Box::new(Claude::new().model(MODEL)),
    },
    Program {
        name: "codex",
        figure: "first-request-codex",
        api: Api::Responses,
        key: "OPENAI_API_KEY",
        agent: || Box::new(Codex::new().model(MODEL)),
    },
    Program {
        name: "opencode",
        figure: "first-request-opencode",
        api: Api::Chat,
        key: "OPENAI_API_KEY",
        agent: || {
            Box::new(OpenCode {
                model: Some(MODEL.to_owned()),
                effort: None,
            })
        },
    },
];

/// One figure for each program; none where there is no engine or no program: why, is printed.
pub(crate) async fn measure() -> Fallible<Vec<Figure>> {
    let mut figures = Vec::new();
    for program in PROGRAMS {
        match Stage::set_up(program).await {
            Ok(stage) => figures.push(stage.measure().await?),
            Err(missing) => println!("first-request is not measured: {missing}"),
        }
    }
    Ok(figures)
}

struct Stage {
    host: Host,
    image: String,
    endpoint: String,
    program: Program,
    file: PathBuf,
    version: String,
}

impl Stage {
    async fn set_up(program: Program) -> Result<Self, String> {
        #[expect(clippy::disallowed_methods, reason = "benches/inject/run says where it is")]
        let folder = std::env::var_os("RALPH_TEST_AGENTS").ok_or("the agent programs are not installed")?;
        let file = PathBuf::from(folder).join(program.name);
        let file = std::fs::canonicalize(file).map_err(|error| format!("{}: {error}", program.name))?;
        skip::program("docker")?;
        let engine = engine().await?;
        let image = base::image(&engine).await?;
        let mount = format!("{}:/usr/local/bin/{}:ro", file.display(), program.name);
        let version = docker(
            &engine,
            &[
                "run",
                "--rm",
                "--network",
                "none",
                "--volume",
                &mount,
                &image,
                program.name,
                "--version",
            ],
        );
        #[expect(
            clippy::disallowed_methods,
            reason = "the engine's command is where the caller has it"
        )]
        let host = Host::new(std::env::vars().collect());
        Ok(Self {
            host,
            image,
            endpoint: engine.endpoint().to_string(),
            program,
            file,
            version: version.trim().to_owned(),
        })
    }

    async fn measure(&self) -> Fallible<Figure> {
        // The first ones find cold caches.
        self.run().await?;
        self.run_by_hand().await?;
        let (mut taken, mut by_hand) = (vec![], vec![]);
        for _ in 0..quick::rounds(RUNS) {
            taken.push(self.run().await?);
            by_hand.push(self.run_by_hand().await?);
        }
        let [taken, by_hand] = [taken, by_hand].map(Samples::milliseconds);
        println!(
            "to the first request of {} {}, ms: from `ralph run` {taken}; from `docker run` {by_hand}",
            self.program.name, self.version
        );
        Ok(Figure {
            name: self.program.figure,
            unit: "ms",
            at: MEDIAN,
            ours: taken,
            peer: Some(PeerSamples::new("docker run", &by_hand)),
            target: Target::Most(2500.0),
        })
    }

    /// One run in a place of its own, until its agent has asked once; then it is stopped by its script.
    async fn run(&self) -> Fallible<Duration> {
        let model = Model::start(self.program.api).await;
        let place = Place::new();
        place.write("ralph.toml", &self.config(&model.server.base_url()));
        let mut command = place.ralph(&["run", "--max-iterations", "1"]);
        command.env(self.program.key, KEY);
        command.env("DOCKER_HOST", &self.endpoint);
        let started = Instant::now();
        let ended = tokio::task::spawn_blocking(move || finish(&mut command)).await?;
        model.first_request_after(started, &ended)
    }

    /// The same command as ralph's, with the real key and the network of the host, in a container that ends with it.
    async fn run_by_hand(&self) -> Fallible<Duration> {
        let model = Model::start(self.program.api).await;
        let home = tempfile::tempdir()?;
        let brief = AgentBrief {
            text: "Say that this is all.".to_owned(),
            iteration: 1,
            home: home.path().to_owned(),
            cost_left: None,
        };
        let access = ModelAccess {
            base_url: Some(model.server.base_url()),
            credential: Some(AgentCredential {
                auth: AuthMethod::ApiKey,
                value: Secret::new(KEY),
            }),
            credential_hint: None,
        };
        let agent = (self.program.agent)();
        for file in agent.files(&brief, &access) {
            std::fs::write(file.path, file.text)?;
        }
        let inner = agent.command(&brief, &access);
        let home = home.path().display();
        let mut command = Command::new("docker")
            .args(["run", "--rm", "--interactive", "--network", "host"])
            .args(["--volume".to_owned(), self.mount()])
            .args(["--volume".to_owned(), format!("{home}:{home}")])
            .env("DOCKER_HOST", self.endpoint.clone());
        for (name, value) in inner.env {
            command = command.args(["--env", &name]).env(name.clone(), value);
        }
        command = command
            .arg(self.image.clone())
            .arg(inner.program)
            .args(inner.args);
        command.stdin = inner.stdin;
        let started = Instant::now();
        let exit = self.host.run(&command, &mut Discard).await?;
        model.first_request_after(started, &exit)
    }

    /// Where the program is in a container.
    fn mount(&self) -> String {
        format!("{}:/usr/local/bin/{}:ro", self.file.display(), self.program.name)
    }

    fn config(&self, model: &str) -> String {
        let name = self.program.name;
        format!(
            "default_profile = \"default-cheap\"\n\
             [agent]\nname = \"{name}\"\nmodel = \"{MODEL}\"\n\
             [models.default-cheap]\nbase_url = \"{model}\"\n\
             [models.strong-doctor]\nbase_url = \"{model}\"\n\
             [sandbox]\ntype = \"docker\"\nimage = \"{}\"\n\
             mounts = [{{ source = \"{}\", target = \"/usr/local/bin/{name}\" }}]\n\
             [sandbox.network]\npolicy = \"allowlist\"\nallowed = [\"github.com\"]\n",
            self.image,
            self.file.display()
        )
    }
}

/// A model that notes when it is asked for the first time.
struct Model {
    server: ModelServer,
    first: Arc<Mutex<Option<Instant>>>,
}

impl Model {
    async fn start(api: Api) -> Self {
        let first: Arc<Mutex<Option<Instant>>> = Arc::default();
        let seen = first.clone();
        let teller = Teller::by(move |_| {
            if let Ok(mut seen) = seen.lock() {
                seen.get_or_insert_with(Instant::now);
            }
            Turn::say("That is all.")
        });
        let server = ModelServer::start(api, KEY, teller).await;
        Self { server, first }
    }

    /// How long after this moment it was asked, by a program that has ended.
    fn first_request_after(&self, started: Instant, ended: &impl Debug) -> Fallible<Duration> {
        let first = self.first.lock().ok().and_then(|first| *first);
        let first = first.ok_or_else(|| format!("the agent asked nothing: {ended:?}"))?;
        Ok(first - started)
    }
}
