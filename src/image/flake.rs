//! The image of a flake: which one it is, whether it is there to be built, and building it.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, LineWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::ensure::Pass;
use super::error::ImageError;
use super::load::{LayerOrder, LoadSource};
use super::spec::Mode;
use super::tools::Tools;
use crate::digest::Digest;
use crate::exec::{OutputLine, OutputSink};
use crate::nix::{Flake, FlakeInputs, FlakeOutput, FlakeRef, NixError};

/// A package of a flake, and the hash of what it is made from.
#[derive(Clone, Debug)]
pub(super) struct FlakeImage {
    flake: Flake,
    output: FlakeOutput,
    hash: Digest,
}

/// What there is of a project's own flake.
pub(super) enum ProjectFlake {
    /// There is none.
    Absent,
    /// It is not used.
    PassedOver(PassedOver),
    /// It has the image.
    Usable(FlakeImage),
}

/// Why a project's own flake is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassedOver {
    /// Git does not track it, so that Nix does not see it.
    Untracked,
    /// There is no `nix`.
    NoNix,
    /// It has no such package.
    NoPackage(FlakeOutput),
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untracked => f.write_str("git does not track it"),
            Self::NoNix => f.write_str("nix is not installed"),
            Self::NoPackage(output) => write!(f, "it has no `{output}`"),
        }
    }
}

impl ProjectFlake {
    /// Looks at the flake in the main worktree of a project. Starts `nix` only when it is not remembered whether this
    /// very content has the package.
    pub(super) async fn find(
        project: &Path,
        output: FlakeOutput,
        inputs: &FlakeInputs,
        tools: &Tools,
    ) -> Result<Self, NixError> {
        if !project.join("flake.nix").is_file() {
            return Ok(Self::Absent);
        }
        if !tools.host.has_program("nix") {
            return Ok(Self::PassedOver(PassedOver::NoNix));
        }
        let reference = FlakeRef::Dir(project.to_owned());
        let image = match FlakeImage::read(&reference, output, inputs, tools).await {
            Ok(image) => image,
            Err(NixError::NoFlake(_) | NixError::NotInGit(_)) => {
                return Ok(Self::PassedOver(PassedOver::Untracked));
            }
            Err(error) => return Err(error),
        };
        let FlakeImage { flake, output, hash } = &image;
        if flake.has_package_cached(output, hash, &tools.flakes()).await? {
            Ok(Self::Usable(image))
        } else {
            Ok(Self::PassedOver(PassedOver::NoPackage(image.output)))
        }
    }
}

impl FlakeImage {
    /// Hashes what a package is made from.
    pub(super) async fn read(
        reference: &FlakeRef,
        output: FlakeOutput,
        inputs: &FlakeInputs,
        tools: &Tools,
    ) -> Result<Self, NixError> {
        let flake = Flake::open(tools.host.clone(), reference)?;
        let hash = flake.content_hash(&output, inputs, &tools.flakes()).await?;
        Ok(Self { flake, output, hash })
    }

    pub(super) fn mode(&self) -> Mode {
        Mode::Nix {
            hash: self.hash,
            attribute: self.output.attribute.to_string(),
        }
    }

    /// Has Nix build it; again, Nix compares with what it built before. What it prints goes to `output` and to the file
    /// `log`.
    pub(super) async fn build(
        &self,
        pass: Pass,
        log: PathBuf,
        output: &mut dyn OutputSink,
    ) -> Result<PathBuf, ImageError> {
        let mut tee = Tee {
            file: LineWriter::new(File::create(&log).map_err(ImageError::file(&log))?),
            output,
        };
        let built = match pass {
            Pass::First => self.flake.build(&self.output, &mut tee).await,
            Pass::Again => self.flake.rebuild(&self.output, &mut tee).await,
        };
        built.map_err(|source| ImageError::NixBuild { source, log })
    }
}

/// How what Nix built is loaded. A program is what `streamLayeredImage` makes: layers of store paths, no two of which
/// hold the same file. Of an archive nobody knows.
pub(super) fn source_of(built: &Path, tools: &Tools) -> io::Result<(LoadSource, LayerOrder)> {
    let is_program = |file: &Metadata| file.is_file() && file.permissions().mode() & 0o111 != 0;
    Ok(if is_program(&fs::metadata(built)?) {
        let source = LoadSource::Program {
            path: built.to_owned(),
            host: tools.host.clone(),
        };
        (source, LayerOrder::Free)
    } else {
        (LoadSource::Archive(built.to_owned()), LayerOrder::Fixed)
    })
}

/// Passes lines on, and keeps them in a file.
struct Tee<'a> {
    file: LineWriter<File>,
    output: &'a mut dyn OutputSink,
}

impl OutputSink for Tee<'_> {
    fn line(&mut self, line: OutputLine) {
        if let Err(error) = writeln!(self.file, "{}", line.text) {
            tracing::warn!(%error, "a line of the build log was lost");
        }
        self.output.line(line);
    }
}
