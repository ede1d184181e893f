//! What a project adds to its image, from `.agent-loop/` in the main worktree of its repository.

use std::fs;
use std::io;
use std::path::Path;

use super::context::{BuildContext, HashCache};
use super::dependencies::ProjectDependencies;
use super::error::ImageError;
use super::spec::DockerfileContext;
use super::stages;
use super::tag::ProjectName;

/// The directory of a repository that describes its image.
const DIRECTORY: &str = ".agent-loop";
const DOCKERFILE: &str = "Dockerfile.sandbox";
const DEPENDENCIES: &str = "dependencies";
/// Ralph's own files there, which are not part of the build context.
pub(super) const NEVER_SENT: [&str; 2] = ["config.json", DEPENDENCIES];

/// A project's layer on top of the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectLayer {
    /// The project's name in tags.
    pub name: ProjectName,
    /// What it is built from.
    pub source: ProjectLayerSource,
    /// The Dockerfile, which starts from the build argument `BASE_IMAGE`, and its context.
    pub file: DockerfileContext,
}

/// What a project's layer is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectLayerSource {
    /// `.agent-loop/dependencies`. The Dockerfile is generated from it and has no build context.
    Dependencies,
    /// `.agent-loop/Dockerfile.sandbox`, with its directory as build context.
    Dockerfile,
}

impl ProjectLayer {
    /// Reads the layer of the project with this main worktree. `None`: it adds nothing to the base.
    ///
    /// If there is a `Dockerfile.sandbox`, `dependencies` is ignored.
    pub fn read(main_worktree: &Path, cache: &HashCache) -> Result<Option<Self>, ImageError> {
        let name = ProjectName::from_directory(main_worktree);
        let directory = main_worktree.join(DIRECTORY);
        let (source, file) = if let Some(file) = dockerfile(&directory, cache)? {
            (ProjectLayerSource::Dockerfile, file)
        } else if let Some(text) = dependencies_dockerfile(&directory)? {
            (ProjectLayerSource::Dependencies, DockerfileContext::alone(text))
        } else {
            return Ok(None);
        };
        Ok(Some(Self { name, source, file }))
    }
}

fn dockerfile(directory: &Path, cache: &HashCache) -> Result<Option<DockerfileContext>, ImageError> {
    let path = directory.join(DOCKERFILE);
    let Some(text) = read_optional(&path)? else {
        return Ok(None);
    };
    stages::check(&text).map_err(|reason| {
        ImageError::invalid(format!("invalid Dockerfile `{}`", path.display()))
            .with_cause(reason)
            .with_hint("start the file with `ARG BASE_IMAGE` and `FROM ${BASE_IMAGE}`")
    })?;
    Ok(Some(DockerfileContext {
        name: DOCKERFILE.to_owned(),
        text,
        context: BuildContext::read(directory, &NEVER_SENT, cache)?,
    }))
}

fn dependencies_dockerfile(directory: &Path) -> Result<Option<String>, ImageError> {
    let path = directory.join(DEPENDENCIES);
    let Some(text) = read_optional(&path)? else {
        return Ok(None);
    };
    let dependencies = ProjectDependencies::parse(&text).map_err(|error| {
        ImageError::invalid(format!("invalid dependencies in `{}`", path.display()))
            .with_cause(error)
            .with_hint(
                "write one Debian package per line, such as `jq` or `libc6:arm64=2.36-9`; `#` starts a comment",
            )
    })?;
    if dependencies.is_empty() {
        return Ok(None);
    }
    dependencies.dockerfile().map(Some)
}

fn read_optional(path: &Path) -> Result<Option<String>, ImageError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        // A dangling link is a mistake of the user.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => Ok(None),
        Err(error) => Err(ImageError::io("read", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rstest::rstest;
    use tempfile::TempDir;

    use super::*;

    const DOCKERFILE_TEXT: &str = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY a /a\n";

    /// A repository in `My App!` with these files in `.agent-loop/`.
    fn repository(files: &[(&str, &str)]) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("My App!").join(DIRECTORY);
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        dir
    }

    fn read(dir: &TempDir) -> Result<Option<ProjectLayer>, ImageError> {
        let cache = HashCache::new(dir.path().join("cache"), crate::clock::system());
        ProjectLayer::read(&dir.path().join("My App!"), &cache)
    }

    #[rstest]
    #[case::no_files(&[])]
    #[case::only_a_configuration(&[("config.json", "{}")])]
    #[case::only_comments(&[("dependencies", "# nothing yet\n")])]
    fn a_project_without_files_has_no_layer(#[case] files: &[(&str, &str)]) {
        assert_eq!(read(&repository(files)).unwrap(), None);
    }

    #[test]
    fn a_repository_without_the_directory_has_no_layer() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(&dir).unwrap(), None);
    }

    #[test]
    fn a_dockerfile_wins_over_dependencies() {
        let dir = repository(&[
            ("Dockerfile.sandbox", DOCKERFILE_TEXT),
            ("dependencies", "not a package"),
        ]);
        let layer = read(&dir).unwrap().unwrap();
        assert_eq!(layer.name.to_string(), "my-app");
        assert_eq!(layer.file.text, DOCKERFILE_TEXT);
        assert_eq!(layer.source, ProjectLayerSource::Dockerfile);
    }

    #[test]
    fn dependencies_become_a_dockerfile_without_context() {
        let layer = read(&repository(&[("dependencies", "jq"), ("a", "")]))
            .unwrap()
            .unwrap();
        assert_eq!(layer.source, ProjectLayerSource::Dependencies);
        assert!(layer.file.text.contains("\n    jq \\\n"));
        assert_eq!(layer.file.context, BuildContext::default());
    }

    #[rstest]
    #[case::package("dependencies", "jq\n\nrm -rf\n", "line 3: invalid package `rm -rf`")]
    #[case::stages(
        "Dockerfile.sandbox",
        "FROM ${BASE_IMAGE}",
        "line 1: `FROM ${BASE_IMAGE}` without `ARG BASE_IMAGE` before the first `FROM`"
    )]
    fn a_mistake_is_reported_with_file_line_and_hint(
        #[case] name: &str,
        #[case] text: &str,
        #[case] cause: &str,
    ) {
        let error = read(&repository(&[(name, text)])).unwrap_err();
        let file = format!(".agent-loop/{name}`");
        assert!(error.to_string().ends_with(&file), "{error}");
        assert_eq!(std::error::Error::source(&error).unwrap().to_string(), cause);
        assert!(error.hint().is_some());
    }

    #[rstest]
    #[case::nowhere("nowhere")]
    #[case::itself("Dockerfile.sandbox")]
    fn a_dangling_link_is_an_error(#[case] target: &str) {
        let dir = repository(&[("dependencies", "jq")]);
        symlink(
            target,
            dir.path().join("My App!").join(DIRECTORY).join(DOCKERFILE),
        )
        .unwrap();
        assert!(read(&dir).unwrap_err().to_string().starts_with("cannot read `"));
    }
}
