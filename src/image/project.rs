//! What a project adds to its image, read from `.agent-loop/` in the main worktree of its repository.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::context::{Context, ContextError, HashCache};
use super::dependencies::{Dependencies, DependenciesError};
use super::digest::Digest;
use super::stages::{self, StagesError};
use super::tag::ProjectName;
use super::templates::TemplateError;

/// The directory of a repository that describes its image.
const DIRECTORY: &str = ".agent-loop";
const DOCKERFILE: &str = "Dockerfile.sandbox";
const DEPENDENCIES: &str = "dependencies";

/// A project's own layer on top of the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectLayer {
    /// The project's name in tags.
    pub name: ProjectName,
    /// What it is built from.
    pub source: LayerSource,
    /// The Dockerfile. It starts from the build argument `BASE_IMAGE`.
    pub dockerfile: String,
}

/// What a project's layer is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerSource {
    /// `.agent-loop/dependencies`. The Dockerfile is made from it, and built with nothing around it.
    Dependencies,
    /// `.agent-loop/Dockerfile.sandbox`, with the directory around it.
    Dockerfile(Context),
}

/// Why a project's layer cannot be used.
#[derive(Debug, Error)]
pub enum ProjectError {
    /// A file that cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of `dependencies`.
    #[error("`{}` cannot be used", path.display())]
    Dependencies {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: DependenciesError,
    },
    /// A `Dockerfile.sandbox` that does not stand on the base.
    #[error("`{}` cannot be used", path.display())]
    Stages {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: StagesError,
    },
    /// The files around a `Dockerfile.sandbox`.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The generated Dockerfile.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

impl ProjectError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Dependencies { .. } => Some(
                "write one Debian package a line, such as `jq` or `libc6:arm64=2.36-9`; `#` starts a comment",
            ),
            Self::Stages { .. } => Some("start the file with `ARG BASE_IMAGE` and `FROM ${BASE_IMAGE}`"),
            Self::Context(error) => error.hint(),
            Self::Read { .. } | Self::Template(_) => None,
        }
    }
}

impl ProjectLayer {
    /// Reads the layer of the project whose main worktree this is. `None`: it adds nothing to the base.
    ///
    /// `Dockerfile.sandbox` wins over `dependencies`, which is not even read then.
    pub fn read(main_worktree: &Path, cache: &HashCache) -> Result<Option<Self>, ProjectError> {
        let name = ProjectName::of_directory(main_worktree);
        let directory = main_worktree.join(DIRECTORY);
        let layer = match dockerfile_layer(&directory, cache)? {
            Some(layer) => Some(layer),
            None => dependencies_layer(&directory)?,
        };
        Ok(layer.map(|(source, dockerfile)| Self {
            name,
            source,
            dockerfile,
        }))
    }

    /// The digest of the files that the Dockerfile can reach.
    #[must_use]
    pub fn context_digest(&self) -> Digest {
        match &self.source {
            LayerSource::Dependencies => Context::empty_digest(),
            LayerSource::Dockerfile(context) => context.digest(),
        }
    }
}

fn dockerfile_layer(
    directory: &Path,
    cache: &HashCache,
) -> Result<Option<(LayerSource, String)>, ProjectError> {
    let path = directory.join(DOCKERFILE);
    let Some(dockerfile) = read_if_there(&path)? else {
        return Ok(None);
    };
    stages::check(&dockerfile).map_err(|source| ProjectError::Stages { path, source })?;
    let context = Context::read(directory, cache)?;
    Ok(Some((LayerSource::Dockerfile(context), dockerfile)))
}

fn dependencies_layer(directory: &Path) -> Result<Option<(LayerSource, String)>, ProjectError> {
    let path = directory.join(DEPENDENCIES);
    let Some(text) = read_if_there(&path)? else {
        return Ok(None);
    };
    let dependencies =
        Dependencies::parse(&text).map_err(|source| ProjectError::Dependencies { path, source })?;
    if dependencies.is_empty() {
        return Ok(None);
    }
    Ok(Some((LayerSource::Dependencies, dependencies.dockerfile()?)))
}

fn read_if_there(path: &Path) -> Result<Option<String>, ProjectError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        // A link that leads nowhere is there, and is a mistake.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => Ok(None),
        Err(source) => Err(ProjectError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}
