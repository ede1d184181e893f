//! `ralph image status`: what is planned, what is there, and why.

use rstest::rstest;
use serde_json::Value;

use super::project::{COPYING, Project};
use super::support::json_shape;
use crate::need;

fn status(project: &Project) -> Value {
    let ended = project.try_image("status", &["--json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        json_shape::check(&["image", "status", "--json"], &ended),
        Some("image-status")
    );
    serde_json::from_str(&ended.stdout).unwrap()
}

fn row<'a>(status: &'a Value, tag: &str) -> &'a Value {
    let rows = status["images"].as_array().unwrap();
    rows.iter().find(|row| row["image"] == tag).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_missing_then_present_then_stale() {
    let project = need!(Project::new().await);
    project.write("Dockerfile.sandbox", COPYING);
    project.write("greeting", &project.shop.name);
    let before = status(&project);
    assert_ne!(before["planned"]["state"], "present");
    assert_eq!(before["planned"]["base"]["reference"], project.base("base"));

    let built = project.build(&[]);
    let present = status(&project);
    assert_eq!(present["planned"]["tag"], built.tag);
    assert_eq!(present["planned"]["state"], "present");
    assert_eq!(present["planned"]["steps"], serde_json::json!([]));
    let image = row(&present, &built.tag);
    assert_eq!(image["role"], "planned");
    assert_eq!(image["mode"], "dockerfile");
    assert_eq!(image["project"], "repo");
    assert_eq!(image["pulled_from"], Value::Null);
    assert_eq!(image["layers"], 3);
    assert_eq!(image["in_use"], false);
    assert!(image["size"].as_u64().unwrap() > 0 && image["since"].is_string());

    project.write("greeting", "changed");
    let stale = status(&project);
    assert_eq!(stale["planned"]["state"], "stale");
    assert_eq!(stale["planned"]["steps"][0]["reason"], "its inputs changed");
    assert_eq!(row(&stale, &built.tag)["role"], "old");
    let text = project.try_image("status", &[]).stdout;
    for part in [
        "planned: agent-loop-sandbox-actions-repo:v",
        ", stale",
        "to do: build",
        "built (dockerfile)",
        "3 layers",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    project.close().await;
}

#[rstest]
#[case::there("base", ", present")]
#[case::not_there("nothing", ", missing")]
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_used_as_it_is_is_named(#[case] tag: &str, #[case] said: &str) {
    let project = need!(Project::new().await);
    let name = project.base(tag);
    project.configure(&project.base("base"), &format!("[sandbox]\nimage = \"{name}\""));
    let ended = project.try_image("status", &[]);
    assert!(
        ended.stdout.starts_with(&format!("sandboxes start from {name}")),
        "{ended:?}"
    );
    assert!(ended.stdout.contains(said), "{ended:?}");
    project.close().await;
}
