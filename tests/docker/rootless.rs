//! The engine of a plain user (rootless): its sandboxes are sealed as any other's.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rstest::rstest;
use serde_json::Value;

use crate::need;
use crate::support::ralph::{Place, finish, in_place_of, waited_for};
use crate::support::security_page::{check_column, engine_version};
use crate::support::{engine, skip};

/// A user that exists on no host, and as many subordinate ids as an engine needs.
const USER: &str = "100000";
const MAP: &str = "0 100000 65536";
const IMAGE: &str = "busybox:1";

/// Not enforceable is the host inside TLS, and not tried the hand-back: there is no git in this image.
const COUNTS: [usize; 3] = [0, 1, 1];

/// In a user namespace of that user's, with all else that an engine changes its own.
const ENTER: [&str; 9] = [
    "--setuid", "0", "--setgid", "0", "unshare", "--net", "--mount", "--pid", "--fork",
];
const START_DOCKER: &str = "mkdir -p /etc/docker && mount -t tmpfs tmpfs /etc/docker; \
    exec dockerd --rootless --host unix://$PWD/socket --data-root $PWD/data --exec-root $PWD/exec --pidfile $PWD/pid \
    --bridge=none --iptables=false --storage-driver=vfs";
/// Podman would enter the namespace of its user by itself; it finds out here that it is in it.
const START_PODMAN: &str = "mkdir engine-home; \
    HOME=$PWD/engine-home _CONTAINERS_USERNS_CONFIGURED=done _CONTAINERS_ROOTLESS_UID=$0 _CONTAINERS_ROOTLESS_GID=$0 \
    exec podman --root $PWD/data --runroot $PWD/exec --tmpdir $PWD/tmp --storage-driver vfs --events-backend file \
    --cgroup-manager cgroupfs system service --time 0 unix://$PWD/socket";

#[rstest]
#[case::docker("dockerd", START_DOCKER, "rootless docker")]
#[case::podman("podman", START_PODMAN, "rootless podman")]
fn the_sandboxes_of_a_rootless_engine_hold_every_attack(
    #[case] program: &str,
    #[case] start: &str,
    #[case] column: &str,
) {
    let place = Place::new();
    place.write(
        "ralph.toml",
        &format!(
            "[agent]\nname = \"actions\"\n[sandbox]\ntype = \"docker\"\nimage = \"{IMAGE}\"\n{}",
            engine::seal_config()
        ),
    );
    let engine = need!(Rootless::start(&place, program, start));
    let mut selftest = place.ralph(&["selftest", "--escapes", "--json"]);
    selftest.env("DOCKER_HOST", engine.host());
    let ended = finish(&mut engine.as_its_user(&selftest));
    ended.expect(0, &[]);
    assert_eq!(counts(&ended.stdout), COUNTS, "{}", ended.stdout);
    let matrix: Value = serde_json::from_str(&ended.stdout).unwrap();
    let attacked = engine_version(&engine.host());
    check_column(column, Some(&attacked), matrix["cases"].as_array().unwrap());
}

/// How many attacks were open, not enforceable and not tried, in the result of a self-test.
fn counts(result: &str) -> [usize; 3] {
    let matrix: Value = serde_json::from_str(result).unwrap();
    let cases = matrix["cases"].as_array().unwrap();
    assert!(cases.len() > 55, "{matrix}");
    let count = |verdict: &str| cases.iter().filter(|case| case["verdict"] == verdict).count();
    ["open", "not-enforceable", "not-tried"].map(count)
}

#[rstest]
#[case::docker("dockerd", START_DOCKER)]
#[case::podman("podman", START_PODMAN)]
fn a_rootless_engine_keeps_workspaces_in_volumes_and_refuses_limits_that_it_ignores(
    #[case] program: &str,
    #[case] start: &str,
) {
    let place = Place::new();
    place.write(
        "ralph.toml",
        &format!("[agent]\nname = \"actions\"\n[sandbox]\ntype = \"docker\"\nimage = \"{IMAGE}\"\n"),
    );
    let engine = need!(Rootless::start(&place, program, start));
    let selftest = |setting: &str| {
        let mut selftest = place.ralph(&["selftest", "--escapes", "--json", "--set", setting]);
        selftest.env("DOCKER_HOST", engine.host());
        finish(&mut engine.as_its_user(&selftest))
    };
    let ended = selftest("sandbox.docker.workspace=volume");
    ended.expect(0, &[]);
    assert_eq!(counts(&ended.stdout), COUNTS, "{}", ended.stdout);
    let left = engine.docker(&["volume", "ls", "--quiet"]).output().unwrap();
    assert_eq!(String::from_utf8(left.stdout).unwrap(), "");
    // No control groups are delegated to it. The default of 8 GB is only reported.
    for (setting, key) in [
        ("sandbox.resources.memory=8g", "sandbox.resources.memory"),
        ("sandbox.resources.cpus=4", "sandbox.resources.cpus"),
    ] {
        let refused = format!("cannot apply `{key}`: no control groups are delegated to it");
        selftest(setting).expect(1, &[&refused, "hint: delegate control groups of version 2"]);
    }
}

/// An engine whose user owns a place.
struct Rootless<'a> {
    place: &'a Place,
    process: Child,
}

impl<'a> Rootless<'a> {
    fn start(place: &'a Place, engine: &str, start: &str) -> Result<Self, String> {
        for program in [engine, "docker", "unshare", "nsenter", "setpriv", "busybox"] {
            skip::program(program)?;
        }
        // This program too must be where that user finds it.
        fs::copy(env!("CARGO_BIN_EXE_ralph"), place.path().join("program")).unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        let given = Command::new("chown")
            .args(["-R", &format!("{USER}:{USER}")])
            .arg(place.path())
            .output();
        if !given.unwrap().status.success() {
            return Err("only root can start an engine of another user's".to_owned());
        }
        let log = place.path().join("log");
        let space = UserNamespace::new()?;
        let mut command = Command::new("nsenter");
        command
            .args(["--user", "--target", &space.0.id().to_string()])
            .args(ENTER)
            .args(["--kill-child", "--mount-proc", "sh", "-ec"])
            .args([&format!("mount -t tmpfs tmpfs /run; {start}"), USER])
            .current_dir(place.path());
        command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        let mut engine = Self {
            place,
            process: command.spawn().unwrap(),
        };
        let ended = |engine: &mut Self| engine.process.try_wait().unwrap().is_some();
        let answers = |engine: &Self| engine.docker(&["version"]).output().unwrap().status.success();
        if !waited_for(|| answers(&engine) || ended(&mut engine)) || ended(&mut engine) {
            return Err(format!("no rootless engine: {}", last_line(&log)));
        }
        engine.give_image();
        Ok(engine)
    }

    fn host(&self) -> String {
        format!("unix://{}", self.place.path().join("socket").display())
    }

    fn docker(&self, args: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.env("DOCKER_HOST", self.host()).args(args);
        command
    }

    /// An image with nothing but busybox in it: this engine copies all of it for every container.
    fn give_image(&self) {
        let archive = self.place.path().join("image.tar");
        let mut tar = tar::Builder::new(File::create(&archive).unwrap());
        // A directory that is not named is closed to everybody but its owner.
        tar.append_dir("bin", "/").unwrap();
        tar.append_path_with_name(which::which("busybox").unwrap(), "bin/busybox")
            .unwrap();
        for name in ["sh", "sleep"] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_mode(0o777);
            header.set_size(0);
            tar.append_link(&mut header, format!("bin/{name}"), "busybox")
                .unwrap();
        }
        tar.finish().unwrap();
        let given = self
            .docker(&["import", archive.to_str().unwrap(), IMAGE])
            .output()
            .unwrap();
        assert!(given.status.success(), "{given:?}");
    }

    /// The same command of ralph's, given by the engine's user.
    fn as_its_user(&self, ralph: &Command) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", USER, "--regid", USER, "--clear-groups"])
            .arg(self.place.path().join("program"))
            .args(ralph.get_args());
        in_place_of(&mut command, ralph);
        command
    }
}

/// A process in a user namespace that maps no user.
struct UserNamespace(Child);

impl UserNamespace {
    fn new() -> Result<Self, String> {
        let made = Command::new("unshare").args(["--user", "sleep", "600"]).spawn();
        let space = Self(made.unwrap());
        // As soon as it is there.
        let map = |file: &str| fs::write(format!("/proc/{}/{file}", space.0.id()), MAP).is_ok();
        if waited_for(|| map("uid_map")) && map("gid_map") {
            Ok(space)
        } else {
            Err("no user namespace can be made".to_owned())
        }
    }
}

impl Drop for UserNamespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Rootless<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn last_line(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().last().unwrap_or("it said nothing").to_owned()
}
