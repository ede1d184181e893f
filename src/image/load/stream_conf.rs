//! The JSON that Nix's `streamLayeredImage` hands to its program: which store paths make up which layer.
//!
//! With it, and once [`super::probe`] has shown that the program makes the same of it, its layers are made here: only
//! those that must be sent, and without a second process.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::cache::LayerCache;
use super::catalogue::{Catalogue, Encoding, Layer, Place, Slice};
use super::store_tar::{Stamp, StoreLayer};
use crate::engine::Digest;
use crate::image::parallel;
use crate::remember::Look;

/// No wrapper of a program is larger.
const LARGEST_WRAPPER: u64 = 64 * 1024;
const BUFFER: usize = 256 * 1024;

/// A program that makes an image, and what it makes it of.
pub(super) struct Stream {
    /// The program itself, without the wrapper that names its conf.
    pub(super) program: PathBuf,
    pub(super) conf: StreamConf,
}

impl Stream {
    /// What a program of `streamLayeredImage` makes its image of; `None` for any other program.
    pub(super) fn find(wrapper: &Path) -> Option<Self> {
        let mut text = String::new();
        let file = fs::File::open(wrapper).ok()?;
        file.take(LARGEST_WRAPPER).read_to_string(&mut text).ok()?;
        let (program, conf) = text.lines().find_map(wrapped)?;
        let conf = serde_json::from_slice(&fs::read(conf).ok()?).ok()?;
        Some(Self { program, conf })
    }
}

/// Reads the line of a wrapper that starts its program: `exec "PROGRAM"  CONF "$@"`.
fn wrapped(line: &str) -> Option<(PathBuf, PathBuf)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["exec", program, conf, r#""$@""#] = words.as_slice() else {
        return None;
    };
    let path = |word: &str| Some(PathBuf::from(word.trim_matches('"'))).filter(|path| path.is_absolute());
    Some((path(program)?, path(conf)?))
}

/// The conf, as `streamLayeredImage` writes it.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct StreamConf {
    pub(super) store_layers: Vec<Vec<PathBuf>>,
    pub(super) customisation_layer: PathBuf,
    pub(super) store_dir: String,
    created: String,
    /// The time of all files; older versions take `created`.
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<String>,
    #[serde(default = "zero")]
    uid: Value,
    #[serde(default = "zero")]
    gid: Value,
    #[serde(default = "root")]
    uname: String,
    #[serde(default = "root")]
    gname: String,
    from_image: Option<PathBuf>,
    architecture: String,
    config: Value,
    /// What the program reads and we do not.
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

fn zero() -> Value {
    json!("0")
}

fn root() -> String {
    "root".to_owned()
}

impl StreamConf {
    /// What every file of its layers is given. `None` where two runs of the program differ, or where it puts its layers
    /// on those of another image.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        let seconds = |time: &str| time.parse::<Timestamp>().ok().map(Timestamp::as_second);
        seconds(&self.created)?;
        let number = |value: &Value| match value {
            Value::String(text) => text.parse().ok(),
            value => value.as_u64(),
        };
        let stamp = Stamp {
            mtime: u64::try_from(seconds(self.mtime.as_ref().unwrap_or(&self.created))?).ok()?,
            uid: number(&self.uid)?,
            gid: number(&self.gid)?,
            user: self.uname.clone(),
            group: self.gname.clone(),
        };
        self.from_image.is_none().then_some(stamp)
    }

    /// What the image consists of. Reads the layers that are not remembered, on all processors.
    pub(super) fn catalogue(&self, stamp: &Stamp, cache: &LayerCache) -> io::Result<Catalogue> {
        let stored = self.store_layers.iter().map(|paths| StoreLayer {
            paths: paths.clone(),
            stamp: stamp.clone(),
        });
        let stored: Vec<StoreLayer> = stored.collect();
        let found = parallel::map(&stored, |_| u64::from(u32::MAX), |layer| measured(layer, cache));
        let mut layers = Vec::new();
        for (layer, facts) in stored.into_iter().zip(found) {
            let LayerFacts { diff_id, size } = facts?;
            layers.push(plain(diff_id, size, Place::Store(layer)));
        }
        layers.push(customisation(&self.customisation_layer)?);
        let config = serde_json::to_vec(&self.image_config(&layers))?;
        Ok(Catalogue { config, layers })
    }

    /// The config of an image of these layers.
    fn image_config(&self, layers: &[Layer]) -> Value {
        let made_of = self.store_layers.iter().map(Vec::as_slice);
        let made_of = made_of.chain([std::slice::from_ref(&self.customisation_layer)]);
        let history = made_of.map(|paths| {
            let paths: Vec<String> = paths.iter().map(|path| format!("'{}'", path.display())).collect();
            json!({"created": self.created, "comment": format!("store paths: [{}]", paths.join(", "))})
        });
        json!({
            "created": self.created,
            "architecture": self.architecture,
            "os": "linux",
            "config": self.config,
            "rootfs": {
                "diff_ids": layers.iter().map(|layer| &layer.diff_id).collect::<Vec<_>>(),
                "type": "layers",
            },
            "history": history.collect::<Vec<_>>(),
        })
    }
}

fn plain(diff_id: Digest, size: u64, place: Place) -> Layer {
    Layer {
        blob: diff_id.clone(),
        diff_id,
        size,
        encoding: Encoding::Plain,
        place,
    }
}

/// The last layer, which was made when the image was built, with its digest beside it.
fn customisation(dir: &Path) -> io::Result<Layer> {
    let checksum = fs::read_to_string(dir.join("checksum"))?;
    let diff_id = Digest::parse(checksum.trim()).map_err(io::Error::other)?;
    let file = fs::File::open(dir.join("layer.tar"))?;
    let size = file.metadata()?.len();
    Ok(plain(diff_id, size, Place::File(Slice::of(&Arc::new(file), 0))))
}

/// What is remembered of a layer.
#[derive(Serialize, Deserialize)]
struct LayerFacts {
    diff_id: Digest,
    size: u64,
}

/// The digest of a layer and its size. A store path never changes, so that they are remembered under its name; should a
/// path have been deleted and built again, with another result, that shows by its inode.
fn measured(layer: &StoreLayer, cache: &LayerCache) -> io::Result<LayerFacts> {
    let key = key(layer)?;
    if let Some(facts) = cache.find("layer", &key) {
        return Ok(facts);
    }
    let mut tar = layer.open()?;
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; BUFFER]);
    loop {
        match tar.read(&mut buffer)? {
            0 => break,
            read => hasher.update(&buffer[..read]),
        }
    }
    let facts = LayerFacts {
        diff_id: Digest::from_hasher(hasher),
        size: tar.size(),
    };
    cache.keep("layer", &key, &facts);
    Ok(facts)
}

fn key(layer: &StoreLayer) -> io::Result<Digest> {
    let mut fields = vec![format!("{:?}", layer.stamp)];
    for path in &layer.paths {
        fields.push(path.to_string_lossy().into_owned());
        fields.push(format!("{:?}", Look::of(&fs::symlink_metadata(path)?)));
    }
    Ok(Digest::sha256_fields(fields))
}
