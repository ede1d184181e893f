//! Checks that layers made by us are byte for byte those that a given program makes.
//!
//! The details of a tar depend on the program and on the version of Python that runs it. So the program is run once on a
//! small store with every special case, and its layer must be the same as ours.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::archive;
use super::cache::LayerCache;
use super::program::ProgramOutput;
use super::store_tar::EntryMetadata;
use super::stream_conf::StreamProgram;
use crate::digest::Digest;
use crate::exec::{Command, Host};
use crate::file_hashes::FileStamp;

/// Whether our layers equal the program's. The program is run unless the answer is cached. Blocks.
pub(super) fn has_same_format(
    program: &StreamProgram,
    metadata: &EntryMetadata,
    host: &Host,
    cache: &LayerCache,
) -> io::Result<bool> {
    let path = program.path.to_string_lossy();
    let stamp = format!("{:?}", FileStamp::new(&fs::metadata(&program.path)?));
    let key = Digest::sha256_fields([&*path, &stamp, &format!("{metadata:?}")]);
    if let Some(same) = cache.find("format", &key) {
        return Ok(same);
    }
    let same = compare(program, metadata, host, cache)?;
    cache.keep("format", &key, &same);
    Ok(same)
}

fn compare(
    program: &StreamProgram,
    metadata: &EntryMetadata,
    host: &Host,
    cache: &LayerCache,
) -> io::Result<bool> {
    let scratch = cache.scratch_dir()?;
    let dir = scratch.path();
    let mut conf = program.conf.clone();
    conf.store_layers = vec![special_cases(&dir.join("store"))?];
    conf.customisation_layer = customisation(&dir.join("customisation"))?;
    conf.store_dir = dir.to_string_lossy().into_owned();
    let file = dir.join("conf.json");
    fs::write(&file, serde_json::to_vec(&conf)?)?;

    let command = Command::new(program.path.to_string_lossy()).arg(file.to_string_lossy());
    let theirs = archive::read_stream(ProgramOutput::start(command, host), None);
    let theirs = theirs.map_err(|error| io::Error::other(error.to_string()))?;
    let ours = conf.read_contents(metadata, &LayerCache::new(dir))?;
    // The configs list the layers by their digests.
    let config = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes);
    Ok(config(&theirs.config)? == config(&ours.config)?)
}

/// Store paths with long and non-ASCII names, links of all kinds, and names that sort differently as text and by parts.
fn special_cases(dir: &Path) -> io::Result<Vec<PathBuf>> {
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
