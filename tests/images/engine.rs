//! The engine itself: finding it, and its images.

use std::collections::BTreeMap;

use ralph::engine::{
    Digest, Engine, EngineEnvironment, EngineError, EngineImageReference, EngineKind, ImageStore,
};
use ralph::exec::Discard;
use rstest::rstest;

use super::support;
use super::support::engine::Which;
use super::workshop::Workshop;
use crate::need;

#[rstest]
#[case::found(Which::Found, EngineKind::Docker, None)]
#[case::containerd(Which::Containerd, EngineKind::Docker, Some(ImageStore::Containerd))]
#[case::podman(Which::Podman, EngineKind::Podman, Some(ImageStore::GraphDriver))]
#[tokio::test]
async fn an_engine_says_what_it_is(
    #[case] which: Which,
    #[case] flavour: EngineKind,
    #[case] store: Option<ImageStore>,
) {
    let shop = need!(Workshop::open_with(which).await);
    let info = shop.engine.info().await.unwrap();
    assert_eq!((info.kind, info.os.as_str()), (flavour, "linux"));
    assert_eq!(info.store, store.unwrap_or(info.store));
    assert!(!info.version.is_empty() && !info.arch.is_empty());
    shop.close().await;
}

#[tokio::test]
async fn where_nothing_listens_there_is_no_engine() {
    let dir = tempfile::tempdir().unwrap();
    let left_behind = dir.path().join("left.sock");
    drop(std::os::unix::net::UnixListener::bind(&left_behind).unwrap());
    for socket in [dir.path().join("missing.sock"), left_behind] {
        let host = format!("unix://{}", socket.display());
        let surroundings = EngineEnvironment {
            env: BTreeMap::from([("DOCKER_HOST".to_owned(), host.clone())]),
            home: None,
        };
        let error = Engine::connect(&surroundings, &support::engine::host())
            .await
            .unwrap_err();
        assert!(matches!(error, EngineError::NoEngine { .. }), "{error:?}");
        assert!(
            error.to_string().contains(&host) && error.hint().is_some(),
            "{error}"
        );
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn images_are_named_listed_and_removed(
    #[values(Which::Found, Which::Containerd, Which::Podman)] which: Which,
) {
    let shop = need!(Workshop::open_with(which).await);
    let loaded = shop.load(&shop.image(&[]), "a").await.unwrap();
    shop.engine.tag(&loaded.id, &shop.tag("b")).await.unwrap();

    let image = shop.find("b").await.unwrap();
    assert_eq!(image.id, loaded.id);
    assert_eq!(image.labels["ralph.test"], shop.name);
    let mut tags = image.repo_tags.clone();
    tags.sort();
    assert_eq!(tags, [shop.tag("a").to_string(), shop.tag("b").to_string()]);
    assert_eq!(shop.images().await, [image]);

    shop.engine
        .remove_image(&shop.tag("b").to_string())
        .await
        .unwrap();
    assert!(shop.find("a").await.is_some() && shop.find("b").await.is_none());
    shop.engine
        .remove_image(&shop.tag("b").to_string())
        .await
        .unwrap();
    shop.close().await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_tried_by_making_a_container_that_goes_again(
    #[values(Which::Found, Which::Containerd, Which::Podman)] which: Which,
) {
    let shop = need!(Workshop::open_with(which).await);
    let loaded = shop.load(&shop.image(&[]), "a").await.unwrap();
    let trial = shop.engine.try_image(&loaded.id).await.unwrap();
    assert_eq!(containers(&shop, &loaded.id), 1);
    let kept = shop.engine.remove_unused(&shop.tag("a").to_string()).await;
    assert!(!kept.unwrap());
    shop.engine.remove_container(&trial).await.unwrap();
    assert_eq!(containers(&shop, &loaded.id), 0);
    shop.close().await;
}

/// How many containers there are of an image.
fn containers(shop: &Workshop, image: &Digest) -> usize {
    let filter = format!("ancestor={}", image.hex());
    let listed = support::engine::docker(&shop.engine, &["ps", "--all", "--quiet", "--filter", &filter]);
    listed.lines().count()
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let shop = need!(Workshop::open().await);
    let nothing = Digest::sha256(b"nothing");
    assert_eq!(shop.engine.image(&nothing.to_string()).await.unwrap(), None);
    let error = shop.engine.tag(&nothing, &shop.tag("a")).await.unwrap_err();
    assert!(matches!(error, EngineError::NotFound { .. }), "{error:?}");
    let error = shop.engine.try_image(&nothing).await.unwrap_err();
    assert!(matches!(error, EngineError::NotFound { .. }), "{error:?}");
    shop.close().await;
}

#[tokio::test]
async fn a_name_by_content_is_neither_given_nor_sent() {
    let shop = need!(Workshop::open().await);
    let nothing = Digest::sha256(b"nothing");
    let name = EngineImageReference::parse(&format!("{}@{nothing}", shop.tag("a").repository())).unwrap();
    let given = shop.engine.tag(&nothing, &name).await.unwrap_err();
    let sent = shop.engine.push(&name, &mut Discard).await.unwrap_err();
    for error in [given, sent] {
        assert!(matches!(error, EngineError::NoTag { .. }), "{error:?}");
    }
    shop.close().await;
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Pull,
    Push,
}

#[rstest]
#[case::pull(Direction::Pull)]
#[case::push(Direction::Push)]
#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_registry_is_reported_as_such(#[case] direction: Direction) {
    let shop = need!(Workshop::open().await);
    let loaded = shop.load(&shop.image(&[]), "a").await.unwrap();
    let reference = EngineImageReference::parse(&format!("127.0.0.1:1/ralph-test-{}:a", shop.name)).unwrap();
    shop.engine.tag(&loaded.id, &reference).await.unwrap();
    let outcome = match direction {
        Direction::Pull => shop.engine.pull(&reference, None, &mut Discard).await,
        Direction::Push => shop.engine.push(&reference, &mut Discard).await,
    };
    let error = outcome.unwrap_err();
    assert!(
        matches!(error, EngineError::RegistryUnreachable { .. }),
        "{error:?}"
    );
    shop.close().await;
}
