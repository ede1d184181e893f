//! A file being read: its text, and how to say where in it something stands.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::error::{ConfigError, Finding};
use super::layer::{FilePlace, Layer, Origin, Place};

/// No configuration file is longer; reading a device or a log by mistake ends here.
const LONGEST: u64 = 1 << 20;

/// A file's text and what it belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Document<'a> {
    pub(super) layer: Layer,
    /// The file; `None` for what is built in.
    pub(super) path: Option<&'a Path>,
    pub(super) text: &'a str,
}

impl<'a> Document<'a> {
    /// A file that was read.
    pub(super) fn of_file(layer: Layer, path: &'a Path, text: &'a str) -> Self {
        Self {
            layer,
            path: Some(path),
            text,
        }
    }

    /// Where a byte of the text stands.
    pub(super) fn origin(&self, offset: usize) -> Origin {
        self.origin_at(|path| FilePlace::at_offset(path, self.text, offset))
    }

    /// Where a line and column stand, both from 1.
    pub(super) fn origin_of_line(&self, line: usize, column: usize) -> Origin {
        self.origin_at(|path| FilePlace {
            path: path.to_owned(),
            line: line.max(1),
            column: column.max(1),
        })
    }

    fn origin_at(&self, place: impl FnOnce(&Path) -> FilePlace) -> Origin {
        Origin {
            layer: self.layer,
            place: self.path.map_or(Place::BuiltIn, |path| Place::File(place(path))),
        }
    }
}

/// The text of a file; `None` when there is no such file.
pub(super) fn read_optional(path: &Path) -> Result<Option<String>, ConfigError> {
    match read_required(path) {
        Err(ConfigError::Read { source, .. }) if is_absent(&source) => Ok(None),
        read => read.map(Some),
    }
}

/// The text of a file that must be there.
pub(super) fn read_required(path: &Path) -> Result<String, ConfigError> {
    let bytes = read_bytes(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes());
        ConfigError::Invalid {
            findings: vec![Finding::syntax(
                Place::File(FilePlace::at_offset(path, &text, valid)),
                "the file is not UTF-8 text",
            )],
        }
    })
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("it is longer than {LONGEST} bytes")));
    }
    Ok(bytes)
}

/// `config/models.yaml` is absent, too, where `config` is a file.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
