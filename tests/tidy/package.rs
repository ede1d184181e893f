//! What `cargo publish` uploads and `cargo install` builds from.

use std::collections::BTreeSet;
use std::process::Command;

use crate::none;
use crate::repository::{files, root};

/// What a package contains besides the directories `src` and `templates`. Cargo writes the last two itself.
const SINGLE_FILES: [&str; 10] = [
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "build.rs",
    "Cargo.toml.orig",
    ".cargo_vcs_info.json",
];

#[test]
fn the_package_contains_the_source_and_the_templates_and_nothing_else() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let listed = Command::new(cargo)
        .args(["package", "--list", "--allow-dirty", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo is installed");
    assert!(listed.status.success(), "{listed:?}");
    let packaged = String::from_utf8(listed.stdout).expect("paths are UTF-8");
    let packaged: BTreeSet<String> = packaged.lines().map(str::to_owned).collect();
    let expected: BTreeSet<String> = files()
        .into_iter()
        .map(|file| file.path)
        .filter(|path| path.starts_with("src/") || path.starts_with("templates/"))
        .chain(SINGLE_FILES.map(str::to_owned))
        .collect();
    none(
        "differences between the package and what `include` in Cargo.toml must select",
        packaged.symmetric_difference(&expected).cloned(),
    );
}
