//! Images that Nix builds from a flake.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, LineWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::environment::BuildEnvironment;
use super::error::ImageError;
use super::load::{LayerOrder, LoadSource};
use super::spec::BuildMode;
use crate::digest::Digest;
use crate::exec::{OutputLine, OutputSink};
use crate::nix::{Flake, FlakeInputs, FlakeOutput, FlakeRef, NixError};
use crate::text::error_chain;

/// A package of a flake, and the hash of its inputs.
#[derive(Clone, Debug)]
pub(super) struct FlakeImage {
    flake: Flake,
    output: FlakeOutput,
    hash: Digest,
}

/// A project's own flake.
pub(super) enum ProjectFlake {
    /// The project has no `flake.nix`.
    Absent,
    /// It is not used.
    Skipped(SkippedFlake),
    /// It has the image.
    Usable(FlakeImage),
}

/// Why a project's own flake is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkippedFlake {
    /// Git does not track it, so Nix cannot read it.
    Untracked,
    /// `nix` is not installed.
    NoNix,
    /// It has no such package.
    NoPackage(FlakeOutput),
}

impl fmt::Display for SkippedFlake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untracked => f.write_str("git does not track it"),
            Self::NoNix => f.write_str("nix is not installed"),
            Self::NoPackage(output) => write!(f, "it has no `{output}`"),
        }
    }
}

impl ProjectFlake {
    /// Looks for a flake in the main worktree of a project. Starts `nix` only if it is not cached whether this content has
    /// the package.
    pub(super) async fn find(
        project: &Path,
        output: FlakeOutput,
        inputs: &FlakeInputs,
        environment: &BuildEnvironment,
    ) -> Result<Self, NixError> {
        if !project.join("flake.nix").is_file() {
            return Ok(Self::Absent);
        }
        if !environment.host.has_program("nix") {
            return Ok(Self::Skipped(SkippedFlake::NoNix));
        }
        let reference = FlakeRef::Dir(project.to_owned());
        let image = match FlakeImage::read(&reference, output, inputs, environment).await {
            Ok(image) => image,
            Err(NixError::NoFlake(_) | NixError::NotInGit(_)) => {
                return Ok(Self::Skipped(SkippedFlake::Untracked));
            }
            Err(error) => return Err(error),
        };
        let FlakeImage { flake, output, hash } = &image;
        if flake
            .has_package_cached(output, hash, &environment.flakes())
            .await?
        {
            Ok(Self::Usable(image))
        } else {
            Ok(Self::Skipped(SkippedFlake::NoPackage(image.output)))
        }
    }
}

impl FlakeImage {
    /// Hashes the inputs of a package.
    pub(super) async fn read(
        reference: &FlakeRef,
        output: FlakeOutput,
        inputs: &FlakeInputs,
        environment: &BuildEnvironment,
    ) -> Result<Self, NixError> {
        let flake = Flake::open(environment.host.clone(), reference)?;
        let hash = flake.content_hash(&output, inputs, &environment.flakes()).await?;
        Ok(Self { flake, output, hash })
    }

    pub(super) fn mode(&self) -> BuildMode {
        BuildMode::Nix {
            hash: self.hash,
            attribute: self.output.attribute.to_string(),
        }
    }

    /// Builds it with Nix; with `again`, Nix compares the result with that of the build before. The build log goes to
    /// `output` and to the file `log`.
    pub(super) async fn build(
        &self,
        again: bool,
        log: PathBuf,
        output: &mut dyn OutputSink,
    ) -> Result<PathBuf, ImageError> {
        let mut tee = Tee {
            file: LineWriter::new(File::create(&log).map_err(ImageError::io("access", &log))?),
            output,
        };
        let built = self.flake.build(&self.output, again, &mut tee).await;
        built.map_err(|error| {
            let hint = error.hint();
            let log = log.display();
            // Its log has gone to `output` line by line.
            if let NixError::BuildFailed {
                flake,
                output,
                status,
                ..
            } = &error
            {
                let message =
                    format!("cannot build `{output}` of {flake} ({status})\nthe full log is in `{log}`");
                return ImageError::failed(message).with_hint(hint);
            }
            ImageError::failed(format!("{error}\nthe full log is in `{log}`"))
                .with_cause(error)
                .with_hint(hint)
        })
    }
}

/// How to load the result of a Nix build. A program is made by `streamLayeredImage`, whose layers are store paths and have
/// no file in common. The layers of an archive may have.
pub(super) fn load_source(
    built: &Path,
    environment: &BuildEnvironment,
) -> io::Result<(LoadSource, LayerOrder)> {
    let is_program = |file: &Metadata| file.is_file() && file.permissions().mode() & 0o111 != 0;
    Ok(if is_program(&fs::metadata(built)?) {
        let source = LoadSource::Program {
            path: built.to_owned(),
            host: environment.host.clone(),
        };
        (source, LayerOrder::Free)
    } else {
        (LoadSource::Archive(built.to_owned()), LayerOrder::Fixed)
    })
}

/// Passes lines on, and writes them to a file.
struct Tee<'a> {
    file: LineWriter<File>,
    output: &'a mut dyn OutputSink,
}

impl OutputSink for Tee<'_> {
    fn line(&mut self, line: OutputLine) {
        if let Err(error) = writeln!(self.file, "{}", line.text) {
            tracing::warn!(error = %error_chain(&error), "cannot write to the build log");
        }
        self.output.line(line);
    }
}
