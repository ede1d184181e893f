//! `examples/image.rs`: an image by the library, without the `cli` feature.

use std::path::PathBuf;
use std::process::Command;

use super::project::Project;
use super::support::ralph::finish;
use crate::need;

#[tokio::test(flavor = "multi_thread")]
async fn the_image_example_plans_and_builds_an_image_and_shows_its_status() {
    let project = need!(Project::new().await);
    let dockerfile = format!("FROM {}\nENV A=1\n", project.base("base"));
    project.place.write("Dockerfile", &dockerfile);
    let ended = finish(&mut example(&project, "image"));
    ended.expect(0, &[]);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(
        lines[2].starts_with("1. build agent-loop-sandbox-actions:v"),
        "{ended:?}"
    );
    assert_eq!(lines[3..], ["done: 1", "Present"], "{ended:?}");
    project.close().await;
}

/// An example built without default features, in the environment and the directory of the project's `ralph`.
fn example(project: &Project, name: &str) -> Command {
    let target = std::env::current_exe().unwrap();
    let target: PathBuf = target.ancestors().nth(3).unwrap().to_owned();
    let mut build = Command::new(env!("CARGO"));
    build
        .args([
            "build",
            "--quiet",
            "--offline",
            "--no-default-features",
            "--example",
            name,
        ])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(build.status().unwrap().success(), "{name} is not built");
    let mut command = Command::new(target.join("debug/examples").join(name));
    command.env_clear().current_dir(project.place.repo());
    for (name, value) in project.command(&[]).get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command
}
