//! The toolbox: Daytona's service inside each sandbox, for commands and files.

use std::time::Duration;

use reqwest::Method;
use reqwest::multipart::{Form, Part};
use serde_json::json;

use super::client::DaytonaClient;
use super::error::DaytonaError;
use super::wire::ToolboxScriptResult;
use crate::exec::Command;

/// Limit for a script.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a shell script to its end.
pub(super) async fn run_script(
    toolbox: &DaytonaClient,
    script: &str,
    args: &[&str],
) -> Result<ToolboxScriptResult, DaytonaError> {
    let command = Command::new("sh").args(["-c", script, "sh"]);
    let body = json!({
        "command": command.args(args.iter().copied()).to_string(),
        "cwd": "/",
        "timeout": SCRIPT_TIMEOUT.as_secs(),
    });
    toolbox.post("process/execute", body).json().await
}

/// Writes a file.
pub(super) async fn put_file(toolbox: &DaytonaClient, path: &str, bytes: Part) -> Result<(), DaytonaError> {
    let form = Form::new()
        .text("files[0].path", path.to_owned())
        .part("files[0].file", bytes.file_name("file"));
    let call = toolbox.call(Method::POST, "files/bulk-upload");
    call.with(|request| request.multipart(form)).done().await
}
