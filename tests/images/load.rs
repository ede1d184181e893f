//! Loading: only what is missing is sent, and no name ever stands for half an image.

use std::fs;
use std::time::Duration;

use ralph::engine::{EngineError, ProgressSink, TransferProgress};
use ralph::exec::Discard;
use ralph::image::ImageError;
use ralph::image::load::{LayerOrder, LoadSource, OmittableLayers, PreparedLoad, SentLayers, arrange, load};
use rstest::rstest;

use super::support;
use super::support::engine::Which;
use super::workshop::Workshop;
use crate::need;

#[derive(Clone, Copy)]
enum Kind {
    Plain,
    Gzip,
    Script,
}

#[rstest]
#[case::plain(Kind::Plain)]
#[case::gzip(Kind::Gzip)]
#[case::script(Kind::Script)]
#[tokio::test(flavor = "multi_thread")]
async fn a_loaded_image_runs_and_loading_it_again_sends_nothing(
    #[case] kind: Kind,
    #[values(Which::Found, Which::Containerd, Which::Podman)] which: Which,
) {
    let shop = need!(Workshop::open_with(which).await);
    let image = shop.image(&[100_000, 300_000]);
    let source = match kind {
        Kind::Plain => LoadSource::Archive(image.write(&shop.path("image"))),
        Kind::Gzip => LoadSource::Archive(image.write_gzip(&shop.path("image"))),
        Kind::Script => LoadSource::Program {
            path: image.write_script(&shop.path("image")),
            host: support::engine::host(),
        },
    };
    let request = shop.request(source, "a");
    let mut progress = Vec::new();

    let first = load(&shop.engine, &request, &mut progress).await.unwrap();
    assert_eq!(first.sent, everything(&image.layer_sizes()));
    assert_eq!(shop.run("a"), format!("hello from {}", shop.name));
    assert!(!progress.is_empty());

    let second = load(&shop.engine, &request, &mut Discard).await.unwrap();
    assert_eq!((second.id, second.sent), (first.id, SentLayers::Nothing));
    shop.close().await;
}

/// Takes reports, and does not want to know how far things are.
#[derive(Default)]
struct Brief(Vec<TransferProgress>);

impl ProgressSink for Brief {
    fn progress(&mut self, progress: TransferProgress) {
        self.0.push(progress);
    }

    fn wants_amounts(&self) -> bool {
        false
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_reports_its_progress_where_it_is_asked_to() {
    let shop = need!(Workshop::open_with(Which::Found).await);
    let request = |size: usize, tag: &str| {
        let archive = shop.image(&[size]).write(&shop.path(tag));
        shop.request(LoadSource::Archive(archive), tag)
    };
    let (mut all, mut brief) = (Vec::new(), Brief::default());
    load(&shop.engine, &request(700_000, "a"), &mut all)
        .await
        .unwrap();
    load(&shop.engine, &request(800_000, "b"), &mut brief)
        .await
        .unwrap();
    let amounts = |reports: &[TransferProgress]| reports.iter().any(|report| report.amount.is_some());
    assert!(amounts(&all), "{all:?}");
    assert!(!amounts(&brief.0) && !brief.0.is_empty(), "{:?}", brief.0);
    shop.close().await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn one_changed_small_layer_is_all_that_is_sent(
    #[values(Which::Found, Which::Containerd, Which::Podman)] which: Which,
) {
    let shop = need!(Workshop::open_with(which).await);
    shop.load(&shop.image(&[100_000, 5_000_000]), "a").await.unwrap();

    let changed = shop.image(&[100_000, 5_000_000]).saying("good evening");
    let loaded = shop.load(&changed, "b").await.unwrap();
    let expected = match shop.omittable().await {
        OmittableLayers::Nothing => everything(&changed.layer_sizes()),
        OmittableLayers::Prefix | OmittableLayers::Any => missing(&changed.layer_sizes()[3..]),
    };
    assert_eq!(loaded.sent, expected);
    assert_eq!(
        (shop.run("a"), shop.run("b")),
        (format!("hello from {}", shop.name), "good evening".to_owned())
    );
    shop.close().await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn large_layers_go_below_small_ones_so_that_a_small_change_leaves_them_alone(
    #[values(Which::Found, Which::Containerd, Which::Podman)] which: Which,
) {
    let shop = need!(Workshop::open_with(which).await);
    let sizes = [1_000, 2_000, 6_000_000];
    let first = shop.image(&sizes);
    shop.load(&first, "a").await.unwrap();
    let ids = first.diff_ids();
    let expected = [3, 0, 2, 1, 4].map(|at: usize| ids[at]);
    assert_eq!(shop.find("a").await.unwrap().diff_ids, expected);

    let changed = shop.image(&sizes).with_data(0, "another", 1_000);
    let loaded = shop.load(&changed, "b").await.unwrap();
    let sizes = changed.layer_sizes();
    let expected = match shop.omittable().await {
        OmittableLayers::Nothing => everything(&sizes),
        OmittableLayers::Prefix => missing(&[sizes[1], sizes[4]]),
        OmittableLayers::Any => missing(&[sizes[1]]),
    };
    assert_eq!(loaded.sent, expected);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_whose_order_is_fixed_keeps_its_order_and_id() {
    let shop = need!(Workshop::open().await);
    let image = shop.image(&[1_000, 500_000]);
    let mut request = shop.request(LoadSource::Archive(image.write(&shop.path("image"))), "a");
    request.order = LayerOrder::Fixed;
    load(&shop.engine, &request, &mut Discard).await.unwrap();
    assert_eq!(shop.find("a").await.unwrap().diff_ids, image.diff_ids());
    shop.close().await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_lost_the_image_gets_it_again(
    #[values(Which::Found, Which::Containerd, Which::Podman)] which: Which,
) {
    let shop = need!(Workshop::open_with(which).await);
    let image = shop.image(&[200_000]);
    shop.load(&image, "a").await.unwrap();
    shop.engine
        .remove_image(&shop.tag("a").to_string())
        .await
        .unwrap();
    assert_eq!(shop.find("a").await, None);

    let again = shop.load(&image, "a").await.unwrap();
    assert_eq!(again.sent, everything(&image.layer_sizes()));
    assert_eq!(shop.run("a"), format!("hello from {}", shop.name));
    shop.close().await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_lost_a_layer_meanwhile_is_sent_everything(
    #[values(Which::Found, Which::Containerd)] which: Which,
    #[values(&[200_000, 300_000], &[200_000, 40_000_000, 40_000_000])] sizes: &[usize],
) {
    let shop = need!(Workshop::open_with(which).await);
    let image = shop.image(sizes);
    let source = LoadSource::Archive(image.write(&shop.path("image")));
    let request = shop.request(source.clone(), "a");
    let contents = source.read_contents(&request.cache, &[]).unwrap();
    // What the engine would have had a moment ago.
    let present = [image.diff_ids()[..2].to_vec()];
    let omittable = shop.omittable().await;
    let prepared = PreparedLoad {
        request: &request,
        arrangement: arrange(&contents.layers, request.order, &present, omittable),
        contents,
    };
    assert_eq!(prepared.arrangement.send.len(), sizes.len());

    let loaded = prepared.send(&shop.engine, &mut Discard).await.unwrap();
    assert_eq!(loaded.sent, everything(&image.layer_sizes()));
    assert_eq!(shop.run("a"), format!("hello from {}", shop.name));
    shop.close().await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_is_killed_leaves_no_name_and_the_next_one_works(
    #[values(Which::Found, Which::Containerd, Which::Podman)] which: Which,
) {
    let shop = need!(Workshop::open_with(which).await);
    let image = shop.image(&[3_000_000, 3_000_000]);
    let program = image.write_script(&shop.path("image"));
    let host = support::engine::host();
    let request = shop.request(LoadSource::Program { path: program, host }, "a");
    let (source, cache) = (request.source.clone(), request.cache.clone());
    // As if the engine had everything: then nothing is kept, and the script is run again for what is sent.
    let present = [image.diff_ids()];
    let contents = tokio::task::spawn_blocking(move || source.read_contents(&cache, &present))
        .await
        .unwrap()
        .unwrap();
    let omittable = shop.omittable().await;
    fs::write(shop.path("stall"), "").unwrap();

    let (engine, stalled) = (shop.engine.clone(), shop.path("stalled"));
    let sent = request.clone();
    let killed = tokio::spawn(async move {
        let prepared = PreparedLoad {
            arrangement: arrange(&contents.layers, sent.order, &[], omittable),
            request: &sent,
            contents,
        };
        prepared.send(&engine, &mut Discard).await
    });
    while !stalled.exists() {
        assert!(!killed.is_finished(), "{:?}", killed.await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    killed.abort();
    assert!(killed.await.unwrap_err().is_cancelled());
    assert_eq!((shop.find("a").await, shop.images().await), (None, vec![]));

    fs::remove_file(shop.path("stall")).unwrap();
    load(&shop.engine, &request, &mut Discard).await.unwrap();
    assert_eq!(shop.run("a"), format!("hello from {}", shop.name));
    shop.close().await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_layer_is_an_error_and_the_name_stays_with_what_had_it(
    #[values(Which::Found, Which::Containerd, Which::Podman)] which: Which,
    #[values(&[2_000_000], &[20_000_000; 4])] sizes: &[usize],
) {
    let shop = need!(Workshop::open_with(which).await);
    shop.load(&shop.image(&[100_000]), "a").await.unwrap();
    let before = shop.find("a").await;

    let image = shop.image(sizes);
    let mut bytes = image.to_tar();
    let near_the_end = bytes.len() - 500_000;
    bytes[near_the_end] ^= 1;
    fs::write(shop.path("damaged"), &bytes).unwrap();
    let request = shop.request(LoadSource::Archive(shop.path("damaged")), "a");
    let error = load(&shop.engine, &request, &mut Discard).await.unwrap_err();
    assert!(
        matches!(&error, ImageError::Engine(EngineError::Content { source, .. }) if source.to_string().contains("damaged")),
        "{error:?}"
    );
    assert_eq!((shop.find("a").await, shop.images().await.len()), (before, 1));
    shop.close().await;
}

#[rstest]
#[case::cut_off(|tar: Vec<u8>| tar[..tar.len() / 2].to_vec(), "no `manifest.json`")]
#[case::empty(|_| Vec::new(), "no `manifest.json`")]
#[case::no_archive(|_| b"#!/bin/sh\necho hello\n".repeat(1000), "cannot read the image")]
#[case::packed_and_cut_off(|tar: Vec<u8>| gzip(&tar)[..5_000].to_vec(), "cannot read the image")]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_image_is_an_error(#[case] spoil: fn(Vec<u8>) -> Vec<u8>, #[case] expected: &str) {
    let shop = need!(Workshop::open().await);
    fs::write(shop.path("image"), spoil(shop.image(&[100_000]).to_tar())).unwrap();
    let request = shop.request(LoadSource::Archive(shop.path("image")), "a");
    let error = load(&shop.engine, &request, &mut Discard).await.unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(shop.find("a").await, None);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_fails_says_why() {
    let shop = need!(Workshop::open().await);
    let program = shop.image(&[]).write_script(&shop.path("image"));
    fs::write(&program, "#!/bin/sh\necho no such store path >&2\nexit 3\n").unwrap();
    let host = support::engine::host();
    let request = shop.request(LoadSource::Program { path: program, host }, "a");
    let error = load(&shop.engine, &request, &mut Discard).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        source.contains("exit 3") && source.contains("no such store path"),
        "{source}"
    );
    shop.close().await;
}

fn missing(sizes: &[u64]) -> SentLayers {
    SentLayers::Missing {
        layers: sizes.len(),
        bytes: sizes.iter().sum(),
    }
}

pub fn everything(sizes: &[u64]) -> SentLayers {
    SentLayers::Everything {
        bytes: sizes.iter().sum(),
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;

    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}
