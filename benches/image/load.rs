//! Loading an image of 600 MB, for the first time and after a small change, against `docker load` of the whole file.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ralph::engine::{Digest, EngineImageReference};
use ralph::exec::Discard;
use ralph::image::load::{LayerCache, LayerOrder, LoadRequest, LoadSource, SentLayers, load};
use serde_json::json;
use tar::{Builder, Header};

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::stage::{LABEL, Stage, tag, write_noise};

/// The layers that do not change, as in an image that Nix makes of store paths: `mkSandboxImage` allows for 100.
const MANY: [u64; 60] = [10_000_000; 60];
/// The same bytes, as in an image that a Dockerfile makes.
const FEW: [u64; 4] = [300_000_000, 150_000_000, 100_000_000, 50_000_000];
const SMALL: u64 = 100_000;
/// What takes over a second is measured less often.
const RELOADS: usize = 12;
const OURS_PER_RELOAD: u64 = 3;
const FIRST_LOADS: usize = 9;

/// An engine that has the image gets one whose small last layer changed.
pub(crate) async fn reload(stage: &Stage) -> Fallible<Vec<Figure>> {
    Ok(vec![
        reload_of(stage, "reload", &MANY).await?,
        reload_of(stage, "reload-few-layers", &FEW).await?,
    ])
}

async fn reload_of(stage: &Stage, name: &'static str, layers: &[u64]) -> Fallible<Figure> {
    let mut archive = Archive::create(&stage.path("reload.tar"), layers)?;
    let mut number = 0;
    let mut next = |archive: &mut Archive| {
        number += 1;
        archive.change(number)
    };
    next(&mut archive)?;
    load_with_us(stage, &archive).await?;
    let (mut ours, mut peer, mut least) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..quick::rounds(RELOADS) as u64 {
        next(&mut archive)?;
        peer.push(load_with_docker(stage, &archive).await?);
        for number in 0..OURS_PER_RELOAD {
            // What no way of loading can undercut: the engine's own time for an image of one small layer.
            let mut small = Archive::create(&stage.path("small.tar"), &[])?;
            small.change(1_000_000 * (round + 1) + number)?;
            least.push(load_with_docker(stage, &small).await?);
            next(&mut archive)?;
            let (sent, took) = load_with_us(stage, &archive).await?;
            if !matches!(sent, SentLayers::Missing { layers: 1, .. }) {
                return Err(format!("more was sent than had changed: {sent:?}").into());
            }
            ours.push(took);
        }
    }
    stage.clean().await?;
    let (ours, peer) = (Samples::milliseconds(ours), Samples::milliseconds(peer));
    let least = Samples::milliseconds(least);
    println!("{name} after a small change, ms: ours {ours}; docker load {peer}; of one small layer {least}");
    Ok(Figure {
        name,
        unit: "ms",
        at: MEDIAN,
        ours,
        peer: Some(PeerSamples::new("docker load", &peer)),
        target: Target::Ratio(0.1),
    })
}

/// An engine that has nothing of the image gets it.
pub(crate) async fn first_load(stage: &Stage) -> Fallible<Vec<Figure>> {
    let mut archive = Archive::create(&stage.path("first.tar"), &MANY)?;
    archive.change(0)?;
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    // Who comes first takes turns too: what one of them leaves to be written to disk slows down the other.
    for round in 0..quick::rounds(FIRST_LOADS) {
        for theirs in [round % 2 == 0, round % 2 == 1] {
            stage.clean().await?;
            if theirs {
                peer.push(load_with_docker(stage, &archive).await?);
                continue;
            }
            let (sent, took) = load_with_us(stage, &archive).await?;
            if !matches!(sent, SentLayers::Everything { .. }) {
                return Err(format!("the engine was not clean: {sent:?}").into());
            }
            ours.push(took);
        }
    }
    stage.clean().await?;
    let (ours, peer) = (Samples::milliseconds(ours), Samples::milliseconds(peer));
    println!("first load, ms: ours {ours}; docker load {peer}");
    Ok(vec![Figure {
        name: "first-load",
        unit: "ms",
        at: MEDIAN,
        ours,
        peer: Some(PeerSamples::new("docker load", &peer)),
        // No slower than the engine's own client, which does the same work.
        target: Target::Ratio(1.0),
    }])
}

async fn load_with_us(stage: &Stage, archive: &Archive) -> Fallible<(SentLayers, Duration)> {
    let request = LoadRequest {
        source: LoadSource::Archive(archive.path.clone()),
        order: LayerOrder::Fixed,
        labels: BTreeMap::new(),
        tag: EngineImageReference::parse(&tag("ours"))?,
        cache: LayerCache::new(stage.path("cache")),
    };
    let started = Instant::now();
    let loaded = load(&stage.engine, &request, &mut Discard).await?;
    Ok((loaded.sent, started.elapsed()))
}

async fn load_with_docker(stage: &Stage, archive: &Archive) -> Fallible<Duration> {
    let path = archive.path.to_string_lossy().into_owned();
    let command = stage.docker().args(["load", "--quiet", "--input", &path]);
    Ok(stage.run(&command).await?.1)
}

/// An image as `docker save` writes it. What changes is at its end, so that changing it is quick.
struct Archive {
    path: PathBuf,
    large: Vec<Digest>,
    large_end: u64,
}

impl Archive {
    /// An archive with layers of these sizes, and nothing that changes yet.
    fn create(path: &Path, sizes: &[u64]) -> Fallible<Self> {
        let mut large = Vec::new();
        let mut tar = Builder::new(BufWriter::new(File::create(path)?));
        for (number, size) in sizes.iter().enumerate() {
            let layer = layer(number as u64 + u64::from(std::process::id()) * 1000, *size)?;
            let digest = Digest::sha256(&layer);
            append(&mut tar, &layer_name(&digest), &layer)?;
            large.push(digest);
        }
        tar.get_mut().flush()?;
        let large_end = tar.get_mut().stream_position()?;
        Ok(Self {
            path: path.to_owned(),
            large,
            large_end,
        })
    }

    /// Gives it another small last layer.
    fn change(&mut self, number: u64) -> Fallible<()> {
        let mut file = OpenOptions::new().write(true).open(&self.path)?;
        file.set_len(self.large_end)?;
        file.seek(SeekFrom::End(0))?;
        let mut tar = Builder::new(file);
        let small = layer(1_000_000_000_000 + number, SMALL)?;
        let digests: Vec<Digest> = self
            .large
            .iter()
            .copied()
            .chain([Digest::sha256(&small)])
            .collect();
        let names: Vec<String> = digests.iter().map(layer_name).collect();
        append(&mut tar, names.last().map_or("", String::as_str), &small)?;
        let config = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": {"Cmd": ["/none"], "Labels": {LABEL: std::process::id().to_string()}},
            "rootfs": {"type": "layers", "diff_ids": digests},
        });
        append(&mut tar, "config.json", config.to_string().as_bytes())?;
        let manifest = json!([{"Config": "config.json", "RepoTags": [tag("peer")], "Layers": names}]);
        append(&mut tar, "manifest.json", manifest.to_string().as_bytes())?;
        tar.finish()?;
        Ok(())
    }
}

fn layer_name(digest: &Digest) -> String {
    format!("{}/layer.tar", digest.hex())
}

/// A layer of files of noise.
fn layer(seed: u64, bytes: u64) -> Fallible<Vec<u8>> {
    const FILE: u64 = 1_000_000;
    let mut tar = Builder::new(Vec::new());
    for number in 0..bytes.div_ceil(FILE) {
        let mut content = Vec::new();
        write_noise(
            &mut content,
            seed * 1000 + number,
            FILE.min(bytes - number * FILE),
        )?;
        append(&mut tar, &format!("noise/{seed}/{number}"), &content)?;
    }
    Ok(tar.into_inner()?)
}

fn append(tar: &mut Builder<impl Write>, name: &str, content: &[u8]) -> Fallible<()> {
    let mut header = Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    Ok(tar.append_data(&mut header, name, content)?)
}
