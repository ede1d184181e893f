//! A repository with a task, a queue, and hosts that work on it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ralph::RunId;
use ralph::secret::Secret;
use ralph::store::{QueueRow, QueueState, Store, StoreAddress};
use serde_json::Value;
use sqlx::{Connection, PgConnection, SqliteConnection};

use crate::support::fake_github::{FakeGitHub, LimitSettings, Role};
use crate::support::postgres::PostgresServer;
use crate::support::ralph::{Ended, Place, TASK, TIMEOUT, finish, processes_of, script, whole_task};

/// The lease of all claims.
pub const LEASE: Duration = Duration::from_secs(3);

/// The repository on the fake, the token for it, and what the token may do.
pub const REPO: &str = "acme/widget";
const TOKEN: &str = "github_pat_CANARY_0123456789abcdef";
const PERMISSIONS: [&str; 5] = [
    "contents:write",
    "pull_requests:write",
    "checks:read",
    "statuses:read",
    "actions:read",
];

/// A user's repository and a queue.
pub struct Desk {
    pub place: Place,
    database: String,
    server: Option<Arc<PostgresServer>>,
    /// Where runs open their pull requests, if not in the repository itself.
    pub github: Option<FakeGitHub>,
}

impl Desk {
    /// With a queue in a file, as by default.
    pub fn sqlite() -> Self {
        let place = Place::new();
        Self {
            database: format!("sqlite:///{}", place.home().join("ralph.db").display()),
            place,
            server: None,
            github: None,
        }
    }

    /// With a queue in a database of the shared server.
    pub async fn postgres() -> Result<Self, String> {
        let server = PostgresServer::shared()?;
        Ok(Self::on(server).await)
    }

    /// With a queue in a new database of this server.
    pub async fn on(server: Arc<PostgresServer>) -> Self {
        let name = RunId::random().to_string();
        let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
        let create = format!("CREATE DATABASE {name}");
        sqlx::raw_sql(&create).execute(&mut connection).await.unwrap();
        Self {
            place: Place::new(),
            database: server.url(&name),
            server: Some(server),
            github: None,
        }
    }

    /// Runs open their pull requests at a GitHub, with the first commit that they push. `more` is added to the configuration.
    pub fn with_github(mut self, more: &str) -> Self {
        let github = FakeGitHub::start();
        // Those of GitHub itself would make a test wait; the suite `github` keeps them.
        github.set_limits(LimitSettings {
            primary: u32::MAX,
            writes_a_minute: usize::MAX,
            writes_an_hour: usize::MAX,
            ..LimitSettings::default()
        });
        github.add_repo(REPO);
        github.add_collaborator(REPO, "ralph-bot", Role::Write);
        github.add_pat(TOKEN, "ralph-bot", &PERMISSIONS);
        // Every push leaves a line in the log of its branch.
        github.git(REPO, &["config", "core.logAllRefUpdates", "always"]);
        let (place, url) = (&self.place, github.url());
        let dir = github.git(REPO, &["rev-parse", "--absolute-git-dir"]);
        place.git(&["push", "--quiet", "--force", dir.trim(), "main"]);
        place.git(&["remote", "add", "origin", &github.git_url(REPO)]);
        let config = format!(
            "[agent]\nname = \"actions\"\n[sandbox]\ntype = \"local\"\n[sandbox.network]\npolicy = \"allow-all\"\n\
             [forge]\ntype = \"github\"\n[forge.github]\nurl = \"{url}\"\napi_url = \"{url}\"\n\
             writes_per_minute = 100000\nwrites_per_hour = 100000\n{more}"
        );
        place.write("ralph.toml", &config);
        let early = "max_iterations: 6\npr:\n  when: first-push\n";
        place.write("ralph_task.md", &TASK.replace("max_iterations: 6\n", early));
        self.github = Some(github);
        self
    }

    /// Runs SQL beside the queue.
    pub async fn execute(&self, sql: &str) {
        if self.server.is_none() {
            let mut connection = SqliteConnection::connect(&self.database).await.unwrap();
            sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
            return;
        }
        let mut connection = PgConnection::connect(&self.database).await.unwrap();
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    }

    /// A number in the queue's database, which is in Postgres.
    pub async fn count(&self, sql: &str) -> i64 {
        let mut connection = PgConnection::connect(&self.database).await.unwrap();
        sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap()
    }

    /// The queue.
    pub async fn store(&self) -> Store {
        let address = StoreAddress::parse(&Secret::new(&self.database), Path::new("/")).unwrap();
        Store::open(&address).await.unwrap()
    }

    /// The row of a run.
    pub async fn row(&self, run: &str) -> QueueRow {
        let store = self.store().await;
        let rows = store.queue().await.unwrap();
        store.close().await;
        rows.into_iter().find(|row| row.run.as_str() == run).unwrap()
    }

    /// When the server of the database started, if it answers.
    pub async fn server_start(&self) -> Option<String> {
        let mut connection = PgConnection::connect(&self.database).await.ok()?;
        let query = sqlx::query_scalar("SELECT CAST(pg_postmaster_start_time() AS TEXT)");
        query.fetch_one(&mut connection).await.ok()
    }

    /// `ralph` as a process of the user.
    pub fn ralph(&self, args: &[&str]) -> Command {
        let mut command = self.place.ralph(args);
        if self.server.is_some() {
            command.env("RALPH_DB_URL", &self.database);
        }
        self.with_token(&mut command);
        command
    }

    fn with_token(&self, command: &mut Command) {
        if self.github.is_some() {
            command.env("GITHUB_PAT", TOKEN);
        }
    }

    /// Runs `ralph` as a process of the user.
    pub fn run(&self, args: &[&str]) -> Ended {
        finish(&mut self.ralph(args))
    }

    /// The data directory of a host.
    pub fn home(&self, host: &str) -> PathBuf {
        match host {
            "user" => self.place.home(),
            host => self.place.path().join(host),
        }
    }

    /// The sandbox on the host itself that a run has there.
    pub fn sandbox(&self, host: &str, run: &str) -> PathBuf {
        self.home(host).join("runs").join(run).join("sandbox")
    }

    /// `ralph worker` on a host, with a short lease.
    pub fn worker(&self, host: &str, args: &[&str]) -> Command {
        let lease = format!("worker.lease_seconds={}", LEASE.as_secs());
        let mut command = self.place.ralph(&["worker", "--set", &lease]);
        command.args(args);
        command.env("RALPH_HOME", self.home(host));
        command.env("RALPH_DB_URL", &self.database);
        self.with_token(&mut command);
        command
    }

    /// Runs a worker to its end.
    pub fn work(&self, host: &str, args: &[&str]) -> Ended {
        finish(&mut self.worker(host, args))
    }

    /// Waits until a run has ended in the queue.
    pub async fn wait_until_finished(&self, run: &str) {
        let started = Instant::now();
        loop {
            let row = self.row(run).await;
            if row.state == QueueState::Finished {
                return;
            }
            assert!(started.elapsed() < TIMEOUT, "{row:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The journal in the last checkpoint of a run.
    pub fn journal(&self, run: &str) -> Vec<Value> {
        let state = format!("refs/ralph/{run}/state");
        let names = self
            .place
            .git(&["ls-tree", "-r", "--name-only", &state, "journal/"]);
        let text: String = names
            .lines()
            .map(|name| self.place.git(&["show", &format!("{state}:{name}")]))
            .collect();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The iterations in that journal.
    pub fn recorded(&self, run: &str) -> Vec<u64> {
        let journal = self.journal(run);
        let records = journal.iter().filter(|line| line["entry"] == "recorded");
        records.map(|line| line["iteration"].as_u64().unwrap()).collect()
    }

    /// The branch of a run.
    pub fn branch(&self, run: &str) -> String {
        let facts = self
            .place
            .git(&["show", &format!("refs/ralph/{run}/state:run.json")]);
        let facts: Value = serde_json::from_str(&facts).unwrap();
        facts["branch"].as_str().unwrap().to_owned()
    }

    /// The commits on that branch, newest first.
    pub fn subjects(&self, run: &str) -> Vec<String> {
        let range = format!("main..{}", self.branch(run));
        let log = self.place.git(&["log", "--format=%s", &range]);
        log.lines().map(str::to_owned).collect()
    }

    /// Every ref of the repository.
    pub fn refs(&self) -> String {
        self.place.git(&["for-each-ref"])
    }

    /// The processes that were started here and still live, for people.
    pub fn processes(&self) -> Vec<String> {
        processes_of(self.place.path())
    }

    /// A file with this script of the model.
    pub fn script_file(&self, script: &Value) -> PathBuf {
        let file = self
            .place
            .path()
            .join(format!("script-{}.json", fastrand::u64(..)));
        std::fs::write(&file, script.to_string()).unwrap();
        file
    }

    /// Submits the task, whose model answers from a script, and returns its run.
    pub fn submit(&self, model: &Value, args: &[&str]) -> String {
        let file = self.script_file(model);
        let all = [&["submit", "--script", file.to_str().unwrap()], args].concat();
        let ended = self.run(&all);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout.trim().to_owned()
    }

    /// Submits a task that its first iteration finishes.
    pub fn submit_short(&self, args: &[&str]) -> String {
        self.submit(&script([whole_task()]), args)
    }
}

/// This host, as its label.
pub fn host_label() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    format!("host={}", name.trim())
}
