//! `build.rs`: the guest for other systems than Linux, and guests that were built elsewhere.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// The build script as a program, which is run as cargo would run it.
struct BuildScript {
    dir: TempDir,
}

impl BuildScript {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
        let compiled = Command::new(rustc)
            .args(["--edition", "2024", "-A", "warnings", "-o"])
            .arg(dir.path().join("build"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs"))
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{compiled:?}");
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs it for a target, with a compiler that only writes its arguments down and exits with `code`.
    fn run(&self, arch: &str, os: &str, code: i32, more: &[(&str, &str)]) -> Output {
        let rustc = self.path("rustc");
        let script = format!(
            "#!/bin/sh\necho \"$@\" > '{}'\nexit {code}\n",
            self.path("args").display()
        );
        fs::write(&rustc, script).unwrap();
        fs::set_permissions(&rustc, fs::Permissions::from_mode(0o755)).unwrap();
        Command::new(self.path("build"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("OUT_DIR", self.dir.path())
            .env("RUSTC", rustc)
            .env("TARGET", format!("{arch}-{os}"))
            .env("CARGO_CFG_TARGET_ARCH", arch)
            .env("CARGO_CFG_TARGET_OS", os)
            .env("CARGO_FEATURE_ESCAPES", "1")
            .envs(more.iter().copied())
            .output()
            .unwrap()
    }
}

const GUEST_IS_BUILT: &str = "cargo::rustc-cfg=guest";

#[test]
fn a_mac_gets_a_linux_guest_if_the_musl_target_is_installed() {
    let script = BuildScript::new();
    for arch in ["aarch64", "x86_64"] {
        let built = script.run(arch, "macos", 0, &[]);
        let stdout = String::from_utf8(built.stdout).unwrap();
        assert!(
            built.status.success() && stdout.contains(GUEST_IS_BUILT),
            "{stdout}"
        );
        let args = fs::read_to_string(script.path("args")).unwrap();
        assert!(
            args.contains(&format!("--target {arch}-unknown-linux-musl")),
            "{args}"
        );
        assert!(args.contains("linker=rust-lld"), "{args}");

        let built = script.run(arch, "macos", 1, &[]);
        let stdout = String::from_utf8(built.stdout).unwrap();
        assert!(
            built.status.success() && !stdout.contains(GUEST_IS_BUILT),
            "{stdout}"
        );
        let needed = format!("it needs `rustup target add {arch}-unknown-linux-musl`");
        assert!(stdout.contains(&needed), "{stdout}");
    }
}

#[test]
fn a_guest_from_elsewhere_must_be_of_the_same_version_and_processor() {
    let Some(program) = ralph::guest::PROGRAM else {
        return; // This build has no guest that could be supplied.
    };
    let script = BuildScript::new();
    let arch = std::env::consts::ARCH;
    let guest = script.path("guest-from-elsewhere");
    fs::write(&guest, program).unwrap();
    let supplied = [("RALPH_GUEST", guest.to_str().unwrap())];

    let built = script.run(arch, "macos", 1, &supplied);
    let stdout = String::from_utf8_lossy(&built.stdout);
    assert!(
        built.status.success() && stdout.contains(GUEST_IS_BUILT),
        "{built:?}"
    );
    assert_eq!(fs::read(script.path("guest")).unwrap(), program);
    assert!(!script.path("args").exists(), "nothing was compiled");

    let other = if arch == "x86_64" { "aarch64" } else { "x86_64" };
    assert_refused(
        &script.run(other, "macos", 0, &supplied),
        "it is for another processor",
    );

    let marker = format!("ralph-guest-version={}.", ralph::guest::VERSION);
    let position = program
        .windows(marker.len())
        .position(|window| window == marker.as_bytes())
        .unwrap();
    let mut older = program.to_vec();
    older[position + marker.len() - 2] ^= 1;
    fs::write(&guest, older).unwrap();
    assert_refused(
        &script.run(arch, "macos", 0, &supplied),
        "it is not the guest of this source",
    );

    fs::remove_file(&guest).unwrap();
    assert_refused(&script.run(arch, "macos", 0, &supplied), "No such file");
}

fn assert_refused(built: &Output, reason: &str) {
    let stderr = String::from_utf8_lossy(&built.stderr);
    assert!(!built.status.success(), "{built:?}");
    assert!(
        stderr.contains("RALPH_GUEST") && stderr.contains(reason),
        "{stderr}"
    );
}
