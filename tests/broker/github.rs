//! One repository on GitHub, reached by the real git with a phantom.

use std::process::Command;

use ralph::gateway::broker::{BrokerService, GitHubAccess, GitHubSetup, GitHubUpstream};
use ralph::gateway::meter::Allowance;
use ralph::id::RepositoryName;
use ralph::secret::Secret;
use rstest::rstest;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::github::{GitHubServer, TOKEN};
use crate::support::ralph::{Ended, finish};
use crate::world::World;

/// A door to `acme/widget`, and a directory to work in.
struct Desk {
    server: GitHubServer,
    world: World,
    dir: TempDir,
}

impl Desk {
    async fn new(access: GitHubAccess, token: &str) -> Self {
        let server = GitHubServer::start().await;
        let github = GitHubUpstream::new(GitHubSetup {
            repository: RepositoryName::parse("acme/widget").unwrap(),
            token: Secret::new(token),
            url: server.url.clone(),
            api_url: server.url.clone(),
            access,
        });
        Self {
            world: World::of(BrokerService::Repository(github.unwrap()), Allowance::default()).await,
            server,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// Runs git with the phantom, telling everything it sends and gets.
    fn git(&self, args: &str) -> Ended {
        self.git_with(self.world.phantom.expose(), args)
    }

    fn git_with(&self, shown: &str, args: &str) -> Ended {
        let args = args.replace("DOOR", &format!("http://{}", self.world.address));
        let ended = finish(
            Command::new("git")
                .args(["-c", "user.name=user", "-c", "user.email=user@localhost"])
                .args(["-c", &format!("http.extraHeader=Authorization: Bearer {shown}")])
                .args(args.split(' '))
                .current_dir(self.dir.path())
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .env("GIT_CONFIG_NOSYSTEM", "1")
                .env("GIT_TERMINAL_PROMPT", "0")
                .env("GIT_TRACE_CURL", "1")
                .env("GIT_TRACE_REDACT", "0"),
        );
        assert!(!format!("{ended:?}").contains(TOKEN), "{ended:?}");
        ended
    }

    fn api(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let url = format!("http://{}{path}", self.world.address);
        let request = self.world.http.request(method, url);
        request.bearer_auth(self.world.phantom.expose())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_repository_can_be_cloned_and_fetched() {
    let desk = Desk::new(GitHubAccess::Read, TOKEN).await;
    desk.git("clone --quiet DOOR/acme/widget.git here").expect(0, &[]);
    let readme = std::fs::read_to_string(desk.dir.path().join("here/README.md")).unwrap();
    assert_eq!(readme, "A widget\n");
    desk.git("-C here fetch --quiet origin main").expect(0, &[]);
    let asked = desk.server.requests();
    assert!(
        asked.contains(&"POST /acme/widget.git/git-upload-pack".to_owned()),
        "{asked:?}"
    );
}

#[rstest]
#[case::pushing(
    "-C here push --quiet origin HEAD:refs/heads/more",
    "acme/widget is read-only"
)]
#[case::another_repository("ls-remote DOOR/acme/secret.git", "the credential is only for acme/widget")]
#[case::large_files("ls-remote DOOR/acme/widget.git/info/lfs", "no credential is added to GET")]
#[tokio::test(flavor = "multi_thread")]
async fn everything_else_is_refused_with_the_reason(#[case] args: &str, #[case] reason: &str) {
    let desk = Desk::new(GitHubAccess::Read, TOKEN).await;
    desk.git("clone --quiet DOOR/acme/widget.git here").expect(0, &[]);
    let before = desk.server.requests();
    desk.git(args)
        .expect(128, &[&format!("remote: ralph: github.ralph.internal: {reason}")]);
    assert_eq!(desk.server.requests(), before);
}

#[rstest]
#[case::another_runs_phantom("ralph-phantom-of-another-run")]
#[case::own_key("github_pat_own_0123456789")]
#[tokio::test(flavor = "multi_thread")]
async fn only_the_phantom_of_the_run_is_served(#[case] shown: &str) {
    let desk = Desk::new(GitHubAccess::Read, TOKEN).await;
    let refused = desk.git_with(shown, "ls-remote DOOR/acme/widget.git");
    refused.expect(128, &["not the phantom of this run"]);
    assert!(desk.server.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_is_reported_with_a_remedy() {
    let desk = Desk::new(GitHubAccess::Read, "github_pat_expired_0123456789").await;
    let refused = desk.git("ls-remote DOOR/acme/widget.git");
    refused.expect(128, &["remote: ralph: ", "put a valid one into `GITHUB_PAT`"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pushing_is_a_choice_of_the_owner() {
    let desk = Desk::new(GitHubAccess::Push, TOKEN).await;
    desk.git("clone --quiet DOOR/acme/widget.git here").expect(0, &[]);
    desk.git("-C here push --quiet origin HEAD:refs/heads/more")
        .expect(0, &[]);
    assert_eq!(desk.server.branches(), "* main\n  more");
}

#[rstest]
#[case::itself("GET", "/repos/acme/widget", 200)]
#[case::not_there("GET", "/repos/acme/widget/pulls/7", 404)]
#[case::writing("POST", "/repos/acme/widget/issues", 403)]
#[case::another_repository("GET", "/repos/acme/secret", 403)]
#[case::the_account("GET", "/user", 403)]
#[tokio::test(flavor = "multi_thread")]
async fn the_api_serves_this_repository_only(#[case] method: &str, #[case] path: &str, #[case] status: u16) {
    let desk = Desk::new(GitHubAccess::Read, TOKEN).await;
    let answer = desk.api(method.parse().unwrap(), path).send().await.unwrap();
    assert_eq!(answer.status(), status);
    assert_eq!(desk.server.requests().is_empty(), status == 403);
    if status == 200 {
        assert_eq!(answer.json::<Value>().await.unwrap()["full_name"], "acme/widget");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_reading_stays_one() {
    let desk = Desk::new(GitHubAccess::Read, TOKEN).await;
    let call = desk.api(reqwest::Method::GET, "/repos/acme/widget");
    call.header("x-http-method-override", "DELETE")
        .send()
        .await
        .unwrap();
    assert_eq!(desk.server.requests(), ["GET /repos/acme/widget"]);
}
