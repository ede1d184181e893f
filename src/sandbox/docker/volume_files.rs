//! The files of a sandbox whose workspace is in a volume of the engine: commands in its container transfer bytes.

use std::io;
use std::path::Path;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWriteExt};

use super::super::scripted_files::{FileContent, FileSource, PERMISSIONS, ScriptResult, ScriptedFiles, run};
use super::super::{DirEntry, SandboxError};
use super::container::ROOT;
use super::exec::finish_script;
use super::sandbox::DockerSandbox;
use crate::engine::{EngineError, ExecOutput};

/// The directory below the root in which files are written before they are moved to their path.
pub(super) const STAGING: &str = "home/.ralph-staging";

const LIST: &str = include_str!("list.sh");
/// Reads so many bytes, and not to the end of its input: not every connection to an engine can end one direction alone.
const STAGE: &str = "umask 077 && mkdir -p -- \"${1%/*}\" && head -c \"$2\" >\"$1\"";
const CAT: &str = "exec cat -- \"$1\"";

/// The type of a directory in a mode.
const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;

#[async_trait]
impl ScriptedFiles for DockerSandbox {
    fn files_root(&self) -> &Path {
        Path::new(ROOT)
    }

    async fn run_script(&self, script: &str, args: &[&str]) -> Result<ScriptResult, SandboxError> {
        let done = self.exec.script_output(script, args).await;
        self.explain(done).await
    }

    async fn stage(&self, source: FileSource) -> Result<String, SandboxError> {
        let staged = format!("{ROOT}/{STAGING}/{:016x}", fastrand::u64(..));
        let done = match source {
            FileSource::Bytes(bytes) => self.send(&staged, bytes.len() as u64, bytes.as_slice()).await,
            FileSource::File(file, length) => self.send(&staged, length, file).await,
        };
        let done = self.explain(done).await?;
        match done.exit_code {
            0 => Ok(staged),
            code => {
                let problem = format!("exit status {code}: {}", done.output.trim());
                let cause = io::Error::other(problem);
                Err(SandboxError::file("write", Path::new(&staged), cause))
            }
        }
    }

    async fn open_file(&self, target: &str) -> Result<FileContent<'_>, SandboxError> {
        let exec = self.exec.start_script(CAT, &[target], false).await;
        let exec = self.explain(exec).await?;
        let pieces = unfold(exec, move |mut exec| async move {
            loop {
                match exec.next().await? {
                    Ok(ExecOutput::Stdout(bytes)) => return Some((Ok(bytes), exec)),
                    Ok(ExecOutput::Stderr(_) | ExecOutput::Engine(_)) => {}
                    Err(error) => return Some((self.explain(Err(error)).await, exec)),
                }
            }
        });
        Ok(pieces.boxed())
    }

    async fn entries(&self, path: &Path, target: &str) -> Result<Vec<DirEntry>, SandboxError> {
        let listed = run(self, "list", path, LIST, &[target]).await?;
        let entries = listed.split_terminator('\0').map(to_entry);
        let entries: Option<Vec<DirEntry>> = entries.collect();
        entries.ok_or_else(|| SandboxError::file("list", path, io::ErrorKind::InvalidData.into()))
    }
}

impl DockerSandbox {
    /// Writes a file of this length.
    async fn send(
        &self,
        path: &str,
        length: u64,
        source: impl AsyncRead + Send,
    ) -> Result<ScriptResult, EngineError> {
        let mut exec = self
            .exec
            .start_script(STAGE, &[path, &length.to_string()], true)
            .await?;
        if let Some(mut stdin) = exec.stdin.take() {
            tokio::pin!(source);
            let sent = async {
                tokio::io::copy(&mut source, &mut stdin).await?;
                stdin.shutdown().await
            };
            // If it was refused, the script says why.
            if let Err(error) = sent.await {
                tracing::debug!(%error, "the container took only a part of a file");
            }
        }
        finish_script(exec).await
    }
}

/// An entry as the script prints it.
fn to_entry(text: &str) -> Option<DirEntry> {
    let (numbers, name) = text.split_once('\n')?;
    let mut numbers = numbers.split(' ');
    let mode = u32::from_str_radix(numbers.next()?, 16).ok()?;
    let size = numbers.next()?.parse().ok()?;
    let seconds = numbers.next()?.parse().ok()?;
    Some(DirEntry {
        name: name.to_owned(),
        is_dir: mode & TYPE == DIRECTORY,
        size,
        mode: mode & PERMISSIONS,
        mod_time: Timestamp::from_second(seconds).ok()?,
    })
}
