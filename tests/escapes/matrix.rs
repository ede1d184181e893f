//! `ralph selftest --escapes`.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use ralph::clock;
use ralph::network::PolicyRule;
use ralph::sandbox::escapes::{AttackResult, AttackVerdict, escapes};
use ralph::sandbox::{
    Capabilities, Provider, RemovalScope, Sandbox, SandboxError, SandboxListing, SandboxSpec,
};
use rstest::rstest;
use serde_json::Value;

use crate::docker_test::DockerTest;
use crate::need;
use crate::support::engine::Which;
use crate::support::ralph::{Place, finish};
use crate::support::security_page::{check_column, engine_version};
use crate::support::{base, engine};

#[rstest]
#[case::docker(Which::Found, engine::seal_config(), "docker")]
#[case::relayed(Which::Found, "[sandbox.docker]\nseal = \"relayed\"\n".to_owned(), "docker, relayed")]
#[case::podman(Which::Podman, engine::seal_config(), "podman")]
#[tokio::test]
async fn an_engine_enforces_everything_but_the_known_gap(
    #[case] which: Which,
    #[case] seal: String,
    #[case] column: &str,
) {
    let docker_dir = tempfile::tempdir().unwrap();
    let engine = need!(engine::engine_of(which, docker_dir.path()).await);
    let image = need!(base::image(&engine).await);
    let place = Place::new();
    place.write(
        "ralph.toml",
        &format!("[agent]\nname = \"actions\"\n[sandbox]\ntype = \"docker\"\nimage = \"{image}\"\n{seal}"),
    );
    let mut command = place.ralph(&["selftest", "--escapes", "--json"]);
    let ended = finish(command.env("DOCKER_HOST", engine.endpoint().to_string()));
    ended.expect(0, &[]);
    let matrix: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(matrix["provider"], "docker");
    let cases = matrix["cases"].as_array().unwrap();
    let classes: BTreeSet<&str> = cases.iter().map(|case| case["class"].as_str().unwrap()).collect();
    assert_eq!(classes.len(), 26);
    let one_form = ["redirects", "resources", "leftovers", "proofs", "terminals"];
    for class in classes {
        let forms = cases.iter().filter(|case| case["class"] == class).count();
        assert!(forms > 1 || one_form.contains(&class), "{class}: {forms}");
    }
    for case in cases {
        let keys: Vec<&String> = case.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["name", "class", "verdict", "seen", "reason"]);
        let filled = |key: &str| case[key].as_str().is_some_and(|text| !text.is_empty());
        assert!(filled("seen") && filled("reason"), "{case}");
        let inside_tls = case["name"] == "a request inside TLS names the host of the client hello";
        let expected = if inside_tls { "not-enforceable" } else { "enforced" };
        assert_eq!(case["verdict"], expected, "{case}");
    }
    let attacked = engine_version(&engine.endpoint().to_string());
    check_column(column, Some(&attacked), cases);
}

#[test]
fn local_enforces_nothing_and_is_not_attacked() {
    let place = Place::new();
    let ended = place.run(&["selftest", "--escapes", "--type", "local", "--json"]);
    ended.expect(0, &[]);
    let matrix: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(matrix["provider"], "local");
    let cases = matrix["cases"].as_array().unwrap();
    assert!(cases.len() > 70, "{}", cases.len());
    for case in cases {
        assert_eq!(case["seen"], "not tried", "{case}");
        if case["verdict"] == "not-tried" {
            assert!(
                case["reason"].as_str().unwrap().contains("the tests of ralph"),
                "{case}"
            );
            continue;
        }
        assert_eq!(case["verdict"], "not-enforceable", "{case}");
        assert_eq!(
            case["reason"],
            "the `local` provider cannot enforce the network policy: its commands can reach everything that the host can reach",
            "{case}"
        );
    }
    check_column("local", None, cases);
}

#[tokio::test]
async fn variations_of_the_attacks_fail_and_are_counted() {
    let room = need!(DockerTest::new().await);
    let spec = room.spec.clone();
    let duration = Duration::from_secs(8);
    let matrix = escapes(room.provider.as_ref(), spec, clock::system(), Some(duration))
        .await
        .unwrap();
    let varied: Vec<_> = matrix
        .cases
        .iter()
        .filter(|case| case.name.contains("variations"))
        .collect();
    assert!(varied.len() > 3, "{varied:?}");
    assert_eq!(matrix.count(AttackVerdict::Open), 0, "{matrix:?}");
}

#[tokio::test]
async fn a_variation_that_succeeds_is_reported() {
    let room = need!(DockerTest::new().await);
    let spec = room.spec.clone();
    let matrix = escapes(
        &Careless(room),
        spec,
        clock::system(),
        Some(Duration::from_secs(20)),
    )
    .await
    .unwrap();
    let found = |case: &AttackResult| {
        case.verdict == AttackVerdict::Open
            && case.name.ends_with("(variation)")
            && case.reason.contains("asked for")
    };
    assert!(matrix.cases.iter().any(found), "{matrix:?}");
}

#[tokio::test]
async fn a_successful_attack_is_reported_with_what_it_reached() {
    let room = need!(DockerTest::new().await);
    let spec = room.spec.clone();
    let matrix = escapes(&Careless(room), spec, clock::system(), None)
        .await
        .unwrap();
    let tried = |name: &str| matrix.cases.iter().find(|tried| tried.name == name).unwrap();
    let resolved = tried("a denied name does not resolve");
    assert_eq!(resolved.verdict, AttackVerdict::Open, "{resolved:?}");
    assert!(resolved.seen.starts_with("the address 198.18."), "{resolved:?}");
    let asked = tried("a denied name is not reached over HTTP");
    assert_eq!(asked.verdict, AttackVerdict::Open, "{asked:?}");
    assert_eq!(asked.reason, "asked for denied.escapes.ralph.invalid");
    assert_eq!(tried("nothing can be mounted").verdict, AttackVerdict::Enforced);
}

/// Creates sandboxes that may reach more names than the policy allows.
struct Careless(DockerTest);

#[async_trait]
impl Provider for Careless {
    fn name(&self) -> &'static str {
        "careless"
    }

    fn capabilities(&self) -> Capabilities {
        self.0.provider.capabilities()
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.0.provider.create(&careless(spec)).await
    }

    async fn reopen(&self, spec: &SandboxSpec) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        self.0.provider.reopen(&careless(spec)).await
    }

    async fn list(&self) -> Result<Vec<SandboxListing>, SandboxError> {
        self.0.provider.list().await
    }

    async fn attach(&self, id: &str) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        self.0.provider.attach(id).await
    }

    async fn remove(&self, id: &str, scope: RemovalScope) -> Result<bool, SandboxError> {
        self.0.provider.remove(id, scope).await
    }
}

fn careless(spec: &SandboxSpec) -> SandboxSpec {
    let more = PolicyRule::parse("**.escapes.ralph.invalid").unwrap();
    SandboxSpec {
        network: spec.network.clone().allowing([more]),
        ..spec.clone()
    }
}
