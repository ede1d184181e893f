//! What a person sees of an image on its way: bars on a terminal, plain lines on one whose cursor stays where it is.

use std::process::Command;

use rstest::rstest;

use super::registry::Door;
use super::share::Sharing;
use super::support::skip::program;
use crate::need;

#[rstest]
#[case::wide(80)]
#[case::narrow(40)]
#[tokio::test(flavor = "multi_thread")]
async fn every_layer_has_a_bar_with_its_name_that_fits(#[case] columns: usize) {
    let sharing = need!(pushed().await);
    let shown = on_terminal(&sharing.pull(), columns, "xterm");
    let bars: Vec<&str> = drawn(&shown).filter(|line| names_a_layer(line)).collect();
    assert!(!bars.is_empty(), "{shown:?}");
    for bar in bars {
        assert!(bar.chars().count() <= columns, "{bar:?}");
    }
    assert!(!has_colours(&shown), "{shown:?}");
    sharing.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dumb_terminal_gets_plain_lines() {
    let sharing = need!(pushed().await);
    let shown = on_terminal(&sharing.pull(), 80, "dumb");
    assert!(!shown.contains('\x1b'), "{shown:?}");
    assert!(shown.contains(": Pull complete"), "{shown:?}");
    sharing.close().await;
}

/// An image that a registry has and the engine lacks, or why the test cannot run.
async fn pushed() -> Result<Sharing, String> {
    program("script")?;
    let sharing = Sharing::new(Door::Open).await?;
    sharing.project.try_image("push", &[]).expect(0, &[]);
    sharing.forget().await;
    Ok(sharing)
}

/// What a command writes to a terminal so wide, of this kind.
fn on_terminal(command: &Command, columns: usize, kind: &str) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let line = format!("stty cols {columns} rows 24; exec {}", words.join(" "));
    let mut script = Command::new("script");
    script
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env_clear();
    script.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    script
        .current_dir(command.get_current_dir().unwrap())
        .env("TERM", kind)
        .env("NO_COLOR", "1");
    let output = script.output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown:?}");
    shown
}

/// What was drawn, without what moved the cursor.
fn drawn(shown: &str) -> impl Iterator<Item = &str> {
    let pieces = shown.split(['\r', '\n', '\x1b']);
    pieces.map(|piece| match piece.strip_prefix('[') {
        Some(moved) => moved
            .trim_start_matches(|c: char| c.is_ascii_digit() || c == ';')
            .get(1..)
            .unwrap_or(""),
        None => piece,
    })
}

/// Two spaces, and twelve digits of a layer.
fn names_a_layer(line: &str) -> bool {
    let name = line.strip_prefix("  ").and_then(|line| line.split_once(' '));
    name.is_some_and(|(name, _)| name.len() == 12 && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn has_colours(shown: &str) -> bool {
    let moves = shown.split("\x1b[").skip(1);
    let mut ends = moves.filter_map(|piece| piece.chars().find(char::is_ascii_alphabetic));
    ends.any(|end| end == 'm')
}
