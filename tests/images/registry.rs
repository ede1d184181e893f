//! A real registry on the loopback interface.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use super::support::ralph::eventually;
use super::support::skip::program;

/// A registry of its own; it and all that it holds vanish when it is dropped.
pub struct Registry {
    dir: tempfile::TempDir,
    child: Child,
    port: u16,
}

/// Who may use a registry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Door {
    Open,
    /// Only `user` with the password `secret`.
    Locked,
}

/// `user`, with the bcrypt of `secret`.
const PASSWORDS: &str = "user:$2b$05$3GlB1NFpWwVWoh7pn3mlkeTej.RZYM8TjrvLkj9mNI.1B7chcJkCa\n";

impl Registry {
    /// Starts one, or says why the test cannot run.
    pub fn start(door: Door) -> Result<Self, String> {
        let program = program("docker-registry")?;
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let passwords = dir.path().join("passwords");
        fs::write(&passwords, PASSWORDS).unwrap();
        let mut config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n",
            dir.path().join("data").display()
        );
        if door == Door::Locked {
            let auth = format!(
                "auth: {{htpasswd: {{realm: test, path: {}}}}}\n",
                passwords.display()
            );
            config.push_str(&auth);
        }
        let file = dir.path().join("config.yml");
        fs::write(&file, config).unwrap();
        let child = Command::new(program)
            .arg("serve")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let registry = Self { dir, child, port };
        eventually("the registry answers", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Ok(registry)
    }

    /// Its address, as it stands before the names of images.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Whether it has any image.
    pub fn is_empty(&self) -> bool {
        !self
            .dir
            .path()
            .join("data/docker/registry/v2/repositories")
            .exists()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
