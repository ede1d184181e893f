//! Images for a platform that was asked for.

use ralph::engine::EngineImageReference;

use super::archive::ARCHITECTURES;
use super::project::{COPYING, Project};
use crate::need;

#[tokio::test(flavor = "multi_thread")]
async fn a_base_for_another_platform_is_refused_and_both_are_named() {
    let project = need!(Project::new().await);
    let [own, other] = ARCHITECTURES.map(|name| format!("linux/{name}"));
    let both = format!("for {own}, not for {other}");
    let planned = project.try_build(&["--platform", &other, "--dry-run"]);
    let pull = format!("1. pull {}: the engine has it {both}", project.base("base"));
    assert!(planned.stdout.contains(&pull), "{planned:?}");

    let ended = project.try_build(&["--platform", &other]);
    let said = format!("ralph: {} is {both}: ", project.base("base"));
    ended.expect(1, &[&said, "hint: name a base for that platform (`image.base`)"]);
    assert_eq!(ended.stdout, "");
    let tag = project.plan(&["--platform", &other]).tag;
    assert_eq!(project.id(&tag).await, None);
    assert_eq!(project.build(&["--platform", &own]).steps, ["build-base"]);
    project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_on_a_base_for_the_platform_is_for_it_too() {
    let project = need!(Project::new().await);
    let [own, other] = ARCHITECTURES;
    let image = project.shop.image(&[]).for_architecture(other);
    let loaded = project.shop.load(&image, "other").await.unwrap();
    let base = EngineImageReference::parse(&project.base("other")).unwrap();
    project.shop.engine.tag(&loaded.id, &base).await.unwrap();
    project.configure(&base.to_string(), "");
    project.write("Dockerfile.sandbox", COPYING);
    project.write("greeting", &project.shop.name);

    let built = project.build(&["--platform", &format!("linux/{other}")]);
    assert_eq!(built.steps, ["build-base", "build-project"]);
    let found = project.shop.engine.image(&built.tag).await.unwrap().unwrap();
    assert_eq!(found.platform, Some(format!("linux/{other}")));

    let said = format!("is for linux/{other}, not for linux/{own}");
    project
        .try_build(&["--platform", &format!("linux/{own}")])
        .expect(1, &[&said]);
    project.close().await;
}
