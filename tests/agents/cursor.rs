//! `cursor`, by a program that stands in for the real one, which cannot be fetched here.

use std::process::Command;

use rstest::rstest;

use crate::bench::Within;
use crate::container::Container;
use crate::need;
use crate::support::ralph::{Place, finish};

const KEY: &str = "key_0123456789abcdef0123456789abcdef";
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support");

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_done_by_cursor_in_fresh_sessions(
    #[values(Within::Directory, Within::Container)] within: Within,
) {
    let place = Place::new();
    let container = match within {
        Within::Directory => None,
        Within::Container | Within::Sealed => Some(need!(Container::new().await)),
    };
    let sandbox = match &container {
        None => "[sandbox]\ntype = \"local\"\n[sandbox.network]\npolicy = \"allow-all\"\n".to_owned(),
        Some(container) => container.settings("cursor-agent", FOLDER.as_ref(), within),
    };
    place.write(
        "ralph.toml",
        &format!(
            "[agent]\nname = \"cursor\"\nmodel = \"first-model\"\ndangerously_pass_credential = {}\n{sandbox}",
            within == Within::Container
        ),
    );
    let ended = finish(&mut with_program(&place, container.as_ref(), &["run"]));
    ended.expect(
        0,
        &[
            "ready: credential of cursor: found in `CURSOR_API_KEY`, not verified",
            "ready: agent cursor: 2026.01.01-fake",
            "a.txt says hello now.",
            "[x] M1.2",
            "done: ",
        ],
    );
    let status = place.status();
    assert_eq!(
        (&status["iterations"], &status["tokens"]),
        (&2.into(), &246.into())
    );
    let branch = status["branch"].as_str().unwrap();
    assert_eq!(place.git(&["show", &format!("{branch}:b.txt")]), "hello\n");
    assert!(!ended.stderr.contains(KEY) && !ended.stdout.contains(KEY));
}

fn with_program(place: &Place, container: Option<&Container>, args: &[&str]) -> Command {
    let mut command = place.ralph(args);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{FOLDER}:{path}"));
    command.env("CURSOR_API_KEY", KEY);
    if let Some(container) = container {
        command.env("DOCKER_HOST", container.engine.endpoint().to_string());
    }
    command
}
