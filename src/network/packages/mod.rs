//! Where package clients download from, by their own configuration in the project and in the image.
//!
//! So a company's mirror works as soon as the client knows it, and no registry is hard-coded beside each client's own
//! default.

mod apt;
mod cargo;
mod go;
mod nix;
mod npm;
mod pypi;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// A package client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packages {
    /// npm, and whatever else reads `.npmrc`.
    Npm,
    /// pip, and whatever else reads `pip.conf`.
    Pypi,
    /// cargo.
    Cargo,
    /// apt.
    Apt,
    /// Nix's binary caches.
    Nix,
    /// Go's module proxies.
    Go,
}

impl Packages {
    /// Every client.
    pub const ALL: [Self; 6] = [Self::Npm, Self::Pypi, Self::Cargo, Self::Apt, Self::Nix, Self::Go];

    /// The hosts it downloads from: those it is told, else those it has by default.
    #[must_use]
    pub fn hosts(self, clients: &Clients<'_>) -> Vec<Found> {
        match self {
            Self::Npm => npm::hosts(clients),
            Self::Pypi => pypi::hosts(clients),
            Self::Cargo => cargo::hosts(clients),
            Self::Apt => apt::hosts(clients),
            Self::Nix => nix::hosts(clients),
            Self::Go => go::hosts(clients),
        }
    }
}

impl Packages {
    /// The files of an image that it is told by, and the directories of such files, in an image with these variables.
    #[must_use]
    pub fn image_paths(self, env: &BTreeMap<String, String>) -> Vec<String> {
        match self {
            Self::Npm => npm::IN_IMAGE.paths(env),
            Self::Pypi => pypi::IN_IMAGE.paths(env),
            Self::Cargo => cargo::IN_IMAGE.paths(env),
            Self::Apt => apt::IN_IMAGE.paths(env),
            Self::Nix => nix::IN_IMAGE.paths(env),
            Self::Go => go::IN_IMAGE.paths(env),
        }
    }
}

impl fmt::Display for Packages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Npm => "npm",
            Self::Pypi => "pypi",
            Self::Cargo => "cargo",
            Self::Apt => "apt",
            Self::Nix => "nix",
            Self::Go => "go",
        })
    }
}

/// What the clients of a sandbox will read.
#[derive(Clone, Copy)]
pub struct Clients<'a> {
    /// The project's directory.
    pub project: &'a dyn Tree,
    /// The root of the image.
    pub image: &'a dyn Tree,
    /// The variables of the image.
    pub env: &'a BTreeMap<String, String>,
}

impl Clients<'static> {
    /// Clients that are told nothing, so that each has its default.
    pub const NONE: Self = Self {
        project: &NoFiles,
        image: &NoFiles,
        env: &BTreeMap::new(),
    };
}

impl<'a> Clients<'a> {
    /// Clients that are told what stands in the project alone.
    #[must_use]
    pub fn of_project(project: &'a dyn Tree) -> Self {
        Self {
            project,
            ..Clients::NONE
        }
    }
}

/// A tree of files that configuration is read from. Paths are relative, with `/` between their parts.
pub trait Tree {
    /// The text of a file; `None` when it is not there, too long or no text.
    fn read(&self, path: &str) -> Option<String>;

    /// The names in a directory, in order; none when it is not there.
    fn names(&self, dir: &str) -> Vec<String>;
}

/// A tree without files.
#[derive(Clone, Copy, Debug)]
pub struct NoFiles;

impl Tree for NoFiles {
    fn read(&self, _: &str) -> Option<String> {
        None
    }

    fn names(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

/// Files by their paths.
impl Tree for BTreeMap<String, String> {
    fn read(&self, path: &str) -> Option<String> {
        self.get(path).cloned()
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let inner = |path: &String| path.strip_prefix(dir)?.strip_prefix('/').map(str::to_owned);
        self.keys().filter_map(inner).collect()
    }
}

/// A directory of the host.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// This directory.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The longest configuration file that is read.
    const LONGEST: u64 = 1024 * 1024;

    /// A path in it that is no link, so that a project cannot have other files of the host read.
    fn inner(&self, path: &str) -> Option<PathBuf> {
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

impl Tree for Directory {
    fn read(&self, path: &str) -> Option<String> {
        let path = self.inner(path)?;
        let facts = path.metadata().ok()?;
        if !facts.is_file() || facts.len() > Self::LONGEST {
            return None;
        }
        std::fs::read_to_string(path).ok()
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let Some(Ok(entries)) = self.inner(dir).map(std::fs::read_dir) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }
}

/// A host, and what says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The host as a rule: `host` or `host:port`.
    pub host: String,
    /// The file and line, the variable, or the default that names it.
    pub source: String,
}

impl Found {
    /// A default of a client.
    fn by_default(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            source: "by default".to_owned(),
        }
    }

    /// The host of an address; `None` when it has none. Names and passwords in it are not kept.
    fn from_url(url: &str, source: String) -> Option<Self> {
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
        // What is no name, such as an address, cannot be a line of a policy.
        crate::network::Rule::parse(&host).ok()?;
        Some(Self { host, source })
    }
}

/// Where a client is told something in an image.
struct InImage {
    /// Below the root, without a slash before them.
    paths: &'static [&'static str],
    /// Variables that name a directory or a file, with what stands behind that.
    variables: &'static [(&'static str, &'static str)],
}

impl InImage {
    fn paths(&self, env: &BTreeMap<String, String>) -> Vec<String> {
        let named = self.variables.iter().filter_map(|(name, rest)| {
            let path = format!("{}{rest}", env.get(*name)?);
            Some(path.strip_prefix('/')?.to_owned())
        });
        let own = self.paths.iter().map(|path| (*path).to_owned());
        let mut paths: Vec<String> = named.chain(own).collect();
        let mut seen = BTreeSet::new();
        paths.retain(|path| seen.insert(path.clone()));
        paths
    }
}

/// A file of a client, with the name a person knows it by.
struct ClientFile {
    shown: String,
    text: String,
}

impl Clients<'_> {
    /// Those of the files that are there: first of the project, then of the image.
    fn files(&self, in_project: &[&str], in_image: &[String]) -> Vec<ClientFile> {
        let read = |tree: &dyn Tree, prefix: &str, path: &str| {
            tree.read(path).map(|text| ClientFile {
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

    /// The hosts of addresses in a variable, separated as `is_separator` says.
    fn variable(&self, name: &str, separators: &[char]) -> Vec<Found> {
        let value = self.env.get(name).map_or("", String::as_str);
        value
            .split(separators)
            .filter_map(|url| Found::from_url(url.trim(), format!("image:{name}")))
            .collect()
    }
}

impl ClientFile {
    /// Its lines that are no comments, with where they stand.
    fn lines(&self) -> impl Iterator<Item = (&str, String)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (line.trim(), format!("{}:{}", self.shown, index + 1)))
            .filter(|(line, _)| !line.is_empty() && !line.starts_with(['#', ';']))
    }

    /// Its lines `key = value`, with where they stand.
    fn settings(&self) -> impl Iterator<Item = (&str, &str, String)> {
        self.lines().filter_map(|(line, place)| {
            let (key, value) = line.split_once('=')?;
            Some((key.trim(), value.trim().trim_matches('"'), place))
        })
    }
}

/// What was found; the defaults when nothing replaces them.
fn or_default(replacing: Vec<Found>, adding: Vec<Found>, defaults: &[&str]) -> Vec<Found> {
    let mut hosts = if replacing.is_empty() {
        defaults.iter().map(|host| Found::by_default(host)).collect()
    } else {
        replacing
    };
    hosts.extend(adding);
    let mut seen = BTreeSet::new();
    hosts.retain(|found| seen.insert(found.host.clone()));
    hosts
}

#[cfg(test)]
mod tests;
