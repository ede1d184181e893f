//! What is in a context, what counts, and what is remembered of it.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use rstest::rstest;
use tempfile::TempDir;

use super::*;
use crate::clock::Clock;
use crate::image::project::NEVER_SENT;

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

    fn read(&self) -> Result<BuildContext, ImageError> {
        BuildContext::read(&self.root(), &NEVER_SENT, &self.cache(0))
    }

    fn paths(&self) -> Vec<String> {
        self.read().unwrap().entries.into_keys().collect()
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
#[case::content(|root: &Path| fs::write(root.join("a"), "2").unwrap())]
#[case::another_name(|root: &Path| fs::rename(root.join("a"), root.join("c")).unwrap())]
#[case::a_new_file(|root: &Path| fs::write(root.join("c"), "").unwrap())]
#[case::an_empty_directory(|root: &Path| fs::create_dir(root.join("c")).unwrap())]
#[case::the_executable_bit(|root: &Path| chmod(&root.join("a"), 0o755))]
#[case::a_links_target(|root: &Path| { fs::remove_file(root.join("link")).unwrap(); symlink("dir/b", root.join("link")).unwrap() })]
#[case::a_file_for_a_link(|root: &Path| { fs::remove_file(root.join("link")).unwrap(); fs::write(root.join("link"), "a").unwrap() })]
fn what_counts_changes_the_digest(#[case] change: fn(&Path)) {
    let fixture = Fixture::new(&[("a", "1"), ("dir/b", "2")]);
    symlink("a", fixture.root().join("link")).unwrap();
    let before = fixture.digest();
    change(&fixture.root());
    assert_ne!(fixture.digest(), before);
}

#[rstest]
#[case::times(|root: &Path| set_modified(&root.join("a"), 1_000_000))]
#[case::other_permissions(|root: &Path| chmod(&root.join("a"), 0o660))]
#[case::a_file_written_again(|root: &Path| { fs::remove_file(root.join("a")).unwrap(); fs::write(root.join("a"), "1").unwrap() })]
#[case::what_stays_out(|root: &Path| fs::write(root.join("x.log"), "").unwrap())]
#[case::ralphs_own_files(|root: &Path| fs::write(root.join("config.json"), "{}").unwrap())]
#[case::a_socket(|root: &Path| drop(UnixListener::bind(root.join("socket")).unwrap()))]
fn what_does_not_count_leaves_the_digest(#[case] change: fn(&Path)) {
    let fixture = Fixture::new(&[("a", "1"), (".dockerignore", "*.log")]);
    let before = fixture.digest();
    change(&fixture.root());
    assert_eq!(fixture.digest(), before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_order_in_which_files_were_made_does_not_count(
        names in prop::collection::btree_set("[A-Cü-]{1,3}(/[a-z.-]{1,2}f)?", 1..12),
        seed in any::<u64>(),
    ) {
        // With an ending that no directory has.
        let mut names: Vec<String> = names.into_iter().map(|name| name + ".txt").collect();
        let digest = |names: &[String]| {
            let files: Vec<(&str, &str)> = names.iter().map(|name| (&**name, &**name)).collect();
            Fixture::new(&files).digest()
        };
        let first = digest(&names);
        fastrand::Rng::with_seed(seed).shuffle(&mut names);
        prop_assert_eq!(digest(&names), first);
    }
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

// rustix cannot make a named pipe on macOS.
#[cfg(target_os = "linux")]
#[test]
fn a_named_pipe_is_an_error_that_names_it_unless_it_is_left_out() {
    let fixture = Fixture::new(&[]);
    let pipe = fixture.root().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    let error = fixture.read().unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("/root/pipe` is a named pipe, which a build context cannot contain")
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
    let error = fixture.read().unwrap_err();
    assert!(error.to_string().ends_with("is not UTF-8"), "{error}");
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
    assert!(error.to_string().ends_with(".dockerignore`"), "{error}");
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "line 2: invalid pattern `[`");
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
    for (path, entry) in fixture.read().unwrap().entries {
        let expected = Digest::sha256(&fs::read(fixture.root().join(path)).unwrap());
        assert!(matches!(&entry, ContextEntry::File { digest, .. } if *digest == expected));
    }
}

mod cache {
    use super::*;

    /// Swaps the content of a file without anything telling but the content.
    fn swap_secretly(fixture: &Fixture, text: &str) {
        let path = fixture.root().join("a");
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        // Times go in steps of a few milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(&path, text).unwrap();
        fs::File::open(&path).unwrap().set_modified(before).unwrap();
    }

    fn digest(fixture: &Fixture, seconds_from_now: i64) -> Digest {
        let context =
            BuildContext::read(&fixture.root(), &NEVER_SENT, &fixture.cache(seconds_from_now)).unwrap();
        context.digest()
    }

    /// The only file of the cache.
    fn stored(fixture: &Fixture) -> PathBuf {
        let mut files = fs::read_dir(fixture.dir.path().join("cache")).unwrap();
        files.next().unwrap().unwrap().path()
    }

    fn poison(fixture: &Fixture) {
        crate::file_hashes::tests::falsify(&stored(fixture));
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
        poison(&fixture);
        assert_eq!(digest(&fixture, 10), before, "nothing was left to be believed");
    }

    #[test]
    fn a_change_that_keeps_size_and_time_is_seen() {
        let fixture = Fixture::new(&[("a", "1")]);
        let before = digest(&fixture, 10);
        swap_secretly(&fixture, "2");
        assert_ne!(digest(&fixture, 10), before);
    }

    #[rstest]
    #[case::cut_short(|bytes: &mut Vec<u8>| bytes.truncate(60))]
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
