//! Images with a few files more than another, for one test each.

use std::io::Write;
use std::process::{Command, Stdio};

use ralph::engine::Engine;

use super::engine::docker;

/// An image that is removed with this value.
pub struct Derived {
    pub name: String,
    engine: Engine,
}

impl Derived {
    /// `base` with these files, by their paths below the root (`-> target` makes a link), and this variable (`NAME=value`) where there is one.
    pub fn of(engine: &Engine, base: &str, files: &[(&str, &str)], variable: &str) -> Self {
        let container = docker(engine, &["create", base, "/never-started"]);
        let container = container.trim();
        copy(engine, container, files);
        let name = format!("ralph-test-derived:{:016x}", fastrand::u64(..));
        let change = format!("ENV {variable}");
        let change = ["--change", &change];
        let change = if variable.is_empty() { &[][..] } else { &change };
        docker(engine, &[&["commit"], change, &[container, &name]].concat());
        docker(engine, &["rm", container]);
        Self {
            name,
            engine: engine.clone(),
        }
    }
}

impl Drop for Derived {
    fn drop(&mut self) {
        let removing = Command::new("docker")
            .env("DOCKER_HOST", self.engine.endpoint().to_string())
            .args(["rmi", "--force", &self.name])
            .output();
        drop(removing);
    }
}

fn copy(engine: &Engine, container: &str, files: &[(&str, &str)]) {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, text) in files {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        if let Some(target) = text.strip_prefix("-> ") {
            header.set_entry_type(tar::EntryType::Symlink);
            tar.append_link(&mut header, path, target).unwrap();
        } else {
            header.set_size(text.len() as u64);
            tar.append_data(&mut header, path, text.as_bytes()).unwrap();
        }
    }
    let mut copying = Command::new("docker")
        .env("DOCKER_HOST", engine.endpoint().to_string())
        .args(["cp", "-", &format!("{container}:/")])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let archive = tar.into_inner().unwrap();
    copying.stdin.take().unwrap().write_all(&archive).unwrap();
    assert!(copying.wait().unwrap().success());
}
