//! How long a user waits until the agent asks its model for the first time: the real `claude` in a sealed container.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Fallible;
use super::figure::{Figure, Samples, Target};
use super::support::engine::{docker, engine};
use super::support::model_server::{Api, ModelServer, Teller, Turn};
use super::support::ralph::{Place, finish};
use super::support::{base, skip};

const RUNS: usize = 9;
const KEY: &str = "sk-scripted-0123456789abcdef";

/// `None` where there is no engine or no `claude`: why, is printed.
pub(crate) async fn measure() -> Fallible<Option<Figure>> {
    let stage = match Stage::set_up().await {
        Ok(stage) => stage,
        Err(missing) => {
            println!("first-request is not measured: {missing}");
            return Ok(None);
        }
    };
    // The first run finds cold caches.
    stage.run().await?;
    let mut taken = Vec::new();
    for _ in 0..RUNS {
        taken.push(stage.run().await?);
    }
    let taken = Samples::milliseconds(taken);
    println!(
        "from `ralph run` to the first request of claude {}, ms: {taken}",
        stage.version
    );
    Ok(Some(Figure {
        name: "first-request",
        unit: "ms",
        ours: taken.median(),
        peer: None,
        target: Target::Most(2000.0),
    }))
}

struct Stage {
    image: String,
    endpoint: String,
    claude: PathBuf,
    version: String,
}

impl Stage {
    async fn set_up() -> Result<Self, String> {
        #[expect(clippy::disallowed_methods, reason = "benches/inject/run says where it is")]
        let folder = std::env::var_os("RALPH_TEST_AGENTS").ok_or("claude is not installed")?;
        let claude = PathBuf::from(folder).join("claude");
        let claude = std::fs::canonicalize(claude).map_err(|error| error.to_string())?;
        skip::program("docker")?;
        let engine = engine().await?;
        let image = base::image(&engine).await?;
        let mount = format!("{}:/usr/local/bin/claude:ro", claude.display());
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
                "claude",
                "--version",
            ],
        );
        Ok(Self {
            image,
            endpoint: engine.endpoint().to_string(),
            claude,
            version: version.trim().to_owned(),
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
        let server = ModelServer::start(Api::Messages, KEY, teller).await;
        let place = Place::new();
        place.write("ralph.toml", &self.config(&server.base_url()));
        let mut command = place.ralph(&["run", "--max-iterations", "1"]);
        command.env("ANTHROPIC_API_KEY", KEY);
        command.env("DOCKER_HOST", &self.endpoint);
        let started = Instant::now();
        let ended = tokio::task::spawn_blocking(move || finish(&mut command)).await?;
        let first = first.lock().ok().and_then(|first| *first);
        let first = first.ok_or_else(|| format!("the agent asked nothing: {ended:?}"))?;
        Ok(first - started)
    }

    fn config(&self, model: &str) -> String {
        format!(
            "default_profile = \"first\"\n\
             [agent]\nname = \"claude\"\nmodel = \"first-model\"\n\
             [models.first]\nlitellm_model = \"x/first-model\"\nbase_url = \"{model}\"\n\
             [sandbox]\ntype = \"docker\"\nimage = \"{}\"\n\
             mounts = [{{ source = \"{}\", target = \"/usr/local/bin/claude\" }}]\n\
             [sandbox.network]\npolicy = \"allowlist\"\nallowed = [\"github.com\"]\n",
            self.image,
            self.claude.display()
        )
    }
}
