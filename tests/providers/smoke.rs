//! `tests/smoke`, which tests a provider for real. Here it runs with the fakes, to test the script itself.

use std::process::Command;

use rstest::rstest;

use crate::need;
use crate::site::{Ground, Program};
use crate::support::daytona::{Daytona, KEY};
use crate::support::ralph::{Ended, finish};
use crate::support::{base, engine};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/smoke");

fn smoke(provider: &str, image: &str) -> Command {
    let mut command = Command::new(SCRIPT);
    command.args([provider, "--image", image, "--ralph", env!("CARGO_BIN_EXE_ralph")]);
    command
}

fn is_well(ended: &Ended, provider: &str) {
    ended.expect(0, &[]);
    assert!(
        ended.stdout.ends_with(&format!("{provider}: all is well\n")),
        "{ended:?}"
    );
}

#[rstest]
#[case::tart(Program::Tart, "tart")]
#[case::sbx(Program::Sbx, "docker-sandbox")]
#[tokio::test]
async fn the_script_passes_with_a_vm(#[case] program: Program, #[case] provider: &str) {
    let (ground, _) = need!(Ground::allowing(program, &[]).await);
    let image = ground.spec.image.clone().unwrap();
    let mut command = smoke(&format!("--{provider}"), &image);
    is_well(&finish(command.env("PATH", ground.site.search_path())), provider);
    assert!(ground.vms().is_empty());
}

/// The script runs in parallel to the fake, which this process serves.
#[tokio::test(flavor = "multi_thread")]
async fn the_script_passes_with_daytona() {
    let engine = need!(engine::engine().await);
    let image = need!(base::image(&engine).await);
    let daytona = Daytona::start(engine).await;
    let mut command = smoke("--daytona", &image);
    command
        .env("DAYTONA_API_URL", format!("{}/api", daytona.url()))
        .env("DAYTONA_API_KEY", KEY);
    let ended = tokio::task::spawn_blocking(move || finish(&mut command))
        .await
        .unwrap();
    is_well(&ended, "daytona");
    assert!(!format!("{ended:?}").contains(KEY));
}

#[rstest]
#[case::no_key("--daytona", "DAYTONA_API_KEY is not set")]
#[case::no_tart("--tart", "`tart` is not installed")]
#[case::no_sandboxes(
    "--docker-sandbox",
    "neither `sbx` nor a `docker` with sandboxes is installed"
)]
fn a_missing_requirement_skips_the_script(#[case] provider: &str, #[case] reason: &str) {
    let ended = finish(
        Command::new(SCRIPT)
            .arg(provider)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("DOCKER_CONFIG", "/nowhere"),
    );
    ended.expect(0, &[]);
    assert_eq!(ended.stdout, format!("skipped: {reason}\n"));
}
