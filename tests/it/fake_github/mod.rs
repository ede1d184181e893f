//! The fake GitHub of the tests: it answers as GitHub's document says, and refuses what GitHub refuses.

mod apps;
mod faults;
mod git;
mod main_paths;
mod people;
mod refusals;

use std::process::Command;

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::fake_github::{FakeGitHub, Role};

const TOKEN: &str = "github_pat_WRITER";
const ALL: [&str; 7] = [
    "contents:write",
    "pull_requests:write",
    "issues:write",
    "workflows:write",
    "statuses:write",
    "checks:read",
    "actions:read",
];

/// A GitHub with the repository `acme/widget`, and a client of the user `bot` that may write there.
struct Desk {
    github: FakeGitHub,
    client: reqwest::Client,
    token: String,
    dir: TempDir,
}

struct Got {
    status: u16,
    headers: reqwest::header::HeaderMap,
    body: Value,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The message, and those of all errors in it.
    fn said(&self) -> String {
        let errors = self.body["errors"].as_array().into_iter().flatten();
        let errors = errors.map(|error| format!("{}:{}", error["field"], error["message"]));
        format!(
            "{} {} {}",
            self.status,
            self.body["message"],
            errors.collect::<String>()
        )
    }
}

impl Desk {
    fn new() -> Self {
        Self::with(FakeGitHub::start())
    }

    /// With Prism in between. The error says why there is none.
    fn validated() -> Result<Self, String> {
        FakeGitHub::start_validated().map(Self::with)
    }

    fn with(github: FakeGitHub) -> Self {
        github.add_repo("acme/widget");
        github.add_collaborator("acme/widget", "bot", Role::Write);
        github.add_pat(TOKEN, "bot", &ALL);
        let client = reqwest::Client::builder()
            .no_proxy()
            .user_agent("ralph-tests")
            .redirect(reqwest::redirect::Policy::none());
        Self {
            github,
            client: client.build().unwrap(),
            token: TOKEN.to_owned(),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// The same place for another token.
    fn with_token(mut self, token: &str) -> Self {
        token.clone_into(&mut self.token);
        self
    }

    fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let path = path.replace("WIDGET", "/repos/acme/widget");
        let request = self
            .client
            .request(method, format!("{}{path}", self.github.url()));
        match self.token.as_str() {
            "" => request,
            token => request.bearer_auth(token),
        }
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> Got {
        let request = self.request(method, path);
        let request = if body.is_null() {
            request
        } else {
            request.json(&body)
        };
        got(request).await
    }

    async fn get(&self, path: &str) -> Got {
        self.send("GET", path, Value::Null).await
    }

    /// The body of a `GET`, which must succeed.
    async fn read(&self, path: &str) -> Value {
        self.expect(200, "GET", path, Value::Null).await
    }

    /// A call that must have this status; returns its body.
    async fn expect(&self, status: u16, method: &str, path: &str, body: Value) -> Value {
        let got = self.send(method, path, body).await;
        assert_eq!(got.status, status, "{method} {path}: {}", got.body);
        got.body
    }

    /// Opens a pull request from a branch that a person made. Returns its number.
    async fn open_pull(&self, branch: &str) -> u64 {
        self.github
            .push_as("bot", "acme/widget", branch, "new.txt", branch);
        let body = json!({ "title": "New", "head": branch, "base": "main", "body": "Text", "draft": true });
        let pull = self.expect(201, "POST", "WIDGET/pulls", body).await;
        pull["number"].as_u64().unwrap()
    }

    /// Runs git with the token; whether it succeeded, and what it printed.
    fn git(&self, args: &[&str]) -> (bool, String) {
        use base64::Engine;
        let pair = format!("x-access-token:{}", self.token);
        let pair = base64::prelude::BASE64_STANDARD.encode(pair);
        let output = Command::new("git")
            .args(args)
            .current_dir(self.dir.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_CONFIG_COUNT", "3")
            .env(
                "GIT_CONFIG_KEY_0",
                format!("http.{}/.extraHeader", self.github.url()),
            )
            .env("GIT_CONFIG_VALUE_0", format!("Authorization: Basic {pair}"))
            .env("GIT_CONFIG_KEY_1", "user.name")
            .env("GIT_CONFIG_VALUE_1", "bot")
            .env("GIT_CONFIG_KEY_2", "user.email")
            .env("GIT_CONFIG_VALUE_2", "bot@localhost")
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    /// Clones the repository, commits a file on a new branch, and returns the arguments with which git pushes it.
    fn clone_and_commit(&self, branch: &str, path: &str) {
        let url = self.github.git_url("acme/widget");
        if !self.dir.path().join(".git").exists() {
            let (cloned, said) = self.git(&["clone", "--quiet", &url, "."]);
            assert!(cloned, "{said}");
        }
        assert!(self.git(&["checkout", "--quiet", "-B", branch]).0);
        let file = self.dir.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, branch).unwrap();
        assert!(self.git(&["add", "."]).0);
        assert!(self.git(&["commit", "--quiet", "-m", "Change"]).0);
    }
}

async fn got(request: reqwest::RequestBuilder) -> Got {
    let answer = request.send().await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let text = answer.text().await.unwrap();
    Got {
        status,
        headers,
        body: serde_json::from_str(&text).unwrap_or(Value::String(text)),
    }
}
