//! The files of a sandbox whose workspace is in a volume of the engine: commands in its container transfer bytes.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::super::files::PERMISSIONS;
use super::super::scripted_files::{FileContent, FileSource, ScriptResult, ScriptedFiles, run};
use super::super::{DirEntry, SandboxError};
use super::container::ROOT;
use super::exec::{SCRIPT_TIMEOUT, finish_script, next_piece};
use super::sandbox::DockerSandbox;
use crate::engine::{EngineError, ExecOutput};

/// The directory below the root in which files are written before they are moved to their path.
pub(super) const STAGING: &str = "home/.ralph-staging";

const LIST: &str = include_str!("list.sh");
/// Reads a fixed length: some connections to engines cannot end one direction alone. A file that is too short is removed.
const STAGE: &str = "umask 077 && mkdir -p -- \"${1%/*}\" && head -c \"$2\" >\"$1\" && [ \"$(wc -c <\"$1\")\" -eq \"$2\" ] || \
    { rm -f -- \"$1\"; exit 5; }";
const CAT: &str = "exec cat -- \"$1\"";

/// The buffer for uploads, in bytes.
const CHUNK: usize = 64 << 10;
/// The type of a directory in a mode.
const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;

#[async_trait]
impl ScriptedFiles for DockerSandbox {
    fn files_root(&self) -> &Path {
        Path::new(ROOT)
    }

    async fn run_script(&self, script: &str, args: &[&str]) -> Result<ScriptResult, SandboxError> {
        self.used.store(true, Ordering::Relaxed);
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
                let problem = format!("exit status {code}: {}", done.errors);
                let cause = io::Error::other(problem);
                Err(SandboxError::file("write", Path::new(&staged), cause))
            }
        }
    }

    async fn open_file(&self, target: &str) -> Result<FileContent<'_>, SandboxError> {
        self.used.store(true, Ordering::Relaxed);
        let exec = self.exec.start_script(CAT, &[target], false).await;
        let exec = self.explain(exec).await?;
        let pieces = unfold(exec, move |mut exec| async move {
            loop {
                match next_piece(&mut exec).await {
                    Ok(Some(ExecOutput::Stdout(bytes))) => return Some((Ok(bytes), exec)),
                    Ok(Some(ExecOutput::Stderr(_) | ExecOutput::Engine(_))) => {}
                    Ok(None) => return None,
                    Err(error) => return Some((self.explain(Err(error)).await, exec)),
                }
            }
        });
        Ok(pieces.boxed())
    }

    async fn entries(&self, path: &Path, target: &str) -> Result<Vec<DirEntry>, SandboxError> {
        let listed = run(self, "list", path, LIST, &[target]).await?;
        parse_entries(&listed)
            .ok_or_else(|| SandboxError::file("list", path, io::ErrorKind::InvalidData.into()))
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
        self.used.store(true, Ordering::Relaxed);
        let mut exec = self
            .exec
            .start_script(STAGE, &[path, &length.to_string()], true)
            .await?;
        if let Some(mut stdin) = exec.stdin.take() {
            tokio::pin!(source);
            // If it took only a part, the script says so.
            if let Err(error) = copy(source, &mut stdin).await {
                tracing::debug!(%error, "a file was not sent as a whole");
            }
        }
        finish_script(exec).await
    }
}

/// Copies until the source ends. Fails if the other end takes nothing for a while.
async fn copy(mut source: impl AsyncRead + Unpin, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let length = source.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        timeout(SCRIPT_TIMEOUT, to.write_all(&buffer[..length])).await??;
    }
}

/// The entries as the script prints them.
pub(super) fn parse_entries(printed: &str) -> Option<Vec<DirEntry>> {
    printed.split_terminator('\0').map(to_entry).collect()
}

/// An entry as the script prints it. The sandbox may have replaced the programs of the script, so the name is checked: it
/// must be that of an entry.
fn to_entry(text: &str) -> Option<DirEntry> {
    let (numbers, name) = text.split_once('\n')?;
    let mut numbers = numbers.split(' ');
    let mode = u32::from_str_radix(numbers.next()?, 16).ok()?;
    let size = numbers.next()?.parse().ok()?;
    let seconds = numbers.next()?.parse().ok()?;
    let name = name.strip_prefix("./").unwrap_or(name);
    if matches!(name, "" | "." | "..") || name.contains('/') {
        return None;
    }
    Some(DirEntry {
        name: name.to_owned(),
        is_dir: mode & TYPE == DIRECTORY,
        size,
        mode: mode & PERMISSIONS,
        mod_time: Timestamp::from_second(seconds).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn entries_are_parsed() {
        let entries = parse_entries("41ed 4096 1700000000\n./a\0").unwrap();
        assert_eq!((entries[0].name.as_str(), entries[0].is_dir), ("a", true));
        let entries = parse_entries("81a4 7 1700000000\na\nb\081a4 8 -1\n./.c\0").unwrap();
        let found: Vec<(&str, u64)> = entries.iter().map(|entry| (&*entry.name, entry.size)).collect();
        assert_eq!(found, [("a\nb", 7), (".c", 8)]);
        assert_eq!(entries[0].mode, 0o644);
    }

    #[rstest]
    fn a_name_that_is_not_of_an_entry_is_an_error(
        #[values("", ".", "..", "./", "./..", "../a", "a/b", "/a")] name: &str,
    ) {
        assert_eq!(parse_entries(&format!("81a4 7 0\n{name}\0")), None);
    }
}
