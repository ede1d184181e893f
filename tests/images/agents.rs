//! The Dockerfiles of the agents, built: everything that each promises runs in its image.

use std::fs;
use std::path::Path;

use rstest::rstest;
use serde_json::{Value, json};

use super::project::{Built, Project};
use super::support::base::{NODE, node};
use super::support::chat_server::{Answer, ChatServer};
use super::support::ralph::{finish, script, whole_task};
use crate::need;

/// What comes neither from Debian nor from npm or pip comes with the base: Node, and an installer that stands in for
/// cursor's. Debian's Node, which tests use to see whether npm's registry can be reached, is removed, as in
/// `debian:trixie-slim`.
const BASE: &str = "\
COPY mirror /mirror
ENV NODE_MIRROR=file:///mirror CURSOR_INSTALLER=file:///mirror/install
RUN apt-get purge --quiet=2 --yes nodejs npm
";

/// Puts the program where cursor's own installer does.
const CURSOR_INSTALLER: &str = "\
mkdir -p ~/.local/bin
printf '#!/bin/sh\\necho stands for cursor-agent\\n' > ~/.local/bin/cursor-agent
chmod +x ~/.local/bin/cursor-agent
";

/// What every image carries, as commands that end well.
const TOOLS: &str = "node npm pnpm python3 pip3 uv git jq curl rg fd gcc make";

/// In one test, so that what all of them begin with is built once.
#[tokio::test(flavor = "multi_thread")]
async fn every_agents_image_has_its_program_and_every_tool() {
    let context = tempfile::tempdir().unwrap();
    need!(write_mirror(&context.path().join("mirror")));
    let project = need!(Project::on_debian_with_tools(context.path(), BASE).await);

    let done = script([whole_task()]);
    let run = project.place.scripted(&done, &["--type", "docker"]);
    finish(&mut Project::with_the_engine(run)).expect(0, &["build agent-loop-sandbox-actions:", "done: "]);
    let actions = build(&project, "actions");
    assert_eq!(actions.steps, Vec::<String>::new(), "the run has built it");
    expect_tools(&project, &actions.tag);
    let (image, steps) = selftest(&project).await;
    assert_eq!((&image, steps), (&actions.tag, vec!["build image".to_owned()]));

    for (agent, program, says) in [
        ("claude", "claude", "2.1.325"),
        ("codex", "codex", "0.166.0"),
        ("cursor", "cursor-agent", "stands for cursor-agent"),
        ("gemini", "gemini", "0.61.0"),
        ("opencode", "opencode", "1.18.33"),
    ] {
        let image = build(&project, agent);
        assert_eq!(image.steps, ["build-base"], "{agent}");
        let said = project.run(&image.tag, &[program, "--version"]);
        assert!(said.contains(says), "{program}: {said}");
        expect_tools(&project, &image.tag);
    }

    project.write(
        "Dockerfile.sandbox",
        "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN true\n",
    );
    let (layered, steps) = selftest(&project).await;
    assert_ne!(layered, actions.tag, "a stale image was started from");
    assert_eq!(steps, ["build image", "build project image"]);
    project.close().await;
}

/// The base is Debian 13, as by default. Its own Node is 20, with npm 9.
#[tokio::test(flavor = "multi_thread")]
async fn the_default_image_has_node_lts_python_3_12_and_every_tool() {
    let context = tempfile::tempdir().unwrap();
    need!(write_mirror(&context.path().join("mirror")));
    let project = need!(Project::on_debian_with_tools(context.path(), BASE).await);
    let image = build(&project, "actions");
    expect_tools(&project, &image.tag);
    let versions = "node -p process.release.lts; npm --version | cut -d. -f1; pnpm --version | cut -d. -f1; \
         python3 -c 'import sys; print(sys.version_info >= (3, 12))'; . /etc/os-release; echo $VERSION_CODENAME";
    let said = project.run(&image.tag, &["sh", "-c", versions]);
    assert_eq!(said, "Krypton\n11\n10\nTrue\ntrixie\n");
    project.close().await;
}

/// The base's sources have these packages of the same release of Node, besides Debian's.
#[rstest]
#[case::both_new("nodejs npm", "/usr/bin/node\n/usr/bin/npm\n")]
#[case::old_npm("nodejs", "/usr/local/bin/node\n/usr/local/bin/npm\n")]
#[tokio::test(flavor = "multi_thread")]
async fn node_comes_from_the_bases_packages_if_both_are_new(#[case] packages: &str, #[case] programs: &str) {
    let context = tempfile::tempdir().unwrap();
    need!(write_mirror(&context.path().join("mirror")));
    let script = include_str!("node-packages.sh");
    fs::write(context.path().join("node-packages.sh"), script).unwrap();
    let base = format!("{BASE}COPY node-packages.sh /\nRUN sh /node-packages.sh {packages}\n");
    let project = need!(Project::on_debian_with_tools(context.path(), &base).await);
    let image = build(&project, "actions");
    expect_tools(&project, &image.tag);
    let said = project.run(&image.tag, &["sh", "-c", "command -v node; command -v npm"]);
    assert_eq!(said, programs);
    project.close().await;
}

fn build(project: &Project, agent: &str) -> Built {
    let ended = finish(&mut project.command(&["--dockerfile", "--json", "--agent", agent]));
    Built::of(&ended, "done")
}

/// Fails unless the agent, who is not root, can use everything.
fn expect_tools(project: &Project, image: &str) {
    let try_all = format!(
        "for tool in {TOOLS}; do $tool --version >/dev/null || echo $tool; done; \
         ssh -V 2>/dev/null || echo ssh; python3 -m venv /tmp/v && /tmp/v/bin/pip --version >/dev/null || echo venv; node --version; id -un"
    );
    let said = project.run(image, &["sh", "-c", &try_all]);
    assert_eq!(said, format!("v{NODE}\nagent\n"), "{image}");
}

/// What the Dockerfiles download from elsewhere, or why it cannot be had.
fn write_mirror(dir: &Path) -> Result<(), String> {
    let dist = node()?;
    let copy = dir.join(format!("v{NODE}"));
    fs::create_dir_all(&copy).unwrap();
    for entry in fs::read_dir(dist).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    fs::write(dir.join("install"), CURSOR_INSTALLER).unwrap();
    Ok(())
}

/// Tries out a sandbox, in which everything must hold; returns the image it started from, and what was built for it.
async fn selftest(project: &Project) -> (String, Vec<String>) {
    let answer = json!({"summary": "ready", "actions": []}).to_string();
    let model = ChatServer::start([Answer::text(&answer)]).await;
    let endpoint = format!("model_endpoint.base_url={}", model.base_url());
    let mut command = project.place.ralph(&["selftest", "--type", "docker", "--json"]);
    command.args(["--set", &endpoint]);
    let ended = finish(&mut Project::with_the_engine(command));
    ended.expect(0, &[]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let names = report["checks"].as_array().unwrap().iter();
    let built = names
        .filter_map(|check| check["name"].as_str())
        .filter(|name| name.starts_with("build "));
    (
        report["image"].as_str().unwrap().to_owned(),
        built.map(str::to_owned).collect(),
    )
}
