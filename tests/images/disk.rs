//! An engine whose disk is full.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::support::ralph::{Place, eventually, finish};
use super::support::skip::program;
use crate::need;

const MIB: usize = 1024 * 1024;

#[test]
fn a_full_disk_is_told_as_such_and_leaves_no_image() {
    let engine = need!(SmallEngine::start());
    let place = Place::new();
    engine.docker(&["import", engine.small_image().to_str().unwrap(), "small:1"]);
    let before = engine.docker(&["images", "--all", "--quiet"]);
    place.write("ralph.toml", "[agent]\nname = \"actions\"\n");
    place.write("image/Dockerfile", "FROM small:1\nCOPY large /large\n");
    fs::write(place.repo().join("image/large"), vec![7; 48 * MIB]).unwrap();
    let mut command = place.ralph(&["image", "build", "--dockerfile", "image/Dockerfile"]);
    let ended = finish(command.env("DOCKER_HOST", engine.host()));
    ended.expect(
        1,
        &[
            "ralph: the engine's disk is full: ",
            "no space left on device",
            "hint: free some space",
        ],
    );
    assert_eq!(ended.stdout, "");
    assert_eq!(engine.docker(&["images", "--all", "--quiet"]), before);
}

/// An engine of its own, with little room. Both vanish when it is dropped.
struct SmallEngine {
    dir: tempfile::TempDir,
    dockerd: Child,
}

impl SmallEngine {
    fn start() -> Result<Self, String> {
        let (unshare, dockerd) = (program("unshare")?, program("dockerd")?);
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir(&data).unwrap();
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=32m", "tmpfs"])
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

    fn host(&self) -> String {
        format!("unix://{}", self.dir.path().join("socket").display())
    }

    /// A root file system with a single file.
    fn small_image(&self) -> PathBuf {
        let path = self.dir.path().join("small.tar");
        let mut tar = tar::Builder::new(fs::File::create(&path).unwrap());
        tar.append_path_with_name(file!(), "file").unwrap();
        tar.finish().unwrap();
        path
    }

    fn docker(&self, args: &[&str]) -> String {
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

impl Drop for SmallEngine {
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
