//! Finds directories that cannot be written before anything is paid for.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::state::RunDir;
use crate::task::Task;

use super::configuration::TaskFile;
use super::provider::{ImageSource, image_source};
use super::{AssemblyContext, AssemblyError, ErrorTopic};

const SET_HOME: &str = "make it writable, or set RALPH_HOME to a directory that you own";
const SET_CACHE: &str = "make it writable, or set XDG_CACHE_HOME or RALPH_HOME to a directory that you own";
const SET_TMPDIR: &str = "create it and make it writable, or set TMPDIR to a directory that is";

/// Fails if a run could not write its own directory, where its pull request goes too, its temporary files, or a cache that it
/// needs. `existing` is the run that is resumed.
pub(super) fn check(
    context: &AssemblyContext,
    config: &Config,
    file: &TaskFile,
    existing: Option<&RunDir>,
) -> Result<(), AssemblyError> {
    let surroundings = &context.surroundings;
    let runs = surroundings.runs()?;
    let data = existing.map_or(runs.dir(), RunDir::path);
    check_own("data directory", data, SET_HOME)?;
    let task = Task::parse(&file.text).ok().filter(|_| existing.is_none());
    let is_mirrored = task.is_some_and(|task| task.frontmatter.repo_url.is_some());
    if is_mirrored || image_source(context, config) == ImageSource::EngineImage {
        check_own("cache", &surroundings.cache_dir()?, SET_CACHE)?;
    }
    let temporary = PathBuf::from(surroundings.var("TMPDIR").unwrap_or("/tmp"));
    try_file(&temporary).map_err(not_writable("temporary directory", &temporary, SET_TMPDIR))
}

/// Checks a directory of ralph's own, and creates it if it is missing.
fn check_own(what: &str, dir: &Path, next_step: &str) -> Result<(), AssemblyError> {
    let tried = fs::create_dir_all(dir).and_then(|()| try_file(dir));
    tried.map_err(not_writable(what, dir, next_step))
}

/// Creates and removes a file, which finds more than permissions would: file systems that are read-only, quotas.
fn try_file(dir: &Path) -> io::Result<()> {
    tempfile::tempfile_in(dir).map(drop)
}

fn not_writable(what: &str, dir: &Path, next_step: &str) -> impl FnOnce(io::Error) -> AssemblyError {
    let message = format!("the {what} `{}` cannot be written", dir.display());
    move |error| {
        AssemblyError::usage(format!("{message}: {error}"))
            .with_topic(ErrorTopic::Configuration)
            .with_hint(next_step)
    }
}
