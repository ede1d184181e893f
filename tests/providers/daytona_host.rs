//! `ralph dashboard deploy --type daytona`: a dashboard in a sandbox of the fake.

use std::process::Command;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::json;

use crate::need;
use crate::support::daytona::{Daytona, KEY};
use crate::support::ralph::{Ended, Place, finish, script, whole_task};

/// A repository in the sandbox, and a run of it in the queue of the dashboard.
const SUBMIT: &str = r#"
    cd && mkdir project && cd project && git init -q && git config user.name t && git config user.email t@example.com &&
    echo 'test ! -e broken' > test.sh && printf '%s' "$TASK" > ralph_task.md && git add . && git commit -q -m Begin && printf '%s' "$SCRIPT" > ../script.json &&
    RALPH_HOME=$HOME/ralph-host/home $HOME/ralph-host/ralph submit --type daytona --agent actions --script ../script.json \
      --set sandbox.image=any:v1 --set sandbox.network.policy=deny 2>&1
"#;

/// What a sandbox starts from that names nothing.
const USUAL_SNAPSHOT: &str = "daytonaio/sandbox:0.5.0";

struct Deployment {
    daytona: Daytona,
    place: Place,
    port: u16,
}

impl Deployment {
    async fn new() -> Result<Self, String> {
        let daytona = Daytona::in_namespaces().await?;
        daytona.put_snapshot(USUAL_SNAPSHOT, &json!({"general": true}));
        Ok(Self {
            daytona,
            place: Place::new(),
            port: std::net::TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
                .port(),
        })
    }

    fn deploy(&self, args: &[&str]) -> Ended {
        let common = ["dashboard", "deploy", "--type", "daytona"];
        let mut command: Command = self.place.ralph(&[&common[..], args].concat());
        command.env("DAYTONA_API_URL", self.daytona.api_url());
        command.env("DAYTONA_API_KEY", KEY);
        finish(&mut command)
    }

    fn deploy_dashboard(&self, args: &[&str]) -> Ended {
        let port = self.port.to_string();
        self.deploy(&[&["--port", &port], args].concat())
    }

    /// What a script prints in the sandbox of the dashboard.
    async fn script(&self, script: &str) -> String {
        let name = self.dashboards().remove(0);
        self.daytona.script(&name, script).await
    }

    /// The sandboxes that are a dashboard.
    fn dashboards(&self) -> Vec<String> {
        let mut names = self.daytona.sandboxes();
        names.retain(|name| name.starts_with("ralph-dashboard-"));
        names
    }

    /// What the dashboard answers to a browser that comes by this host name.
    async fn status_of(&self, path: &str, host: &str) -> StatusCode {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        let request = reqwest::Client::new().get(url).header("host", host);
        request.send().await.unwrap().status()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployed_dashboard_answers_by_its_preview_link_and_starts_sandboxes_with_the_key_only() {
    let site = need!(Deployment::new().await);
    let ended = site.deploy_dashboard(&[]);
    ended.expect(0, &["Started: the dashboard", "It has no API key of Daytona"]);
    let link = ended.stdout.trim();
    let (_, rest) = link.split_once("https://").unwrap();
    let (host, path) = rest.split_at(rest.find('/').unwrap());
    assert!(host.starts_with(&format!("{}-", site.port)), "{link}");
    assert!(path.starts_with("/login?secret="), "{link}");
    assert_eq!(site.status_of(path, host).await, StatusCode::OK);
    assert!(site.status_of(path, "other.example.com").await.is_client_error());
    assert_eq!(site.script("cat $HOME/ralph-host/environment").await, "");
    assert!(
        !site
            .script("grep -rl dtn_ $HOME/ralph-host/home || true")
            .await
            .contains("home")
    );
    let [created] = site.daytona.asked("POST /api/sandbox").try_into().unwrap();
    assert_eq!(created["autoStopInterval"], 0);
    assert!(!created.to_string().contains(KEY), "{created}");

    let again = site.deploy_dashboard(&["--give-key"]);
    again.expect(
        0,
        &[
            "Started again",
            "Your API key of Daytona is stored in that sandbox",
        ],
    );
    assert_eq!(site.dashboards().len(), 1);
    let submitted = site.script(&submit()).await;
    assert!(submitted.contains("Queued"), "{submitted}");
    let mut state = String::new();
    for _ in 0..600 {
        let status =
            "cd $HOME/project && RALPH_HOME=$HOME/ralph-host/home $HOME/ralph-host/ralph status 2>&1";
        state = site.script(status).await;
        if state.contains("done") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let log = site.script("cat $HOME/ralph-host/log").await;
    assert!(state.contains("done"), "{state}\n{log}");
    assert_eq!(
        site.daytona.asked("POST /api/sandbox").len(),
        2,
        "one more for the run"
    );

    site.deploy(&["--remove"]).expect(0, &["Removed"]);
    assert_eq!(site.daytona.sandboxes(), Vec::<String>::new());
    site.deploy(&["--remove"]).expect(0, &["There is no dashboard"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_does_not_run_there_leaves_no_sandbox() {
    let site = need!(Deployment::new().await);
    let program = site.place.path().join("program");
    std::fs::write(&program, "not a program\n").unwrap();
    let ended = site.deploy_dashboard(&["--program", program.to_str().unwrap()]);
    ended.expect(2, &["cannot run this dashboard", "--program"]);
    assert_eq!(site.daytona.sandboxes(), Vec::<String>::new());
}

fn submit() -> String {
    let task = std::fs::read_to_string(Place::new().repo().join("ralph_task.md")).unwrap();
    let answers = script([whole_task()]).to_string();
    SUBMIT
        .replace("\"$TASK\"", &format!("'{}'", task.replace('\'', "'\\''")))
        .replace("\"$SCRIPT\"", &format!("'{}'", answers.replace('\'', "'\\''")))
}
