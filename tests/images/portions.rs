//! Loading large images: in portions, of which none is left in the end.

use std::ops::ControlFlow;

use ralph::engine::{EngineError, EngineImage};
use ralph::image::labels;
use ralph::image::load::{LoadError, Loaded, Sent};
use rstest::rstest;

use super::archive::TestImage;
use super::load::everything;
use super::own_engine::OwnEngine;
use super::support::engine::Which;
use super::workshop::Workshop;
use crate::need;

/// Sizes for which portions pay.
const LARGE: [usize; 4] = [20_000_000; 4];

/// Loads an image, unless whoever looks at its portions meanwhile ends that.
async fn watched(
    shop: &Workshop,
    image: &TestImage,
    mut look: impl AsyncFnMut(Vec<EngineImage>) -> ControlFlow<()>,
) -> Option<Loaded> {
    let layers = image.diff_ids();
    let load = shop.load(image, "a");
    tokio::pin!(load);
    loop {
        tokio::select! {
            loaded = &mut load => return Some(loaded.unwrap()),
            portions = shop.portions(&layers) => if look(portions).await.is_break() {
                return None;
            }
        }
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_large_image_comes_in_portions_without_a_name(
    #[values(Which::Found, Which::Containerd)] which: Which,
) {
    let shop = need!(Workshop::open_with(which).await);
    let image = shop.image(&LARGE);
    let (mut seen, layers) = (0, image.diff_ids());
    let loaded = watched(&shop, &image, async |portions| {
        seen = seen.max(portions.len());
        // Not among those alone that have no name.
        let all = shop.engine.images(Some(labels::PORTION_OF)).await.unwrap();
        let ours = |image: &EngineImage| image.diff_ids.iter().all(|layer| layers.contains(layer));
        let named = all
            .iter()
            .filter(|image| ours(image) && !image.repo_tags.is_empty());
        assert_eq!(named.count(), 0, "{all:?}");
        ControlFlow::Continue(())
    });
    let loaded = loaded.await.unwrap();
    assert!(seen > 0);
    assert_eq!(loaded.sent, everything(&image.layer_sizes()));
    assert_eq!(shop.run("a"), format!("hello from {}", shop.name));
    assert_eq!(shop.portions(&image.diff_ids()).await, []);
    shop.close().await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_was_killed_goes_on_where_it_ended(
    #[values(Which::Found, Which::Containerd)] which: Which,
) {
    let shop = need!(Workshop::open_with(which).await);
    let image = shop.image(&LARGE);
    let killed = watched(&shop, &image, async |portions| match portions.as_slice() {
        [] => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    });
    assert_eq!(killed.await, None);
    assert_eq!((shop.find("a").await, shop.images().await), (None, vec![]));

    let loaded = shop.load(&image, "a").await.unwrap();
    let Sent::Missing { layers, .. } = loaded.sent else {
        panic!("{loaded:?}");
    };
    // Portions end after the second layer and after the fourth; a shell and a greeting come after that.
    assert!([4, 2].contains(&layers), "{loaded:?}");
    assert_eq!(shop.run("a"), format!("hello from {}", shop.name));
    assert_eq!(shop.portions(&image.diff_ids()).await, []);
    shop.close().await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_named_a_portion_stays(#[values(Which::Found, Which::Containerd)] which: Which) {
    let shop = need!(Workshop::open_with(which).await);
    let image = shop.image(&LARGE);
    let mut portion = None;
    let killed = watched(&shop, &image, async |portions| match portions.first() {
        None => ControlFlow::Continue(()),
        Some(found) => {
            portion = Some(found.id.clone());
            ControlFlow::Break(())
        }
    });
    assert_eq!(killed.await, None);
    let portion = portion.unwrap();
    shop.engine.tag(&portion, &shop.tag("theirs")).await.unwrap();

    shop.load(&image, "a").await.unwrap();
    assert_eq!(shop.find("theirs").await.unwrap().id, portion);
    assert_eq!(shop.portions(&image.diff_ids()).await, []);
    let theirs = shop.tag("theirs").to_string();
    shop.engine.remove_image(&theirs).await.unwrap();
    shop.close().await;
}

/// Removed as soon as it is seen, a portion may be gone before the next one needs it, or after.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_loses_portions_meanwhile_has_the_image_in_the_end(
    #[values(Which::Found, Which::Containerd)] which: Which,
) {
    let shop = need!(Workshop::open_with(which).await);
    let image = shop.image(&LARGE);
    let mut removed = 0;
    let loaded = watched(&shop, &image, async |portions| {
        for portion in portions {
            shop.engine.remove_image(&portion.id.to_string()).await.unwrap();
            removed += 1;
        }
        ControlFlow::Continue(())
    });
    let loaded = loaded.await.unwrap();
    assert!(removed > 0);
    assert_eq!(loaded.sent, everything(&image.layer_sizes()));
    assert_eq!(shop.run("a"), format!("hello from {}", shop.name));
    assert_eq!(shop.portions(&image.diff_ids()).await, []);
    shop.close().await;
}

/// The disk holds the first portion, and not what the engine needs for the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_is_told_as_such_and_no_portion_is_left() {
    let engine = need!(OwnEngine::start("100m"));
    let shop = need!(Workshop::open_at(&engine.host()).await);
    let error = shop.load(&shop.image(&LARGE), "a").await.unwrap_err();
    assert!(
        matches!(error, LoadError::Engine(EngineError::DiskFull { .. })),
        "{error:?}"
    );
    assert_eq!(engine.docker(&["images", "--all", "--quiet"]), "");
}
