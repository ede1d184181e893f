//! Timers that only a library user can set to seconds: an agent that says nothing, and one that takes too long.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ralph::agent::{AgentCredential, Agents, Claude, ModelAccess, ProgramAgent};
use ralph::event::{Event, Fanout};
use ralph::evidence::SigningKey;
use ralph::exec::Host;
use ralph::id::RunId;
use ralph::model::{AuthMethod, Profile, Script, ScriptedModel};
use ralph::sandbox::local::{LocalOptions, LocalProvider};
use ralph::scm::LocalForge;
use ralph::secret::{Redactor, Secret};
use ralph::state::{JournalEntry, RunDir, RunOutcomeKind, RunOwner};
use ralph::usage::{Price, Usd};
use ralph::{NewRun, Repository, RunParts, RunSettings, Runs, SandboxSpec};
use rstest::rstest;

use crate::bench::{Bench, KEY, Program, Within, programs, whole_task};
use crate::need;
use crate::support::model_server::{Teller, Turn};
use crate::support::ralph::TASK;

#[rstest]
#[case::that_says_nothing(
    Duration::from_secs(20),
    Duration::from_secs(300),
    "printed nothing for too long"
)]
#[case::that_takes_too_long(Duration::from_secs(300), Duration::from_secs(25), "took longer than 25 s")]
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_ended(#[case] idle: Duration, #[case] limit: Duration, #[case] reason: &str) {
    let whole = whole_task();
    let teller = Teller::by(move |asked| match (asked.session, asked.turn) {
        // One turn is answered, so that something was spent.
        (0, 0) => Turn::run("true"),
        (0, _) => Turn::Hang,
        (_, turn) => whole[turn].clone(),
    });
    let bench = need!(Bench::within(Within::Directory, Program::Claude, teller).await);
    let run = Library::of(&bench).await;
    let settings = RunSettings {
        idle_timeout: idle,
        iteration_timeout: limit,
        ..RunSettings::new(priced())
    };
    let started = Instant::now();
    let spec = SandboxSpec::unrestricted(run.dir.facts().id.clone());
    let outcome = ralph::drive(&run.parts, &settings, &spec, &run.dir)
        .await
        .unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(
        (outcome.kind, outcome.used.iterations),
        (RunOutcomeKind::Done, 2),
        "{}",
        outcome.reason
    );
    let errors = std::fs::read_to_string(run.dir.ralph_dir().join("errors.log")).unwrap();
    assert!(errors.contains(reason), "{errors}");
    let charged = run
        .dir
        .journal()
        .unwrap()
        .into_iter()
        .find_map(|line| match line.entry {
            JournalEntry::Called { spent, .. } => Some(spent),
            _ => None,
        });
    let charged = charged.unwrap();
    assert!(
        charged.tokens.total() > 0 && charged.cost.is_some(),
        "{charged:?}"
    );
}

/// A model whose price is known, so that a session that was cut short has one.
fn priced() -> Profile {
    let dollar = Usd::from_dollars(1.0).unwrap();
    Profile {
        price: Some(Price {
            input_per_million: dollar,
            output_per_million: dollar,
        }),
        ..Profile::new("first", "x/first-model")
    }
}

/// A run put together by hand.
struct Library {
    parts: RunParts,
    dir: RunDir,
}

impl Library {
    async fn of(bench: &Bench) -> Self {
        let path = format!(
            "{}:{}",
            programs().unwrap().display(),
            std::env::var("PATH").unwrap()
        );
        let host = Host::new(BTreeMap::from([("PATH".to_owned(), path.clone())]));
        let repo = Repository::open(host.clone(), &bench.place.repo()).await.unwrap();
        let runs = Runs::under(bench.place.home().join("runs"));
        let redactor = Redactor::new([Secret::new(KEY)]);
        let new = NewRun {
            id: RunId::random(),
            created: jiff::Timestamp::now(),
            task: TASK.to_owned(),
            branch_prefix: "ralph".to_owned(),
            branch: None,
            is_branch_own: false,
            taken_branches: Vec::new(),
            project: None,
            overrides: Vec::new(),
            script: None,
            issue: None,
        };
        let dir = ralph::create(&runs, &repo, &redactor, new).await.unwrap();
        let claude = Claude {
            model: Some("first-model".to_owned()),
            effort: None,
        };
        let access = ModelAccess {
            base_url: Some(bench.server.base_url()),
            credential: Some(AgentCredential {
                auth: AuthMethod::ApiKey,
                value: Secret::new(KEY),
            }),
            credential_hint: None,
        };
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let parts = RunParts {
            provider: Arc::new(LocalProvider::new(LocalOptions {
                base: runs.dir().to_owned(),
                path,
                passthrough: BTreeMap::new(),
            })),
            agents: Agents::new(Arc::new(ProgramAgent::new(claude, access))),
            model: Arc::new(ScriptedModel::new(Script::parse("iterations: []").unwrap())),
            forge: Arc::new(LocalForge::new(repo, dir.pull_request_file())),
            sink: Arc::new(Fanout(vec![events])),
            clock: ralph::clock::system(),
            host,
            redactor,
            owner: RunOwner::this_process("localhost"),
            metering: None,
            evidence_key: SigningKey::generate().unwrap(),
            preconditions: Vec::new(),
        };
        Self { parts, dir }
    }
}
