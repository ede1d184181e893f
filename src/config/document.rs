//! A configuration file: its text, and positions in it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::error::{ConfigError, ConfigFinding};
use super::layer::{ConfigLayer, FilePosition, SettingOrigin, SettingPlace};

/// The maximum size of a configuration file, so that a device or a log is not read by mistake.
const MAX_BYTES: u64 = 1 << 20;

/// The text of a file and its layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConfigDocument<'a> {
    pub(super) layer: ConfigLayer,
    /// The file; `None` for the built-in defaults.
    pub(super) path: Option<&'a Path>,
    pub(super) text: &'a str,
}

impl ConfigDocument<'_> {
    /// The origin of a byte offset.
    pub(super) fn origin(&self, offset: usize) -> SettingOrigin {
        self.origin_at(|path| FilePosition::at_offset(path, self.text, offset))
    }

    /// The origin of a line and column, both from 1.
    pub(super) fn origin_of_line(&self, line: usize, column: usize) -> SettingOrigin {
        self.origin_at(|path| FilePosition {
            path: path.to_owned(),
            line: line.max(1),
            column: column.max(1),
        })
    }

    fn origin_at(&self, place: impl FnOnce(&Path) -> FilePosition) -> SettingOrigin {
        SettingOrigin {
            layer: self.layer,
            place: self
                .path
                .map_or(SettingPlace::BuiltIn, |path| SettingPlace::File(place(path))),
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

/// The text of a file that must exist.
pub(super) fn read_required(path: &Path) -> Result<String, ConfigError> {
    let bytes = read_bytes(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes());
        ConfigError::Invalid {
            findings: vec![ConfigFinding::new(
                SettingPlace::File(FilePosition::at_offset(path, &text, valid)),
                "the file is not UTF-8 text",
            )],
        }
    })
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!(
            "the file is larger than {MAX_BYTES} bytes"
        )));
    }
    Ok(bytes)
}

/// `config/models.yaml` is also missing where `config` is a file.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
