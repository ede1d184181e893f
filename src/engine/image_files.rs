//! Files of an image, read while nothing of it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use bollard::query_parameters::DownloadFromContainerOptions;
use futures_util::StreamExt;
use jiff::{SignedDuration, Timestamp};

use super::{ContainerSpec, Digest, Engine, EngineError, Limits, Network, Power};
use crate::remember;

/// Files by their paths below the root, without a slash before them.
pub type ImageFiles = BTreeMap<String, String>;

/// What was found at each path that was asked for. Kept from one call to the next.
type Known = BTreeMap<String, ImageFiles>;

/// The most bytes that are taken of one path.
const LONGEST: usize = 4 << 20;
/// How many links are followed, one after another.
const LINKS: usize = 8;
/// By which containers are known that are there to be read from.
const LABEL: &str = "ralph.reading";
/// How long one of them is needed at most. An older one is what a process left that was killed.
const NEEDED: SignedDuration = SignedDuration::from_mins(5);

impl Engine {
    /// The files of an image at these paths, and those right in these directories. What is not there, is too long or no
    /// text is left out. What was read is kept in the directory `cache`, since an image never changes.
    pub async fn image_files(
        &self,
        image: &Digest,
        paths: &BTreeSet<String>,
        cache: &Path,
    ) -> Result<ImageFiles, EngineError> {
        let store = cache.join(format!("{}.json", image.hex()));
        let mut known = load(&store);
        let missing: Vec<&String> = paths.iter().filter(|path| !known.contains_key(*path)).collect();
        if !missing.is_empty() {
            known.extend(self.read_image(image, &missing).await?);
            remember::save(&store, &serde_json::to_vec(&known).unwrap_or_default());
        }
        known.retain(|path, _| paths.contains(path));
        Ok(known.into_values().flatten().collect())
    }

    /// Reads through a container that is never started.
    async fn read_image(&self, image: &Digest, paths: &[&String]) -> Result<Known, EngineError> {
        self.remove_left_behind().await?;
        let container = self.create_container(&unstarted(image)).await?;
        let read = async {
            let mut known = Known::new();
            for path in paths {
                known.insert((*path).clone(), self.files_at(&container, path, LINKS).await?);
            }
            // Of one that somebody removed meanwhile, everything seems not to be there.
            match self.container(&container).await? {
                Some(_) => Ok(known),
                None => Err(EngineError::NotFound {
                    subject: format!("the container that `{image}` is read through"),
                }),
            }
        };
        let read = read.await;
        self.remove_container(&container).await?;
        read
    }

    async fn remove_left_behind(&self) -> Result<(), EngineError> {
        let now = Timestamp::now();
        for container in self.containers(LABEL).await? {
            if container
                .created
                .is_some_and(|made| now.duration_since(made) > NEEDED)
            {
                self.remove_container(&container.id).await?;
            }
        }
        Ok(())
    }

    /// The files at a path, under the name that they were asked for by.
    async fn files_at(&self, container: &str, path: &str, links: usize) -> Result<ImageFiles, EngineError> {
        let mut files = ImageFiles::new();
        for (name, content) in self.entries_at(container, path).await? {
            match content {
                Content::Text(text) => {
                    files.insert(name, text);
                }
                Content::Link(target) if links > 0 => {
                    let target = target_of(&name, &target);
                    let found = Box::pin(self.files_at(container, &target, links - 1)).await?;
                    let renamed = found.into_iter().filter_map(|(own, text)| {
                        Some((format!("{name}{}", own.strip_prefix(&target)?), text))
                    });
                    files.extend(renamed);
                }
                Content::Link(_) => {}
            }
        }
        Ok(files)
    }

    async fn entries_at(&self, container: &str, path: &str) -> Result<Vec<(String, Content)>, EngineError> {
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
                Ok(piece) if archive.len() + piece.len() <= LONGEST => archive.extend_from_slice(&piece),
                Ok(_) | Err(EngineError::NotFound { .. }) => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
        }
        let parent = Path::new(path).parent().unwrap_or(Path::new(""));
        entries_of(&archive, parent).map_err(|source| EngineError::Content {
            subject: path.to_owned(),
            source,
        })
    }
}

/// What an archive holds of a file.
enum Content {
    Text(String),
    Link(PathBuf),
}

/// The files of an archive and right in its directory, by their paths, which begin with `parent`.
fn entries_of(archive: &[u8], parent: &Path) -> std::io::Result<Vec<(String, Content)>> {
    let mut found = Vec::new();
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let path = parent.join(entry.path()?);
        let content = match entry.header().entry_type() {
            tar::EntryType::Regular => {
                let mut text = String::new();
                entry.read_to_string(&mut text).ok().map(|_| Content::Text(text))
            }
            tar::EntryType::Symlink => entry
                .link_name()?
                .map(|target| Content::Link(target.into_owned())),
            _ => None,
        };
        let direct = path.components().count() <= parent.components().count() + 2;
        if let (Some(name), Some(content), true) = (path.to_str(), content, direct) {
            found.push((name.to_owned(), content));
        }
    }
    Ok(found)
}

/// The path that a link at `name` leads to. The engine lets none lead out of the image.
fn target_of(name: &str, target: &Path) -> String {
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

/// What was found at each path before; nothing where there is no such file, or a damaged one.
fn load(store: &Path) -> Known {
    let bytes = fs::read(store).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

fn unstarted(image: &Digest) -> ContainerSpec {
    ContainerSpec {
        name: format!("ralph-reading-{:016x}", fastrand::u64(..)),
        image: image.to_string(),
        command: vec!["/never-started".to_owned()],
        user: "0:0".to_owned(),
        work_dir: PathBuf::from("/"),
        env: BTreeMap::new(),
        labels: BTreeMap::from([(LABEL.to_owned(), String::new())]),
        mounts: Vec::new(),
        in_memory: BTreeMap::new(),
        limits: Limits::default(),
        network: Network::Nothing { dns: None },
        power: Power::Nothing,
    }
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
    fn a_link_leads_somewhere_below_the_root(
        #[case] name: &str,
        #[case] target: &str,
        #[case] expected: &str,
    ) {
        assert_eq!(target_of(name, Path::new(target)), expected);
    }

    #[test]
    fn what_is_no_text_or_further_below_is_left_out() {
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
        let found = entries_of(&tar.into_inner().unwrap(), Path::new("etc")).unwrap();
        let names: Vec<String> = found.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["etc/d/a.list"]);
    }
}
