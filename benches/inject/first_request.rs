//! How long a user waits until the agent asks its model for the first time: the real programs in a sealed container.
//!
//! Every profile has the address of the same model, so that the program gets the name that a user's program gets. A profile
//! with an address of its own would get another name, `1.models.ralph.internal`, at which no program behaves as at its
//! vendor's.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Fallible;
use super::figure::{Figure, MEDIAN, Samples, Target, quick};
use super::support::engine::{docker, engine};
use super::support::model_server::{Api, ModelServer, Teller, Turn};
use super::support::ralph::{Place, finish};
use super::support::{base, skip};

const RUNS: usize = 9;
const KEY: &str = "sk-scripted-0123456789abcdef";

/// An agent program to measure.
struct Program {
    name: &'static str,
    figure: &'static str,
    api: Api,
    key: &'static str,
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "claude",
        figure: "first-request",
        api: Api::Messages,
        key: "ANTHROPIC_API_KEY",
    },
    Program {
        name: "codex",
        figure: "first-request-codex",
        api: Api::Responses,
        key: "OPENAI_API_KEY",
    },
    Program {
        name: "opencode",
        figure: "first-request-opencode",
        api: Api::Chat,
        key: "OPENAI_API_KEY",
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
        Ok(Self {
            image,
            endpoint: engine.endpoint().to_string(),
            program,
            file,
            version: version.trim().to_owned(),
        })
    }

    async fn measure(&self) -> Fallible<Figure> {
        // The first run finds cold caches.
        self.run().await?;
        let mut taken = Vec::new();
        for _ in 0..quick::rounds(RUNS) {
            taken.push(self.run().await?);
        }
        let taken = Samples::milliseconds(taken);
        println!(
            "from `ralph run` to the first request of {} {}, ms: {taken}",
            self.program.name, self.version
        );
        Ok(Figure {
            name: self.program.figure,
            unit: "ms",
            at: MEDIAN,
            ours: taken,
            peer: None,
            target: Target::Most(2500.0),
        })
    }

    /// One run in a place of its own, until its agent has asked once; then it is stopped by its script.
    async fn run(&self) -> Fallible<Duration> {
        let first: Arc<Mutex<Option<Instant>>> = Arc::default();
        let seen = first.clone();
        let teller = Teller::by(move |_| {
            if let Ok(mut seen) = seen.lock() {
                seen.get_or_insert_with(Instant::now);
            }
            Turn::say("That is all.")
        });
        let server = ModelServer::start(self.program.api, KEY, teller).await;
        let place = Place::new();
        place.write("ralph.toml", &self.config(&server.base_url()));
        let mut command = place.ralph(&["run", "--max-iterations", "1"]);
        command.env(self.program.key, KEY);
        command.env("DOCKER_HOST", &self.endpoint);
        let started = Instant::now();
        let ended = tokio::task::spawn_blocking(move || finish(&mut command)).await?;
        let first = first.lock().ok().and_then(|first| *first);
        let first = first.ok_or_else(|| format!("the agent asked nothing: {ended:?}"))?;
        Ok(first - started)
    }

    fn config(&self, model: &str) -> String {
        let name = self.program.name;
        format!(
            "default_profile = \"default-cheap\"\n\
             [agent]\nname = \"{name}\"\nmodel = \"first-model\"\n\
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
