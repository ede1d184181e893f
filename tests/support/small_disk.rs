//! A small disk that a test may fill.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system in memory. It is unmounted when dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one at this directory, or says why that cannot be.
    pub fn mount(dir: &Path, size: &str) -> Result<Self, String> {
        fs::create_dir_all(dir).unwrap();
        let disk = Self(dir.to_owned());
        match disk.mount_with(&format!("size={size}")) {
            Ok(()) => Ok(disk),
            Err(reason) => {
                std::mem::forget(disk);
                Err(reason)
            }
        }
    }

    /// Changes its size.
    pub fn resize(&self, size: &str) {
        self.mount_with(&format!("remount,size={size}")).unwrap();
    }

    /// Takes all the room there is, with the file that is returned.
    pub fn fill(&self) -> PathBuf {
        let filler = self.0.join("filler");
        let mut file = fs::File::create(&filler).unwrap();
        let full = io::copy(&mut io::repeat(0), &mut file).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        filler
    }

    fn mount_with(&self, options: &str) -> Result<(), String> {
        let mut mount = Command::new("mount");
        let tried = mount
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(&self.0)
            .output();
        match tried {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(format!("cannot mount a tmpfs: {}", said.trim()))
            }
            Err(error) => Err(format!("`mount` cannot be run: {error}")),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
