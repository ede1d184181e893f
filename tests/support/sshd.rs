//! A real SSH server.

use std::fs::{self, Permissions};
use std::net::TcpListener as StdTcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::ralph::waited_for;
use crate::skip;

/// A real SSH server on loopback, and a directory with an `ssh` that knows it as `engine` and `127.0.0.1`.
pub struct Sshd {
    process: Child,
    /// The directory with the `ssh`.
    pub programs: PathBuf,
}

impl Sshd {
    /// Starts it, with its files below `place` and these lines in its configuration. The error says what is missing.
    pub fn start(place: &Path, configuration: &str) -> Result<Self, String> {
        let server = ["/usr/sbin/sshd"]
            .iter()
            .map(Path::new)
            .find(|path| path.exists());
        let server = server.ok_or("sshd is not installed; tests/run installs it")?;
        skip::program("ssh")?;
        let (dir, programs) = (place.join("sshd"), place.join("programs"));
        let port = StdTcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        // Where it gives up its rights.
        fs::create_dir_all("/run/sshd").map_err(|error| format!("cannot create /run/sshd: {error}"))?;
        write_ssh_files(&dir, &programs, port, configuration);
        let log = fs::File::create(dir.join("log")).unwrap();
        let process = Command::new(server)
            .args(["-D", "-e", "-f"])
            .arg(dir.join("server"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let sshd = Self {
            process: process.unwrap(),
            programs,
        };
        let listens = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        if waited_for(listens) {
            Ok(sshd)
        } else {
            Err(format!(
                "no SSH server: {}",
                fs::read_to_string(dir.join("log")).unwrap()
            ))
        }
    }

    /// The processes of its clients.
    pub fn clients(&self) -> Vec<i32> {
        let file = self.programs.with_file_name("sshd").join("client");
        let is_client = |pid: &i32| {
            let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let args = String::from_utf8_lossy(&args).into_owned();
            args.split('\0').any(|arg| Path::new(arg) == file)
        };
        let names = fs::read_dir("/proc").unwrap().flatten();
        let ids = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.filter(is_client).collect()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Writes the keys and configurations of a server and its client, and the `ssh` that uses them.
fn write_ssh_files(dir: &Path, programs: &Path, port: u16, configuration: &str) {
    for dir in [dir, programs] {
        fs::create_dir(dir).unwrap();
        fs::set_permissions(dir, Permissions::from_mode(0o700)).unwrap();
    }
    for key in ["host", "user"] {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(dir.join(key))
            .status();
        assert!(made.unwrap().success());
    }
    let at = |name: &str| dir.join(name).display().to_string();
    let host_key = fs::read_to_string(dir.join("host.pub")).unwrap();
    fs::write(dir.join("known"), format!("[127.0.0.1]:{port} {host_key}")).unwrap();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nPermitRootLogin yes\nPidFile none\n{configuration}",
        at("host"),
        at("user.pub"),
    );
    fs::write(dir.join("server"), config).unwrap();
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let config = format!(
        "Host engine 127.0.0.1\n HostName 127.0.0.1\n Port {port}\n User {}\n IdentityFile {}\n IdentitiesOnly yes\n\
             Host *\n UserKnownHostsFile {}\n StrictHostKeyChecking yes\n",
        user.trim(),
        at("user"),
        at("known"),
    );
    fs::write(dir.join("client"), config).unwrap();
    let real = which::which("ssh").unwrap();
    let wrapper = format!("#!/bin/sh\nexec {} -F {} \"$@\"\n", real.display(), at("client"));
    fs::write(programs.join("ssh"), wrapper).unwrap();
    fs::set_permissions(programs.join("ssh"), Permissions::from_mode(0o700)).unwrap();
}
