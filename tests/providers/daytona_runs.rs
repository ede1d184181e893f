//! Whole runs of the binary at Daytona.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::need;
use crate::support::daytona::{Daytona, Fault, KEY};
use crate::support::ralph::{Live, Place, commit, doing, eventually, finish, run, script, whole_task, write};
use crate::support::{base, engine};

/// A repository with a task, and a fake Daytona.
struct Site {
    daytona: Daytona,
    place: Place,
}

impl Site {
    /// With fast sandboxes.
    async fn new() -> Result<Self, String> {
        let site = Self::at(Daytona::in_namespaces().await?);
        site.place.write(
            "ralph.toml",
            "[agent]\nname = \"actions\"\n[sandbox]\ntype = \"daytona\"\nimage = \"any:v1\"\n\
             [sandbox.network]\npolicy = \"deny\"\n",
        );
        Ok(site)
    }

    fn at(daytona: Daytona) -> Self {
        Self {
            daytona,
            place: Place::new(),
        }
    }

    fn ralph(&self, args: &[&str]) -> Command {
        self.at_daytona(self.place.ralph(args))
    }

    fn scripted(&self, answers: &Value) -> Command {
        self.at_daytona(self.place.scripted(answers, &[]))
    }

    fn at_daytona(&self, mut command: Command) -> Command {
        command.env("DAYTONA_API_URL", self.daytona.api_url());
        command.env("DAYTONA_API_KEY", KEY);
        command
    }

    /// Waits until the agent works, and returns the name of the sandbox.
    async fn started(&self) -> String {
        for _ in 0..600 {
            if let [name] = self.daytona.sandboxes().as_slice()
                && self
                    .daytona
                    .script(name, "ls $HOME/ralph/work/started")
                    .await
                    .contains("work/started\n")
            {
                return name.clone();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the agent does not begin")
    }

    fn handed_back(&self, file: &str) -> String {
        let branch = self.place.status()["branch"].as_str().unwrap().to_owned();
        self.place.git(&["show", &format!("{branch}:{file}")])
    }

    fn expect_nothing_left(&self) {
        assert_eq!(self.daytona.sandboxes(), Vec::<String>::new());
        assert_eq!(self.daytona.vault(), Vec::<String>::new());
    }
}

/// A slow first iteration, and one that finishes the task.
fn slow() -> Value {
    script([doing([run("touch started; sleep 8")]), whole_task(), whole_task()])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_finishes_reports_its_cost_and_leaves_nothing() {
    let site = need!(Site::new().await);
    let answers = script([doing([write("a.txt", "hello\n"), commit("Begin")]), whole_task()]);
    let ended = finish(&mut site.scripted(&answers));
    ended.expect(
        0,
        &[
            "done: ",
            "sandbox    $0.",
            "processors: 4, memory: 8 GB, disk: 3 GB",
            "  waiting: ralph-",
            " is pulling",
            " is creating",
        ],
    );
    assert_eq!(site.handed_back("b.txt"), "hello\n");
    site.expect_nothing_left();
    let shown = format!("{}{}", ended.stdout, ended.stderr);
    assert!(!shown.contains(KEY), "{shown}");
    no_file_holds(site.place.path(), KEY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_sandbox_is_replaced_from_the_checkpoint() {
    let site = need!(Site::new().await);
    let live = Live::start(&mut site.scripted(&slow()));
    let name = site.started().await;
    site.daytona.lose(&name).await;
    let said = ["is gone", "creating a new sandbox from the checkpoint", "done: "];
    live.wait().expect(0, &said);
    assert_eq!(site.daytona.asked("POST /api/sandbox").len(), 2);
    site.expect_nothing_left();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_run_resumes_in_its_sandbox() {
    let site = need!(Site::new().await);
    let mut live = Live::start(&mut site.scripted(&slow()));
    site.started().await;
    live.signal("KILL");
    eventually("the run is dead", || !live.is_running());
    assert_eq!(site.daytona.sandboxes().len(), 1);
    finish(&mut site.ralph(&["resume"])).expect(0, &["done: "]);
    assert_eq!(site.daytona.asked("POST /api/sandbox").len(), 1);
    site.expect_nothing_left();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_killed_during_creation_leaks_and_loses_nothing() {
    let site = need!(Site::new().await);
    site.daytona.fail("POST /api/sandbox", [Fault::HandledThenHangs]);
    let mut live = Live::start(&mut site.scripted(&script([whole_task()])));
    eventually("the sandbox is half made", || site.daytona.sandboxes().len() == 1);
    live.signal("KILL");
    eventually("the run is dead", || !live.is_running());
    finish(&mut site.ralph(&["resume"])).expect(0, &["done: "]);
    assert_eq!(site.handed_back("a.txt"), "hello\n");
    site.expect_nothing_left();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prune_removes_what_a_run_left_that_was_killed_during_creation() {
    let site = need!(Site::new().await);
    site.daytona.fail("POST /api/sandbox", [Fault::HandledThenHangs]);
    let mut live = Live::start(&mut site.scripted(&script([whole_task()])));
    eventually("the sandbox is half made", || site.daytona.sandboxes().len() == 1);
    live.signal("KILL");
    eventually("the run is dead", || !live.is_running());
    finish(&mut site.ralph(&["sandbox", "prune", "--type", "daytona"])).expect(0, &["Removed"]);
    site.expect_nothing_left();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_in_the_variable_of_the_agents_credential_is_refused() {
    let site = need!(Site::new().await);
    site.place.write(
        "ralph.toml",
        "[models.default-cheap]\nbase_url = \"https://model.invalid\"\n\
         [models.strong-doctor]\nbase_url = \"https://model.invalid\"\n\
         [agent]\nname = \"claude\"\n[sandbox]\ntype = \"daytona\"\nimage = \"any:v1\"\n\
         [sandbox.network]\npolicy = \"deny\"\n\
         [sandbox.secrets.ANTHROPIC_API_KEY]\nhosts = [\"api.example.org\"]\n",
    );
    let key = "sk-ant-api03-real-0123456789abcdef";
    let ended = finish(site.ralph(&["run"]).env("ANTHROPIC_API_KEY", key));
    ended.expect(
        2,
        &[
            "sandbox.secrets.ANTHROPIC_API_KEY: the credential of the agent is in the same variable",
            "choose another name",
        ],
    );
    assert!(site.daytona.asked("POST ").is_empty());
    site.expect_nothing_left();
}

/// A fake `claude`: it reads its credential, finishes the task and reports it.
const CLAUDE: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "2.1.325 (Claude Code)"; exit; }
cat > /dev/null
printf '%s\n' "$ANTHROPIC_API_KEY" > seen
echo hello > a.txt
echo hello > b.txt
git add a.txt b.txt seen && git commit --quiet --message 'Say hello'
sed -i 's/\[ \]/[x]/' ralph_task.md
echo '{"type":"result","subtype":"success","is_error":false,"result":"Both say hello.","total_cost_usd":0.01,"usage":{"input_tokens":10,"output_tokens":5}}'
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_program_works_without_its_credential_in_the_sandbox() {
    const MODEL_KEY: &str = "sk-ant-api03-real-0123456789abcdef";
    let engine = need!(engine::engine().await);
    let image = need!(base::image(&engine).await);
    let site = Site::at(Daytona::start(engine).await);
    let lines: Vec<String> = CLAUDE
        .lines()
        .map(|line| format!("'{}'", line.replace('\'', r"'\''")))
        .collect();
    let dockerfile = format!(
        "FROM {image}\nRUN printf '%s\\n' {} > /usr/local/bin/claude && chmod 755 /usr/local/bin/claude\n",
        lines.join(" ")
    );
    site.place.write("Dockerfile.agent", &dockerfile);
    site.place.write(
        "ralph.toml",
        "[models.default-cheap]\nbase_url = \"https://model.invalid\"\n\
         [models.strong-doctor]\nbase_url = \"https://model.invalid\"\n\
         [agent]\nname = \"claude\"\n[sandbox]\ntype = \"daytona\"\n[sandbox.network]\npolicy = \"deny\"\n\
         [sandbox.daytona]\ndockerfile = \"Dockerfile.agent\"\n",
    );
    let ended = finish(site.ralph(&["run"]).env("ANTHROPIC_API_KEY", MODEL_KEY));
    ended.expect(
        0,
        &[
            "a budget cannot end it in the middle of one",
            "Both say hello.",
            "done: ",
        ],
    );
    assert!(site.handed_back("seen").starts_with("dtn_secret_"));
    let asked = &site.daytona.asked("POST /api/secret")[0];
    assert_eq!(
        (&asked["value"], &asked["hosts"][0]),
        (&MODEL_KEY.into(), &"model.invalid".into())
    );
    let made = &site.daytona.asked("POST /api/sandbox")[0];
    assert_eq!(made["domainAllowList"], "model.invalid");
    assert!(!made.to_string().contains(MODEL_KEY));
    no_file_holds(site.place.path(), MODEL_KEY);
    site.expect_nothing_left();
}

pub fn no_file_holds(dir: &Path, secret: &str) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            no_file_holds(&path, secret);
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
}
