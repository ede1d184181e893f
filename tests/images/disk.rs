//! An engine whose disk is full.

use std::fs;

use ralph::engine::EngineError;
use ralph::image::ImageError;

use super::own_engine::OwnEngine;
use super::support::ralph::{Place, finish};
use super::workshop::Workshop;
use crate::need;

const MIB: usize = 1024 * 1024;

#[test]
fn a_full_disk_is_reported_as_such_and_leaves_no_image() {
    let engine = need!(OwnEngine::start("32m"));
    let place = Place::new();
    engine.docker(&["import", engine.small_image().to_str().unwrap(), "small:1"]);
    let before = engine.docker(&["images", "--all", "--quiet"]);
    place.write("ralph.toml", "[agent]\nname = \"actions\"\n");
    place.write("image/Dockerfile", "FROM small:1\nCOPY large /large\n");
    fs::write(place.repo().join("image/large"), vec![7; 48 * MIB]).unwrap();
    let mut command = place.ralph(&["image", "build", "--dockerfile", "image/Dockerfile"]);
    let ended = finish(command.env("DOCKER_HOST", engine.host()));
    ended.expect(
        1,
        &[
            "ralph: the disk of the container engine is full: ",
            "no space left on device",
            "hint: free disk space",
        ],
    );
    assert_eq!(ended.stdout, "");
    assert_eq!(engine.docker(&["images", "--all", "--quiet"]), before);
}

/// The disk holds the archive, and not what the engine needs to unpack it.
#[tokio::test(flavor = "multi_thread")]
async fn a_load_onto_a_full_disk_is_an_error_and_leaves_no_image() {
    let engine = need!(OwnEngine::start("100m"));
    let shop = need!(Workshop::open_at(&engine.host()).await);
    let error = shop.load(&shop.image(&[20_000_000; 4]), "a").await.unwrap_err();
    assert!(
        matches!(error, ImageError::Engine(EngineError::DiskFull { .. })),
        "{error:?}"
    );
    assert_eq!(engine.docker(&["images", "--all", "--quiet"]), "");
}
