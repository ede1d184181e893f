//! The JSON that Nix's `streamLayeredImage` passes to its program: which store paths make up which layer.
//!
//! Once [`super::format_probe`] has shown that we make the same layers from it, we make only those that must be sent, and
//! do not run the program. `image/flake-reload` in `docs/benchmarks.md` shows what that saves.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::cache::LayerCache;
use super::contents::{FileSlice, ImageContents, ImageLayer, LayerEncoding, LayerLocation};
use super::store_tar::{EntryMetadata, StoreLayer};
use crate::digest::Digest;
use crate::file_hashes::FileStamp;
use crate::image::parallel;

/// How much of a wrapper is read.
const LARGEST_WRAPPER: u64 = 64 * 1024;

/// A program that prints an image, and its input.
pub(super) struct StreamProgram {
    /// The program itself, not the wrapper that names its conf.
    pub(super) path: PathBuf,
    pub(super) conf: StreamConf,
}

impl StreamProgram {
    /// Reads the wrapper that `streamLayeredImage` makes; `None` for any other program.
    pub(super) fn find(wrapper: &Path) -> Option<Self> {
        let mut text = String::new();
        let file = fs::File::open(wrapper).ok()?;
        file.take(LARGEST_WRAPPER).read_to_string(&mut text).ok()?;
        let (path, conf) = text.lines().find_map(parse_exec)?;
        let conf = serde_json::from_slice(&fs::read(conf).ok()?).ok()?;
        Some(Self { path, conf })
    }
}

/// Parses the line of a wrapper that starts its program: `exec "PROGRAM"  CONF "$@"`.
fn parse_exec(line: &str) -> Option<(PathBuf, PathBuf)> {
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
    /// The time of all files. Older versions use `created`.
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
    /// Fields that only the program reads.
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
    /// The owner and time of every file in the layers. `None` if two runs of the program differ, or if it stacks its
    /// layers on another image.
    pub(super) fn entry_metadata(&self) -> Option<EntryMetadata> {
        let seconds = |time: &str| time.parse::<Timestamp>().ok().map(Timestamp::as_second);
        seconds(&self.created)?;
        let number = |value: &Value| match value {
            Value::String(text) => text.parse().ok(),
            value => value.as_u64(),
        };
        let metadata = EntryMetadata {
            mtime: u64::try_from(seconds(self.mtime.as_ref().unwrap_or(&self.created))?).ok()?,
            uid: number(&self.uid)?,
            gid: number(&self.gid)?,
            user: self.uname.clone(),
            group: self.gname.clone(),
        };
        self.from_image.is_none().then_some(metadata)
    }

    /// The image's config and layers. Hashes the layers that are not in the cache, on all processors.
    pub(super) fn read_contents(
        &self,
        metadata: &EntryMetadata,
        cache: &LayerCache,
    ) -> io::Result<ImageContents> {
        let stored = self.store_layers.iter().map(|paths| StoreLayer {
            paths: paths.clone(),
            metadata: metadata.clone(),
        });
        let stored: Vec<StoreLayer> = stored.collect();
        let found = parallel::map(&stored, |_| u64::from(u32::MAX), |layer| measure(layer, cache));
        let mut layers = Vec::new();
        for (layer, measured) in stored.into_iter().zip(found) {
            let MeasuredLayer { diff_id, size } = measured?;
            layers.push(plain(diff_id, size, LayerLocation::Store(layer)));
        }
        layers.push(customisation(&self.customisation_layer)?);
        let config = serde_json::to_vec(&self.image_config(&layers))?;
        Ok(ImageContents { config, layers })
    }

    /// The config of an image of these layers.
    fn image_config(&self, layers: &[ImageLayer]) -> Value {
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

fn plain(diff_id: Digest, size: u64, location: LayerLocation) -> ImageLayer {
    ImageLayer {
        blob: diff_id,
        diff_id,
        size,
        encoding: LayerEncoding::Plain,
        location,
    }
}

/// The last layer, which Nix made when it built the image, with its digest beside it.
fn customisation(dir: &Path) -> io::Result<ImageLayer> {
    let checksum = fs::read_to_string(dir.join("checksum"))?;
    let diff_id = Digest::parse(checksum.trim()).map_err(io::Error::other)?;
    let file = fs::File::open(dir.join("layer.tar"))?;
    let size = file.metadata()?.len();
    let slice = FileSlice {
        file: Arc::new(file),
        offset: 0,
    };
    Ok(plain(diff_id, size, LayerLocation::File(slice)))
}

/// A layer's entry in the cache.
#[derive(Serialize, Deserialize)]
struct MeasuredLayer {
    diff_id: Digest,
    size: u64,
}

/// The digest and size of a layer. A store path never changes, so both are cached by name. The inode changes if a path
/// was deleted and built again with another result.
fn measure(layer: &StoreLayer, cache: &LayerCache) -> io::Result<MeasuredLayer> {
    let key = key(layer)?;
    if let Some(measured) = cache.find("layer", &key) {
        return Ok(measured);
    }
    let mut hasher = Sha256::new();
    let size = layer.write(&mut hasher)?;
    let diff_id = Digest::from_hasher(hasher);
    let measured = MeasuredLayer { diff_id, size };
    cache.keep("layer", &key, &measured);
    Ok(measured)
}

fn key(layer: &StoreLayer) -> io::Result<Digest> {
    let mut fields = vec![format!("{:?}", layer.metadata)];
    for path in &layer.paths {
        fields.push(path.to_string_lossy().into_owned());
        fields.push(format!("{:?}", FileStamp::new(&fs::symlink_metadata(path)?)));
    }
    Ok(Digest::sha256_fields(fields))
}
