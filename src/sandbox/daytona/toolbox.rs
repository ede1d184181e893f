//! The toolbox: what Daytona runs inside each sandbox to take commands and files.

use std::path::Path;
use std::time::Duration;

use reqwest::multipart::{Form, Part};
use reqwest::{Method, Response};
use serde_json::json;

use super::DaytonaError;
use super::client::{Call, Http, Repeat};
use super::socket::Socket;
use super::wire::{Execute, Executed, FileInfo, NewTerminal, SessionCommand, SessionExecute, SessionStarted};
use crate::exec::Command;

/// How long a script of ours may take.
const SCRIPT_PATIENCE: Duration = Duration::from_secs(60);

/// How big the terminal is that nobody looks at.
const TERMINAL: (u16, u16) = (80, 24);

/// The toolbox of one sandbox.
#[derive(Clone, Debug)]
pub(super) struct Toolbox {
    pub(super) http: Http,
    pub(super) url: String,
}

impl Toolbox {
    /// Runs a shell script of ours to its end.
    pub(super) async fn script(&self, script: &str, args: &[&str]) -> Result<Executed, DaytonaError> {
        let command = Command::new("sh")
            .args(["-c", script, "sh"])
            .args(args.iter().copied());
        let execute = Execute {
            command: command.to_string(),
            cwd: "/".to_owned(),
            timeout: SCRIPT_PATIENCE.as_secs(),
        };
        self.call(&Method::POST, "process/execute")
            .with(|request| request.json(&execute))
            .json(Repeat::Harmful)
            .await
    }

    /// Opens a session: a shell that runs one command after the other.
    pub(super) async fn open_session(&self, session: &str) -> Result<(), DaytonaError> {
        self.call(&Method::POST, "process/session")
            .with(|request| request.json(&json!({ "sessionId": session })))
            .done(Repeat::Harmful)
            .await
    }

    /// Starts a command in a session; returns its id.
    pub(super) async fn start(&self, session: &str, line: String) -> Result<String, DaytonaError> {
        let execute = SessionExecute {
            command: line,
            run_async: true,
        };
        let path = format!("process/session/{session}/exec");
        let started: SessionStarted = self
            .call(&Method::POST, &path)
            .with(|request| request.json(&execute))
            .json(Repeat::Harmful)
            .await?;
        Ok(started.cmd_id)
    }

    /// What a command of a session prints, from its beginning to its end.
    pub(super) async fn logs(&self, session: &str, command: &str) -> Result<Socket, DaytonaError> {
        let path = format!("process/session/{session}/command/{command}/logs");
        let call = self
            .call(&Method::GET, &path)
            .with(|request| request.query(&[("follow", "true")]));
        Socket::open(call, path).await
    }

    /// With which code a command of a session ended; `None` while it runs.
    pub(super) async fn exit_code(&self, session: &str, command: &str) -> Result<Option<i32>, DaytonaError> {
        let path = format!("process/session/{session}/command/{command}");
        let command: SessionCommand = self.call(&Method::GET, &path).json(Repeat::Harmless).await?;
        Ok(command.exit_code)
    }

    /// Ends a session and everything it started; one that is gone is fine.
    pub(super) async fn end_session(&self, session: &str) -> Result<(), DaytonaError> {
        self.delete(&format!("process/session/{session}")).await
    }

    /// Opens a terminal with a shell in it.
    pub(super) async fn open_terminal(&self, id: &str) -> Result<Socket, DaytonaError> {
        let new = NewTerminal {
            id: id.to_owned(),
            cwd: "/".to_owned(),
            cols: TERMINAL.0,
            rows: TERMINAL.1,
        };
        self.call(&Method::POST, "process/pty")
            .with(|request| request.json(&new))
            .done(Repeat::Harmful)
            .await?;
        let path = format!("process/pty/{id}/connect");
        Socket::open(self.call(&Method::GET, &path), path).await
    }

    /// Ends a terminal and everything in it; one that is gone is fine.
    pub(super) async fn end_terminal(&self, id: &str) -> Result<(), DaytonaError> {
        self.delete(&format!("process/pty/{id}")).await
    }

    /// Puts bytes into a file.
    pub(super) async fn put(&self, path: &Path, bytes: Part) -> Result<(), DaytonaError> {
        let form = Form::new()
            .text("files[0].path", path.to_string_lossy().into_owned())
            .part("files[0].file", bytes.file_name("file"));
        self.call(&Method::POST, "files/bulk-upload")
            .with(|request| request.multipart(form))
            .done(Repeat::Harmful)
            .await
    }

    /// The bytes of a file, as they come.
    pub(super) async fn get(&self, path: &Path) -> Result<Response, DaytonaError> {
        let path = path.to_string_lossy();
        self.call(&Method::GET, "files/download")
            .with(|request| request.query(&[("path", path)]))
            .send(Repeat::Harmless)
            .await
    }

    /// The entries of a directory.
    pub(super) async fn list(&self, path: &Path) -> Result<Vec<FileInfo>, DaytonaError> {
        let path = path.to_string_lossy();
        self.call(&Method::GET, "files")
            .with(|request| request.query(&[("path", path)]))
            .json(Repeat::Harmless)
            .await
    }

    async fn delete(&self, path: &str) -> Result<(), DaytonaError> {
        match self.call(&Method::DELETE, path).done(Repeat::Harmless).await {
            Err(error) if error.is_not_found() => Ok(()),
            done => done,
        }
    }

    fn call(&self, method: &Method, path: &str) -> Call {
        self.http.request(method, &format!("{}/{path}", self.url))
    }
}
