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
    let out = PathBuf::from(var("OUT_DIR")?).join("guest");
    let built = match var("RALPH_GUEST") {
        Ok(supplied) => copy(Path::new(&supplied), &out).map(|()| true)?,
        Err(_) if var("CARGO_CFG_TARGET_OS")? == "linux" => compile(&out)?,
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

/// Compiles the guest and returns whether that worked.
fn compile(out: &Path) -> Result<bool, Box<dyn std::error::Error>> {
    let mut rustc = Command::new(var("RUSTC")?);
    rustc
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
