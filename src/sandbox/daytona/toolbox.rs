//! The toolbox: Daytona's service inside each sandbox, for commands and files.

use std::path::Path;
use std::time::Duration;

use reqwest::multipart::{Form, Part};
use reqwest::{Method, Response};
use serde_json::json;

use super::DaytonaError;
use super::client::{CallRetry, DaytonaCall, DaytonaClient};
use super::socket::DaytonaSocket;
use super::wire::{ToolboxCommandInfo, ToolboxCommandStarted, ToolboxFileInfo, ToolboxScriptResult};
use crate::exec::Command;

/// Limit for a script.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(60);

/// The toolbox of one sandbox.
#[derive(Clone, Debug)]
pub(super) struct Toolbox {
    pub(super) client: DaytonaClient,
    pub(super) url: String,
}

impl Toolbox {
    /// Runs a shell script to its end.
    pub(super) async fn script(
        &self,
        script: &str,
        args: &[&str],
    ) -> Result<ToolboxScriptResult, DaytonaError> {
        let command = Command::new("sh")
            .args(["-c", script, "sh"])
            .args(args.iter().copied());
        let body = json!({
            "command": command.to_string(),
            "cwd": "/",
            "timeout": SCRIPT_TIMEOUT.as_secs(),
        });
        self.call(&Method::POST, "process/execute")
            .with(|request| request.json(&body))
            .json(CallRetry::Unsafe)
            .await
    }

    /// Opens a session: a shell that runs commands one after the other.
    pub(super) async fn open_session(&self, session: &str) -> Result<(), DaytonaError> {
        self.call(&Method::POST, "process/session")
            .with(|request| request.json(&json!({ "sessionId": session })))
            .done(CallRetry::Unsafe)
            .await
    }

    /// Starts a command in a session; returns its id.
    pub(super) async fn start(&self, session: &str, line: String) -> Result<String, DaytonaError> {
        let body = json!({ "command": line, "runAsync": true });
        let path = format!("process/session/{session}/exec");
        let started: ToolboxCommandStarted = self
            .call(&Method::POST, &path)
            .with(|request| request.json(&body))
            .json(CallRetry::Unsafe)
            .await?;
        Ok(started.cmd_id)
    }

    /// Follows the output of a command, from its beginning to its end.
    pub(super) async fn logs(&self, session: &str, command: &str) -> Result<DaytonaSocket, DaytonaError> {
        let path = format!("process/session/{session}/command/{command}/logs");
        let call = self
            .call(&Method::GET, &path)
            .with(|request| request.query(&[("follow", "true")]));
        DaytonaSocket::open(call, path).await
    }

    /// The exit code of a command; `None` while it runs.
    pub(super) async fn exit_code(&self, session: &str, command: &str) -> Result<Option<i32>, DaytonaError> {
        let path = format!("process/session/{session}/command/{command}");
        let command: ToolboxCommandInfo = self.call(&Method::GET, &path).json(CallRetry::Safe).await?;
        Ok(command.exit_code)
    }

    /// Ends a session and everything it started. It is fine if it does not exist.
    pub(super) async fn end_session(&self, session: &str) -> Result<(), DaytonaError> {
        let path = format!("process/session/{session}");
        self.call(&Method::DELETE, &path).done_or_not_found().await
    }

    /// Opens a terminal with a shell in it.
    pub(super) async fn open_terminal(&self, id: &str) -> Result<DaytonaSocket, DaytonaError> {
        let new = json!({ "id": id, "cwd": "/", "cols": 80, "rows": 24 });
        self.call(&Method::POST, "process/pty")
            .with(|request| request.json(&new))
            .done(CallRetry::Unsafe)
            .await?;
        let path = format!("process/pty/{id}/connect");
        DaytonaSocket::open(self.call(&Method::GET, &path), path).await
    }

    /// Ends a terminal and everything in it. It is fine if it does not exist.
    pub(super) async fn end_terminal(&self, id: &str) -> Result<(), DaytonaError> {
        let path = format!("process/pty/{id}");
        self.call(&Method::DELETE, &path).done_or_not_found().await
    }

    /// Writes a file.
    pub(super) async fn put(&self, path: &Path, bytes: Part) -> Result<(), DaytonaError> {
        let form = Form::new()
            .text("files[0].path", path.to_string_lossy().into_owned())
            .part("files[0].file", bytes.file_name("file"));
        self.call(&Method::POST, "files/bulk-upload")
            .with(|request| request.multipart(form))
            .done(CallRetry::Unsafe)
            .await
    }

    /// Downloads a file.
    pub(super) async fn get(&self, path: &Path) -> Result<Response, DaytonaError> {
        let path = path.to_string_lossy();
        self.call(&Method::GET, "files/download")
            .with(|request| request.query(&[("path", path)]))
            .send(CallRetry::Safe)
            .await
    }

    /// The entries of a directory.
    pub(super) async fn list(&self, path: &Path) -> Result<Vec<ToolboxFileInfo>, DaytonaError> {
        let path = path.to_string_lossy();
        self.call(&Method::GET, "files")
            .with(|request| request.query(&[("path", path)]))
            .json(CallRetry::Safe)
            .await
    }

    fn call(&self, method: &Method, path: &str) -> DaytonaCall {
        self.client.request(method, &format!("{}/{path}", self.url))
    }
}
