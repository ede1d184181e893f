//! Reads files of an image without running anything of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use bollard::query_parameters::DownloadFromContainerOptions;
use futures_util::StreamExt;
use jiff::Timestamp;

use super::container::unstarted;
use super::{Digest, Engine, EngineError};
use crate::atomic_file::write_cache;

/// The text of files by their paths below the root, without a leading slash.
pub type ImageFiles = BTreeMap<String, String>;

/// The files at each requested path. Stored in the cache.
type CachedFiles = BTreeMap<String, ImageFiles>;

/// The most bytes that are read of one path.
const MAX_BYTES: usize = 4 << 20;
/// The most symbolic links that are followed in a row.
const MAX_LINKS: usize = 8;
/// The label of containers that images are read through.
const LABEL: &str = "ralph.reading";

impl Engine {
    /// The files of an image at these paths, and those directly in these directories. Files that are missing, too long or
    /// not UTF-8 are left out. The result is cached in the directory `cache`, since an image never changes.
    ///
    /// Containers that a killed process left behind are removed when they are older than five minutes at `now`.
    pub async fn image_files(
        &self,
        image: &Digest,
        paths: &BTreeSet<String>,
        cache: &Path,
        now: Timestamp,
    ) -> Result<ImageFiles, EngineError> {
        let store = cache.join(format!("{}.json", image.hex()));
        let mut known = load(&store);
        let missing: Vec<&String> = paths.iter().filter(|path| !known.contains_key(*path)).collect();
        if !missing.is_empty() {
            known.extend(self.read_image(image, &missing, now).await?);
            write_cache(&store, &serde_json::to_vec(&known).unwrap_or_default());
        }
        known.retain(|path, _| paths.contains(path));
        Ok(known.into_values().flatten().collect())
    }

    /// Reads files through a container that is never started.
    async fn read_image(
        &self,
        image: &Digest,
        paths: &[&String],
        now: Timestamp,
    ) -> Result<CachedFiles, EngineError> {
        self.remove_abandoned(LABEL, now).await?;
        let container = self.create_container(&unstarted(image, LABEL)).await?;
        let read = async {
            let mut known = CachedFiles::new();
            for path in paths {
                known.insert((*path).clone(), self.files_at(&container, path, MAX_LINKS).await?);
            }
            // When another process removed the container, every file seems to be missing.
            match self.container(&container).await? {
                Some(_) => Ok(known),
                None => Err(EngineError::NotFound {
                    subject: format!("the container for reading `{image}`"),
                }),
            }
        };
        let read = read.await;
        self.remove_container(&container).await?;
        read
    }

    /// The files at a path, by the path that was asked for and not by the target of a link.
    async fn files_at(&self, container: &str, path: &str, links: usize) -> Result<ImageFiles, EngineError> {
        let mut files = ImageFiles::new();
        for (name, content) in self.entries_at(container, path).await? {
            match content {
                EntryContent::Text(text) => {
                    files.insert(name, text);
                }
                EntryContent::Link(target) if links > 0 => {
                    let target = link_target(&name, &target);
                    let found = Box::pin(self.files_at(container, &target, links - 1)).await?;
                    let renamed = found.into_iter().filter_map(|(own, text)| {
                        Some((format!("{name}{}", own.strip_prefix(&target)?), text))
                    });
                    files.extend(renamed);
                }
                EntryContent::Link(_) => {}
            }
        }
        Ok(files)
    }

    async fn entries_at(
        &self,
        container: &str,
        path: &str,
    ) -> Result<Vec<(String, EntryContent)>, EngineError> {
        let options = DownloadFromContainerOptions {
            path: format!("/{path}"),
        };
        let mut pieces = self
            .docker
            .download_from_container(container, Some(options))
            .boxed();
        let mut archive = Vec::new();
        while let Some(piece) = pieces.next().await {
            match piece.map_err(|error| EngineError::from_api(path, error)) {
                Ok(piece) if archive.len() + piece.len() <= MAX_BYTES => archive.extend_from_slice(&piece),
                Ok(_) | Err(EngineError::NotFound { .. }) => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
        }
        let parent = Path::new(path).parent().unwrap_or(Path::new(""));
        read_entries(&archive, parent).map_err(|source| EngineError::Content {
            subject: path.to_owned(),
            source,
        })
    }
}

/// An entry of a tar archive.
enum EntryContent {
    Text(String),
    Link(PathBuf),
}

/// The files of an archive and directly in its directory, by their paths, which start with `parent`.
fn read_entries(archive: &[u8], parent: &Path) -> std::io::Result<Vec<(String, EntryContent)>> {
    let mut found = Vec::new();
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let path = parent.join(entry.path()?);
        let content = match entry.header().entry_type() {
            tar::EntryType::Regular => {
                let mut text = String::new();
                entry
                    .read_to_string(&mut text)
                    .ok()
                    .map(|_| EntryContent::Text(text))
            }
            tar::EntryType::Symlink => entry
                .link_name()?
                .map(|target| EntryContent::Link(target.into_owned())),
            _ => None,
        };
        let direct = path.components().count() <= parent.components().count() + 2;
        if let (Some(name), Some(content), true) = (path.to_str(), content, direct) {
            found.push((name.to_owned(), content));
        }
    }
    Ok(found)
}

/// The path that a link at `name` points to. It cannot leave the root of the image.
fn link_target(name: &str, target: &Path) -> String {
    let parent = Path::new(name).parent().unwrap_or(Path::new(""));
    let mut path = PathBuf::new();
    for part in parent.join(target).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::ParentDir => {
                path.pop();
            }
            Component::RootDir => path.clear(),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    path.to_string_lossy().into_owned()
}

/// The cached files; none when the cache is missing or damaged.
fn load(store: &Path) -> CachedFiles {
    let bytes = fs::read(store).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("etc/nix/nix.conf", "../static/nix.conf", "etc/static/nix.conf")]
    #[case("etc/npmrc", "/nix/store/x/npmrc", "nix/store/x/npmrc")]
    #[case("etc/npmrc", "./other", "etc/other")]
    #[case("npmrc", "../../../etc/passwd", "etc/passwd")]
    fn a_link_target_is_below_the_root(#[case] name: &str, #[case] target: &str, #[case] expected: &str) {
        assert_eq!(link_target(name, Path::new(target)), expected);
    }

    #[test]
    fn binary_files_and_nested_directories_are_left_out() {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, bytes) in [
            ("d/a.list", b"a".as_slice()),
            ("d/binary", b"\xff\xfe"),
            ("d/below/b.list", b"b"),
        ] {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, path, bytes).unwrap();
        }
        let found = read_entries(&tar.into_inner().unwrap(), Path::new("etc")).unwrap();
        let names: Vec<String> = found.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["etc/d/a.list"]);
    }
}
