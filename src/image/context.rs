//! The build context of a project's own Dockerfile: what is in it, and one digest over all of that.
//!
//! `docs/reference/image-hash.md` says what is hashed, byte by byte.

mod cache;
mod reader;
mod walk;

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::digest::Digest;
use super::dockerignore::{Ignore, IgnoreError};
use cache::Files;
use reader::{ReadEntry, read_entries};

pub use cache::HashCache;

/// The first field of what is hashed.
const FORMAT: &str = "ralph build context 1";

/// A build context as it was when it was read. A builder gets exactly these entries: owned by root, of mode 755 or 644,
/// without times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    root: PathBuf,
    entries: Vec<Entry>,
}

/// One thing in a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is, relative to the context and with slashes.
    pub path: String,
    /// What it is.
    pub kind: EntryKind,
}

/// What an entry of a context is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A file.
    File {
        /// Whether it can be run.
        mode: FileMode,
        /// How long it is.
        size: u64,
        /// The digest of what it holds.
        digest: Digest,
    },
    /// A symbolic link, whatever it leads to.
    Link {
        /// Where it points, as it is written in it.
        target: PathBuf,
    },
}

/// All that counts of a file's permissions: what git keeps, too. The rest depends on the umask of whoever checked it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileMode {
    /// Sent as 644.
    Plain,
    /// Its owner may run it. Sent as 755.
    Executable,
}

/// Why a context cannot be read.
#[derive(Debug, Error)]
pub enum ContextError {
    /// A file or a directory that cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of `.dockerignore`.
    #[error("`{}` cannot be used", path.display())]
    Ignore {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: IgnoreError,
    },
    /// Something that cannot be in an image.
    #[error("`{}` is a {kind}, which cannot be sent to a builder", path.display())]
    Special {
        /// Which one.
        path: PathBuf,
        /// What it is.
        kind: SpecialFile,
    },
    /// A name that is not the same everywhere.
    #[error("the name of `{}` is not UTF-8, so that not every builder takes it", path.display())]
    Name {
        /// Which one, as far as it can be shown.
        path: PathBuf,
    },
}

impl ContextError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Read { .. } | Self::Special { .. } | Self::Name { .. } => {
                Some("if the image does not need it, leave it out with a line in `.agent-loop/.dockerignore`")
            }
            Self::Ignore { .. } => None,
        }
    }

    pub(super) fn read(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self::Read { path, source }
    }
}

/// A file that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialFile {
    /// A named pipe.
    Pipe,
    /// A device.
    Device,
}

impl fmt::Display for SpecialFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pipe => "named pipe",
            Self::Device => "device",
        })
    }
}

impl Context {
    /// Reads the context in `root`: everything but what its `.dockerignore` leaves out and ralph's own files. Takes as
    /// long as reading every file that the cache does not remember.
    pub fn read(root: &Path, cache: &HashCache) -> Result<Self, ContextError> {
        let listing = walk::list(root, &ignore(root)?)?;
        let remembered = cache.load(root);
        let read = read_entries(root, listing, &remembered)?;
        let to_remember: Files = read.iter().filter_map(ReadEntry::to_remember).collect();
        if to_remember != remembered.files
            && let Err(error) = cache.save(root, &to_remember)
        {
            tracing::warn!(%error, "the digests of the build context are not remembered");
        }
        Ok(Self {
            root: root.to_owned(),
            entries: read.into_iter().map(|read| read.entry).collect(),
        })
    }

    /// The directory that it was read from.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What is in it, in the order of the paths' bytes. Directories come before what they hold.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The digest over all of it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let fields = self.entries.iter().flat_map(|entry| {
            let (kind, content) = entry.kind.fields();
            [kind.as_bytes(), entry.path.as_bytes(), content]
        });
        Digest::of_fields([FORMAT.as_bytes()].into_iter().chain(fields))
    }

    /// The digest of a context with nothing in it.
    #[must_use]
    pub fn empty_digest() -> Digest {
        Digest::of_fields([FORMAT])
    }
}

impl EntryKind {
    /// How the kind is called where it is hashed, and what else counts.
    fn fields(&self) -> (&'static str, &[u8]) {
        match self {
            Self::Directory => ("directory", &[]),
            Self::File { mode, digest, .. } => (mode.name(), digest.as_bytes()),
            Self::Link { target } => ("link", target.as_os_str().as_bytes()),
        }
    }
}

impl FileMode {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "file",
            Self::Executable => "executable",
        }
    }
}

fn ignore(root: &Path) -> Result<Ignore, ContextError> {
    let path = root.join(".dockerignore");
    match fs::read_to_string(&path) {
        Ok(text) => Ignore::parse(&text).map_err(|source| ContextError::Ignore { path, source }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ignore::default()),
        Err(source) => Err(ContextError::read(&path, source)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::sync::Arc;

    use jiff::Timestamp;
    use rstest::rstest;
    use tempfile::TempDir;

    use super::*;
    use crate::clock::Clock;

    /// A context in a directory of its own, and a clock that says when files are looked at.
    struct Fixture {
        dir: TempDir,
    }

    struct At(Timestamp);

    impl Clock for At {
        fn now(&self) -> Timestamp {
            self.0
        }
    }

    impl Fixture {
        fn new(files: &[(&str, &str)]) -> Self {
            let fixture = Self {
                dir: tempfile::tempdir().unwrap(),
            };
            fs::create_dir(fixture.root()).unwrap();
            for (path, text) in files {
                fixture.write(path, text);
            }
            fixture
        }

        fn root(&self) -> PathBuf {
            self.dir.path().join("root")
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.root().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn cache(&self, seconds_from_now: i64) -> HashCache {
            let now = Timestamp::from_second(Timestamp::now().as_second() + seconds_from_now).unwrap();
            HashCache::new(self.dir.path().join("cache"), Arc::new(At(now)))
        }

        fn read(&self) -> Result<Context, ContextError> {
            Context::read(&self.root(), &self.cache(0))
        }

        fn paths(&self) -> Vec<String> {
            let entries = self.read().unwrap().entries;
            entries.into_iter().map(|entry| entry.path).collect()
        }

        fn digest(&self) -> Digest {
            self.read().unwrap().digest()
        }
    }

    #[test]
    fn everything_but_ralphs_own_files_is_in_a_context() {
        let fixture = Fixture::new(&[
            ("Dockerfile.sandbox", ""),
            ("config.json", ""),
            ("dependencies", ""),
            ("sub/config.json", ""),
            ("sub.txt", ""),
            (".dockerignore", "!config.json"),
        ]);
        let expected = [
            ".dockerignore",
            "Dockerfile.sandbox",
            "sub",
            "sub.txt",
            "sub/config.json",
        ];
        assert_eq!(fixture.paths(), expected);
    }

    #[test]
    fn a_dockerignore_leaves_out_and_takes_back_in() {
        let fixture = Fixture::new(&[
            (".dockerignore", "docs\n*.log\n!docs/**/keep.md\n.dockerignore\n"),
            ("a.log", ""),
            ("docs/drop.md", ""),
            ("docs/deep/keep.md", ""),
            ("src/a.log", ""),
        ]);
        let expected = ["docs", "docs/deep", "docs/deep/keep.md", "src", "src/a.log"];
        assert_eq!(fixture.paths(), expected);
    }

    #[rstest]
    #[case::content(|root| fs::write(root.join("a"), "2").unwrap())]
    #[case::another_name(|root| fs::rename(root.join("a"), root.join("c")).unwrap())]
    #[case::a_new_file(|root| fs::write(root.join("c"), "").unwrap())]
    #[case::an_empty_directory(|root| fs::create_dir(root.join("c")).unwrap())]
    #[case::the_executable_bit(|root| chmod(&root.join("a"), 0o755))]
    #[case::a_links_target(|root| { fs::remove_file(root.join("link")).unwrap(); symlink("dir/b", root.join("link")).unwrap() })]
    #[case::a_file_for_a_link(|root| { fs::remove_file(root.join("link")).unwrap(); fs::write(root.join("link"), "a").unwrap() })]
    fn what_counts_changes_the_digest(#[case] change: fn(&Path)) {
        let fixture = Fixture::new(&[("a", "1"), ("dir/b", "2")]);
        symlink("a", fixture.root().join("link")).unwrap();
        let before = fixture.digest();
        change(&fixture.root());
        assert_ne!(fixture.digest(), before);
    }

    #[rstest]
    #[case::times(|root| set_modified(&root.join("a"), 1_000_000))]
    #[case::other_permissions(|root| chmod(&root.join("a"), 0o660))]
    #[case::a_file_written_again(|root| { fs::remove_file(root.join("a")).unwrap(); fs::write(root.join("a"), "1").unwrap() })]
    #[case::what_stays_out(|root| fs::write(root.join("x.log"), "").unwrap())]
    #[case::ralphs_own_files(|root| fs::write(root.join("config.json"), "{}").unwrap())]
    #[case::a_socket(|root| drop(UnixListener::bind(root.join("socket")).unwrap()))]
    fn what_does_not_count_leaves_the_digest(#[case] change: fn(&Path)) {
        let fixture = Fixture::new(&[("a", "1"), (".dockerignore", "*.log")]);
        let before = fixture.digest();
        change(&fixture.root());
        assert_eq!(fixture.digest(), before);
    }

    #[test]
    fn links_are_not_followed() {
        let fixture = Fixture::new(&[]);
        for (target, link) in [
            ("loop", "loop"),
            ("..", "up"),
            ("/", "top"),
            ("nowhere", "dangling"),
        ] {
            symlink(target, fixture.root().join(link)).unwrap();
        }
        assert_eq!(fixture.paths(), ["dangling", "loop", "top", "up"]);
    }

    #[test]
    fn a_named_pipe_is_an_error_that_names_it_unless_it_is_left_out() {
        let fixture = Fixture::new(&[]);
        let pipe = fixture.root().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        let error = fixture.read().unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("/root/pipe` is a named pipe, which cannot be sent to a builder")
        );
        assert!(error.hint().unwrap().contains(".dockerignore"));
        fixture.write(".dockerignore", "pipe");
        assert_eq!(fixture.paths(), [".dockerignore"]);
    }

    #[test]
    fn a_name_that_is_not_utf8_is_an_error_unless_it_is_left_out() {
        let fixture = Fixture::new(&[]);
        let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
        if fs::write(fixture.root().join(name), "").is_err() {
            return; // Some file systems take no such name: then there is nothing to report.
        }
        assert!(matches!(fixture.read(), Err(ContextError::Name { .. })));
        fixture.write(".dockerignore", "caf*");
        assert_eq!(fixture.paths(), [".dockerignore"]);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_that_names_it_unless_it_is_left_out() {
        let fixture = Fixture::new(&[("secret", "1"), ("closed/a", "1")]);
        chmod(&fixture.root().join("secret"), 0);
        chmod(&fixture.root().join("closed"), 0);
        let is_superuser = fs::read(fixture.root().join("secret")).is_ok();
        match fixture.read() {
            Ok(_) => assert!(is_superuser),
            Err(error) => assert!(error.to_string().starts_with("cannot read `"), "{error}"),
        }
        fixture.write(".dockerignore", "secret\nclosed\n!closed/a/b");
        if !is_superuser {
            assert_eq!(fixture.paths(), [".dockerignore"]);
        }
        chmod(&fixture.root().join("closed"), 0o755);
    }

    #[test]
    fn a_bad_pattern_is_an_error_that_names_file_and_line() {
        let fixture = Fixture::new(&[(".dockerignore", "a\n[")]);
        let error = fixture.read().unwrap_err();
        assert!(
            error.to_string().ends_with(".dockerignore` cannot be used"),
            "{error}"
        );
        let source = std::error::Error::source(&error).unwrap();
        assert_eq!(source.to_string(), "line 2: `[` is no pattern");
    }

    #[test]
    fn many_threads_read_the_same_as_one() {
        let fixture = Fixture::new(&[]);
        for n in 0..40_usize {
            let size = (n * 7919) % (300 * 1024);
            fs::write(
                fixture.root().join(format!("{n}")),
                vec![u8::try_from(n).unwrap(); size],
            )
            .unwrap();
        }
        for entry in fixture.read().unwrap().entries() {
            let expected = Digest::of(&fs::read(fixture.root().join(&entry.path)).unwrap());
            assert!(matches!(&entry.kind, EntryKind::File { digest, .. } if *digest == expected));
        }
    }

    mod cache {
        use super::*;

        /// Swaps the content of a file without anything telling but the content.
        fn swap_secretly(fixture: &Fixture, text: &str) {
            let path = fixture.root().join("a");
            let before = fs::metadata(&path).unwrap().modified().unwrap();
            fs::write(&path, text).unwrap();
            fs::File::open(&path).unwrap().set_modified(before).unwrap();
        }

        fn digest(fixture: &Fixture, seconds_from_now: i64) -> Digest {
            let context = Context::read(&fixture.root(), &fixture.cache(seconds_from_now)).unwrap();
            context.digest()
        }

        /// The only file of the cache.
        fn stored(fixture: &Fixture) -> PathBuf {
            let mut files = fs::read_dir(fixture.dir.path().join("cache")).unwrap();
            files.next().unwrap().unwrap().path()
        }

        /// Replaces the digest of `a` by one of something else, as only a cache that is believed would show.
        fn poison(fixture: &Fixture) {
            let text = fs::read_to_string(stored(fixture)).unwrap();
            let rows = text[65..].replace(&Digest::of(b"1").to_string(), &Digest::of(b"9").to_string());
            fs::write(
                stored(fixture),
                format!("{}\n{rows}", Digest::of(rows.as_bytes())),
            )
            .unwrap();
        }

        #[test]
        fn a_file_that_did_not_change_is_not_read_again() {
            let fixture = Fixture::new(&[("a", "1")]);
            let before = digest(&fixture, 10);
            poison(&fixture);
            assert_ne!(digest(&fixture, 10), before);
        }

        #[test]
        fn a_file_that_changed_a_moment_ago_is_never_believed() {
            let fixture = Fixture::new(&[("a", "1")]);
            let before = digest(&fixture, 10);
            poison(&fixture);
            assert_eq!(digest(&fixture, 0), before);
            assert_eq!(fs::read_to_string(stored(&fixture)).unwrap()[65..].trim(), "[]");
        }

        #[test]
        fn a_change_that_keeps_size_and_time_is_seen() {
            let fixture = Fixture::new(&[("a", "1")]);
            let before = digest(&fixture, 10);
            swap_secretly(&fixture, "2");
            assert_ne!(digest(&fixture, 10), before);
        }

        #[rstest]
        #[case::cut_short(|bytes: &mut Vec<u8>| bytes.truncate(80))]
        #[case::empty(Vec::clear)]
        #[case::one_digit_changed(|bytes: &mut Vec<u8>| { let last = bytes.len() - 10; bytes[last] ^= 1 })]
        #[case::something_else(|bytes: &mut Vec<u8>| *bytes = "ü".repeat(100).into_bytes())]
        fn a_damaged_cache_is_ignored_and_replaced(#[case] damage: fn(&mut Vec<u8>)) {
            let fixture = Fixture::new(&[("a", "1")]);
            let before = digest(&fixture, 10);
            let whole = fs::read(stored(&fixture)).unwrap();
            let mut bytes = whole.clone();
            damage(&mut bytes);
            fs::write(stored(&fixture), bytes).unwrap();
            assert_eq!(digest(&fixture, 10), before);
            assert_eq!(fs::read(stored(&fixture)).unwrap(), whole);
        }

        #[test]
        fn a_cache_that_cannot_be_written_does_no_harm() {
            let fixture = Fixture::new(&[("a", "1")]);
            fs::write(fixture.dir.path().join("cache"), "a file in its place").unwrap();
            assert_eq!(digest(&fixture, 10), fixture.digest());
        }
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn set_modified(path: &Path, seconds: u64) {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        fs::File::open(path).unwrap().set_modified(time).unwrap();
    }
}
