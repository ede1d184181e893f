//! Daytona, when it refuses, forgets, hangs up or speaks of things that are not known yet.

use std::sync::Arc;
use std::time::Duration;

use ralph::exec::{Command, Discard, Status};
use ralph::network::{Policy, Rule};
use ralph::sandbox::connect::{Choice, check_policy, connect};
use ralph::sandbox::{Fault as Meaning, Provider, Removable, SandboxError, SandboxSpec};
use ralph::secret::Secret;
use rstest::rstest;

use crate::support::daytona::{Daytona, Fault, KEY, Tier};
use crate::support::{base, engine};
use crate::{need, spec, witness};

/// A Daytona, its provider, and what to make a sandbox from.
struct Scene {
    daytona: Daytona,
    provider: Arc<dyn Provider>,
    spec: SandboxSpec,
}

async fn scene() -> Result<Scene, String> {
    let engine = engine::engine().await?;
    let image = base::image(&engine).await?;
    let daytona = Daytona::start(engine).await;
    let provider = connect(&Choice::Daytona(daytona.options())).unwrap();
    Ok(Scene {
        daytona,
        provider,
        spec: spec(&image),
    })
}

fn told(error: &SandboxError) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string);
    format!(
        "{error}: {} ({})",
        source.unwrap_or_default(),
        error.hint().unwrap_or_default()
    )
}

#[rstest]
#[case::no_key(None, "DAYTONA_API_KEY")]
#[case::a_wrong_key(Some("dtn_wrong_wrong"), "401: Unauthorized (set DAYTONA_API_KEY")]
#[tokio::test]
async fn without_a_key_it_says_which_is_missing(#[case] key: Option<&str>, #[case] expected: &str) {
    let scene = need!(scene().await);
    let options = ralph::sandbox::daytona::DaytonaOptions {
        key: key.map(Secret::new),
        ..scene.daytona.options()
    };
    let error = connect(&Choice::Daytona(options))
        .unwrap()
        .check()
        .await
        .unwrap_err();
    assert!(told(&error).contains(expected), "{}", told(&error));
    assert_eq!(error.fault(), Meaning::Provider);
    assert!(!told(&error).contains("dtn_"));
}

#[rstest]
#[case::forbidden(403, "403", Meaning::Provider)]
#[case::a_conflict(409, "409", Meaning::Provider)]
#[case::out_of_order(500, "500", Meaning::Away)]
#[tokio::test]
async fn a_refusal_leaves_nothing_behind(
    #[case] status: u16,
    #[case] expected: &str,
    #[case] meaning: Meaning,
) {
    let scene = need!(scene().await);
    scene
        .daytona
        .fail("POST /api/sandbox", vec![Fault::Status(status); 4]);
    let Err(error) = scene.provider.create(&scene.spec).await else {
        panic!("it was made")
    };
    assert!(told(&error).contains(expected), "{}", told(&error));
    assert_eq!((error.fault(), scene.daytona.sandboxes().len()), (meaning, 0));
}

#[tokio::test]
async fn what_passes_by_itself_is_asked_for_again() {
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
async fn a_sandbox_that_was_made_unheard_is_taken_and_not_made_twice() {
    let scene = need!(scene().await);
    scene
        .daytona
        .fail("POST /api/sandbox", [Fault::HeardButUnanswered]);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    assert_eq!(scene.daytona.sandboxes(), [sandbox.id()]);
    sandbox.close().await.unwrap();
    assert!(scene.daytona.sandboxes().is_empty());
}

#[tokio::test]
async fn one_that_comes_to_nothing_is_removed() {
    let scene = need!(scene().await);
    scene.daytona.fail("process/execute", vec![Fault::Nonsense; 4]);
    let Err(error) = scene.provider.create(&scene.spec).await else {
        panic!("it was made")
    };
    assert!(told(&error).contains("cannot be read"), "{}", told(&error));
    assert!(scene.daytona.sandboxes().is_empty());
}

#[tokio::test]
async fn an_image_that_daytona_cannot_have_is_told_with_its_reason() {
    let scene = need!(scene().await);
    let spec = spec("registry.example.invalid/agent:v1");
    let Err(error) = scene.provider.create(&spec).await else {
        panic!("it was made")
    };
    let told = told(&error);
    assert!(
        told.contains("no such image: registry.example.invalid/agent:v1"),
        "{told}"
    );
}

#[tokio::test]
async fn a_snapshot_is_registered_once_with_the_resources_it_has() {
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
async fn evidence_survives_a_log_that_breaks_off() {
    let scene = need!(scene().await);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    scene.daytona.fail("logs", [Fault::BreaksOff, Fault::BreaksOff]);
    let exit = witness(sandbox.as_ref(), "seq 1 2000; echo wrong >&2; exit 3").await;
    assert_eq!(exit.status, Status::Code(3));
    let lines: Vec<String> = (1..=2000).map(|number| number.to_string()).collect();
    let expected = lines.join("\n") + "\n";
    assert_eq!(
        (exit.stdout.text(), exit.stderr.text()),
        (expected, "wrong\n".to_owned())
    );
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn evidence_sees_what_it_is_given_and_ends_in_time() {
    let scene = need!(scene().await);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    let command = Command::shell("printf '%s %s ' \"$PWD\" \"$GIVEN\"; cat").cwd("work");
    let command = command.env("GIVEN", "it's\ntwo").stdin(*b"input");
    let exit = sandbox.witness(&command, &mut Discard).await.unwrap();
    let expected = format!("{}/work it's\ntwo input\n", sandbox.root().display());
    assert_eq!(exit.stdout.text(), expected);
    let endless = Command::shell("sleep 100").timeout(Duration::from_millis(500));
    let exit = sandbox.witness(&endless, &mut Discard).await.unwrap();
    assert_eq!(exit.status, Status::TimedOut);
    let left = witness(sandbox.as_ref(), "pgrep -c sleep; true").await;
    assert_eq!(left.stdout.text().trim(), "0");
    sandbox.close().await.unwrap();
}

#[rstest]
#[case::stopped_for_being_idle("stopped")]
#[case::failed("error")]
#[tokio::test]
async fn a_sandbox_that_daytona_took_away_is_lost(#[case] state: &str) {
    let scene = need!(scene().await);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    scene.daytona.set_state(sandbox.id(), state);
    let error = sandbox.read("work/file".as_ref(), 10).await.unwrap_err();
    assert!(matches!(error, SandboxError::Lost { .. }), "{error:?}");
    assert!(error.to_string().contains(state), "{error}");
}

#[tokio::test]
async fn a_state_that_is_not_known_is_waited_for() {
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
async fn an_organisation_that_may_not_choose_is_told_what_to_do() {
    let scene = need!(scene().await);
    scene.daytona.set_tier(Tier::Low);
    let Err(error) = scene.provider.create(&scene.spec).await else {
        panic!("it was made")
    };
    let told = told(&error);
    assert!(
        told.contains("cannot enforce the network policy") && told.contains("raise the tier"),
        "{told}"
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
async fn a_policy_is_enforced_as_far_as_the_list_goes(#[case] names: usize, #[case] enforced: bool) {
    let scene = need!(scene().await);
    let rules = (0..names).map(|number| Rule::parse(&format!("host{number}.example.org")).unwrap());
    let policy = Policy::allowlist(rules);
    let checked = check_policy(scene.provider.as_ref(), &policy);
    assert_eq!(checked.is_ok(), enforced, "{checked:?}");
}

#[tokio::test]
async fn whose_a_sandbox_is_stands_on_it_and_only_orphans_are_pruned() {
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
            .remove(sandbox.id(), Removable::Orphans)
            .await
            .unwrap()
    );
    assert!(scene.provider.remove(sandbox.id(), Removable::Any).await.unwrap());
    assert!(scene.daytona.sandboxes().is_empty());
}

#[tokio::test]
async fn the_key_is_nowhere_to_be_seen() {
    let scene = need!(scene().await);
    let sandbox = scene.provider.create(&scene.spec).await.unwrap();
    let inside = witness(sandbox.as_ref(), "env; grep -rs dtn_ \"$HOME\" /tmp; true").await;
    assert!(!inside.stdout.text().contains(KEY));
    assert!(!format!("{:?}", scene.daytona.options()).contains(KEY));
    sandbox.close().await.unwrap();
}
