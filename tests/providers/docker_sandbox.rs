//! Docker Sandboxes: the choice of the program, its arguments, and what is left.

use std::sync::Arc;

use ralph::network::{Policy, PolicyRule};
use ralph::sandbox::docker_sandbox;
use ralph::sandbox::{Provider, RemovalScope, SandboxErrorKind, SandboxSpec};
use rstest::rstest;

use crate::support::vms::Site;
use crate::support::{base, engine};
use crate::{full_message, need, spec, witness};

async fn scene(programs: &[&str]) -> Result<(Site, Arc<dyn Provider>, SandboxSpec), String> {
    let image = base::image(&engine::engine().await?).await?;
    let site = Site::with(programs, &image);
    let provider = Arc::new(docker_sandbox::provider(site.options()));
    Ok((site, provider, spec(&image)))
}

#[rstest]
#[case::both(&["sbx", "docker"], "sbx exec")]
#[case::the_older_one(&["docker"], "docker sandbox exec")]
#[tokio::test]
async fn the_newer_program_is_preferred(#[case] programs: &[&str], #[case] used: &str) {
    let (site, provider, spec) = need!(scene(programs).await);
    let sandbox = provider.create(&spec).await.unwrap();
    witness(sandbox.as_ref(), "true").await;
    sandbox.close().await.unwrap();
    assert!(site.kept("calls").contains(used), "{}", site.kept("calls"));
}

#[tokio::test]
async fn a_missing_program_is_reported_with_a_hint() {
    let (_site, provider, _) = need!(scene(&[]).await);
    let error = provider.check().await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unavailable, "{error:?}");
    assert!(
        full_message(&error).contains("install `sbx`"),
        "{}",
        full_message(&error)
    );
}

#[rstest]
#[case::sbx("sbx", "allow github.com,*.crates.io\ndeny evil.example.org\n")]
#[case::plugin(
    "docker",
    "--policy deny --allow-host github.com --allow-host *.crates.io --block-host evil.example.org\n"
)]
#[tokio::test]
async fn a_policy_is_passed_to_the_program(#[case] program: &str, #[case] expected: &str) {
    let (site, provider, spec) = need!(scene(&[program]).await);
    need!(site.connect());
    let rules = |lines: &[&str]| {
        lines
            .iter()
            .map(|line| PolicyRule::parse(line).unwrap())
            .collect::<Vec<_>>()
    };
    let policy =
        Policy::allowlist(rules(&["github.com", "**.crates.io"])).denying(rules(&["evil.example.org"]));
    let spec = SandboxSpec {
        network: policy,
        ..spec
    };
    let sandbox = provider.create(&spec).await.unwrap();
    assert_eq!(site.kept(&format!("boxes/{}/policy", sandbox.id())), expected);
    sandbox.close().await.unwrap();
}

#[rstest]
#[case::a_path(Policy::allowlist([PolicyRule::parse("docs.example.org/api/*").unwrap()]), "methods or paths")]
#[case::a_record(Policy::record(), "nothing can be recorded")]
#[tokio::test]
async fn no_vm_is_created_for_a_policy_that_cannot_be_enforced(
    #[values("sbx", "docker")] program: &str,
    #[case] network: Policy,
    #[case] reason: &str,
) {
    let (site, provider, spec) = need!(scene(&[program]).await);
    let Err(error) = provider.create(&SandboxSpec { network, ..spec }).await else {
        panic!("it was made")
    };
    assert_eq!(error.kind(), SandboxErrorKind::Unsupported, "{error:?}");
    assert!(error.to_string().contains(reason), "{error}");
    assert!(provider.list().await.unwrap().is_empty());
    assert!(!site.kept("calls").contains("create"), "{}", site.kept("calls"));
}

#[tokio::test]
async fn an_image_is_copied_to_sbx_once() {
    let (site, provider, spec) = need!(scene(&["sbx"]).await);
    site.put("templates", "");
    for _ in 0..2 {
        provider.create(&spec).await.unwrap().close().await.unwrap();
    }
    assert_eq!(site.kept("calls").matches("template load").count(), 1);
}

#[tokio::test]
async fn an_existing_policy_of_the_user_is_not_changed() {
    let (site, provider, spec) = need!(scene(&["sbx"]).await);
    site.put("policy", "balanced\n");
    let Err(error) = provider.create(&spec).await else {
        panic!("it was made")
    };
    assert!(error.to_string().contains("initialised as balanced"), "{error}");
    assert!(provider.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn vms_without_a_record_do_not_belong_to_ralph() {
    let (site, provider, spec) = need!(scene(&["sbx"]).await);
    let sandbox = provider.create(&spec).await.unwrap();
    let theirs = site.path("bin/state/boxes/not-of-ralph");
    std::fs::create_dir_all(&theirs).unwrap();
    std::fs::write(theirs.join("workspace"), "/").unwrap();
    let listed = provider.list().await.unwrap();
    assert_eq!(
        listed.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(),
        [sandbox.id()]
    );
    assert!(!provider.remove("not-of-ralph", RemovalScope::Any).await.unwrap());
    assert!(
        !provider
            .remove(sandbox.id(), RemovalScope::Orphans)
            .await
            .unwrap()
    );
    sandbox.close().await.unwrap();
    assert!(theirs.exists());
}
