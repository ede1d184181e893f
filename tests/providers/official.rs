//! The fake Daytona, checked against Daytona's `OpenAPI` documents and SDK.

use std::collections::BTreeMap;
use std::time::Duration;

use ralph::engine::{ContentArchive, Digest};
use ralph::network::{HostName, Policy, PolicyRule};
use ralph::sandbox::daytona::{DaytonaOptions, DaytonaProvider, DaytonaSecret};
use ralph::sandbox::{Provider, RemovalScope, SandboxSpec};
use ralph::secret::Secret;

use crate::support::daytona::prism::Prism;
use crate::support::daytona::{Daytona, KEY};
use crate::support::{base, engine};
use crate::{need, spec, witness};

const SDK_SCRIPT_TIMEOUT: Duration = Duration::from_secs(120);

/// Credentials, builds, policies, evidence, lists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_outside_the_conformance_suite_match_the_documents() {
    let engine = need!(engine::engine().await);
    let image = need!(base::image(&engine).await);
    let daytona = Daytona::start(engine).await;
    let prism = need!(Prism::before(&daytona).await);
    let provider = DaytonaProvider::new(DaytonaOptions {
        dockerfile: Some(format!("FROM {image}\nENV BUILT=yes\n")),
        secrets: vec![DaytonaSecret {
            variable: "MODEL_KEY".to_owned(),
            value: Secret::new("sk-real-0123456789"),
            hosts: vec![HostName::parse("api.example.org").unwrap()],
        }],
        target: Some("eu".to_owned()),
        ..prism.options(&daytona)
    });
    let spec = SandboxSpec {
        network: Policy::allowlist([PolicyRule::parse("github.com").unwrap()]),
        env: BTreeMap::from([("GIVEN".to_owned(), "too".to_owned())]),
        ..spec(&image)
    };
    provider.check().await.unwrap();
    let sandbox = provider.create(&spec).await.unwrap();
    let exit = witness(sandbox.as_ref(), "echo $BUILT $GIVEN $MODEL_KEY").await;
    assert!(
        exit.stdout.text().starts_with("yes too dtn_secret_"),
        "{}",
        exit.stdout.text()
    );
    assert!(sandbox.preview(8080).await.unwrap().is_some());
    provider.reopen(&spec).await.unwrap().unwrap();
    assert_eq!(provider.list().await.unwrap().len(), 1);
    assert!(provider.remove(sandbox.id(), RemovalScope::Any).await.unwrap());
    let built = SandboxSpec {
        image: Some("agent-loop-sandbox-test".to_owned()),
        dockerfile: Some(format!("FROM {image}\nENV BUILT=too\n")),
        build_files: Some(ContentArchive::new(Digest::sha256(b""), 0, |out| {
            out.write_all(&[0; 1024])
        })),
        ..spec.clone()
    };
    let images = provider.images().unwrap();
    let name = images.ensure(&built).await.unwrap().unwrap();
    assert_eq!(images.list(&built).await.unwrap().len(), 1);
    images.remove(&name).await.unwrap();
    assert_eq!(prism.complaints(&daytona), [""; 0]);
    assert!(daytona.sandboxes().is_empty() && daytona.vault().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_sdk_works_with_the_fake() {
    let python = need!(std::env::var("RALPH_TEST_DAYTONA_SDK").map_err(|_| {
        "RALPH_TEST_DAYTONA_SDK names no Python with Daytona's SDK; tests/run installs one"
    }));
    let engine = need!(engine::engine().await);
    let image = need!(base::image(&engine).await);
    let daytona = Daytona::start(engine).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/daytona/drive.py");
    let driven = tokio::process::Command::new(python)
        .args([script, &daytona.api_url(), KEY, &image])
        .env("DAYTONA_DISABLE_TELEMETRY", "1")
        .kill_on_drop(true)
        .output();
    let driven = tokio::time::timeout(SDK_SCRIPT_TIMEOUT, driven)
        .await
        .unwrap()
        .unwrap();
    let stdout = String::from_utf8_lossy(&driven.stdout);
    let wrong = String::from_utf8_lossy(&driven.stderr);
    assert!(driven.status.success(), "{stdout}\n{wrong}");
    assert_eq!(stdout.trim().lines().last(), Some("driven"));
    assert!(daytona.sandboxes().is_empty());
}
