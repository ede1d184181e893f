//! `ralph image build --check` and `--lock`.

use std::fs;

use serde_json::Value;

use super::flake::FlakeProject;
use super::project::{COPYING, Project};
use crate::need;

#[tokio::test(flavor = "multi_thread")]
async fn two_builds_that_give_the_same_leave_nothing_behind() {
    let project = need!(Project::new().await);
    project.write("Dockerfile.sandbox", COPYING);
    project.write("greeting", &project.shop.name);
    let before = project.shop.images().await;
    let ended = project.try_build(&["--check", "--json"]);
    ended.expect(0, &[]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["reproducible"], true);
    assert_eq!(report["digests"][0], report["digests"][1]);
    assert_eq!(report["lock"]["state"], "absent");
    assert_eq!(project.shop.images().await, before);
    project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_differs_between_two_builds_is_named() {
    let project = need!(Project::new().await);
    let clock = "RUN [\"/bin/sh\", \"-c\", \"while read up _; do echo $up; done < /proc/uptime > /made\"]\n";
    project.write("Dockerfile.sandbox", &format!("{COPYING}{clock}"));
    project.write("greeting", &project.shop.name);
    let before = project.shop.images().await;
    let ended = project.try_build(&["--check"]);
    ended.expect(1, &["hint: "]);
    for part in [
        "two builds gave different images",
        "layer 4 differs in",
        "    made: content differs",
    ] {
        assert!(ended.stdout.contains(part), "{part:?} is not in {ended:?}");
    }
    assert_eq!(project.shop.images().await, before);
    project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_time_alone_differs_is_reported_as_such() {
    let project = need!(Project::new().await);
    let waits = "RUN [\"/bin/busybox\", \"sh\", \"-c\", \"/bin/busybox sleep 1.1; echo same > /made\"]\n";
    project.write("Dockerfile.sandbox", &format!("{COPYING}{waits}"));
    project.write("greeting", &project.shop.name);
    let ended = project.try_build(&["--check"]);
    ended.expect(1, &["not reproducible byte for byte", "SOURCE_DATE_EPOCH"]);
    assert!(ended.stdout.contains("    made: time differs"), "{ended:?}");
    project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_is_compared_with_what_is_recorded() {
    let project = need!(Project::new().await);
    project.write("Dockerfile.sandbox", COPYING);
    project.write("greeting", &project.shop.name);
    let tag = {
        let ended = project.try_build(&["--lock"]);
        ended.expect(0, &[]);
        ended.stdout.trim().to_owned()
    };
    let file = project.place.repo().join("ralph.lock");
    let lock = fs::read_to_string(&file).unwrap();
    for part in [
        "version = 1\n",
        "[[image]]\n",
        &format!("tag = \"{tag}\"\n"),
        "platform = \"linux/",
        &format!("reference = \"{}\"\n", project.base("base")),
        "identity = \"layers:",
    ] {
        assert!(lock.contains(part), "{part:?} is not in {lock}");
    }
    project.try_build(&["--lock"]).expect(0, &[]);
    assert_eq!(fs::read_to_string(&file).unwrap(), lock);
    let same = project.try_build(&["--check"]);
    same.expect(0, &[]);
    assert!(
        same.stdout.contains("ralph.lock records the same image"),
        "{same:?}"
    );

    project.write("greeting", "changed");
    let ended = project.try_build(&["--check"]);
    ended.expect(
        1,
        &["hint: if the change is intended, record it with `ralph image build --lock`"],
    );
    for part in ["its inputs changed", "layer 3 differs"] {
        assert!(ended.stdout.contains(part), "{part:?} is not in {ended:?}");
    }

    fs::write(&file, "version = 9\n").unwrap();
    project
        .try_build(&["--check"])
        .expect_refused(&["ralph.lock", "its version is 9, expected 1"]);
    project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_from_a_flake_is_the_same_each_time() {
    let mut flake = need!(FlakeProject::new().await);
    let (built, _) = flake.build();
    flake.try_build(&["--lock"]).expect(0, &[]);
    let id = flake.project.id(&built.tag).await;
    let ended = flake.try_build(&["--check", "--json"]);
    ended.expect(0, &[]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["reproducible"], true);
    assert_eq!(flake.project.id(&built.tag).await, id);
    flake.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_in_a_package_of_a_flakes_image_is_found_by_its_file() {
    let mut flake = need!(FlakeProject::new().await);
    flake.with_package(
        "mkdir -p \"$out/share\"; date +%s%N >\"$out/share/stamp\"; echo same >\"$out/share/other\"",
        "share/stamp",
    );
    flake.build();
    let ended = flake.try_build(&["--check"]);
    ended.expect(1, &[]);
    for part in ["two builds of", "-package` differ in share/stamp", "hint: "] {
        assert!(ended.stderr.contains(part), "{part:?} is not in {ended:?}");
    }
    assert!(!ended.stderr.contains("share/other"), "{ended:?}");
    flake.close().await;
}
