//! Loading large images: in portions, of which none is left in the end.

use std::ops::ControlFlow;

use ralph::engine::Image;
use ralph::image::load::{Loaded, Sent};
use rstest::rstest;

use super::archive::TestImage;
use super::load::everything;
use super::support::engine::Which;
use super::workshop::Workshop;
use crate::need;

/// Sizes for which portions pay.
const LARGE: [usize; 4] = [20_000_000; 4];

/// Loads an image, unless whoever looks at its portions meanwhile ends that.
async fn watched(
    shop: &Workshop,
    image: &TestImage,
    mut look: impl AsyncFnMut(Vec<Image>) -> ControlFlow<()>,
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
    let mut seen = 0;
    let loaded = watched(&shop, &image, async |portions| {
        seen = seen.max(portions.len());
        assert!(
            portions.iter().all(|image| image.repo_tags.is_empty()),
            "{portions:?}"
        );
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
    assert!((1..=LARGE.len()).contains(&layers), "{loaded:?}");
    assert_eq!(shop.run("a"), format!("hello from {}", shop.name));
    assert_eq!(shop.portions(&image.diff_ids()).await, []);
    shop.close().await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_loses_portions_meanwhile_gets_the_whole_image(
    #[values(Which::Found, Which::Containerd)] which: Which,
) {
    let shop = need!(Workshop::open_with(which).await);
    let image = shop.image(&LARGE);
    let loaded = watched(&shop, &image, async |portions| {
        for portion in portions {
            shop.engine.remove_image(portion.id.as_str()).await.unwrap();
        }
        ControlFlow::Continue(())
    });
    let loaded = loaded.await.unwrap();
    assert_eq!(loaded.sent, everything(&image.layer_sizes()));
    assert_eq!(shop.run("a"), format!("hello from {}", shop.name));
    assert_eq!(shop.portions(&image.diff_ids()).await, []);
    shop.close().await;
}
