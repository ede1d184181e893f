//! Builds the guest (`src/guest`), the static helper program that ralph puts into sandboxes.
//!
//! The compiler that builds ralph also builds the guest; nothing else is needed. Where no static guest can be built (not
//! Linux, or no static C library), ralph is built without one and prints a warning. `RALPH_GUEST` names a guest that was
//! built elsewhere. The attacks of the escape suite are part of the guest only with the feature `escapes`.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "cargo talks to a build script by its environment and its output"
)]

use std::env::var;
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
        Ok(supplied) => copy(Path::new(&supplied), &out).map(|()| true)?,
        Err(_) if var("CARGO_CFG_TARGET_OS")? == "linux" => compile(&out, &version)?,
        Err(_) => false,
    };
    if built {
        println!("cargo::rustc-cfg=guest");
    } else {
        println!(
            "cargo::warning=no static guest was built: commands in sandboxes will be slower (docs/adr/0012)"
        );
    }
    Ok(())
}

fn copy(supplied: &Path, out: &Path) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", supplied.display());
    fs::copy(supplied, out).map(drop)
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
            &var("TARGET")?,
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
    if let Ok(linker) = var("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={linker}"));
    }
    Ok(rustc.status()?.success())
}
