//! Traps that need more than one part: pauses, clocks, process lists, labels, and what ralph never does.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use ralph::clock::Clock;
use ralph::evidence::NOTES_REF;
use ralph::github::{GitHubApp, GitHubClient, GitHubCredential, GitHubForge, GitHubPace};
use ralph::id::RepositoryName;
use ralph::scm::{Forge, PullRequest};
use ralph::secret::{Redactor, Secret};
use serde_json::json;

use crate::desk::{BRANCH, Desk, PERMISSIONS, REPO, TOKEN, basic, merges, quick};
use crate::need;
use crate::runs::Site;
use crate::support::fake_github::{FakeGitHub, Fault, LimitSettings, Role};
use crate::support::ralph::{Live, commit, doing, finish, script, whole_task, write};

/// Every trap has a row in the table of `main.rs`, and every test that a row names exists.
#[test]
fn every_trap_has_its_tests() {
    let rows: Vec<&str> = include_str!("main.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//! | "))
        .filter(|row| row.starts_with(|first: char| first.is_ascii_digit()))
        .collect();
    let numbers: Vec<usize> = rows
        .iter()
        .map(|row| row.split('.').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(numbers, (1..=15).collect::<Vec<_>>());
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/github");
    for row in rows {
        let names: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{row}");
        for name in names {
            let (module, test) = name.split_once("::").unwrap();
            let source = std::fs::read_to_string(dir.join(format!("{module}.rs"))).unwrap();
            let (before, _) = source
                .split_once(&format!("fn {test}("))
                .unwrap_or_else(|| panic!("there is no {name}"));
            let attributes = before.rsplit("\n\n").next().unwrap();
            assert!(
                ["#[test]", "#[tokio::test", "#[rstest]"]
                    .iter()
                    .any(|kind| attributes.contains(kind)),
                "{name} is no test"
            );
        }
    }
}

/// Trap 4: while the account must wait, neither the API nor git is called, whichever part of ralph wants to.
#[tokio::test(flavor = "multi_thread")]
async fn no_call_is_made_during_a_pause() {
    let desk = Desk::new().await;
    let limits = |writes_a_minute| LimitSettings {
        writes_a_minute,
        minute: Duration::from_secs(2),
        ..LimitSettings::default()
    };
    // The push and the creation pass, the labels do not.
    desk.github.set_limits(limits(2));
    let pace = GitHubPace {
        secondary_pause: Duration::from_millis(2200),
        ..quick()
    };
    let forge = desk.forge_with(GitHubCredential::Token(Secret::new(TOKEN)), pace);
    let request = desk.request(0);
    let other = PullRequest {
        branch: "ralph/t2/other".to_owned(),
        commit: desk.commits[1].clone(),
        ..desk.request(1)
    };
    let meanwhile = async {
        let is_limited = || desk.github.requests().iter().any(|request| request.status == 403);
        while !is_limited() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        desk.github.set_limits(limits(usize::MAX));
        tokio::time::sleep(Duration::from_millis(300)).await;
        let files = ["one".to_owned()];
        let (is_at, overlaps, opened) = tokio::join!(
            forge.is_at(BRANCH, &desk.commits[0]),
            forge.overlaps("other", "main", &files),
            forge.open(&other),
        );
        assert!(is_at.unwrap());
        overlaps.unwrap();
        opened.unwrap();
    };
    let (opened, ()) = tokio::join!(forge.open(&request), meanwhile);
    opened.unwrap();
    let requests = desk.github.requests();
    assert_eq!(requests.iter().filter(|request| request.status == 403).count(), 1);
    let early: Vec<String> = requests
        .iter()
        .filter(|request| request.while_limited)
        .map(|request| format!("{} {}", request.method, request.path))
        .collect();
    assert_eq!(early, Vec::<String>::new());
    assert_eq!(desk.github.pulls(REPO).len(), 2);
}

/// A clock that a test moves, in seconds.
#[derive(Clone, Default)]
struct MovingClock(Arc<AtomicI64>);

impl Clock for MovingClock {
    fn now(&self) -> Timestamp {
        Timestamp::now() + SignedDuration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

/// Trap 5: a run that takes longer than a token of an App lives goes on, with the API and with git.
#[tokio::test]
async fn a_run_outlives_the_tokens_of_an_app() {
    let desk = Desk::new().await;
    let key = desk.github.add_app("ralph-app", &PERMISSIONS, &[REPO]);
    let (id, installation) = (key.id.to_string(), key.installation.to_string());
    let app = GitHubApp::new(&id, &installation, &Secret::new(key.private_key.clone())).unwrap();
    let clock = MovingClock::default();
    let client = GitHubClient::new(
        desk.github.url(),
        GitHubCredential::App(Box::new(app)),
        Arc::new(clock.clone()),
        Redactor::default(),
        quick(),
    );
    let client = Arc::new(client.unwrap());
    let forge = GitHubForge::new(
        client.clone(),
        RepositoryName::parse(REPO).unwrap(),
        desk.github.url(),
        desk.repository.clone(),
        Redactor::default(),
    );
    let created = || desk.count("POST /app/installations/");
    let mut first = None;
    // 59 minutes and 30 seconds are within the margin; in two more hours the token has expired.
    for (index, seconds) in [0, 59 * 60 + 30, 3 * 3600].into_iter().enumerate() {
        clock.0.store(seconds, Ordering::SeqCst);
        desk.github.set_clock_offset(SignedDuration::from_secs(seconds));
        forge.open(&desk.request(index)).await.unwrap();
        assert!(forge.is_at(BRANCH, &desk.commits[index]).await.unwrap());
        assert_eq!(created(), index + 1);
        let token = client.token().await.unwrap();
        first.get_or_insert(token);
    }
    desk.expect_one_pull(2);
    // The fake does refuse the first one by now.
    let call = reqwest::Client::new()
        .get(format!("{}/repos/{REPO}", desk.github.url()))
        .bearer_auth(first.unwrap().expose());
    let answer = call.header("user-agent", "test").send().await.unwrap();
    assert_eq!(answer.status(), 401);
}

/// Trap 5: GitHub ends a token of an App before its time, for example because its permissions changed. A request with it was
/// not carried out, so it is repeated once with another one, with the API and with git. A token of a person has no other.
#[tokio::test]
async fn an_app_replaces_a_token_that_ended_early() {
    let desk = need!(Desk::validated().await);
    let app = desk.github.add_app("ralph-app", &PERMISSIONS, &[REPO]);
    let forge = desk.app_forge(&app);
    let created = || desk.count("POST /app/installations/");
    let creation = "/repos/acme/widget/pulls";
    desk.github.fail_next("POST", creation, Fault::Status(401));
    forge.open(&desk.request(0)).await.unwrap();
    assert_eq!((created(), desk.github.faults_left()), (2, 0));
    desk.expect_one_pull(0);
    // The API, a look by git, a push, and the push of a note.
    desk.github.expire_installation_tokens();
    forge.overlaps("other", "main", &[]).await.unwrap();
    desk.github.expire_installation_tokens();
    assert!(forge.is_at(BRANCH, &desk.commits[0]).await.unwrap());
    desk.github.expire_installation_tokens();
    forge.open(&desk.request(1)).await.unwrap();
    let at = jiff::Timestamp::UNIX_EPOCH;
    let added = desk
        .repository
        .add_note_line(NOTES_REF, &desk.commits[1], "a line", at);
    added.await.unwrap();
    desk.github.expire_installation_tokens();
    forge.share_note(NOTES_REF, &desk.commits[1]).await.unwrap();
    assert_eq!(created(), 6);
    desk.expect_one_pull(1);
    // A second refusal is one.
    for _ in 0..2 {
        desk.github.fail_next("GET", creation, Fault::Status(401));
    }
    forge.overlaps("other", "main", &[]).await.unwrap_err();
    assert_eq!((created(), desk.github.faults_left()), (7, 0));

    let by_token = Desk::new().await;
    by_token.github.fail_next("POST", creation, Fault::Status(401));
    let error = by_token.forge().open(&by_token.request(0)).await.unwrap_err();
    assert!(error.hint().unwrap().contains("GITHUB_PAT"), "{error:?}");
    assert_eq!(by_token.github.pulls(REPO).len(), 0);
}

/// Trap 5: the number of an installation changes when the App is installed again.
#[tokio::test]
async fn an_app_that_was_installed_again_needs_its_new_number() {
    let desk = Desk::new().await;
    let app = desk.github.add_app("ralph-app", &PERMISSIONS, &[REPO]);
    let forge = desk.app_forge(&app);
    forge.open(&desk.request(0)).await.unwrap();
    let installation = desk.github.reinstall(&app);
    let error = forge.open(&desk.request(1)).await.unwrap_err();
    let hint = error.hint().unwrap();
    assert!(hint.contains("GITHUB_APP_INSTALLATION_ID"), "{error:?} {hint}");
    let again = crate::support::fake_github::AppKey { installation, ..app };
    desk.app_forge(&again).open(&desk.request(1)).await.unwrap();
    desk.expect_one_pull(1);
}

/// What a look at all processes found.
#[derive(Default)]
struct Watched {
    leaks: BTreeSet<String>,
    saw_git: bool,
    saw_agent: bool,
}

impl Watched {
    /// Looks at the arguments of every process, and at the environment of all but ralph and git, which have the token there.
    fn look(&mut self, secrets: &[String], command_of_agent: &str) {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        for process in processes.map(|entry| entry.path()) {
            let exe = || std::fs::read_link(process.join("exe")).ok();
            let text = |name: &str| -> String {
                let bytes = std::fs::read(process.join(name)).unwrap_or_default();
                String::from_utf8_lossy(&bytes).replace('\0', " ")
            };
            let Some(before) = exe() else { continue };
            let (arguments, environment) = (text("cmdline"), text("environ"));
            // A process between fork and exec still has the environment of its parent.
            if exe().as_ref() != Some(&before) {
                continue;
            }
            let has_secret = |text: &str| secrets.iter().any(|secret| text.contains(secret));
            let name = before
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let is_git = name == "git" || name.starts_with("git-remote-http");
            self.saw_agent |= arguments.contains(command_of_agent);
            self.saw_git |= is_git && has_secret(&environment);
            if has_secret(&arguments) {
                self.leaks.insert(format!("arguments of {name}: {arguments}"));
            }
            if has_secret(&environment) && name != "ralph" && !is_git {
                self.leaks.insert(format!("environment of {name}: {arguments}"));
            }
        }
    }
}

/// Trap 6: during a whole run with pushes, no list of processes shows the token.
#[test]
fn no_token_is_in_a_process_list() {
    let mut site = Site::new(FakeGitHub::start());
    // A token of this test alone: others run beside it.
    let token = format!("github_pat_CANARY_{}_{}", std::process::id(), fastrand::u64(..));
    site.github.add_pat(&token, "ralph-bot", &PERMISSIONS);
    site.credential = vec![("GITHUB_PAT", token.clone())];
    site.set_task("pr:\n  when: first-push\n");
    let push = "/acme/widget.git/git-receive-pack";
    site.github
        .fail_next("POST", push, Fault::Slow(Duration::from_secs(1)));
    let half = doing([
        write("a.txt", "hello\n"),
        commit("Half of it"),
        json!({"type": "run", "command": "sleep 1.0625"}),
    ]);
    let secrets = [basic(&token), token];
    let mut watched = Watched::default();
    let mut live = Live::start(&mut site.scripted(&script([half, whole_task()])));
    while live.is_running() {
        watched.look(&secrets, "sleep 1.0625");
        std::thread::sleep(Duration::from_millis(5));
    }
    live.wait().expect(0, &["done: "]);
    assert!(watched.leaks.is_empty(), "{:#?}", watched.leaks);
    assert!(watched.saw_git && watched.saw_agent, "the test sees processes");
    site.expect_one_pull();
    site.expect_no_secret(&[&secrets[1]]);
}

/// Trap 6: nor do the pushes of claims.
#[test]
fn no_token_of_a_claim_is_in_a_process_list() {
    let mut site = crate::issues::queue_site(FakeGitHub::start());
    let token = format!("github_pat_CANARY_{}_{}", std::process::id(), fastrand::u64(..));
    site.github
        .add_pat(&token, "ralph-bot", &crate::issues::PERMISSIONS);
    site.credential = vec![("GITHUB_PAT", token.clone())];
    let issue = crate::issues::ready_issue(&site, "Say hello", crate::issues::SPEC);
    // The first push is that of the claim.
    let push = "/acme/widget.git/git-receive-pack";
    site.github
        .fail_next("POST", push, Fault::Slow(Duration::from_secs(5)));
    let secrets = [basic(&token), token];
    let mut watched = Watched::default();
    let answers = script([
        doing([json!({"type": "run", "command": "sleep 1.0625"})]),
        whole_task(),
    ]);
    let mut live = Live::start(site.scripted(&answers).args(["--issue", &issue.to_string()]));
    let mut saw_push = false;
    while live.is_running() {
        watched.look(&secrets, "sleep 1.0625");
        saw_push |= watched.saw_git && site.github.faults_left() == 0 && site.github.refs(REPO).len() == 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    live.wait().expect(0, &["done: "]);
    assert!(watched.leaks.is_empty(), "{:#?}", watched.leaks);
    assert!(saw_push && watched.saw_agent, "the test sees processes");
    site.expect_no_secret(&[&secrets[1]]);
}

/// Trap 12: labels have one spelling, and no list of them is replaced: that would remove those of people.
#[tokio::test]
async fn labels_are_changed_one_by_one() {
    let desk = Desk::new().await;
    let first = PullRequest {
        labels: Vec::new(),
        ..desk.request(0)
    };
    desk.forge().open(&first).await.unwrap();
    for label in ["Ralph", "urgent"] {
        desk.github.label_as("ada", REPO, 1, label);
    }
    let labels = ["ralph", "review"].map(str::to_owned).to_vec();
    let second = PullRequest {
        labels,
        ..desk.request(1)
    };
    desk.forge().open(&second).await.unwrap();
    assert_eq!(desk.github.labels(REPO, 1), ["Ralph", "urgent", "review"]);
    assert_eq!(desk.count("PUT "), 0);
}

/// Trap 12: GitHub shows pull requests as issues too.
#[test]
fn a_pull_request_is_no_issue() {
    let site = Site::new(FakeGitHub::start());
    let permissions = [&PERMISSIONS[..], &["issues:write"]].concat();
    site.github.add_pat(TOKEN, "ralph-bot", &permissions);
    site.github.add_collaborator(REPO, "ada", Role::Write);
    site.run(&script([whole_task()])).expect(0, &["done: "]);
    for label in ["spec", "status:ready"] {
        site.github.label_as("ada", REPO, 1, label);
    }
    site.configure("[task]\ntest_command = \"true\"\nverify_commands = [\"true\"]\n");
    finish(site.scripted(&script([whole_task()])).args(["--issue", "1"]))
        .expect(2, &["#1 is a pull request"]);
}

/// Trap 15: no part of ralph knows a request that merges, queues or arms a merge, and the guide says so.
#[test]
fn no_code_can_merge() {
    let guide = include_str!("../../docs/guide/github.md");
    assert!(guide.contains("ralph never merges: merge queues and auto-merge are yours"));
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/github");
    for file in std::fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        let source = std::fs::read_to_string(&path).unwrap().to_lowercase();
        for request in [
            "/merge\"",
            "/merge/",
            "/merges",
            "automerge",
            "auto-merge",
            "enqueue",
            "mergepullrequest",
        ] {
            assert!(!source.contains(request), "{request} in {}", path.display());
        }
    }
}

/// Trap 15: over a whole run, from the draft to the end, ralph merges nothing, queues nothing and deletes no branch.
#[tokio::test]
async fn ralph_never_merges() {
    let site = Site::new(FakeGitHub::start());
    site.set_task("pr:\n  when: first-push\n  labels: [ralph]\n");
    let half = doing([write("a.txt", "hello\n"), commit("Half of it")]);
    let pause = doing([json!({"type": "pause", "reason": "look"})]);
    site.run(&script([half, pause, whole_task()]))
        .expect(3, &["paused"]);
    site.ralph(&["resume"]).expect(0, &["done: "]);
    site.expect_one_pull();
    let pull = site.github.pulls(REPO).remove(0);
    assert!(pull.open && !pull.merged && !pull.draft);
    assert_eq!(merges(&site.github), Vec::<String>::new());
    // Such requests would be seen.
    let client = reqwest::Client::new();
    let url = site.github.url();
    let armed = json!({"query": "mutation { enablePullRequestAutoMerge(input: {}) { clientMutationId } }"});
    for call in [
        client.put(format!("{url}/repos/{REPO}/pulls/1/merge")),
        client.post(format!("{url}/graphql")).json(&armed),
        client.delete(format!("{url}/repos/{REPO}/git/refs/heads%2Fmain")),
    ] {
        let call = call.bearer_auth(TOKEN).header("user-agent", "ada");
        call.send().await.unwrap();
    }
    assert_eq!(merges(&site.github).len(), 3);
}
