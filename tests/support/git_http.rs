//! Git repositories behind HTTP, by git's own `http-backend`.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use axum::body::Body;
use axum::http::request::Parts;
use axum::response::Response;
use tokio::io::AsyncWriteExt;

/// Makes a bare repository with one commit on `main`, that can be pushed to.
pub fn make_repository(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    git(dir, &["init", "--quiet", "--bare", "--initial-branch=main"], "");
    git(dir, &["config", "http.receivepack", "true"], "");
    let file = git(dir, &["hash-object", "-w", "--stdin"], "A widget\n");
    let tree = git(dir, &["mktree"], &format!("100644 blob {file}\tREADME.md\n"));
    let commit = git(dir, &["commit-tree", "-m", "Begin", &tree], "");
    git(dir, &["update-ref", "refs/heads/main", &commit], "");
}

/// Runs git in a directory and returns what it printed, without the last line end. It must succeed.
pub fn git(dir: &Path, args: &[&str], input: &str) -> String {
    try_git(dir, args, input).unwrap_or_else(|error| panic!("git {args:?}: {error}"))
}

/// Like [`git`]; the error is what git printed.
pub fn try_git(dir: &Path, args: &[&str], input: &str) -> Result<String, String> {
    git_as("acme", dir, args, input)
}

/// Like [`try_git`]; commits are those of this person.
pub fn git_as(person: &str, dir: &Path, args: &[&str], input: &str) -> Result<String, String> {
    let email = format!("{person}@localhost");
    let names = ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name, person));
    let emails = ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| (name, email.as_str()));
    git_with(&[names, emails].concat(), dir, args, input)
}

/// Like [`try_git`], with variables.
pub fn git_with(
    variables: &[(&str, &str)],
    dir: &Path,
    args: &[&str],
    input: &str,
) -> Result<String, String> {
    let mut child = std::process::Command::new("git")
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended before it read everything.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

/// The text of a header; empty when it is not there.
pub fn header<'a>(head: &'a Parts, name: &str) -> &'a str {
    let value = head.headers.get(name);
    value.and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// A request to `git http-backend`.
pub struct GitRequest<'a> {
    /// The directory that has the repositories.
    pub root: &'a Path,
    /// The path below that directory.
    pub path: &'a str,
    /// The person who asks; hooks see them too.
    pub user: &'a str,
    /// Variables for hooks.
    pub variables: Vec<(&'a str, String)>,
}

impl GitRequest<'_> {
    /// Answers as a web server does that has git's own program behind it.
    pub async fn answer(&self, head: &Parts, body: &[u8]) -> Response {
        let mut child = tokio::process::Command::new("git")
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("REQUEST_METHOD", head.method.as_str())
            .env("PATH_INFO", self.path)
            .env("QUERY_STRING", head.uri.query().unwrap_or_default())
            .env("CONTENT_TYPE", header(head, "content-type"))
            .env("CONTENT_LENGTH", body.len().to_string())
            .env("HTTP_CONTENT_ENCODING", header(head, "content-encoding"))
            .env("GIT_PROTOCOL", header(head, "git-protocol"))
            .env("REMOTE_USER", self.user)
            .env("REMOTE_ADDR", "127.0.0.1")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let writing = async {
            // It may have read enough.
            let _ = input.write_all(body).await;
            drop(input);
        };
        let (output, ()) = tokio::join!(child.wait_with_output(), writing);
        cgi_response(&output.unwrap().stdout)
    }
}

fn cgi_response(output: &[u8]) -> Response {
    let end = output.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
    let head = std::str::from_utf8(&output[..end]).unwrap();
    let mut response = Response::builder();
    for line in head.lines() {
        let (name, value) = line.split_once(": ").unwrap();
        response = match name {
            "Status" => response.status(value[..3].parse::<u16>().unwrap()),
            _ => response.header(name, value),
        };
    }
    response.body(Body::from(output[end + 4..].to_vec())).unwrap()
}
