//! A sandbox that is a directory of the host: enough for the parts that only need files and commands.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use async_trait::async_trait;
use ralph::exec::{Command, Exit, Host, OutputSink};
use ralph::sandbox::{DirEntry, Sandbox, SandboxError, SandboxFiles};

/// Changes a file on its way out of the sandbox.
pub type OnDownload = Box<dyn Fn(&[u8]) -> Vec<u8> + Send>;

pub struct DirSandbox {
    root: PathBuf,
    host: Host,
    pub on_download: Mutex<Option<OnDownload>>,
    pub commands: Mutex<Vec<String>>,
}

impl DirSandbox {
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            host: host(),
            on_download: Mutex::default(),
            commands: Mutex::default(),
        }
    }
}

/// A host with nothing but the `PATH` and a home that does not exist.
pub fn host() -> Host {
    let path = std::env::var("PATH").unwrap();
    Host::new(BTreeMap::from([
        ("PATH".to_owned(), path),
        ("HOME".to_owned(), "/nonexistent".to_owned()),
    ]))
}

#[async_trait]
impl Sandbox for DirSandbox {
    fn id(&self) -> &'static str {
        "dir"
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn files(&self) -> &dyn SandboxFiles {
        self
    }

    async fn exec(&self, command: &Command, output: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
        self.commands.lock().unwrap().push(command.to_string());
        let mut command = command.clone();
        command.cwd.get_or_insert_with(|| self.root.clone());
        self.host
            .run(&command, output)
            .await
            .map_err(|source| SandboxError::not_started(&command.program, source))
    }

    async fn end_processes(&self) -> Result<(), SandboxError> {
        Ok(())
    }

    async fn start(&self) -> Result<(), SandboxError> {
        Ok(())
    }

    async fn stop(&self) -> Result<(), SandboxError> {
        Ok(())
    }

    async fn close(&self) -> Result<(), SandboxError> {
        Ok(())
    }
}

#[async_trait]
impl SandboxFiles for DirSandbox {
    async fn read(&self, path: &Path, _limit: u64) -> Result<Vec<u8>, SandboxError> {
        std::fs::read(path).map_err(failed("read", path))
    }

    async fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), SandboxError> {
        let write = || {
            std::fs::create_dir_all(path.parent().unwrap())?;
            std::fs::write(path, bytes)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        };
        write().map_err(failed("write", path))
    }

    async fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), SandboxError> {
        let append = || {
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
            io::Write::write_all(&mut file, bytes)
        };
        append().map_err(failed("append to", path))
    }

    async fn list(&self, _path: &Path) -> Result<Vec<DirEntry>, SandboxError> {
        Ok(Vec::new())
    }

    async fn mkdir(&self, path: &Path) -> Result<(), SandboxError> {
        std::fs::create_dir_all(path).map_err(failed("make", path))
    }

    async fn remove(&self, path: &Path) -> Result<(), SandboxError> {
        let removed = if path.is_dir() {
            std::fs::remove_dir_all(path)
        } else {
            std::fs::remove_file(path)
        };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(failed("remove", path)),
        }
    }

    async fn upload(&self, from: &Path, to: &Path) -> Result<(), SandboxError> {
        std::fs::copy(from, to).map(drop).map_err(failed("upload", to))
    }

    async fn download(&self, from: &Path, to: &Path, limit: u64) -> Result<(), SandboxError> {
        let mut bytes = std::fs::read(from).map_err(failed("download", from))?;
        if let Some(change) = &*self.on_download.lock().unwrap() {
            bytes = change(&bytes);
        }
        if bytes.len() as u64 > limit {
            return Err(SandboxError::too_long(from, limit));
        }
        std::fs::write(to, bytes).map_err(failed("download", from))
    }
}

fn failed<'a>(operation: &'static str, path: &'a Path) -> impl Fn(io::Error) -> SandboxError + 'a {
    move |source| SandboxError::file(operation, path, source)
}
