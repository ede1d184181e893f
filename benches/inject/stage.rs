//! Where the measurements take place: a model, `ralph gateway run` before it, and LiteLLM before it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::Fallible;
use super::client::{Client, Way};
use super::upstream;

/// What LiteLLM wants to be shown.
const MASTER_KEY: &str = "sk-master-0123456789";
/// What the model wants to be shown; it does not look.
const KEY: &str = "sk-upstream-0123456789";
/// LiteLLM takes ten seconds to come up, as a rule.
const START_TIMEOUT: Duration = Duration::from_secs(180);

pub(crate) struct Stage {
    /// To the model itself.
    pub(crate) direct: Way,
    /// Through the gateway.
    pub(crate) ours: Way,
    gateway: Running,
    upstream: SocketAddr,
    dir: TempDir,
}

/// A process that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Stage {
    pub(crate) async fn set_up() -> Fallible<Self> {
        let dir = tempfile::Builder::new().prefix("ralph-bench-").tempdir()?;
        let upstream = upstream::start()?;
        let (gateway, ours) = start_gateway(&dir, upstream)?;
        let direct = Way {
            address: upstream,
            key: KEY.to_owned(),
        };
        for way in [&direct, &ours] {
            Client::connect(way, "warm up").await?.call().await?;
        }
        Ok(Self {
            direct,
            ours,
            gateway,
            upstream,
            dir,
        })
    }

    /// The resident size of the gateway, in megabytes.
    pub(crate) fn resident(&self) -> Fallible<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.gateway.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line
            .and_then(|line| line.trim().strip_suffix(" kB"))
            .ok_or("no VmRSS")?;
        Ok(kilobytes.parse::<f64>()? / 1000.0)
    }

    /// LiteLLM before the same model, for as long as the first value lives; `None` where it is not installed.
    pub(crate) async fn litellm(&self) -> Fallible<Option<(impl Drop + use<>, Way)>> {
        #[expect(clippy::disallowed_methods, reason = "benches/inject/run says where it is")]
        let Some(program) = std::env::var_os("RALPH_TEST_LITELLM").map(PathBuf::from) else {
            return Ok(None);
        };
        let config = self.dir.path().join("litellm.yaml");
        std::fs::write(&config, litellm_config(self.upstream).to_string())?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = File::create(self.dir.path().join("litellm.log"))?;
        #[expect(clippy::disallowed_methods, reason = "the peer is a program")]
        let child = Command::new(program)
            .args(["--host", "127.0.0.1", "--port", &port.to_string(), "--config"])
            .arg(&config)
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .env("LITELLM_LOG", "ERROR")
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let running = Running(child);
        let way = Way {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            key: MASTER_KEY.to_owned(),
        };
        let started = Instant::now();
        while !answers(&way).await {
            if started.elapsed() > START_TIMEOUT {
                return Err("LiteLLM does not come up".into());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(Some((running, way)))
    }
}

async fn answers(way: &Way) -> bool {
    match Client::connect(way, "warm up").await {
        Ok(mut client) => client.call().await.is_ok(),
        Err(_) => false,
    }
}

/// The gateway as a user starts it, with a price and without bounds that matter.
fn start_gateway(dir: &TempDir, upstream: SocketAddr) -> Fallible<(Running, Way)> {
    #[expect(clippy::disallowed_methods, reason = "what is measured is the program")]
    let mut child = Command::new(env!("CARGO_BIN_EXE_ralph"))
        .args([
            "gateway",
            "run",
            "--auth",
            "gateway",
            "--base-url",
            &format!("http://{upstream}"),
        ])
        .args([
            "--set",
            "budget.max_cost_usd_estimate=100000",
            "--set",
            "budget.max_tokens_total=1000000000000",
        ])
        .args(["--set", "models.default-cheap.input_usd_per_million=0.6"])
        .args(["--set", "models.default-cheap.output_usd_per_million=2.2"])
        .env("RALPH_HOME", dir.path().join("ralph"))
        .env("LITELLM_API_KEY", KEY)
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let running = Running(child);
    let ready: Value = serde_json::from_str(&line)?;
    let text = |name: &str| ready[name].as_str().unwrap_or_default().to_owned();
    let way = Way {
        address: text("base_url").trim_start_matches("http://").parse()?,
        key: text("phantom"),
    };
    Ok((running, way))
}

fn litellm_config(upstream: SocketAddr) -> Value {
    let params = json!({"model": "zai/glm-4.7", "api_base": format!("http://{upstream}/v1"), "api_key": KEY});
    json!({
        "model_list": [{"model_name": "zai/glm-4.7", "litellm_params": params}],
        "general_settings": {"master_key": MASTER_KEY},
        "litellm_settings": {"num_retries": 0},
    })
}
