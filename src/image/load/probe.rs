//! The proof that layers made here are those that a given program would make.
//!
//! What a tar looks like in detail depends on the version of Python that a program runs on, and of the program itself.
//! So it is given a small store with all that is peculiar in tars, once, and its layer must be the same as ours.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::archive;
use super::cache::LayerCache;
use super::script::Output;
use super::store_tar::Stamp;
use super::stream_conf::Stream;
use crate::engine::Digest;
use crate::exec::{Command, Host};
use crate::remember::Look;

/// Whether a program's layers can be made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Same,
    Other,
}

/// A program that is to be tried, and with what.
pub(super) struct Probe<'a> {
    pub(super) stream: &'a Stream,
    pub(super) stamp: &'a Stamp,
    pub(super) host: &'a Host,
    pub(super) cache: &'a LayerCache,
}

impl Probe<'_> {
    /// Tries the program, unless it was tried before. Blocks.
    pub(super) fn verdict(&self) -> io::Result<Verdict> {
        let program = &self.stream.program;
        let look = format!("{:?}", Look::of(&fs::metadata(program)?));
        let key = Digest::sha256_fields([&*program.to_string_lossy(), &look, &format!("{:?}", self.stamp)]);
        if let Some(verdict) = self.cache.find("program", &key) {
            return Ok(verdict);
        }
        let verdict = self.try_program()?;
        self.cache.keep("program", &key, &verdict);
        Ok(verdict)
    }

    fn try_program(&self) -> io::Result<Verdict> {
        let scratch = self.cache.scratch_dir()?;
        let dir = scratch.path();
        let mut conf = self.stream.conf.clone();
        conf.store_layers = vec![peculiar_store(&dir.join("store"))?];
        conf.customisation_layer = customisation(&dir.join("customisation"))?;
        conf.store_dir = dir.to_string_lossy().into_owned();
        let file = dir.join("conf.json");
        fs::write(&file, serde_json::to_vec(&conf)?)?;

        let program = &self.stream.program;
        let command = Command::new(program.to_string_lossy()).arg(file.to_string_lossy());
        let theirs = archive::catalogue_of_stream(Output::of(command, self.host), None);
        let theirs = theirs.map_err(|flaw| io::Error::other(flaw.to_string()))?;
        let ours = conf.catalogue(self.stamp, &self.cache.within(dir))?;
        // The configs list the layers by their digests.
        let config = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes);
        let is_same = config(&theirs.config)? == config(&ours.config)?;
        Ok(if is_same { Verdict::Same } else { Verdict::Other })
    }
}

/// Store paths with long and foreign names, links of all kinds, and names that sort differently as text and by parts.
fn peculiar_store(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let long = "long-name-".repeat(12);
    let tree = dir.join("0-tree");
    let deep = tree.join("b").join(&long);
    fs::create_dir_all(&deep)?;
    for (name, size) in [
        ("a", 0),
        ("b-c", 511),
        ("b.d", 512),
        ("b/e", 513),
        ("ünïcode-名前", 20_000),
    ] {
        fs::write(tree.join(name), vec![b'x'; size])?;
    }
    fs::write(deep.join("file"), "deep")?;
    fs::set_permissions(tree.join("b-c"), fs::Permissions::from_mode(0o555))?;
    fs::hard_link(tree.join("b.d"), tree.join("hard"))?;
    symlink("nowhere", tree.join("link"))?;
    symlink(format!("/{long}"), tree.join("link-far"))?;
    symlink("ünïcode-名前", tree.join("link-ü"))?;
    let (file, link) = (dir.join("1-file"), dir.join("2-link"));
    fs::write(&file, "a store path that is a file")?;
    symlink("0-tree/b", &link)?;
    Ok(vec![tree, file, link])
}

fn customisation(dir: &Path) -> io::Result<PathBuf> {
    fs::create_dir(dir)?;
    let tar = [0; 1024];
    fs::write(dir.join("layer.tar"), tar)?;
    fs::write(dir.join("checksum"), Digest::sha256(&tar).hex())?;
    Ok(dir.to_owned())
}
