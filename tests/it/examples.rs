//! The examples run, and show what they promise.

use std::path::PathBuf;
use std::process::Command;

use rstest::rstest;

#[rstest]
#[case::drive_a_loop("drive_a_loop", "Done: every checkbox is verified")]
#[case::custom_provider("custom_provider", "Done after ")]
#[case::custom_agent("custom_agent", "Done after 1 iteration")]
#[case::custom_sink("custom_sink", "Done: 2 iterations, 2020 tokens, ")]
fn an_example_runs_to_its_end(#[case] name: &str, #[case] shown: &str) {
    let output = cargo_run(name).output().unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{name} failed:\n{stdout}{stderr}");
    assert!(
        stdout.contains(shown),
        "{name} does not say `{shown}`:\n{stdout}{stderr}"
    );
}

fn cargo_run(name: &str) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["run", "--quiet", "--offline", "--example", name, "--target-dir"])
        .arg(target_dir())
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    // The variables that cargo set for this package would make it rebuild dependencies that read the same names.
    let of_the_package = |name: &&str| {
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") || *name == "OUT_DIR"
    };
    for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        if of_the_package(&name.as_str()) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Where cargo built this test, so that it finds the examples it built before: `<target>/<profile>/deps/it-...`.
fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    exe.ancestors().nth(3).unwrap().to_owned()
}
