//! `ralph image build`: what is built, when it is built again, and when it is not.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rstest::rstest;
use serde_json::Value;

use super::project::{Built, COPYING, Project, THIN};
use super::support::ralph::finish;
use crate::need;

const BOTH: [&str; 2] = ["build-base", "build-project"];

#[tokio::test(flavor = "multi_thread")]
async fn a_projects_image_is_built_once() {
    let project = need!(Project::new().await);
    project.write("Dockerfile.sandbox", COPYING);
    project.write("greeting", "from the context");
    let first = project.build(&[]);
    assert_eq!(first.steps, BOTH);
    assert!(
        first.tag.starts_with("agent-loop-sandbox-actions-repo:v"),
        "{first:?}"
    );
    assert_eq!(
        project.run(&first.tag, &["/bin/cat", "/greeting"]),
        "from the context"
    );

    let id = project.id(&first.tag).await;
    let second = project.try_build(&[]);
    second.expect(0, &["nothing to do"]);
    assert_eq!(second.stdout.trim(), first.tag);
    assert_eq!(project.id(&first.tag).await, id);
    project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_image_carries_its_hash_and_what_it_stands_on() {
    let project = need!(Project::new().await);
    project.write("Dockerfile.sandbox", COPYING);
    project.write("greeting", "hello");
    let plan = project.try_build(&["--dry-run", "--json"]);
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
    let built = project.build(&[]);
    let image = project.shop.engine.image(&built.tag).await.unwrap().unwrap();
    for (name, value) in plan["labels"].as_object().unwrap() {
        assert_eq!(image.labels[name], value.as_str().unwrap());
    }
    assert_eq!(image.labels["ralph.image.hash"], plan["hash"].as_str().unwrap());
    assert_eq!(image.labels["ralph.image.project"], "repo");
    project.close().await;
}

/// A change, and what must be built again after it.
#[rstest]
#[case::copied_file(|p: &Project| p.write("greeting", "other"), &["build-project"])]
#[case::mode_of_a_copied_file(make_executable, &["build-project"])]
#[case::dockerfile(|p: &Project| p.write("Dockerfile.sandbox", &format!("{COPYING}ENV A=1\n")), &["build-project"])]
#[case::dockerfile_of_the_base(|p: &Project| p.place.write("thin/Dockerfile", &format!("{THIN}ENV A=1\n")), &BOTH)]
#[case::file_beside_the_dockerfile_of_the_base(|p: &Project| p.place.write("thin/file", ""), &BOTH)]
#[case::time_of_a_copied_file(|p: &Project| p.write("greeting", "hello"), &[])]
#[case::ignored_file(|p: &Project| p.write("noise.log", "noise"), &[])]
#[case::own_files(|p: &Project| p.write("config.json", "{\"cpu\": 2}"), &[])]
#[case::untracked_file_elsewhere(|p: &Project| p.place.write("src/main.rs", "fn main() {}"), &[])]
#[tokio::test(flavor = "multi_thread")]
async fn a_change_rebuilds_what_depends_on_it(#[case] change: fn(&Project), #[case] rebuilt: &[&str]) {
    let project = need!(Project::new().await);
    project.write("Dockerfile.sandbox", COPYING);
    project.write(".dockerignore", "*.log\n");
    project.write("greeting", "hello");
    let first = project.build(&[]);
    change(&project);
    let second = project.build(&[]);
    assert_eq!(second.steps, rebuilt);
    assert_eq!(second.tag == first.tag, rebuilt.is_empty());
    project.close().await;
}

fn make_executable(project: &Project) {
    let file = project.place.repo().join(".agent-loop/greeting");
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_base_and_another_agent_build_everything_again() {
    let project = need!(Project::new().await);
    project.write("Dockerfile.sandbox", COPYING);
    project.write("greeting", "hello");
    let first = project.build(&[]);

    let other = project.build(&["--agent", "codex"]);
    assert_eq!(other.steps, BOTH);
    assert!(
        other.tag.starts_with("agent-loop-sandbox-codex-repo:v"),
        "{other:?}"
    );

    let image = project.shop.image(&[]).saying("another base");
    let loaded = project.shop.load(&image, "other").await.unwrap();
    let name = project.base("base");
    let base = ralph::engine::EngineImageReference::parse(&name).unwrap();
    project.shop.engine.tag(&loaded.id, &base).await.unwrap();
    let second = project.build(&[]);
    assert_eq!(second.steps, BOTH);
    assert_ne!(second.tag, first.tag);
    project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_uses_no_cache_and_warns_where_the_base_cannot_be_pulled() {
    let project = need!(Project::new().await);
    project.write("Dockerfile.sandbox", COPYING);
    project.write("greeting", "hello");
    let first = project.build(&[]);
    let before = project.id(&first.tag).await;

    let ended = project.try_build(&["--rebuild", "--json"]);
    ended.expect(
        0,
        &[
            "warning: cannot reach the registry of",
            "using the image that the engine has",
        ],
    );
    let second = Built::of(&ended, "done");
    assert_eq!(second.steps, ["pull-base", "build-base", "build-project"]);
    assert_eq!(second.tag, first.tag);
    assert_ne!(project.id(&first.tag).await, before);
    assert_eq!(project.plan(&[]).steps, [""; 0]);
    project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_image_under_our_tag_is_replaced() {
    let project = need!(Project::new().await);
    let planned = project.plan(&[]);
    let foreign = project.id(&project.base("base")).await.unwrap();
    project.docker(&["tag", &foreign, &planned.tag]);
    let ended = project.try_build(&[]);
    ended.expect(0, &["the image under its tag has other content"]);
    assert_ne!(project.id(&planned.tag).await, Some(foreign));
    project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_shows_the_plan_and_does_nothing() {
    let project = need!(Project::new().await);
    let shown = project.try_build(&["--dry-run"]);
    shown.expect(0, &[]);
    let planned = project.plan(&[]);
    let expected = format!("1. build {}: ", planned.tag);
    assert!(
        shown.stdout.lines().any(|line| line.starts_with(&expected)),
        "{shown:?}"
    );
    assert_eq!(project.id(&planned.tag).await, None);
    project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agents_own_dockerfile_is_planned_without_a_path() {
    let project = need!(Project::new().await);
    let ended = finish(&mut project.command(&["--dry-run", "--dockerfile"]));
    let own = finish(&mut project.command(&["--dry-run"]));
    assert_eq!(ended.expect(0, &[]).stdout, own.stdout);
    assert_ne!(ended.stdout, project.try_build(&["--dry-run"]).stdout);
    project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_gets_the_name_that_was_asked_for_too() {
    let project = need!(Project::new().await);
    let name = project.shop.tag("extra").to_string();
    let built = project.build(&["--tag", &name]);
    assert_eq!(project.id(&name).await, project.id(&built.tag).await);
    project
        .try_build(&["--tag", "Not A Name"])
        .expect_refused(&["invalid image reference `Not A Name`"]);
    project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worktrees_share_the_image_of_the_main_one() {
    let project = need!(Project::new().await);
    project.write("Dockerfile.sandbox", COPYING);
    project.write("greeting", "hello");
    project.place.commit("An image");
    let main = project.plan(&[]);
    project.place.git(&["worktree", "add", "--quiet", "../linked"]);
    let linked = project.place.path().join("linked");
    fs::write(linked.join(".agent-loop/greeting"), "of the linked worktree").unwrap();
    let mut command = project.command(&["--dockerfile", "thin/Dockerfile", "--dry-run", "--json"]);
    let ended = finish(command.current_dir(linked));
    assert_eq!(Built::of(&ended, "steps"), main);
    project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_are_installed_and_a_comment_rebuilds_nothing() {
    let project = need!(Project::on_debian().await);
    project.write("dependencies", "hello=2.*  # says it\r\n\n\t# a comment\n");
    let built = project.build(&[]);
    assert_eq!(built.steps, BOTH);
    assert_eq!(project.run(&built.tag, &["hello"]), "Hello, world!\n");
    assert_eq!(project.run(&built.tag, &["id", "-un"]), "agent\n");

    project.write("dependencies", "# other words\nhello=2.*\nhello=2.*\n");
    assert_eq!(project.build(&[]).steps, [""; 0]);
    project.write("dependencies", "hello\njq\n");
    let other = project.plan(&[]);
    assert_eq!(other.steps, ["build-project"]);
    assert_ne!(other.tag, built.tag);
    project.close().await;
}
