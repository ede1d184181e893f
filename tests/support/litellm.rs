//! The real LiteLLM proxy, which `tests/support/install-litellm` installs. `RALPH_TEST_LITELLM` names its executable.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::skip;

/// The key that the proxy wants. It must be seen nowhere else.
pub const MASTER_KEY: &str = "sk-master-CANARY-0123456789";

/// The proxy's executable, or why the test cannot run.
pub fn executable() -> Result<PathBuf, String> {
    match std::env::var_os("RALPH_TEST_LITELLM") {
        Some(path) => Ok(path.into()),
        None => skip::program("litellm"),
    }
}

/// A running proxy. It, and whatever it started, ends when dropped.
pub struct Proxy {
    pub address: String,
    process: Child,
    home: tempfile::TempDir,
}

impl Proxy {
    /// A proxy for these models. Its own retries and cooldowns are off: what is tried again is ours to decide, and to be
    /// seen.
    pub async fn start(executable: &Path, models: &[Value]) -> Self {
        let config = json!({
            "model_list": models,
            "general_settings": {"master_key": MASTER_KEY},
            "litellm_settings": {"num_retries": 0},
            "router_settings": {"num_retries": 0, "disable_cooldowns": true},
        });
        Self::start_with(executable, &config.to_string()).await
    }

    /// A proxy with this configuration.
    pub async fn start_with(executable: &Path, config: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("config.yaml");
        std::fs::write(&file, config).unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let log = File::create(home.path().join("log")).unwrap();
        let process = Command::new(executable)
            .args(["--host", "127.0.0.1", "--port", &port.to_string(), "--config"])
            .arg(&file)
            .current_dir(home.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home.path())
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .env("LITELLM_MASTER_KEY", MASTER_KEY)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut proxy = Self {
            process,
            address: format!("http://127.0.0.1:{port}"),
            home,
        };
        proxy.wait_until_it_lives().await;
        proxy
    }

    /// Ten seconds, as a rule.
    async fn wait_until_it_lives(&mut self) {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let health = format!("{}/health/liveliness", self.address);
        let started = Instant::now();
        loop {
            if http
                .get(&health)
                .send()
                .await
                .is_ok_and(|response| response.status().is_success())
            {
                return;
            }
            let ended = self.process.try_wait().unwrap();
            assert!(
                ended.is_none() && started.elapsed() < Duration::from_secs(180),
                "litellm does not come up ({ended:?}):\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// What it has printed.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.process.wait();
    }
}
