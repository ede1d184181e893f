//! Loading a flake's image of which one small layer changed, against its own program piped into `docker load`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ralph::digest::Digest;
use ralph::engine::EngineImageReference;
use ralph::exec::{Command, Discard};
use ralph::image::load::{LayerCache, LayerOrder, LoadRequest, LoadSource, SentLayers, load};
use serde_json::json;

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::stage::{LABEL, Stage, tag, write_file};

/// The program of the tests, which makes the same layers as that of Nix's `streamLayeredImage`.
const PROGRAM: &str = include_str!("../../tests/support/stream_image.py");
/// Store paths that do not change, each a layer of ten files of 1 MB.
const LAYERS: u64 = 60;
const FILES: u64 = 10;
const FILE: u64 = 1_000_000;
const SMALL: u64 = 100_000;
const RELOADS: usize = 6;

/// An engine that has the image gets one of which one small store path changed.
pub(crate) async fn reload(stage: &Stage) -> Fallible<Vec<Figure>> {
    let store = Store::create(&stage.path("store"))?;
    let mut number = 0;
    let mut change = || {
        number += 1;
        store.change(number)
    };
    change()?;
    for program in [&store.program, &store.unknown_program] {
        load_with_us(stage, program).await?;
    }
    let (mut ours, mut peer, mut run) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..quick::rounds(RELOADS) {
        change()?;
        peer.push(load_with_docker(stage, &store.program).await?);
        change()?;
        ours.push(load_with_us(stage, &store.program).await?);
        change()?;
        run.push(load_with_us(stage, &store.unknown_program).await?);
    }
    stage.clean().await?;
    let (ours, peer) = (Samples::milliseconds(ours), Samples::milliseconds(peer));
    let run = Samples::milliseconds(run);
    println!(
        "flake-reload, ms: ours {ours}; ours if the program must be run {run}; program | docker load {peer}"
    );
    Ok(vec![Figure {
        name: "flake-reload",
        unit: "ms",
        at: MEDIAN,
        ours,
        peer: Some(PeerSamples::new("its program | docker load", &peer)),
        target: Target::Ratio(0.67),
    }])
}

async fn load_with_us(stage: &Stage, program: &Path) -> Fallible<Duration> {
    let source = LoadSource::Program {
        path: program.to_owned(),
        host: stage.host.clone(),
    };
    let request = LoadRequest {
        source,
        order: LayerOrder::Free,
        labels: BTreeMap::new(),
        tag: EngineImageReference::parse(&tag("ours"))?,
        cache: LayerCache::new(stage.path("cache")),
    };
    let started = Instant::now();
    let loaded = load(&stage.engine, &request, &mut Discard).await?;
    let took = started.elapsed();
    match loaded.sent {
        SentLayers::Everything { .. } | SentLayers::Missing { layers: 2, .. } => Ok(took),
        sent => Err(format!("more was sent than had changed: {sent:?}").into()),
    }
}

async fn load_with_docker(stage: &Stage, program: &Path) -> Fallible<Duration> {
    let docker = format!("DOCKER_HOST={} docker load --quiet", stage.engine.endpoint());
    let line = format!("set -o pipefail; {} | {docker}", program.display());
    Ok(stage.run(&Command::new("bash").args(["-c", &line])).await?.1)
}

/// A store, and the wrappers of two programs that make an image of it.
struct Store {
    dir: PathBuf,
    program: PathBuf,
    /// Its tars are not those that we make, so it is run for every load.
    unknown_program: PathBuf,
}

impl Store {
    fn create(dir: &Path) -> Fallible<Self> {
        for layer in 0..LAYERS {
            for file in 0..FILES {
                let seed = u64::from(std::process::id()) * 1_000_000 + layer * FILES + file;
                write_file(&dir.join(format!("path-{layer}/{file}")), seed, FILE)?;
            }
        }
        let unknown = PROGRAM.replace("tarfile.PAX_FORMAT", "tarfile.GNU_FORMAT");
        Ok(Self {
            program: write_program(dir, "stream", PROGRAM)?,
            unknown_program: write_program(dir, "unknown", &unknown)?,
            dir: dir.to_owned(),
        })
    }

    /// Replaces the small store path, and with it the last layer, as a change in a flake does.
    fn change(&self, number: u64) -> Fallible<()> {
        let path = |name: String| self.dir.join(name);
        let small = path(format!("small-{number}"));
        write_file(&small.join("file"), 1_000_000_000_000 + number, SMALL)?;
        let custom = path("custom".to_owned());
        fs::create_dir_all(&custom)?;
        let mut last = tar::Builder::new(Vec::new());
        last.append_dir(format!("custom-{number}"), &custom)?;
        let last = last.into_inner()?;
        fs::write(custom.join("layer.tar"), &last)?;
        fs::write(custom.join("checksum"), Digest::sha256(&last).hex())?;
        let mut layers: Vec<[PathBuf; 1]> =
            (0..LAYERS).map(|layer| [path(format!("path-{layer}"))]).collect();
        layers.push([small]);
        let conf = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": {"Cmd": ["/none"], "Labels": {LABEL: std::process::id().to_string()}},
            "store_dir": self.dir,
            "from_image": null,
            "store_layers": layers,
            "customisation_layer": custom,
            "repo_tag": tag("peer"),
            "created": "1970-01-01T00:00:01+00:00",
            "mtime": "1970-01-01T00:00:01+00:00",
            "uid": "0",
            "gid": "0",
            "uname": "root",
            "gname": "root",
        });
        Ok(fs::write(path("conf.json".to_owned()), conf.to_string())?)
    }
}

/// Writes a program and its wrapper, and returns the wrapper.
fn write_program(dir: &Path, name: &str, text: &str) -> Fallible<PathBuf> {
    let (program, wrapper) = (dir.join(name), dir.join(format!("{name}-image")));
    let exec = format!(
        "#!/bin/sh -e\nexec \"{}\"  {} \"$@\" \n",
        program.display(),
        dir.join("conf.json").display()
    );
    for (path, text) in [(&program, text), (&wrapper, &exec)] {
        fs::write(path, text)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(wrapper)
}
