//! Builds the guest (`src/guest`), the static helper program that ralph puts into sandboxes.
//!
//! The guest is a Linux program on every host, for the processor that ralph is built for. The compiler that builds ralph
//! also builds the guest: on Linux with the static C library of the system, elsewhere with Rust's own target for musl
//! (`rustup target add aarch64-unknown-linux-musl`). Where that is not possible, ralph is built without a guest and prints a
//! warning. `RALPH_GUEST` names a guest that was built elsewhere from the same source. The attacks of the escape suite are
//! part of the guest only with the feature `escapes`.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "cargo talks to a build script by its environment and its output"
)]

use std::env::{VarError, var};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

const SOURCE: &str = "src/guest";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=RALPH_GUEST");
    println!("cargo::rustc-check-cfg=cfg(guest)");
    let version = source_hash()?.to_string();
    println!("cargo::rustc-env=GUEST_VERSION={version}");
    let out = PathBuf::from(var("OUT_DIR")?).join("guest");
    let built = match var("RALPH_GUEST") {
        Ok(supplied) => copy(Path::new(&supplied), &out, &version).map(|()| true)?,
        Err(_) => compile(&out, &version)?,
    };
    if built {
        println!("cargo::rustc-cfg=guest");
        return Ok(());
    }
    let missing = if is_for_linux()? {
        "a static C library"
    } else {
        &format!("`rustup target add {}`", guest_target()?)
    };
    println!(
        "cargo::warning=no guest was built, it needs {missing}: commands in sandboxes will be slower (docs/adr/0012)"
    );
    Ok(())
}

fn is_for_linux() -> Result<bool, VarError> {
    Ok(var("CARGO_CFG_TARGET_OS")? == "linux")
}

fn guest_target() -> Result<String, VarError> {
    if is_for_linux()? {
        var("TARGET")
    } else {
        Ok(format!("{}-unknown-linux-musl", var("CARGO_CFG_TARGET_ARCH")?))
    }
}

/// Copies a guest that was built elsewhere. Refuses one of another version or for another processor.
fn copy(supplied: &Path, out: &Path, version: &str) -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={}", supplied.display());
    let refused = |reason: &str| format!("RALPH_GUEST ({}): {reason}", supplied.display());
    let program = fs::read(supplied).map_err(|error| refused(&error.to_string()))?;
    // What `guest version` prints.
    let marker = format!("ralph-guest-version={version}.");
    if !program
        .windows(marker.len())
        .any(|window| window == marker.as_bytes())
    {
        return Err(refused(&format!(
            "it is not the guest of this source (version {version}): build it from the same commit with the same features"
        ))
        .into());
    }
    // The field `e_machine` of an ELF header.
    let machine = match var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => 62,
        "aarch64" => 183,
        arch => return Err(refused(&format!("there is no guest for {arch}")).into()),
    };
    if program.get(18) != Some(&machine) {
        return Err(refused("it is for another processor").into());
    }
    fs::write(out, program)?;
    Ok(())
}

/// A hash of the guest's source: FNV-1a, which detects different versions and does not prevent forged ones.
fn source_hash() -> io::Result<u64> {
    let mut files: Vec<PathBuf> = fs::read_dir(SOURCE)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    // `mod.rs` is not part of the guest, `attack.rs` only with its feature.
    let escapes = var("CARGO_FEATURE_ESCAPES").is_ok();
    files.retain(|file| !file.ends_with("mod.rs") && (escapes || !file.ends_with("attack.rs")));
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for file in files {
        for byte in fs::read(file)? {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(hash)
}

/// Compiles the guest and returns whether that worked.
fn compile(out: &Path, version: &str) -> Result<bool, Box<dyn std::error::Error>> {
    let mut rustc = Command::new(var("RUSTC")?);
    rustc
        .env("GUEST_VERSION", version)
        .args([
            "--crate-name",
            "guest",
            "--edition",
            "2024",
            "--target",
            &guest_target()?,
        ])
        .args(["-C", "target-feature=+crt-static", "-C", "panic=abort"])
        .args(["-C", "opt-level=2", "-C", "strip=symbols"])
        .args([
            "--check-cfg",
            "cfg(test)",
            "--check-cfg",
            "cfg(feature, values(\"escapes\"))",
        ])
        .arg("-o")
        .arg(out)
        .arg(Path::new(SOURCE).join("main.rs"));
    if var("CARGO_FEATURE_ESCAPES").is_ok() {
        rustc.args(["--cfg", "feature=\"escapes\""]);
    }
    if !is_for_linux()? {
        // The linker of the host knows nothing of Linux; Rust's own does, and its target for musl brings the C library.
        rustc.args(["-C", "linker=rust-lld", "-C", "link-self-contained=yes"]);
    } else if let Ok(linker) = var("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={linker}"));
    }
    Ok(rustc.status()?.success())
}
