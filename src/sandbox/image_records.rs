//! Records of the templates and snapshots that ralph made. A VM without a record is not touched, whatever its name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::SandboxError;

/// One file for each template or snapshot, named after it: its content is the project that used it last, its time is when.
#[derive(Clone, Debug)]
pub struct ImageRecords {
    dir: PathBuf,
    project: PathBuf,
    /// The end of the names of the files.
    kind: &'static str,
}

/// A template or snapshot that ralph made.
pub(super) struct ImageRecord {
    pub(super) name: String,
    /// Whether it was last used by this project.
    pub(super) is_of_project: bool,
    pub(super) used: Option<Timestamp>,
}

impl ImageRecords {
    /// The records in this directory, for a provider of this project.
    pub(super) fn of_templates(dir: &Path, project: PathBuf) -> Self {
        let (dir, kind) = (dir.to_owned(), "template");
        Self { dir, project, kind }
    }

    /// The records of snapshots in this directory, for a provider of this project.
    #[must_use]
    pub fn of_snapshots(dir: PathBuf, project: PathBuf) -> Self {
        let kind = "snapshot";
        Self { dir, project, kind }
    }

    /// Records that this project uses an image now.
    pub(super) fn note(&self, name: &str) -> Result<(), SandboxError> {
        let file = self.file(name);
        let project = self.project.to_string_lossy();
        fs::create_dir_all(&self.dir)
            .and_then(|()| fs::write(&file, project.as_bytes()))
            .map_err(|error| SandboxError::host("write", &file, error))
    }

    /// All records, sorted by name.
    pub(super) fn all(&self) -> Result<Vec<ImageRecord>, SandboxError> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| SandboxError::host("list", &self.dir, error))?,
        };
        let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut records: Vec<ImageRecord> = files.filter_map(|file| self.record(&file)).collect();
        records.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(records)
    }

    /// Whether ralph made this image on this host.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.file(name).is_file()
    }

    /// Removes the record of an image.
    pub(super) fn forget(&self, name: &str) -> Result<(), SandboxError> {
        let file = self.file(name);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(SandboxError::host("remove", &file, error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn record(&self, file: &Path) -> Option<ImageRecord> {
        if file.extension()? != self.kind {
            return None;
        }
        let used = fs::metadata(file).and_then(|file| file.modified()).ok();
        Some(ImageRecord {
            name: file.file_stem()?.to_str()?.to_owned(),
            is_of_project: Path::new(&fs::read_to_string(file).ok()?) == self.project,
            used: used.and_then(|used| Timestamp::try_from(used).ok()),
        })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.{}", self.kind))
    }
}
