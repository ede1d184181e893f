//! Nix, for real: hashes as it computes them, and an image built through ralph's own code.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use ralph::clock::Clock;
use ralph::digest::Digest;
use ralph::exec::{Discard, Host, OutputLine};
use ralph::nix::{Flake, FlakeCache, FlakeInputs, FlakeOutput, FlakeRef, InputPath, NixError};
use rstest::rstest;
use tempfile::TempDir;

use crate::need;
use crate::support;
use crate::support::skip::program;

/// Later than any file a test writes, so that every one of them has settled.
struct InTenSeconds;

impl Clock for InTenSeconds {
    fn now(&self) -> Timestamp {
        Timestamp::now() + SignedDuration::from_secs(10)
    }
}

/// A repository that holds the fixture flake, and a home of its own for nix.
struct World {
    dir: TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let world = Self { dir };
        let root = world.root();
        fs::create_dir(&root).unwrap();
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/nix-image");
        for name in ["flake.nix", "build-image.sh", "payload.txt"] {
            fs::copy(fixture.join(name), root.join(name)).unwrap();
        }
        world.git(&["init", "--quiet"]);
        world.git(&["add", "--all"]);
        world.git(&["commit", "--quiet", "--message", "fixture"]);
        world
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.root().join(path).parent().unwrap()).unwrap();
        fs::write(self.root().join(path), text).unwrap();
    }

    fn git(&self, args: &[&str]) {
        let done = Command::new("git")
            .args(["-c", "user.name=Ralph", "-c", "user.email=ralph@example.org"])
            .args(["-c", "protocol.file.allow=always"])
            .args(args)
            .current_dir(self.root())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(done.status.success(), "git {args:?}: {done:?}");
    }

    /// A host with exactly this `PATH`.
    fn host(&self, path: &str) -> Host {
        let home = self.dir.path().join("home");
        let home = home.to_str().unwrap();
        let variables = [
            ("PATH", path),
            ("HOME", home),
            ("NIX_CONFIG", support::nix::CONFIG),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ];
        Host::new(
            variables
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        )
    }

    fn flake(&self) -> Flake {
        let path = std::env::var("PATH").unwrap();
        Flake::open(self.host(&path), &FlakeRef::Dir(self.root())).unwrap()
    }

    fn cache(&self) -> FlakeCache {
        FlakeCache::new(self.dir.path().join("cache"), Arc::new(InTenSeconds))
    }

    async fn hash_with(&self, inputs: &FlakeInputs) -> Result<Digest, NixError> {
        self.flake().content_hash(&image(), inputs, &self.cache()).await
    }

    async fn hash(&self) -> Digest {
        self.hash_with(&FlakeInputs::Tracked).await.unwrap()
    }
}

fn this_system() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "aarch64-linux"
    } else {
        "x86_64-linux"
    }
}

fn output(system: &'static str, attribute: &str) -> FlakeOutput {
    FlakeOutput {
        system,
        attribute: attribute.parse().unwrap(),
    }
}

/// The fixture's image on one system, so that its hash is the same everywhere.
fn image() -> FlakeOutput {
    output("x86_64-linux", "dockerImage")
}

// --- Building ---------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn the_image_is_built_and_the_second_time_found() {
    need!(support::nix::with_own_store());
    need!(program("busybox"));
    let world = World::new();
    // Content of its own, so that no earlier test has built it.
    world.write("payload.txt", &format!("{:?}", Instant::now()));
    let (flake, image) = (world.flake(), output(this_system(), "dockerImage"));

    let mut lines: Vec<OutputLine> = Vec::new();
    let built = flake.build(&image, false, &mut lines).await.unwrap();
    let said = |word: &str, lines: &[OutputLine]| lines.iter().any(|line| line.text.contains(word));
    assert!(said("building", &lines), "{lines:?}");
    assert!(!said("drvPath", &lines), "the answer is not progress: {lines:?}");

    let listed = Command::new("tar").arg("-tzf").arg(&built).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.lines().any(|name| name == "./manifest.json"), "{listed}");
    assert_eq!(listed.matches("layer.tar").count(), 2, "{listed}");

    let mut again: Vec<OutputLine> = Vec::new();
    assert_eq!(flake.build(&image, false, &mut again).await.unwrap(), built);
    assert!(!said("building", &again), "{again:?}");
}

#[tokio::test]
async fn the_flake_may_be_below_the_root_of_a_shallow_repository() {
    need!(support::nix::with_own_store());
    let world = World::new();
    let text =
        "{ outputs = _: { packages.x86_64-linux.dockerImage.text = builtins.readFile ../payload.txt; }; }";
    world.write("images/sandbox/flake.nix", text);
    world.write("images/payload.txt", "read from above");
    world.git(&["add", "--all"]);
    world.git(&["commit", "--quiet", "--message", "second"]);
    let origin = format!("file://{}", world.root().display());
    world.git(&["clone", "--quiet", "--depth=1", &origin, "../shallow"]);

    let dir = world.dir.path().join("shallow/images/sandbox");
    let flake = Flake::open(world.host(&std::env::var("PATH").unwrap()), &FlakeRef::Dir(dir)).unwrap();
    assert!(flake.has_package(&image()).await.unwrap());
}

#[rstest]
#[case("{ broken", "syntax error")]
#[case(r#"{ outputs = _: throw "no such luck"; }"#, "no such luck")]
#[tokio::test]
async fn a_broken_flake_is_an_error_with_what_nix_said(#[case] text: &str, #[case] said: &str) {
    need!(support::nix::with_own_store());
    let world = World::new();
    world.write("flake.nix", text);
    let error = world
        .flake()
        .build(&image(), false, &mut Discard)
        .await
        .unwrap_err();
    assert!(matches!(error, NixError::EvaluationFailed { .. }), "{error:?}");
    assert!(error.to_string().contains(said), "{error}");
}

#[tokio::test]
async fn a_failing_build_is_an_error_with_the_end_of_its_log() {
    need!(support::nix::with_own_store());
    let world = World::new();
    world.write("build-image.sh", "echo what went wrong; exit 3");
    let image = output(this_system(), "dockerImage");
    let error = world
        .flake()
        .build(&image, false, &mut Discard)
        .await
        .unwrap_err();
    assert!(matches!(error, NixError::BuildFailed { .. }), "{error:?}");
    // The hint asks for the derivation that the message names.
    for said in ["what went wrong", ".drv"] {
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[tokio::test]
async fn a_missing_attribute_is_distinguished_from_a_failing_one() {
    need!(support::nix::with_own_store());
    let world = World::new();
    let missing = output(this_system(), "sandboxImage");
    let error = world
        .flake()
        .build(&missing, false, &mut Discard)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, NixError::AttributeMissing { output, .. } if *output == missing),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_system_without_a_builder_is_named() {
    need!(support::nix::with_own_store());
    let world = World::new();
    let foreign = ["x86_64-linux", "aarch64-linux"];
    let foreign = foreign
        .into_iter()
        .find(|system| *system != this_system())
        .unwrap();
    let error = world
        .flake()
        .build(&output(foreign, "dockerImage"), false, &mut Discard)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, NixError::NoBuilder { system, .. } if *system == foreign),
        "{error:?}"
    );
}

#[tokio::test]
async fn whether_the_attribute_exists_is_asked_once() {
    need!(support::nix::with_own_store());
    let world = World::new();
    let cache = world.cache();
    let without_nix = Flake::open(world.host("/nonexistent"), &FlakeRef::Dir(world.root())).unwrap();
    let cases = [("dockerImage", true), ("sandboxImage", false)];
    for (attribute, presence) in cases {
        let (flake, output) = (world.flake(), output(this_system(), attribute));
        let content = flake
            .content_hash(&output, &FlakeInputs::Tracked, &cache)
            .await
            .unwrap();
        let unknown = without_nix.has_package_cached(&output, &content, &cache).await;
        assert!(matches!(unknown, Err(NixError::Missing(_))), "{unknown:?}");
        assert_eq!(
            flake.has_package_cached(&output, &content, &cache).await.unwrap(),
            presence
        );
        assert_eq!(
            without_nix
                .has_package_cached(&output, &content, &cache)
                .await
                .unwrap(),
            presence
        );
    }
}

// --- The content hash -------------------------------------------------------------------------------------------------

#[tokio::test]
async fn the_hash_is_the_one_written_down_in_the_guide() {
    let world = World::new();
    world.write("flake.nix", "{ outputs = _: { }; }\n");
    world.write("payload.txt", "payload\n");
    world.git(&["rm", "--quiet", "build-image.sh"]);
    world.write("bin/tool", "#!/bin/sh\n");
    fs::set_permissions(world.root().join("bin/tool"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("bin/tool", world.root().join("tool")).unwrap();
    world.git(&["add", "--all"]);
    assert_eq!(
        world.hash().await.hex(),
        "95e1b9c9073302bbd6f111f2d9459579290f88039dd72e7a34f60725c92b0758"
    );
}

#[tokio::test]
async fn every_tracked_change_counts_and_nothing_else() {
    let world = World::new();
    let mut seen = vec![world.hash().await];
    let mut changed = async |what: &str| {
        let now = world.hash().await;
        assert!(!seen.contains(&now), "{what} did not count");
        seen.push(now);
    };

    world.write("payload.txt", "dirty");
    changed("a dirty file").await;
    world.write("new.txt", "new");
    assert_eq!(world.hash().await, world.hash().await);
    world.git(&["add", "new.txt"]);
    changed("an added file").await;
    world.write("new.txt", "NEW");
    changed("a change of the same length").await;
    fs::set_permissions(world.root().join("new.txt"), fs::Permissions::from_mode(0o755)).unwrap();
    changed("the executable bit").await;
    fs::remove_file(world.root().join("new.txt")).unwrap();
    changed("a deleted file").await;
    symlink("payload.txt", world.root().join("new.txt")).unwrap();
    changed("a link in its place").await;
    fs::remove_file(world.root().join("new.txt")).unwrap();
    symlink("flake.nix", world.root().join("new.txt")).unwrap();
    changed("another target").await;
}

#[tokio::test]
async fn untracked_files_times_and_commits_do_not_count() {
    let world = World::new();
    world.write("payload.txt", "changed");
    let before = world.hash().await;
    world.write("untracked.nix", "{}");
    let file = fs::File::options()
        .append(true)
        .open(world.root().join("flake.nix"))
        .unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    world.git(&["add", "payload.txt"]);
    world.git(&["commit", "--quiet", "--message", "the same content"]);
    assert_eq!(world.hash().await, before);
}

#[tokio::test]
async fn a_change_in_a_submodule_counts() {
    let (world, other) = (World::new(), World::new());
    world.git(&[
        "submodule",
        "--quiet",
        "add",
        other.root().to_str().unwrap(),
        "part",
    ]);
    let before = world.hash().await;
    world.write("part/payload.txt", "changed inside");
    assert_ne!(world.hash().await, before);
}

#[tokio::test]
async fn the_attribute_and_the_system_count() {
    let world = World::new();
    let (flake, cache) = (world.flake(), world.cache());
    let mut seen = Vec::new();
    for (system, attribute) in [
        ("x86_64-linux", "a"),
        ("aarch64-linux", "a"),
        ("x86_64-linux", "b"),
    ] {
        let output = output(system, attribute);
        let hash = flake
            .content_hash(&output, &FlakeInputs::Tracked, &cache)
            .await
            .unwrap();
        assert!(!seen.contains(&hash), "{output}");
        seen.push(hash);
    }
}

#[tokio::test]
async fn declared_inputs_leave_the_other_files_out() {
    let world = World::new();
    world.write("nix/shell.nix", "{}");
    world.write("src/main.rs", "fn main() {}");
    world.git(&["add", "--all"]);
    let inputs = FlakeInputs::Declared(vec![InputPath::parse("./payload.txt").unwrap()]);
    let mut before = world.hash_with(&inputs).await.unwrap();

    world.write("src/main.rs", "fn main() { work() }");
    assert_eq!(world.hash_with(&inputs).await.unwrap(), before);
    for counted in ["payload.txt", "nix/shell.nix", "flake.nix"] {
        world.write(counted, "{ outputs = _: {}; }");
        let after = world.hash_with(&inputs).await.unwrap();
        assert_ne!(after, before, "{counted}");
        before = after;
    }
}

#[tokio::test]
async fn a_declared_input_that_is_not_there_is_an_error() {
    let world = World::new();
    let inputs = FlakeInputs::Declared(vec![InputPath::parse("paylod.txt").unwrap()]);
    let error = world.hash_with(&inputs).await.unwrap_err();
    assert!(
        matches!(&error, NixError::NoSuchInput { path } if path == "paylod.txt"),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_flake_that_git_does_not_track_is_no_flake() {
    let world = World::new();
    world.git(&["rm", "--quiet", "--cached", "flake.nix"]);
    let error = world.hash_with(&FlakeInputs::Tracked).await.unwrap_err();
    assert!(matches!(error, NixError::NoFlake(_)), "{error:?}");
}

#[tokio::test]
async fn a_known_hash_is_found_within_twenty_milliseconds_and_without_nix() {
    let world = World::new();
    let git = program("git").unwrap();
    let host = world.host(git.parent().unwrap().to_str().unwrap());
    let flake = Flake::open(host, &FlakeRef::Dir(world.root())).unwrap();
    let cache = world.cache();
    flake
        .content_hash(&image(), &FlakeInputs::Tracked, &cache)
        .await
        .unwrap();
    let (mut fastest, give_up) = (Duration::MAX, Instant::now() + Duration::from_secs(60));
    // The host may be busy for a while.
    while fastest > Duration::from_millis(20) && Instant::now() < give_up {
        let started = Instant::now();
        flake
            .content_hash(&image(), &FlakeInputs::Tracked, &cache)
            .await
            .unwrap();
        fastest = fastest.min(started.elapsed());
    }
    assert!(fastest <= Duration::from_millis(20), "{fastest:?}");
}
