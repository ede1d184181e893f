//! `ralph serve --poll`: issues are worked on beside the queue, and one of the two may fail.

use serde_json::Value;

use crate::desk::{REPO, TOKEN};
use crate::issues::{COMMANDS, PERMISSIONS, publish, queue_site, ready_issue};
use crate::poll::{expect_no_claims, spec};
use crate::runs::Site;
use crate::support::chat_server::{Answer, ChatServer};
use crate::support::fake_github::FakeGitHub;
use crate::support::ralph::{Live, TASK, commit, ending, eventually, script, whole_task, write};

/// A site whose runs are limited by tokens: the price of the model is unknown.
fn site() -> Site {
    let site = queue_site(FakeGitHub::start());
    let sections = format!("{COMMANDS}[budget]\nmax_tokens_total = 1000000\n");
    publish(&site, "", &sections);
    site
}

/// `ralph serve --poll` that asks this model about issues.
fn serve(site: &Site, model: &ChatServer) -> Live {
    let endpoint = format!("model_endpoint.base_url={}", model.base_url());
    let args = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--poll",
        "--set",
        "service.poll_seconds=1",
        "--set",
        &endpoint,
    ];
    Live::start(&mut site.with_credential(site.place.ralph(&args)))
}

async fn greeter() -> ChatServer {
    let all = ending([
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        commit("Say hello"),
    ]);
    ChatServer::serve(None, move |_| Answer::text(&all.to_string())).await
}

fn submit(site: &Site, model: &Value) -> String {
    let file = site.place.path().join("queued.json");
    std::fs::write(&file, model.to_string()).unwrap();
    let task = site.place.path().join("repo/queued.md");
    std::fs::write(&task, TASK).unwrap();
    let submitted = site.ralph(&["submit", "queued.md", "--script", file.to_str().unwrap()]);
    assert_eq!(submitted.code, Some(0), "{submitted:?}");
    submitted.stdout.trim().to_owned()
}

fn state(site: &Site, run: &str) -> Value {
    let shown = site.ralph(&["status", run, "--json"]);
    let rows: Value = serde_json::from_str(&shown.stdout).unwrap();
    rows[0]["state"].clone()
}

/// Whether an issue is shown as done. While the label changes there are two.
fn is_done(site: &Site, issue: u64) -> bool {
    site.github.labels(REPO, issue) == ["Spec", "good first issue", "status:done"]
}

#[tokio::test(flavor = "multi_thread")]
async fn issues_and_queued_runs_are_worked_on_by_one_process() {
    let (site, model) = (site(), greeter().await);
    let issue = ready_issue(&site, "First", &spec("first", &[]));
    let service = serve(&site, &model);
    eventually("the issue is done", || is_done(&site, issue));
    let run = submit(&site, &script([whole_task()]));
    eventually("the queued run is done", || state(&site, &run) == "done");
    service.signal("TERM");
    service.wait().expect(0, &["issue #1 is claimed"]);
    assert_eq!(site.github.pulls(REPO).len(), 2);
    expect_no_claims(&site);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poller_that_fails_does_not_end_the_rest_and_comes_back() {
    let (site, model) = (site(), greeter().await);
    site.github.revoke(TOKEN);
    let issue = ready_issue(&site, "First", &spec("first", &[]));
    let before = site.github.requests().len();
    let service = serve(&site, &model);
    eventually("the poller asked GitHub", || {
        site.github.requests().len() > before
    });
    // The queued run needs no GitHub.
    let config = std::fs::read_to_string(site.place.repo().join("ralph.toml")).unwrap();
    site.place.write("ralph.toml", LOCAL_FORGE);
    let run = submit(&site, &script([whole_task()]));
    eventually("the queued run is done", || state(&site, &run) == "done");
    site.place.write("ralph.toml", &config);
    site.github.add_pat(TOKEN, "ralph-bot", &PERMISSIONS);
    eventually("the issue is done", || is_done(&site, issue));
    service.signal("TERM");
    service
        .wait()
        .expect(0, &["the poller stopped and starts again in 10 s"]);
}

/// The configuration of a project whose pull requests are files.
const LOCAL_FORGE: &str =
    "[agent]\nname = \"actions\"\n[sandbox]\ntype = \"local\"\n[sandbox.network]\npolicy = \"allow-all\"\n";
