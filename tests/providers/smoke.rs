//! `tests/smoke`, which tries a provider for real: here on the stand-ins, so that the script itself is known to work.

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
async fn a_machine_is_tried_for_real(#[case] program: Program, #[case] provider: &str) {
    let (ground, _) = need!(Ground::allowing(program, &[]).await);
    let image = ground.spec.image.clone().unwrap();
    let mut command = smoke(&format!("--{provider}"), &image);
    is_well(&finish(command.env("PATH", ground.site.search_path())), provider);
    assert!(ground.machines().is_empty());
}

/// The script runs beside the stand-in, which is served by this process.
#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_is_tried_for_real() {
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
fn without_what_it_needs_it_says_so_and_ends_well(#[case] provider: &str, #[case] reason: &str) {
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
