//! An engine of a test's own, which it may stop, restart and fill.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ralph::engine::{Engine, EngineEnvironment};
use tempfile::TempDir;

use crate::support::ralph::eventually;
use crate::support::{base, engine, skip};

/// What its disk holds: the image, and a little more.
const DISK: &str = "size=450m";

/// Who the users of an engine's containers are outside.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Users {
    Same,
    /// Those from 100000 on.
    Others,
}

/// An engine whose disk is a small one in memory. Nothing of it is left when it is dropped.
pub struct Daemon {
    dir: TempDir,
    users: Users,
    options: Vec<String>,
    process: Child,
}

impl Daemon {
    /// Starts one that has the image of the sandboxes, or says why that cannot be.
    pub async fn new() -> Result<Self, String> {
        Self::with([]).await
    }

    /// The same, with options of its own.
    pub async fn with(options: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let daemon = Self::begin(Users::Same, options.into_iter().collect())?;
        base::image(&daemon.engine().await).await?;
        Ok(daemon)
    }

    /// Starts one that has nothing, or says why that cannot be.
    pub fn start(users: Users) -> Result<Self, String> {
        Self::begin(users, Vec::new())
    }

    fn begin(users: Users, options: Vec<String>) -> Result<Self, String> {
        let dockerd = skip::program("dockerd")?;
        if !rustix::process::geteuid().is_root() {
            return Err("only root can start an engine".to_owned());
        }
        let dir = TempDir::new().unwrap();
        let disk = dir.path().join("data");
        std::fs::create_dir(&disk).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", DISK, "tmpfs"])
            .arg(&disk)
            .status();
        if !mounted.unwrap().success() {
            return Err("no disk can be mounted here".to_owned());
        }
        let process = start(&dockerd, dir.path(), users, &options);
        let daemon = Self {
            dir,
            users,
            options,
            process,
        };
        eventually("the engine answers", || daemon.answers());
        Ok(daemon)
    }

    /// A client of it.
    pub async fn engine(&self) -> Engine {
        let surroundings = EngineEnvironment {
            env: BTreeMap::from([("DOCKER_HOST".to_owned(), self.host())]),
            home: None,
        };
        Engine::connect(&surroundings, &engine::host()).await.unwrap()
    }

    /// Stops it, and all its containers with it, and starts it again.
    pub fn restart(&mut self) {
        self.stop();
        self.start_again();
    }

    /// Starts it again after a stop.
    pub fn start_again(&mut self) {
        let dockerd = skip::program("dockerd").unwrap();
        self.process = start(&dockerd, self.dir.path(), self.users, &self.options);
        eventually("the engine answers again", || self.answers());
    }

    /// Fills its disk.
    pub fn fill(&self) {
        let file = std::fs::File::create(self.filler()).unwrap();
        // It ends when nothing more fits.
        let filled = Command::new("cat")
            .arg("/dev/zero")
            .stdout(file)
            .stderr(Stdio::null())
            .status();
        assert!(!filled.unwrap().success());
    }

    /// Frees what was filled.
    pub fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> std::path::PathBuf {
        self.dir.path().join("data/filler")
    }

    /// Where it answers.
    pub fn host(&self) -> String {
        format!("unix://{}", self.dir.path().join("socket").display())
    }

    fn answers(&self) -> bool {
        let asked = Command::new("docker")
            .args(["--host", &self.host(), "version"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        asked.unwrap().success()
    }

    /// Stops it, and all its containers with it.
    pub fn stop(&mut self) {
        let pid = self.process.id().to_string();
        let _ = Command::new("kill").args(["-s", "TERM", &pid]).status();
        let _ = self.process.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.dir.path().join("data"))
            .status();
    }
}

/// It has a network of its own: without a bridge, an engine removes that of every other engine beside it.
fn start(dockerd: &Path, dir: &Path, users: Users, options: &[String]) -> Child {
    let below = |name: &str| dir.join(name).display().to_string();
    let log = std::fs::File::create(dir.join("log")).unwrap();
    let mut command = Command::new("unshare");
    command.arg("--net");
    if users == Users::Others {
        write_users(&dir.join("etc"));
        let see_them = "mount --bind \"$0\" /etc && exec \"$@\"";
        command.args(["--mount", "sh", "-c", see_them, &below("etc")]);
    }
    command.arg(dockerd);
    if users == Users::Others {
        command.arg("--userns-remap=others");
    }
    command
        .args(["--host", &format!("unix://{}", below("socket"))])
        .args(["--data-root", &below("data"), "--exec-root", &below("exec")])
        .args(["--pidfile", &below("pid"), "--bridge=none", "--iptables=false"])
        .args(options)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// An `/etc` with a user who has others to give away.
fn write_users(etc: &Path) {
    std::fs::create_dir(etc).unwrap();
    for (name, text) in [
        ("passwd", "root:x:0:0::/:/bin/sh\nothers:x:999:999::/:/bin/sh\n"),
        ("group", "root:x:0:\nothers:x:999:\n"),
        ("subuid", "others:100000:65536\n"),
        ("subgid", "others:100000:65536\n"),
    ] {
        std::fs::write(etc.join(name), text).unwrap();
    }
}
