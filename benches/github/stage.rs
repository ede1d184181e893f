//! A repository with issues on the fake GitHub, and `ralph poll` beside it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::fake_github::{FakeGitHub, Recorded, Role};
use support::ralph::{Live, Place};

use super::Fallible;

pub(crate) const REPO: &str = "acme/widget";
/// Who the poller is, and a person.
const BOT: &str = "ralph-bot";
const PERSON: &str = "ada";
const BOT_TOKEN: &str = "token-of-the-bot";
pub(crate) const PERSON_TOKEN: &str = "token-of-ada";
const PERMISSIONS: [&str; 3] = ["contents:write", "pull_requests:write", "issues:write"];
/// How long is waited for what has to happen.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Limits and pace are the defaults of both.
pub(crate) struct Stage {
    pub(crate) github: FakeGitHub,
    pub(crate) place: Place,
}

impl Stage {
    /// A repository without issues.
    pub(crate) fn set_up() -> Self {
        let (github, place) = (FakeGitHub::start(), Place::new());
        github.add_repo(REPO);
        for (login, token) in [(BOT, BOT_TOKEN), (PERSON, PERSON_TOKEN)] {
            github.add_collaborator(REPO, login, Role::Write);
            github.add_pat(token, login, &PERMISSIONS);
        }
        let url = github.url();
        let configuration = format!(
            "[agent]\nname = \"actions\"\n[sandbox]\ntype = \"local\"\n[sandbox.network]\npolicy = \"allow-all\"\n\
             [forge]\ntype = \"github\"\n[forge.github]\nurl = \"{url}\"\napi_url = \"{url}\"\n\
             [task]\ntest_command = \"sh test.sh\"\nverify_commands = [\"grep -q hello a.txt b.txt\"]\n"
        );
        place.write("ralph.toml", &configuration);
        place.git(&["add", "ralph.toml"]);
        place.git(&["commit", "--quiet", "--message", "Configure"]);
        let dir = github.git(REPO, &["rev-parse", "--absolute-git-dir"]);
        place.git(&["push", "--quiet", "--force", dir.trim(), "HEAD:main"]);
        place.git(&["remote", "add", "origin", &github.git_url(REPO)]);
        Self { github, place }
    }

    /// Opens an issue with the label `spec` and these.
    pub(crate) fn open_issue(&self, number: usize, body: &str, labels: &[&str]) {
        let title = format!("Say hello, part {number}");
        let issue = self.github.open_issue_as(PERSON, REPO, &title, body);
        for label in ["spec"].iter().chain(labels) {
            self.github.label_as(PERSON, REPO, issue, label);
        }
    }

    /// Starts `ralph poll` with a scripted model.
    pub(crate) fn poll(&self, script: &Value, args: &[&str]) -> Fallible<Live> {
        let file = self.place.path().join("script.json");
        std::fs::write(&file, script.to_string())?;
        let mut command = self.place.ralph(&["poll", "--script"]);
        command.arg(file).args(args).env("GITHUB_PAT", BOT_TOKEN);
        Ok(Live::start(&mut command))
    }

    /// What the poller and its runs asked for so far.
    pub(crate) fn requests(&self) -> Vec<Recorded> {
        let mut requests = self.github.requests();
        requests.retain(|request| request.identity == BOT);
        requests
    }

    /// The looks at all issues so far that have ended: their requests, page by page.
    pub(crate) fn looks(&self, pages: usize) -> Vec<Vec<Recorded>> {
        let mut listings = self.requests();
        listings.retain(|request| request.path.contains("/issues?"));
        listings.chunks_exact(pages).map(<[Recorded]>::to_vec).collect()
    }
}

/// How a specification reads, `length` bytes at least.
pub(crate) fn specification(number: usize, length: usize) -> String {
    let mut text = format!("---\nbranch: hello/{number}\n---\nBoth files greet.\n");
    while text.len() < length {
        text.push_str("\nWhy it is wanted, what is there already, and what must not change.\n");
    }
    text + "\n## Write a.txt\n\n## Write b.txt\n"
}

/// Waits until something holds while the poller runs.
pub(crate) fn wait_for(poller: &mut Live, mut holds: impl FnMut() -> bool) -> Fallible<()> {
    let started = Instant::now();
    while !holds() {
        if !poller.is_running() {
            return Err("`ralph poll` ended by itself".into());
        }
        if started.elapsed() > TIMEOUT {
            return Err("the looks at the issues take too long".into());
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Lets the poller work for a while.
pub(crate) fn let_work(poller: &mut Live, time: Duration) -> Fallible<()> {
    let started = Instant::now();
    while started.elapsed() < time {
        if !poller.is_running() {
            return Err("`ralph poll` ended by itself".into());
        }
        sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// The most of these times that are within a minute, wherever it begins. They are in order.
pub(crate) fn most_in_a_minute(times: &[Instant]) -> usize {
    let within = |(first, begin): (usize, &Instant)| {
        let rest = times[first..].iter();
        rest.take_while(|time| **time - *begin < Duration::from_secs(60))
            .count()
    };
    times.iter().enumerate().map(within).max().unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
pub(crate) fn figure_of(count: usize) -> f64 {
    count as f64
}
