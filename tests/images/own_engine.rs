//! An engine of a test's own, where what it has is the test's alone.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::support::ralph::eventually;
use super::support::skip::program;

/// An engine of a test's own, without any network, that holds so much. All of it vanishes when it is dropped.
pub struct OwnEngine {
    dir: tempfile::TempDir,
    dockerd: Child,
}

impl OwnEngine {
    /// Starts it, with so much room (`32m`).
    pub fn start(size: &str) -> Result<Self, String> {
        let (unshare, dockerd) = (program("unshare")?, program("dockerd")?);
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir(&data).unwrap();
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(&data))?;
        // Without a bridge of its own, an engine removes the `docker0` of whatever network it is in.
        let mut command = Command::new(unshare);
        command
            .arg("--net")
            .arg(dockerd)
            .arg("--host")
            .arg(format!("unix://{}", dir.path().join("socket").display()))
            .arg("--data-root")
            .arg(&data)
            .arg("--exec-root")
            .arg(dir.path().join("exec"))
            .arg("--pidfile")
            .arg(dir.path().join("pid"))
            .args(["--bridge=none", "--iptables=false"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let engine = Self {
            dockerd: command.spawn().map_err(|error| error.to_string())?,
            dir,
        };
        eventually("the engine answers", || {
            engine.command(&["version"]).status().unwrap().success()
        });
        Ok(engine)
    }

    pub fn host(&self) -> String {
        format!("unix://{}", self.dir.path().join("socket").display())
    }

    /// A root file system with a single file.
    pub fn small_image(&self) -> PathBuf {
        let path = self.dir.path().join("small.tar");
        let mut tar = tar::Builder::new(fs::File::create(&path).unwrap());
        tar.append_path_with_name(file!(), "file").unwrap();
        tar.finish().unwrap();
        path
    }

    pub fn docker(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command
            .env("DOCKER_HOST", self.host())
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
}

impl Drop for OwnEngine {
    fn drop(&mut self) {
        let pid = self.dockerd.id().to_string();
        let _ = Command::new("kill").arg(pid).status();
        let _ = self.dockerd.wait();
        let _ = run(Command::new("umount").arg("--lazy").arg(self.data()));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
