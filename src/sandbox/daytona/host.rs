//! A host of ralph at Daytona: a sandbox that runs the dashboard and no agent.

use std::path::{Path, PathBuf};

use reqwest::Body;
use reqwest::multipart::Part;
use serde_json::{Value, json};
use tokio::fs::File;

use super::api::{self, DaytonaApi};
use super::client::DaytonaClient;
use super::error::DaytonaError;
use super::toolbox::{put_file, run_script};
use super::wire::{DaytonaPhase, DaytonaPreview, DaytonaSandboxInfo, ToolboxScriptResult};
use super::{DaytonaProvider, NAME};
use crate::sandbox::name::unique_name;
use crate::sandbox::{SandboxError, SandboxErrorKind};
use crate::secret::Secret;
use crate::text::shell_word;

/// Makes the directory of the host, which only its user can read, and prints its path.
const MAKE_DIR: &str =
    "umask 077; mkdir -p \"$HOME/ralph-host/config/ralph\" && printf %s \"$HOME/ralph-host\"";

const START: &str = include_str!("start_host.sh");

/// What [`START`] exits with if the program itself cannot run.
const CANNOT_RUN: i32 = 3;

/// Prints a secret that logs a browser in, once, or why there is none.
const LOGIN: &str = "cd \"$1\" && if ! RALPH_HOME=\"$PWD/home\" ./ralph api-token login 2>login-error; then cat login-error; exit 1; fi";

/// What to do with a sandbox that Daytona cannot start again.
const BROKEN: &str = "look at it in Daytona's dashboard; `ralph dashboard deploy --type daytona --remove` removes it with its runs, then deploy again";

/// What a host at Daytona runs.
#[derive(Clone, Debug)]
pub struct DaytonaHostPlan {
    /// The program of ralph, for Linux.
    pub program: PathBuf,
    /// The port of the dashboard.
    pub port: u16,
    /// Whether it gets the API key, to start sandboxes of its own.
    pub gives_key: bool,
}

/// A host that runs.
#[derive(Clone, Debug)]
pub struct DaytonaHost {
    /// The name of its sandbox.
    pub sandbox: String,
    /// The preview link of the dashboard, without a slash at its end.
    pub url: String,
    /// What Daytona asks programs for in the header `x-daytona-preview-token`.
    pub preview_token: Secret,
    /// Logs a browser in to the dashboard, once, within 15 minutes.
    pub login: Secret,
    /// Whether the sandbox was made for this.
    pub is_new: bool,
}

impl DaytonaProvider {
    /// Starts the dashboard in a sandbox of its own, which Daytona never stops. If that sandbox exists, its program is replaced
    /// and started again; its runs stay.
    pub async fn deploy_host(&self, plan: &DaytonaHostPlan) -> Result<DaytonaHost, SandboxError> {
        let (api, name) = (self.api().await?, self.host_sandbox());
        let failed = |error: DaytonaError| error.for_sandbox(&name);
        let found = api.sandbox(&name).await.map_err(failed)?;
        let is_new = found.is_none();
        let info: DaytonaSandboxInfo = if let Some(info) = found {
            info
        } else {
            let request = api.client.post("sandbox", self.host_request(&name));
            request.json().await.map_err(failed)?
        };
        let started = match api
            .bring_to(DaytonaPhase::Started, &info.id, api::START_TIMEOUT)
            .await
        {
            Ok(info) => self.start_host(api, &info, plan).await,
            Err(error @ DaytonaError::State(_)) if !is_new => Err(failed(error).with_hint(Some(BROKEN))),
            Err(error) => Err(failed(error)),
        };
        match started {
            Ok(host) => Ok(DaytonaHost { is_new, ..host }),
            Err(error) => {
                if is_new {
                    let removed = api.client.delete(&format!("sandbox/{}", info.id)).await;
                    super::warn_not_removed(&name, removed);
                }
                Err(error)
            }
        }
    }

    /// Removes the sandbox of the dashboard, with its runs. Returns whether there was one.
    pub async fn remove_host(&self) -> Result<bool, SandboxError> {
        let (api, name) = (self.api().await?, self.host_sandbox());
        let failed = |error: DaytonaError| error.for_sandbox(&name);
        let Some(info) = api.sandbox(&name).await.map_err(failed)? else {
            return Ok(false);
        };
        let removed = api.client.delete(&format!("sandbox/{}", info.id)).await;
        removed.map(|()| true).map_err(failed)
    }

    /// The name of the sandbox, one for each data directory of a host that deploys. Hosts of two people in an organisation may have
    /// the same name, and one must not get the dashboard of the other, nor put a key there.
    fn host_sandbox(&self) -> String {
        let host = self.options.host_name.as_str();
        let data_dir = self.options.data_dir.to_string_lossy();
        unique_name(&format!("ralph dashboard {host}"), &[host, &data_dir])
    }

    /// The body of the request that creates the sandbox. It has no label of sandboxes for agents, so it is never pruned as one.
    fn host_request(&self, name: &str) -> Value {
        json!({
            "name": name,
            "labels": { "ralph.kind": "host", "ralph.version": env!("CARGO_PKG_VERSION") },
            "target": self.options.target,
            // Zero and a negative number mean never.
            "autoStopInterval": 0,
            "autoDeleteInterval": -1,
        })
    }

    async fn start_host(
        &self,
        api: &DaytonaApi,
        info: &DaytonaSandboxInfo,
        plan: &DaytonaHostPlan,
    ) -> Result<DaytonaHost, SandboxError> {
        let failed = |error: DaytonaError| error.for_sandbox(&info.name);
        let toolbox = api.toolbox(info);
        let path = format!("sandbox/{}/ports/{}/preview-url", info.id, plan.port);
        let preview: DaytonaPreview = api.client.get(&path).json().await.map_err(failed)?;
        let dir = script(&toolbox, "make a directory", MAKE_DIR, &[])
            .await
            .map_err(failed)?;
        let program = program(&plan.program).await?;
        put_file(&toolbox, &format!("{dir}/ralph.new"), program)
            .await
            .map_err(failed)?;
        let url = preview.url.trim_end_matches('/');
        for (name, text) in self.host_files(url, plan.gives_key) {
            let path = format!("{dir}/{name}");
            put_file(&toolbox, &path, Part::text(text))
                .await
                .map_err(failed)?;
        }
        let started = self.start_program(&toolbox, &dir, plan.port).await;
        check_started(&info.name, &started.map_err(failed)?)?;
        let login = script(&toolbox, "create a login", LOGIN, &[&dir])
            .await
            .map_err(failed)?;
        Ok(DaytonaHost {
            sandbox: info.name.clone(),
            url: url.to_owned(),
            preview_token: preview.token,
            login: Secret::new(login.trim()),
            is_new: false,
        })
    }

    /// Starts the program that was uploaded, in place of the one that runs.
    async fn start_program(
        &self,
        toolbox: &DaytonaClient,
        dir: &str,
        port: u16,
    ) -> Result<ToolboxScriptResult, DaytonaError> {
        let mut args = vec![
            dir.to_owned(),
            port.to_string(),
            format!("DAYTONA_API_URL={}", self.options.api_url),
        ];
        let target = self.options.target.iter();
        args.extend(target.map(|target| format!("DAYTONA_TARGET={target}")));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        run_script(toolbox, START, &args).await
    }

    /// The files that the dashboard reads in its directory: settings, and the API key or nothing. `url` has no slash at its end.
    fn host_files(&self, url: &str, gives_key: bool) -> [(&'static str, String); 2] {
        let host = url.split_once("://").map_or(url, |(_, host)| host);
        let settings = format!(
            "[api]\nallowed_hosts = [{}]\nallowed_origins = [{}]\n\n[sandbox]\ntype = \"daytona\"\n",
            toml_text(host),
            toml_text(url)
        );
        let key = self.options.key.as_ref().filter(|_| gives_key);
        let key = key.map(|key| format!("DAYTONA_API_KEY={}\n", shell_word(key.expose())));
        [
            ("config/ralph/config.toml", settings),
            ("environment", key.unwrap_or_default()),
        ]
    }
}

/// Refuses a program that cannot run, or a dashboard that ended at once.
fn check_started(sandbox: &str, started: &ToolboxScriptResult) -> Result<(), SandboxError> {
    let printed = started.result.trim();
    match started.exit_code {
        0 => Ok(()),
        CANNOT_RUN => {
            let hint =
                "name a `ralph` for Linux on x86-64 with `--program`, such as the static one of a release";
            Err(SandboxError::unsupported(NAME, "run this dashboard", printed).with_hint(Some(hint)))
        }
        _ => Err(SandboxError::new(
            SandboxErrorKind::Failed,
            format!("the dashboard in the sandbox `{sandbox}` did not start: {printed}"),
        )),
    }
}

fn toml_text(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// What a script printed.
async fn script(
    toolbox: &DaytonaClient,
    purpose: &str,
    script: &str,
    args: &[&str],
) -> Result<String, DaytonaError> {
    let done = run_script(toolbox, script, args).await?;
    match done.exit_code {
        0 => Ok(done.result),
        _ => Err(DaytonaError::response(purpose, done.result)),
    }
}

/// The program, as the part of an upload.
async fn program(path: &Path) -> Result<Part, SandboxError> {
    let failed = |error| SandboxError::host("read", path, error);
    let file = File::open(path).await.map_err(failed)?;
    let length = file.metadata().await.map_err(failed)?.len();
    Ok(Part::stream_with_length(Body::from(file), length))
}
