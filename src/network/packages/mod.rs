//! Which hosts package clients download from, by their own configuration in the project and in the image.
//!
//! A company's mirror works as soon as the client is configured to use it. Only the default registry of each client is
//! hard-coded.

mod apt;
mod cargo;
mod go;
mod nix;
mod npm;
mod pypi;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A package client.
#[derive(Debug)]
pub struct PackageClient {
    /// Its name in `packages:NAME`.
    pub name: &'static str,
    /// The hosts that it downloads from unless its configuration replaces them.
    defaults: &'static [&'static str],
    /// Its configuration files in a project.
    project_paths: &'static [&'static str],
    /// Its configuration files, and directories of such files, in an image. Without a leading slash.
    image_paths: &'static [&'static str],
    /// Variables that name a directory or a file in an image, and the path to append.
    path_variables: &'static [(&'static str, &'static str)],
    /// Reads its configuration files and variables.
    read: fn(&PackageConfig<'_>, &[ConfigFile], &mut ConfiguredHosts),
}

impl PackageClient {
    /// Every client.
    pub const ALL: [&'static Self; 6] = [
        &npm::CLIENT,
        &pypi::CLIENT,
        &cargo::CLIENT,
        &apt::CLIENT,
        &nix::CLIENT,
        &go::CLIENT,
    ];

    /// The hosts that it downloads from: those of its configuration, or its defaults. Each once.
    #[must_use]
    pub fn hosts(&self, config: &PackageConfig<'_>) -> Vec<PackageHost> {
        let files = config.files(self.project_paths, &self.image_paths(config.env));
        let mut found = ConfiguredHosts::default();
        (self.read)(config, &files, &mut found);
        let mut hosts = found.replacing;
        if hosts.is_empty() {
            hosts.extend(self.defaults.iter().map(|host| PackageHost::by_default(host)));
        }
        hosts.extend(found.adding);
        let mut seen = BTreeSet::new();
        hosts.retain(|found| seen.insert(found.host.clone()));
        hosts
    }

    /// The paths of its configuration files, and directories of such files, in an image with these variables.
    #[must_use]
    pub fn image_paths(&self, env: &BTreeMap<String, String>) -> Vec<String> {
        let named = self.path_variables.iter().filter_map(|(name, rest)| {
            let path = format!("{}{rest}", env.get(*name)?);
            Some(path.strip_prefix('/')?.to_owned())
        });
        let own = self.image_paths.iter().map(|path| (*path).to_owned());
        let mut paths: Vec<String> = named.chain(own).collect();
        let mut seen = BTreeSet::new();
        paths.retain(|path| seen.insert(path.clone()));
        paths
    }
}

impl PartialEq for PackageClient {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for PackageClient {}

/// The hosts in the configuration of a client.
#[derive(Default)]
struct ConfiguredHosts {
    /// They replace the defaults.
    replacing: Vec<PackageHost>,
    adding: Vec<PackageHost>,
}

/// The configuration that the package clients in a sandbox read.
#[derive(Clone, Copy)]
pub struct PackageConfig<'a> {
    /// The project's directory.
    pub project: &'a dyn ConfigTree,
    /// The root of the image.
    pub image: &'a dyn ConfigTree,
    /// The variables of the image.
    pub env: &'a BTreeMap<String, String>,
}

impl PackageConfig<'static> {
    /// No configuration: each client uses its defaults.
    pub const EMPTY: Self = Self {
        project: &BTreeMap::<String, String>::new(),
        image: &BTreeMap::<String, String>::new(),
        env: &BTreeMap::new(),
    };
}

/// A tree of configuration files. Paths are relative, with `/` as separator.
pub trait ConfigTree {
    /// The text of a file. `None` if it does not exist, is too long or is not text.
    fn read(&self, path: &str) -> Option<String>;

    /// The sorted names in a directory. Empty if it does not exist.
    fn names(&self, dir: &str) -> Vec<String>;
}

/// Files by their paths.
impl ConfigTree for BTreeMap<String, String> {
    fn read(&self, path: &str) -> Option<String> {
        self.get(path).cloned()
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let inner = |path: &String| path.strip_prefix(dir)?.strip_prefix('/').map(str::to_owned);
        self.keys().filter_map(inner).collect()
    }
}

/// A directory of the host. Symbolic links in it are not followed, so that a project cannot make ralph read other files.
#[derive(Clone, Debug)]
pub struct ConfigDirectory(pub PathBuf);

impl ConfigDirectory {
    /// The longest configuration file that is read, in bytes.
    const LONGEST: u64 = 1024 * 1024;

    /// The path of an entry, unless a symbolic link is on the way.
    fn resolve(&self, path: &str) -> Option<PathBuf> {
        let mut inner = self.0.clone();
        for part in Path::new(path) {
            inner.push(part);
            if inner.is_symlink() {
                return None;
            }
        }
        Some(inner)
    }
}

impl ConfigTree for ConfigDirectory {
    fn read(&self, path: &str) -> Option<String> {
        let path = self.resolve(path)?;
        let facts = path.metadata().ok()?;
        if !facts.is_file() || facts.len() > Self::LONGEST {
            return None;
        }
        std::fs::read_to_string(path).ok()
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let Some(Ok(entries)) = self.resolve(dir).map(std::fs::read_dir) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }
}

/// A host that a package client downloads from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageHost {
    /// The host as a policy rule: `host` or `host:port`.
    pub host: String,
    /// What names it: a file and line, a variable, or `by default`.
    pub source: String,
}

impl PackageHost {
    /// A default host of a client.
    fn by_default(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            source: "by default".to_owned(),
        }
    }

    /// The host of a URL, without user name and password. `None` if it cannot be part of a policy.
    fn from_url(url: &str, source: &str) -> Option<Self> {
        let plain = ["sparse+", "registry+", "git+", "mirror+"];
        let url = plain
            .iter()
            .find_map(|kind| url.strip_prefix(kind))
            .unwrap_or(url);
        let url = reqwest::Url::parse(url).ok()?;
        let host = url.host_str()?;
        let host = match (url.scheme(), url.port()) {
            ("http" | "https", None) => host.to_owned(),
            ("http" | "https" | "ssh" | "git", Some(port)) => format!("{host}:{port}"),
            ("ssh", None) => format!("{host}:22"),
            ("git", None) => format!("{host}:9418"),
            _ => return None,
        };
        // Fails for an IP address.
        crate::network::PolicyRule::parse(&host).ok()?;
        let source = source.to_owned();
        Some(Self { host, source })
    }
}

/// A configuration file of a client, with its path for messages.
struct ConfigFile {
    shown: String,
    text: String,
}

impl PackageConfig<'_> {
    /// The files that exist: first those of the project, then those of the image.
    fn files(&self, in_project: &[&str], in_image: &[String]) -> Vec<ConfigFile> {
        let read = |tree: &dyn ConfigTree, prefix: &str, path: &str| {
            tree.read(path).map(|text| ConfigFile {
                shown: format!("{prefix}{path}"),
                text,
            })
        };
        let project = in_project.iter().filter_map(|path| read(self.project, "", path));
        let image = in_image
            .iter()
            .filter_map(|path| read(self.image, "image:/", path));
        project.chain(image).collect()
    }

    /// The hosts of the URLs in a variable.
    fn variable(&self, name: &str, separators: &[char]) -> Vec<PackageHost> {
        let value = self.env.get(name).map_or("", String::as_str);
        hosts_in(value, separators, &format!("image:{name}"))
    }
}

impl ConfigFile {
    /// The lines that are not comments, each with its place.
    fn lines(&self) -> impl Iterator<Item = (&str, String)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (line.trim(), format!("{}:{}", self.shown, index + 1)))
            .filter(|(line, _)| !line.is_empty() && !line.starts_with(['#', ';']))
    }

    /// The `key = value` lines, each with its place.
    fn settings(&self) -> impl Iterator<Item = (&str, &str, String)> {
        self.lines().filter_map(|(line, place)| {
            let (key, value) = line.split_once('=')?;
            Some((key.trim(), value.trim().trim_matches('"'), place))
        })
    }
}

/// The separators of most lists.
const BLANKS: &[char] = &[' ', '\t'];

/// The hosts of the URLs in a list.
fn hosts_in(urls: &str, separators: &[char], source: &str) -> Vec<PackageHost> {
    let urls = urls.split(separators).map(str::trim);
    urls.filter_map(|url| PackageHost::from_url(url, source))
        .collect()
}

#[cfg(test)]
mod tests;
