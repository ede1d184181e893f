//! The Nix archive: a file tree as one stream of bytes that knows no owner, no time and no order but that of names.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::nixbase32;

const MAGIC: &[u8] = b"nix-archive-1";
/// Every string is padded with zeros to a multiple of this.
const ALIGNMENT: u64 = 8;
/// How much of a file is in memory at a time.
const BLOCK: usize = 128 * 1024;

/// The SHA-256 of an archive: what Nix calls the hash of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NarHash([u8; 32]);

impl NarHash {
    /// The hash itself.
    #[must_use]
    pub fn digest(&self) -> &[u8; 32] {
        &self.0
    }
}

/// As `nix-store --query --hash` prints it.
impl fmt::Display for NarHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", nixbase32::encode(&self.0))
    }
}

/// Why a path could not be archived.
#[derive(Debug, Error)]
pub enum NarError {
    /// It could not be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// What was read.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Neither a file nor a directory nor a symbolic link: an archive has no place for it.
    #[error("`{}` is neither a file, a directory nor a symbolic link", .0.display())]
    Kind(PathBuf),
    /// The file grew or shrank while it was read.
    #[error("`{}` changed while it was read", .0.display())]
    Changed(PathBuf),
    /// The archive could not be written.
    #[error("cannot write the archive")]
    Write(#[source] io::Error),
}

/// The hash of a file tree, as `nix hash path` computes it.
pub fn hash(path: &Path) -> Result<NarHash, NarError> {
    let mut hasher = Sha256::new();
    write(path, &mut hasher)?;
    Ok(NarHash(hasher.finalize().into()))
}

/// Writes a file tree as an archive, as `nix-store --dump` does. Links are not followed.
pub fn write(path: &Path, out: &mut impl Write) -> Result<(), NarError> {
    let mut writer = Writer { out };
    writer.string(MAGIC)?;
    writer.node(path)
}

struct Writer<'a, W> {
    out: &'a mut W,
}

impl<W: Write> Writer<'_, W> {
    fn node(&mut self, path: &Path) -> Result<(), NarError> {
        let metadata = fs::symlink_metadata(path).map_err(unreadable(path))?;
        let kind = metadata.file_type();
        self.strings(&[b"(", b"type"])?;
        if kind.is_symlink() {
            let target = fs::read_link(path).map_err(unreadable(path))?;
            self.strings(&[b"symlink", b"target", target.as_os_str().as_bytes()])?;
        } else if kind.is_dir() {
            self.directory(path)?;
        } else if kind.is_file() {
            self.file(path, &metadata)?;
        } else {
            return Err(NarError::Kind(path.to_owned()));
        }
        self.string(b")")
    }

    fn directory(&mut self, path: &Path) -> Result<(), NarError> {
        self.string(b"directory")?;
        let mut names = fs::read_dir(path)
            .and_then(|entries| {
                entries
                    .map(|entry| Ok(entry?.file_name()))
                    .collect::<io::Result<Vec<_>>>()
            })
            .map_err(unreadable(path))?;
        names.sort_unstable_by(|a, b| OsStr::as_bytes(a).cmp(b.as_bytes()));
        for name in names {
            self.strings(&[b"entry", b"(", b"name", name.as_bytes(), b"node"])?;
            self.node(&path.join(&name))?;
            self.string(b")")?;
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, metadata: &fs::Metadata) -> Result<(), NarError> {
        self.string(b"regular")?;
        if metadata.permissions().mode() & 0o100 != 0 {
            self.strings(&[b"executable", b""])?;
        }
        self.string(b"contents")?;
        let length = metadata.len();
        self.bytes(&length.to_le_bytes())?;
        let mut file = File::open(path).map_err(unreadable(path))?;
        let mut block = vec![0; BLOCK];
        let mut copied = 0;
        loop {
            let read = file.read(&mut block).map_err(unreadable(path))?;
            copied += read as u64;
            if copied > length || (read == 0 && copied < length) {
                return Err(NarError::Changed(path.to_owned()));
            }
            if read == 0 {
                return self.padding(length);
            }
            self.bytes(&block[..read])?;
        }
    }

    fn strings(&mut self, strings: &[&[u8]]) -> Result<(), NarError> {
        strings.iter().try_for_each(|string| self.string(string))
    }

    fn string(&mut self, string: &[u8]) -> Result<(), NarError> {
        let length = string.len() as u64;
        self.bytes(&length.to_le_bytes())?;
        self.bytes(string)?;
        self.padding(length)
    }

    fn padding(&mut self, length: u64) -> Result<(), NarError> {
        let missing = length.next_multiple_of(ALIGNMENT) - length;
        (0..missing).try_for_each(|_| self.bytes(&[0]))
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), NarError> {
        self.out.write_all(bytes).map_err(NarError::Write)
    }
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> NarError {
    move |source| NarError::Read {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// The hash of what `build` makes at a path.
    #[track_caller]
    fn check(build: impl Fn(&Path), expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tree");
        build(&path);
        assert_eq!(hash(&path).unwrap().to_string(), expected);
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn hashes_are_those_of_nix() {
        let file = |path: &Path| fs::write(path, "hello\n").unwrap();
        check(
            file,
            "sha256:04zwf782yjwnh3q6hz5izfd6jyip8kgw6g6yj43fiqhbyhdd0dqw",
        );
        let executable = |path: &Path| {
            fs::write(path, "hello\n").unwrap();
            set_mode(path, 0o755);
        };
        check(
            executable,
            "sha256:1yhh619m3cy1mird7f0l7zsmiv9rayqn075zinda2g7rscwn0hv5",
        );
        check(
            |path| fs::write(path, "").unwrap(),
            "sha256:0ip26j2h11n1kgkz36rl4akv694yz65hr72q4kv4b3lxcbi65b3p",
        );
        check(
            |path| symlink("a target", path).unwrap(),
            "sha256:0xysjbyjmh2dc421ik56lx17wp13dda8hhrf8pkybqcsmqyd129d",
        );
        check(
            |path| fs::create_dir(path).unwrap(),
            "sha256:0sjjj9z1dhilhpc8pq4154czrb79z9cm044jvn75kxcjv6v5l2m5",
        );
        let tree = |path: &Path| {
            fs::create_dir_all(path.join("a/b")).unwrap();
            fs::write(path.join("a/b/12345678"), "12345678").unwrap();
            fs::write(path.join("a.b"), vec![7; 300_000]).unwrap();
            fs::write(path.join("B"), "upper").unwrap();
            fs::write(path.join("\u{e4}"), "umlaut").unwrap();
            symlink("../nowhere", path.join("a/link")).unwrap();
        };
        check(
            tree,
            "sha256:1rn7ymdj1kbjmb0542rrvw9w9nq76448pj343p9q9fgcvw91c4km",
        );
    }

    #[test]
    fn times_and_other_bits_of_the_mode_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "hello\n").unwrap();
        set_mode(&path, 0o644);
        let before = hash(&path).unwrap();
        set_mode(&path, 0o600);
        let file = File::options().append(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(hash(&path).unwrap(), before);
    }

    #[test]
    fn an_archive_begins_with_its_name_and_pads_every_string() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "hi").unwrap();
        let mut archive = Vec::new();
        write(&path, &mut archive).unwrap();
        assert_eq!(&archive[..24], b"\x0d\0\0\0\0\0\0\0nix-archive-1\0\0\0");
        assert_eq!(archive.len() % 8, 0);
    }

    #[test]
    fn a_socket_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(matches!(hash(dir.path()), Err(NarError::Kind(at)) if at == path));
    }

    #[test]
    fn what_is_not_there_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let error = hash(&dir.path().join("absent")).unwrap_err();
        assert!(error.to_string().contains("absent"), "{error}");
    }
}
