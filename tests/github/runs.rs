//! Whole runs with the real program: from the task to the pull request, with a token and with an App, and through kills.

use std::process::Command;

use rstest::rstest;
use serde_json::{Value, json};

use crate::need;
use crate::support::fake_github::{AppKey, FakeGitHub, Role};
use crate::support::ralph::{
    Ended, Live, Place, TASK, commit, doing, ending, eventually, finish, script, whole_task, write,
};

use crate::desk::{PERMISSIONS, REPO, TOKEN};
use crate::support::sshd::Sshd;

pub struct Site {
    pub github: FakeGitHub,
    pub place: Place,
    pub credential: Vec<(&'static str, String)>,
}

impl Site {
    /// A project whose remote `origin` is on the fake, and a configuration with the forge `github`.
    pub fn new(github: FakeGitHub) -> Self {
        github.add_repo(REPO);
        github.add_collaborator(REPO, "ralph-bot", Role::Write);
        github.add_pat(TOKEN, "ralph-bot", &PERMISSIONS);
        let place = Place::new();
        let dir = github.git(REPO, &["rev-parse", "--absolute-git-dir"]);
        place.git(&["push", "--quiet", "--force", dir.trim(), "main"]);
        place.git(&["remote", "add", "origin", &github.git_url(REPO)]);
        let site = Self {
            github,
            place,
            credential: vec![("GITHUB_PAT", TOKEN.to_owned())],
        };
        site.configure("");
        site
    }

    /// Adds sections to the configuration.
    pub fn configure(&self, more: &str) {
        self.write_configuration("", more);
    }

    /// Adds keys to `[forge]`.
    fn configure_forge(&self, keys: &str) {
        self.write_configuration(keys, "");
    }

    pub fn write_configuration(&self, forge: &str, more: &str) {
        let url = self.github.url();
        let text = format!(
            "[agent]\nname = \"actions\"\n[sandbox]\ntype = \"local\"\n[sandbox.network]\npolicy = \"allow-all\"\n\
             [forge]\ntype = \"github\"\n{forge}[forge.github]\nurl = \"{url}\"\napi_url = \"{url}\"\n{more}"
        );
        self.place.write("ralph.toml", &text);
    }

    pub fn set_task(&self, more: &str) {
        let text = TASK.replace("max_iterations: 6\n", &format!("max_iterations: 6\n{more}"));
        self.place.write("ralph_task.md", &text);
    }

    pub fn with_credential(&self, mut command: Command) -> Command {
        command.envs(
            self.credential
                .iter()
                .map(|(name, value)| (*name, value.as_str())),
        );
        command
    }

    /// `ralph run` with a scripted model.
    pub fn scripted(&self, script: &serde_json::Value) -> Command {
        self.with_credential(self.place.scripted(script, &[]))
    }

    pub fn run(&self, script: &serde_json::Value) -> Ended {
        finish(&mut self.scripted(script))
    }

    pub fn ralph(&self, args: &[&str]) -> Ended {
        finish(&mut self.with_credential(self.place.ralph(args)))
    }

    /// The token is that of the program `gh`. Returns its directory.
    pub fn use_gh(&mut self) -> std::path::PathBuf {
        let bin = self.place.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let gh = bin.join("gh");
        let text = format!("#!/bin/sh\n[ \"$1 $2 $3\" = 'auth token --hostname' ] && echo {TOKEN}\n");
        std::fs::write(&gh, text).unwrap();
        std::fs::set_permissions(&gh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let path = std::env::var("PATH").unwrap();
        self.credential = vec![("PATH", format!("{}:{path}", bin.display()))];
        bin
    }

    pub fn use_app(&mut self) -> AppKey {
        self.use_app_with(&PERMISSIONS)
    }

    pub fn use_app_with(&mut self, permissions: &[&str]) -> AppKey {
        let app = self.github.add_app("ralph-app", permissions, &[REPO]);
        self.credential = vec![
            ("GITHUB_APP_ID", app.id.to_string()),
            ("GITHUB_APP_INSTALLATION_ID", app.installation.to_string()),
            ("GITHUB_APP_PRIVATE_KEY_PEM", app.private_key.clone()),
        ];
        app
    }

    /// No secret is in a file of the run, the project or ralph's directories.
    pub fn expect_no_secret(&self, secrets: &[&str]) {
        let basic = crate::desk::basic(TOKEN);
        for secret in secrets.iter().chain([&basic.as_str()]) {
            let found = Command::new("grep")
                .args(["-r", "-l", "-F", "-e", secret])
                .arg(self.place.path())
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(found.stdout).unwrap(), "", "{secret}");
        }
        assert_eq!(self.github.forbid_canary("CANARY"), Vec::<String>::new());
        assert_eq!(self.github.violations(), Vec::<String>::new());
    }

    /// No secret is in an object of git, which files have compressed: those of the project, of mirrors and of runs, and those that
    /// were pushed, the notes with the evidence included.
    fn expect_no_secret_in_objects(&self, secrets: &[&str]) {
        let found = Command::new("find")
            .arg(self.place.path())
            .args(["-type", "d", "-name", "objects"])
            .output()
            .unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        let on_fake = self.github.git(REPO, &["rev-parse", "--absolute-git-dir"]);
        assert!(self.github.refs(REPO).contains_key(ralph::evidence::NOTES_REF));
        let pushed = format!("{}/objects", on_fake.trim());
        let stores: Vec<&str> = found.lines().chain([pushed.as_str()]).collect();
        assert!(
            stores.len() >= 3,
            "the project, the mirror and the server: {stores:?}"
        );
        for store in stores {
            let objects = Command::new("git")
                .args(["cat-file", "--batch-all-objects", "--batch"])
                .env("GIT_OBJECT_DIRECTORY", store)
                .current_dir(self.place.repo())
                .output()
                .unwrap();
            assert!(objects.status.success(), "{store}: {objects:?}");
            let objects = String::from_utf8_lossy(&objects.stdout);
            for secret in secrets {
                assert!(!objects.contains(secret), "{secret} is in {store}");
            }
        }
    }

    /// One pull request with one marker, whose commit has the work, and which ralph did not merge.
    pub fn expect_one_pull(&self) {
        assert_eq!(crate::desk::merges(&self.github), Vec::<String>::new());
        let pulls = self.github.pulls(REPO);
        assert_eq!(pulls.len(), 1, "{pulls:#?}");
        assert_eq!(
            pulls[0].body.matches("<!-- ralph-run: ").count(),
            1,
            "{}",
            pulls[0].body
        );
        assert_eq!(
            self.github
                .git(REPO, &["show", &format!("{}:b.txt", pulls[0].head_sha)])
                .trim(),
            "hello"
        );
    }
}

/// Variables that make git write all that it sends into a file.
const TRACES: [&str; 6] = [
    "GIT_TRACE",
    "GIT_TRACE_CURL",
    "GIT_TRACE_PACKET",
    "GIT_TRACE_SETUP",
    "GIT_TRACE2",
    "GIT_TRACE2_EVENT",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visibility {
    Public,
    Private,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Account {
    Token,
    App,
}

/// A whole run for each kind of repository and credential: from the checkout, and from a mirror of the repository's address.
/// No file, log, object of git, or request has the credential, also if the user's git writes traces.
#[rstest]
fn a_run_ends_in_a_pull_request(
    #[values(Visibility::Public, Visibility::Private)] visibility: Visibility,
    #[values(Account::Token, Account::App)] account: Account,
) {
    let mut site = Site::new(need!(FakeGitHub::start_validated()));
    site.github.set_private(REPO, visibility == Visibility::Private);
    let (author, secret) = match account {
        Account::Token => ("ralph-bot", TOKEN.to_owned()),
        Account::App => {
            let key = site.use_app().private_key;
            ("ralph-app[bot]", key.lines().nth(2).unwrap().to_owned())
        }
    };
    let trace = site.place.path().join("trace").display().to_string();
    site.credential
        .extend(TRACES.map(|variable| (variable, trace.clone())));
    site.credential.extend([
        ("GIT_TRACE_REDACT", "0".to_owned()),
        ("GIT_CURL_VERBOSE", "1".to_owned()),
    ]);
    for (number, address) in [
        (1, String::new()),
        (
            2,
            format!("repo_url: {}\nbase_branch: main\n", site.github.git_url(REPO)),
        ),
    ] {
        site.set_task(&format!("pr:\n  labels: [ralph]\n{address}"));
        let ended = site.run(&script([whole_task()]));
        ended.expect(0, &["done: ", &format!("/acme/widget/pull/{number}")]);
        let pull = site.github.pulls(REPO).remove(number - 1);
        assert_eq!(pull.title, "t1: Say hello");
        assert!(pull.head.starts_with("ralph/t1/say-hello"), "{}", pull.head);
        assert_eq!((pull.draft, pull.user.as_str()), (false, author));
        assert_eq!(pull.labels, ["ralph"]);
        assert!(
            pull.body.contains("M1.1") && pull.body.contains("grep -q hello a.txt"),
            "{}",
            pull.body
        );
        assert_eq!(pull.body.matches("<!-- ralph-run: ").count(), 1, "{}", pull.body);
        assert!(!ended.stderr.contains(&secret) && !ended.stdout.contains(&secret));
    }
    assert_eq!(crate::desk::merges(&site.github), Vec::<String>::new());
    assert!(!std::path::Path::new(&trace).exists(), "git traces what it sends");
    site.expect_no_secret(&["CANARY", &secret]);
    site.expect_no_secret_in_objects(&["CANARY", &secret]);
}

/// A private repository that is named by its address: fetched and pushed with the token.
#[test]
fn a_private_repository_by_its_address_needs_no_checkout() {
    let site = Site::new(FakeGitHub::start());
    site.set_task(&format!(
        "repo_url: {}\nbase_branch: main\n",
        site.github.git_url(REPO)
    ));
    site.run(&script([whole_task()]))
        .expect(0, &["/acme/widget/pull/1"]);
    site.expect_one_pull();
    site.expect_no_secret(&["CANARY"]);
}

/// A private repository by its SSH address: fetched with the user's key, pushed with the token. The SSH server only reads.
#[test]
fn a_repository_by_its_ssh_address_is_fetched_and_pushed_to() {
    let mut site = Site::new(FakeGitHub::start());
    site.github.set_private(REPO, true);
    let dir = site.github.git(REPO, &["rev-parse", "--absolute-git-dir"]);
    let (serve, log) = (site.place.path().join("serve"), site.place.path().join("served"));
    let text = format!(
        "#!/bin/sh\necho \"$SSH_ORIGINAL_COMMAND\" >> {}\n\
         [ \"$SSH_ORIGINAL_COMMAND\" = \"git-upload-pack '/acme/widget.git'\" ] && exec git-upload-pack {}\nexit 1\n",
        log.display(),
        dir.trim()
    );
    std::fs::write(&serve, text).unwrap();
    std::fs::set_permissions(&serve, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let forced = format!("ForceCommand {}\n", serve.display());
    let sshd = need!(Sshd::start(site.place.path(), &forced));
    let path = std::env::var("PATH").unwrap();
    site.credential
        .push(("PATH", format!("{}:{path}", sshd.programs.display())));
    site.set_task("repo_url: ssh://127.0.0.1/acme/widget.git\nbase_branch: main\n");
    site.run(&script([whole_task()]))
        .expect(0, &["done: ", "/acme/widget/pull/1"]);
    site.expect_one_pull();
    assert!(std::fs::read_to_string(&log).unwrap().contains("git-upload-pack"));
    let requests = site.github.requests();
    let is_fetched = requests.iter().any(|request| {
        request.method == "POST"
            && request.path.ends_with("/git-upload-pack")
            && request.body.contains("want")
    });
    assert!(!is_fetched, "{:?}", site.github.calls());
    site.expect_no_secret(&["CANARY"]);
}

#[test]
fn a_pull_request_is_opened_early_as_a_draft_and_ready_in_the_end() {
    let site = Site::new(FakeGitHub::start());
    site.set_task("pr:\n  when: first-push\n");
    let first = doing([
        write("a.txt", "hello\n"),
        commit("Half of it"),
        json!({"type": "run", "command": "true"}),
    ]);
    let pause = doing([json!({"type": "pause", "reason": "look"})]);
    site.run(&script([first, pause, whole_task()]))
        .expect(3, &["paused"]);
    let pull = site.github.pulls(REPO).remove(0);
    assert!(pull.draft && pull.open);
    site.ralph(&["resume"]).expect(0, &["done: "]);
    site.expect_one_pull();
    assert!(!site.github.pulls(REPO)[0].draft);
}

/// An iteration that writes a file and commits it.
fn step(name: &str) -> Value {
    doing([write(name, "hello\n"), commit(name)])
}

#[test]
fn progress_opens_the_pull_request_with_the_first_verified_checkbox() {
    let site = Site::new(FakeGitHub::start());
    site.set_task("pr:\n  when: progress\n");
    let pause = doing([json!({"type": "pause", "reason": "look"})]);
    let half = ending([write("a.txt", "hello\n"), commit("a.txt")]);
    site.run(&script([
        step("notes.txt"),
        pause.clone(),
        half,
        pause,
        whole_task(),
    ]))
    .expect(3, &["paused"]);
    // There is a commit, but nothing is verified.
    assert!(site.github.pulls(REPO).is_empty());
    site.ralph(&["resume"]).expect(3, &["paused"]);
    let pull = site.github.pulls(REPO).remove(0);
    assert!(pull.draft && pull.open);
    assert!(
        pull.body.contains("**Verified: 1 of 2 checkboxes**"),
        "{}",
        pull.body
    );
    site.ralph(&["resume"]).expect(0, &["done: "]);
    site.expect_one_pull();
    assert!(!site.github.pulls(REPO)[0].draft);
}

/// A person who is asked to look finds the draft.
#[test]
fn an_iteration_that_commits_and_pauses_opens_the_pull_request() {
    let site = Site::new(FakeGitHub::start());
    site.set_task("pr:\n  when: first-push\n");
    let pause = json!({"type": "pause", "reason": "look"});
    let first = doing([write("a.txt", "hello\n"), commit("Half of it"), pause]);
    site.run(&script([first, whole_task()])).expect(3, &["paused"]);
    assert!(site.github.pulls(REPO)[0].draft);
    site.ralph(&["resume"]).expect(0, &["done: "]);
    site.expect_one_pull();
}

/// Iterations that commit within the interval change nothing of the draft, until the run is done.
#[test]
fn a_draft_is_updated_at_most_once_in_the_interval() {
    let site = Site::new(FakeGitHub::start());
    site.set_task("pr:\n  when: first-push\n");
    let pause = doing([json!({"type": "pause", "reason": "look"})]);
    site.run(&script([
        step("1.txt"),
        step("2.txt"),
        step("3.txt"),
        pause,
        whole_task(),
    ]))
    .expect(3, &["paused"]);
    let draft = site.github.pulls(REPO).remove(0);
    let files = site
        .github
        .git(REPO, &["ls-tree", "--name-only", &draft.head_sha]);
    assert!(files.contains("1.txt") && !files.contains("2.txt"), "{files}");
    let patched = format!("PATCH /repos/{REPO}/pulls/{}", draft.number);
    assert!(!site.github.calls().contains(&patched));
    site.ralph(&["resume"]).expect(0, &["done: "]);
    site.expect_one_pull();
    assert_ne!(site.github.pulls(REPO)[0].head_sha, draft.head_sha);
}

/// A draft with half of the work, from a run that waits for a person.
fn resting() -> Site {
    let site = Site::new(FakeGitHub::start());
    site.set_task("pr:\n  when: first-push\n");
    let half = doing([write("a.txt", "hello\n"), commit("Half of it")]);
    let pause = doing([json!({"type": "pause", "reason": "look"})]);
    site.run(&script([half, pause, whole_task(), whole_task()]))
        .expect(3, &["paused"]);
    site
}

#[test]
fn a_commit_of_a_person_pauses_the_run() {
    let site = resting();
    let theirs = site
        .github
        .push_as("ada", REPO, "ralph/t1/say-hello", "ada.txt", "mine\n");
    site.ralph(&["resume"])
        .expect(3, &["paused: ", "was moved by another process"]);
    assert_eq!(site.github.refs(REPO)["refs/heads/ralph/t1/say-hello"], theirs);
}

/// A branch that is on GitHub already, from another host or a person, is known before the work.
#[test]
fn a_branch_that_github_has_is_not_chosen_again() {
    let site = Site::new(FakeGitHub::start());
    let theirs = site
        .github
        .push_as("ada", REPO, "ralph/t1/say-hello", "ada.txt", "mine\n");
    site.run(&script([whole_task()])).expect(0, &["done: "]);
    assert_eq!(site.github.refs(REPO)["refs/heads/ralph/t1/say-hello"], theirs);
    assert_eq!(site.github.pulls(REPO)[0].head, "ralph/t1/say-hello-v2");
}

/// Work that a person took back is not published.
#[test]
fn work_that_was_taken_back_is_not_published() {
    let site = Site::new(FakeGitHub::start());
    site.set_task("pr:\n  when: first-push\n");
    let pause = doing([
        write("bad.txt", "x\n"),
        commit("Bad"),
        json!({"type": "pause", "reason": "look"}),
    ]);
    let later = doing([json!({"type": "pause", "reason": "again"})]);
    site.run(&script([step("a.txt"), pause, later, whole_task()]))
        .expect(3, &["paused"]);
    let first = site.github.pulls(REPO)[0].head_sha.clone();
    site.ralph(&["retry", "--from", "1"]).expect(0, &[]);
    site.ralph(&["resume"]).expect(3, &["again"]);
    assert_eq!(site.github.pulls(REPO)[0].head_sha, first);
}

/// Another person's pull request changes `a.txt` too.
pub fn other_pull_request(site: &Site) {
    site.github
        .push_as("ada", REPO, "ada/greeting", "a.txt", "good day\n");
    site.github.add_collaborator(REPO, "ada", Role::Write);
    site.github.add_pat("token-of-ada", "ada", &PERMISSIONS);
    let call = reqwest::Client::new()
        .post(format!("{}/repos/{REPO}/pulls", site.github.url()))
        .bearer_auth("token-of-ada")
        .header("user-agent", "ada")
        .json(&json!({"title": "A greeting", "head": "ada/greeting", "base": "main"}));
    let answer = tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(call.send())
        .unwrap();
    assert_eq!(answer.status(), 201);
}

#[test]
fn another_pull_request_with_the_same_files_is_named() {
    let site = Site::new(FakeGitHub::start());
    other_pull_request(&site);
    let ended = site.run(&script([whole_task()]));
    ended.expect(0, &["/acme/widget/pull/1 changes the same files: a.txt"]);
    assert_eq!(site.github.pulls(REPO).len(), 2);
}

#[test]
fn another_pull_request_with_the_same_files_pauses_the_run_if_wanted() {
    let site = Site::new(FakeGitHub::start());
    site.configure_forge("on_overlap = \"pause\"\n");
    other_pull_request(&site);
    let ended = site.run(&script([whole_task()]));
    ended.expect(
        3,
        &[
            "paused: ",
            "changes the same files: a.txt",
            "--set forge.on_overlap=warn",
        ],
    );
    assert_eq!(site.github.pulls(REPO).len(), 1);
    site.ralph(&["resume", "--set", "forge.on_overlap=warn"])
        .expect(0, &["done: "]);
    assert_eq!(site.github.pulls(REPO).len(), 2);
}

#[test]
fn what_is_missing_is_said_before_anything_runs() {
    let mut site = Site::new(FakeGitHub::start());
    site.credential = Vec::new();
    site.run(&script([whole_task()])).expect_refused(&[
        "the forge `github` has no credential",
        "GITHUB_PAT",
        "gh auth login",
    ]);
    site.credential = vec![("GITHUB_APP_ID", "7".to_owned())];
    site.run(&script([whole_task()]))
        .expect_refused(&["lacks GITHUB_APP_INSTALLATION_ID and GITHUB_APP_PRIVATE_KEY_PEM"]);
    site.credential = vec![("GITHUB_PAT", TOKEN.to_owned())];
    site.place
        .git(&["remote", "set-url", "origin", "https://example.org/x/y"]);
    site.run(&script([whole_task()]))
        .expect_refused(&["the remote `origin` is not a repository at", "[forge.github]"]);
    site.place.git(&["remote", "remove", "origin"]);
    site.run(&script([whole_task()]))
        .expect_refused(&["there is no remote `origin`", "[forge.github]"]);
    site.place
        .git(&["remote", "add", "origin", "https://example.org/x/y"]);
    site.configure("repository = \"acme/widget\"\n");
    let mut command = site.scripted(&script([whole_task()]));
    finish(command.env("RALPH_FORGE__GITHUB__API_URL", "http://192.0.2.1")).expect_refused(&[
        "the credential would go to http://192.0.2.1 unencrypted",
        "https://",
    ]);
    site.configure("");
    assert_eq!(site.place.runs().len(), 0);
    site.place
        .git(&["remote", "set-url", "origin", &site.github.git_url(REPO)]);
    site.github
        .add_pat(TOKEN, "ralph-bot", &["contents:write", "pull_requests:read"]);
    let ended = site.run(&script([whole_task()]));
    ended.expect(1, &["not ready to begin: pull request", "`pull_requests: write`"]);
    assert!(!ended.stderr.contains("iteration 1"), "{ended:?}");
}

#[test]
fn the_token_of_gh_is_used() {
    let mut site = Site::new(FakeGitHub::start());
    let bin = site.use_gh();
    site.run(&script([whole_task()])).expect(0, &["/pull/1"]);
    site.expect_one_pull();
    std::fs::remove_dir_all(bin).unwrap();
    site.expect_no_secret(&["CANARY"]);
}

/// The script that people run against the real GitHub works, and leaves nothing: neither its branch nor its note of evidence.
/// Notes of others stay.
#[rstest]
fn the_smoke_test_opens_and_closes_a_pull_request(#[values(false, true)] has_notes: bool) {
    let site = Site::new(FakeGitHub::start());
    if has_notes {
        let args = [
            "notes",
            "--ref",
            ralph::evidence::NOTES_REF,
            "add",
            "-m",
            "of a person",
            "main",
        ];
        site.github.git(REPO, &args);
    }
    let before = site.github.refs(REPO);
    let smoke = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/smoke");
    let ralph = site.place.ralph(&[]);
    let mut command = Command::new(smoke);
    command
        .args(["--github", REPO, "--ralph"])
        .arg(ralph.get_program())
        .env("GITHUB_PAT", TOKEN)
        .env("RALPH_FORGE__GITHUB__URL", site.github.url())
        .env("RALPH_FORGE__GITHUB__API_URL", site.github.url());
    let ended = finish(&mut command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("github: all is well; "), "{ended:?}");
    let pulls = site.github.pulls(REPO);
    assert!(pulls.len() == 1 && !pulls[0].open, "{pulls:?}");
    assert_eq!(site.github.refs(REPO), before);
    assert_eq!(site.github.forbid_canary("CANARY"), Vec::<String>::new());
}

/// How often ralph is killed, unless `RALPH_GITHUB_KILLS` says otherwise.
const KILLS: usize = 200;

fn wanted_kills() -> usize {
    std::env::var("RALPH_GITHUB_KILLS").map_or(KILLS, |text| text.parse().unwrap())
}

/// Kills of pollers at random requests: there is never a second claim, and in the end none, one pull request with one marker, and
/// one comment.
#[test]
fn kills_leave_one_claim() {
    let mut kills = 0;
    while kills < wanted_kills() / 2 {
        let site = crate::issues::queue_site(FakeGitHub::start());
        crate::issues::publish(&site, "claim_seconds = 3\n", crate::issues::COMMANDS);
        let issue = crate::issues::ready_issue(&site, "Say hello", crate::issues::SPEC);
        let half = doing([write("a.txt", "hello\n"), commit("Half of it")]);
        let rest = ending([write("b.txt", "hello\n"), commit("The rest")]);
        kills += crate::poll::through_kills(&site, issue, &script([half, rest]), 4);
        site.expect_one_pull();
    }
}

/// Kills at random requests: whatever dies in between, there is one pull request with one marker in the end.
#[test]
fn kills_leave_one_pull_request() {
    let wanted = wanted_kills();
    let mut kills = 0;
    while kills < wanted {
        let site = Site::new(FakeGitHub::start());
        site.set_task("pr:\n  when: first-push\n  labels: [ralph]\n");
        let half = doing([write("a.txt", "hello\n"), commit("Half of it")]);
        let rest = ending([write("b.txt", "hello\n"), commit("The rest")]);
        kills += site.run_through_kills(&script([half, rest]), 4);
        site.expect_one_pull();
        assert_eq!(site.github.labels(REPO, 1), ["ralph"]);
    }
}

impl Site {
    /// Runs a script to its end, with at most so many kills, each at a random request. Returns how many there were.
    fn run_through_kills(&self, script: &serde_json::Value, most: usize) -> usize {
        let mut running = Live::start(&mut self.scripted(script));
        for kills in 0..most {
            let wanted = self.github.requests().len() + fastrand::usize(0..14);
            eventually("a request or the end", || {
                self.github.requests().len() >= wanted || !running.is_running()
            });
            if !running.is_running() {
                running.wait().expect(0, &["done: "]);
                return kills;
            }
            running.signal("KILL");
            drop(running);
            let mut again = if self.place.runs().is_empty() {
                self.scripted(script)
            } else {
                self.with_credential(self.place.ralph(&["resume"]))
            };
            running = Live::start(&mut again);
        }
        running.wait().expect(0, &["done: "]);
        most
    }
}
