//! The files of a sandbox at Daytona: the toolbox transfers bytes.

use std::io;
use std::path::Path;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use reqwest::Body;
use reqwest::multipart::Part;

use super::error::DaytonaError;
use super::sandbox::DaytonaSandbox;
use super::toolbox::{put_file, run_script};
use super::wire::ToolboxFileInfo;
use crate::sandbox::files::PERMISSIONS;
use crate::sandbox::scripted_files::{FileContent, FileSource, ScriptResult, ScriptedFiles};
use crate::sandbox::{DirEntry, Sandbox, SandboxError};

const ENOENT: i32 = 2;
const EACCES: i32 = 13;

#[async_trait]
impl ScriptedFiles for DaytonaSandbox {
    fn files_root(&self) -> &Path {
        self.root()
    }

    async fn run_script(&self, script: &str, args: &[&str]) -> Result<ScriptResult, SandboxError> {
        let done = run_script(&self.toolbox, script, args).await;
        let done = self.explain(done).await?;
        Ok(ScriptResult {
            exit_code: done.exit_code,
            output: done.result,
            errors: String::new(),
        })
    }

    async fn stage(&self, source: FileSource) -> Result<String, SandboxError> {
        let part = match source {
            FileSource::Bytes(bytes) => Part::bytes(bytes),
            FileSource::File(file, length) => Part::stream_with_length(Body::from(file), length),
        };
        let staged = self.upload_part(part).await;
        self.explain(staged).await
    }

    async fn open_file(&self, target: &str) -> Result<FileContent<'_>, SandboxError> {
        let call = self.toolbox.get("files/download");
        let response = call.query(&[("path", target)]).send().await;
        let response = self.explain(response).await?;
        let pieces = unfold(response, move |mut response| async move {
            let piece = response.chunk().await;
            let piece = piece.map_err(|error| DaytonaError::unreachable("download a file", error));
            let piece = self.explain(piece).await.transpose()?;
            Some((piece, response))
        });
        Ok(pieces.boxed())
    }

    async fn entries(&self, path: &Path, target: &str) -> Result<Vec<DirEntry>, SandboxError> {
        let call = self.toolbox.get("files").query(&[("path", target)]);
        let listed = call.json::<Vec<ToolboxFileInfo>>().await;
        let failed = |error| SandboxError::file("list", path, error);
        let errno = match listed.as_ref().map_err(DaytonaError::status) {
            Err(Some(400 | 404)) => Some(ENOENT),
            Err(Some(403)) => Some(EACCES),
            Ok(_) | Err(_) => None,
        };
        if let Some(errno) = errno {
            // A removed sandbox responds in the same way; then this call fails, too.
            self.run_script("true", &[]).await?;
            return Err(failed(io::Error::from_raw_os_error(errno)));
        }
        let entries = self.explain(listed).await?.into_iter().map(to_entry);
        entries.collect::<io::Result<_>>().map_err(failed)
    }
}

impl DaytonaSandbox {
    /// Uploads bytes to the staging directory, and returns their path there.
    pub(super) async fn upload_part(&self, bytes: Part) -> Result<String, DaytonaError> {
        let staged = format!("{}/{:016x}", self.staging, fastrand::u64(..));
        put_file(&self.toolbox, &staged, bytes).await?;
        Ok(staged)
    }
}

fn to_entry(info: ToolboxFileInfo) -> io::Result<DirEntry> {
    let mode = u32::from_str_radix(&info.permissions, 8).map_err(io::Error::other)?;
    Ok(DirEntry {
        name: info.name,
        is_dir: info.is_dir,
        size: info.size,
        mode: mode & PERMISSIONS,
        mod_time: info.modified_at,
    })
}
