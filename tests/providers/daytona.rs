//! Sandboxes at Daytona: creation, credentials, life cycle.

use std::sync::Arc;
use std::time::Duration;

use ralph::exec::{Command, Discard, ExitStatus};
use ralph::network::{HostName, Policy, PolicyRule};
use ralph::sandbox::daytona::{DaytonaOptions, DaytonaProvider, DaytonaSecret};
use ralph::sandbox::{Provider, RemovalScope, Sandbox, SandboxSpec, check_policy};
use ralph::secret::Secret;
use rstest::rstest;

use crate::support::daytona::{Daytona, Fault, KEY, Tier};
use crate::support::{base, engine};
use crate::{full_message, need, spec, witness};

/// A fake Daytona, its provider, and the spec of a sandbox.
pub struct Scene {
    pub daytona: Daytona,
    pub provider: Arc<dyn Provider>,
    pub spec: SandboxSpec,
}

pub async fn scene() -> Result<Scene, String> {
    let engine = engine::engine().await?;
    let image = base::image(&engine).await?;
    let daytona = Daytona::start(engine).await;
    let provider = Arc::new(DaytonaProvider::new(daytona.options()));
    Ok(Scene {
        daytona,
        provider,
        spec: spec(&image),
    })
}

#[tokio::test]
async fn transient_errors_are_retried() {
    let scene = need!(scene().await);
    scene.daytona.fail(
        "GET /api/sandbox",
        [Fault::Status(500), Fault::Wait(0), Fault::Status(503)],
    );
    scene.daytona.fail("POST /api/sandbox", [Fault::Wait(1)]);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_sandbox_that_was_created_without_a_response_is_found() {
    let scene = need!(scene().await);
    scene.daytona.fail("POST /api/sandbox", [Fault::HandledThenError]);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    assert_eq!(scene.daytona.sandboxes(), [sandbox.id()]);
    sandbox.close().await.unwrap();
    assert!(scene.daytona.sandboxes().is_empty());
}

#[tokio::test]
async fn a_sandbox_that_does_not_start_is_removed() {
    let scene = need!(scene().await);
    scene.daytona.fail("process/execute", vec![Fault::Nonsense; 4]);
    let Err(error) = scene.provider.create(&scene.spec).await else {
        panic!("it was made")
    };
    assert!(
        full_message(&error).contains("cannot read the response"),
        "{}",
        full_message(&error)
    );
    assert!(scene.daytona.sandboxes().is_empty());
}

#[tokio::test]
async fn an_image_that_cannot_be_pulled_is_reported_with_the_reason() {
    let scene = need!(scene().await);
    let spec = spec("registry.example.invalid/agent:v1");
    let Err(error) = scene.provider.create(&spec).await else {
        panic!("it was made")
    };
    let message = full_message(&error);
    assert!(
        message.contains("no such image: registry.example.invalid/agent:v1"),
        "{message}"
    );
}

#[tokio::test]
async fn a_snapshot_is_registered_once_with_its_resources() {
    let scene = need!(scene().await);
    let mut spec = scene.spec.clone();
    spec.resources.memory_bytes = Some(3 << 30);
    spec.resources.cpu_millis = Some(1500);
    for _ in 0..2 {
        let sandbox = scene.provider.create(&spec).await.unwrap();
        sandbox.close().await.unwrap();
    }
    let registered = scene.daytona.asked("POST /api/snapshots");
    assert_eq!(registered.len(), 1);
    assert_eq!(
        (&registered[0]["cpu"], &registered[0]["memory"]),
        (&2.into(), &3.into())
    );
}

#[tokio::test]
async fn evidence_survives_a_broken_log() {
    let scene = need!(scene().await);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    scene.daytona.fail("logs", [Fault::BreaksOff, Fault::BreaksOff]);
    let exit = witness(sandbox.as_ref(), "seq 1 2000; echo wrong >&2; exit 3").await;
    assert_eq!(exit.status, ExitStatus::Code(3));
    let lines: Vec<String> = (1..=2000).map(|number| number.to_string()).collect();
    let expected = lines.join("\n") + "\n";
    assert_eq!(
        (exit.stdout.text(), exit.stderr.text()),
        (expected, "wrong\n".to_owned())
    );
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn evidence_gets_its_input_and_ends_at_its_timeout() {
    let scene = need!(scene().await);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    let command = Command::shell("printf '%s %s ' \"$PWD\" \"$GIVEN\"; cat").cwd("work");
    let command = command.env("GIVEN", "it's\ntwo").stdin(*b"input");
    let exit = sandbox.exec_trusted(&command, &mut Discard).await.unwrap();
    let expected = format!("{}/work it's\ntwo input\n", sandbox.root().display());
    assert_eq!(exit.stdout.text(), expected);
    let endless = Command::shell("sleep 100").timeout(Duration::from_millis(500));
    let exit = sandbox.exec_trusted(&endless, &mut Discard).await.unwrap();
    assert_eq!(exit.status, ExitStatus::TimedOut);
    let left = witness(sandbox.as_ref(), "pgrep -c sleep; true").await;
    assert_eq!(left.stdout.text().trim(), "0");
    sandbox.close().await.unwrap();
}

#[rstest]
#[case::stopped_for_being_idle("stopped")]
#[case::failed("error")]
#[tokio::test]
async fn a_sandbox_that_daytona_stopped_is_lost(#[case] state: &str) {
    let scene = need!(scene().await);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    scene.daytona.set_state(sandbox.id(), state);
    let error = sandbox.files().read("work/file".as_ref(), 10).await.unwrap_err();
    assert!(error.to_string().contains("was lost"), "{error:?}");
    assert!(error.to_string().contains(state), "{error}");
}

#[tokio::test]
async fn an_unknown_state_is_waited_for() {
    let scene = need!(scene().await);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    scene.daytona.set_state(sandbox.id(), "migrating");
    let (started, ()) = tokio::join!(sandbox.start(), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        scene.daytona.set_state(sandbox.id(), "started");
    });
    started.unwrap();
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn an_organisation_of_a_low_tier_gets_a_hint() {
    let scene = need!(scene().await);
    scene.daytona.set_tier(Tier::Low);
    let Err(error) = scene.provider.create(&scene.spec).await else {
        panic!("it was made")
    };
    let message = full_message(&error);
    assert!(
        message.contains("cannot enforce the network policy") && message.contains("raise the tier"),
        "{message}"
    );
    let open = SandboxSpec {
        network: Policy::allow_all(),
        ..scene.spec.clone()
    };
    scene.provider.create(&open).await.unwrap().close().await.unwrap();
}

#[rstest]
#[case::few(3, true)]
#[case::too_many(11, false)]
#[tokio::test]
async fn a_policy_with_too_many_names_is_refused(#[case] names: usize, #[case] enforced: bool) {
    let scene = need!(scene().await);
    let rules = (0..names).map(|number| PolicyRule::parse(&format!("host{number}.example.org")).unwrap());
    let policy = Policy::allowlist(rules);
    let checked = check_policy(scene.provider.as_ref(), &policy);
    assert_eq!(checked.is_ok(), enforced, "{checked:?}");
}

#[tokio::test]
async fn labels_name_the_owner_and_only_orphans_are_pruned() {
    let scene = need!(scene().await);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    let listed = scene.provider.list().await.unwrap();
    assert_eq!(
        (listed[0].id.as_str(), listed[0].run.as_ref()),
        (sandbox.id(), Some(&scene.spec.run))
    );
    assert!(
        !scene
            .provider
            .remove(sandbox.id(), RemovalScope::Orphans)
            .await
            .unwrap()
    );
    assert!(
        scene
            .provider
            .remove(sandbox.id(), RemovalScope::Any)
            .await
            .unwrap()
    );
    assert!(scene.daytona.sandboxes().is_empty());
}

#[tokio::test]
async fn the_key_is_not_in_the_sandbox() {
    let scene = need!(scene().await);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    let inside = witness(sandbox.as_ref(), "env; grep -rs dtn_ \"$HOME\" /tmp; true").await;
    assert!(!inside.stdout.text().contains(KEY));
    assert!(!format!("{:?}", scene.daytona.options()).contains(KEY));
    sandbox.close().await.unwrap();
}

/// A key that must not be in any sandbox.
const MODEL_KEY: &str = "sk-real-0123456789abcdef";

fn with_secret(scene: &Scene, value: &str) -> Arc<dyn Provider> {
    let secret = DaytonaSecret {
        variable: "MODEL_KEY".to_owned(),
        value: Secret::new(value),
        hosts: vec![HostName::parse("api.example.org").unwrap()],
    };
    Arc::new(DaytonaProvider::new(DaytonaOptions {
        secrets: vec![secret],
        ..scene.daytona.options()
    }))
}

/// The value of a credential variable in a warm session and in a trusted command.
async fn seen(sandbox: &dyn Sandbox) -> [String; 2] {
    let command = Command::shell("env | grep MODEL_KEY");
    let warm = sandbox.exec(&command, &mut Discard).await.unwrap();
    let plain = sandbox.exec_trusted(&command, &mut Discard).await.unwrap();
    [warm, plain].map(|exit| exit.stdout.text().trim().to_owned())
}

#[tokio::test]
async fn a_credential_stays_in_the_vault_and_commands_get_a_placeholder() {
    let scene = need!(scene().await);
    let sandbox = with_secret(&scene, MODEL_KEY).create(&scene.spec).await.unwrap();
    for seen in seen(sandbox.as_ref()).await {
        assert!(seen.starts_with("MODEL_KEY=dtn_secret_"), "{seen}");
    }
    let kept = scene.daytona.asked("POST /api/secret");
    assert_eq!(kept[0]["value"], MODEL_KEY);
    assert_eq!(kept[0]["hosts"], serde_json::json!(["api.example.org"]));
    assert_eq!(scene.daytona.vault().len(), 1);
    sandbox.close().await.unwrap();
    assert!(scene.daytona.vault().is_empty());
}

#[tokio::test]
async fn a_resumed_run_uses_the_new_value_of_a_credential() {
    let scene = need!(scene().await);
    let sandbox = with_secret(&scene, MODEL_KEY).create(&scene.spec).await.unwrap();
    let again = with_secret(&scene, "sk-real-another-one")
        .reopen(&scene.spec)
        .await;
    let again = again.unwrap().unwrap();
    assert_eq!(again.id(), sandbox.id());
    assert_eq!(
        scene.daytona.asked("PATCH /api/secret/")[0]["value"],
        "sk-real-another-one"
    );
    assert_eq!(seen(again.as_ref()).await, seen(sandbox.as_ref()).await);
    let left = with_secret(&scene, MODEL_KEY)
        .remove(again.id(), RemovalScope::Any)
        .await;
    assert!(left.unwrap() && scene.daytona.vault().is_empty());
}

#[tokio::test]
async fn daytona_builds_a_dockerfile() {
    let scene = need!(scene().await);
    let image = scene.spec.image.clone().unwrap();
    let options = DaytonaOptions {
        dockerfile: Some(format!("FROM {image}\nRUN echo built > /built\n")),
        ..scene.daytona.options()
    };
    let mut spec = scene.spec.clone();
    spec.resources.memory_bytes = Some(3 << 30);
    let provider = Arc::new(DaytonaProvider::new(options));
    let sandbox = provider.create(&spec).await.unwrap();
    assert_eq!(
        witness(sandbox.as_ref(), "cat /built").await.stdout.text(),
        "built\n"
    );
    let asked = &scene.daytona.asked("POST /api/sandbox")[0];
    assert_eq!(
        (&asked["memory"], &asked["snapshot"]),
        (&3.into(), &serde_json::Value::Null)
    );
    assert!(scene.daytona.asked("POST /api/snapshots").is_empty());
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_failed_build_is_reported_with_the_reason() {
    let scene = need!(scene().await);
    let options = DaytonaOptions {
        dockerfile: Some("FRUM scratch\n".to_owned()),
        ..scene.daytona.options()
    };
    let Err(error) = Arc::new(DaytonaProvider::new(options)).create(&scene.spec).await else {
        panic!("it was made")
    };
    let message = full_message(&error).to_lowercase();
    assert!(
        message.contains("build_failed") && message.contains("frum"),
        "{message}"
    );
    assert!(scene.daytona.sandboxes().is_empty());
}

#[tokio::test]
async fn an_idle_sandbox_that_was_stopped_keeps_its_files() {
    let scene = need!(scene().await);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    let asked = &scene.daytona.asked("POST /api/sandbox")[0];
    assert_eq!(
        (&asked["autoStopInterval"], &asked["autoDeleteInterval"]),
        (&15.into(), &10080.into())
    );
    sandbox
        .files()
        .write("work/kept".as_ref(), b"kept", 0o644)
        .await
        .unwrap();
    scene.daytona.stop_for_being_idle(sandbox.id()).await;
    let again = scene.provider.reopen(&scene.spec).await.unwrap().unwrap();
    assert_eq!(
        again.files().read("work/kept".as_ref(), 10).await.unwrap(),
        b"kept"
    );
    assert_eq!(
        again
            .exec(&Command::new("true"), &mut Discard)
            .await
            .unwrap()
            .status,
        ExitStatus::Code(0)
    );
    again.close().await.unwrap();
}

#[tokio::test]
async fn a_port_has_a_preview_url() {
    let scene = need!(scene().await);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    let link = sandbox.preview(3000).await.unwrap().unwrap();
    assert!(link.starts_with("https://3000-"), "{link}");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn spending_is_not_metered_and_an_hour_has_a_price() {
    let provider = Arc::new(DaytonaProvider::new(DaytonaOptions::new(
        "http://127.0.0.1:9",
        None,
        "test",
        ralph::clock::system(),
    )));
    let notice = provider.capabilities().spending_notice();
    assert!(notice.is_some_and(|notice| notice.contains("a budget cannot end it in the middle")));
    assert!(provider.hourly_cost(&spec("any")).is_some());
}

/// Few enough for CI; the benchmark uses 200.
const CROWD: usize = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_sandboxes_work_in_parallel() {
    let daytona = need!(Daytona::in_namespaces().await);
    let provider = &Arc::new(DaytonaProvider::new(daytona.options()));
    let all_there = &tokio::sync::Barrier::new(CROWD);
    let work = (0..CROWD).map(|number| async move {
        let sandbox = provider.create(&spec("any:v1")).await.unwrap();
        all_there.wait().await;
        let own = format!("own {number}");
        sandbox
            .files()
            .write("work/own".as_ref(), own.as_bytes(), 0o644)
            .await
            .unwrap();
        let command = Command::shell("cat work/own; pgrep -c bash");
        let exit = sandbox.exec(&command, &mut Discard).await.unwrap();
        assert!(exit.stdout.text().starts_with(&own), "{}", exit.stdout.text());
        all_there.wait().await;
        sandbox.close().await.unwrap();
    });
    futures_util::future::join_all(work).await;
    assert!(daytona.sandboxes().is_empty());
}
