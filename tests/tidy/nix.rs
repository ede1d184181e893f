//! The Nix package is built from a part of the repository: that part has every file the compiler reads.

use std::path::{Component, Path, PathBuf};

use super::none;
use super::repository::{File, files, root, text};

#[test]
fn the_package_has_every_file_that_its_build_reads() {
    let parts = package_sources(&text("nix/package.nix"));
    assert!(parts.contains(&"src".to_owned()), "{parts:?}");
    let is_part = |path: &str| parts.iter().any(|part| Path::new(path).starts_with(part));
    let compiled: Vec<File> = files()
        .into_iter()
        .filter(|file| file.extension() == Some("rs") && is_part(&file.path))
        .collect();
    let included: Vec<(String, String)> = compiled.iter().flat_map(included_files).collect();
    assert!(included.len() > 40, "there are files to look at");
    none(
        "read by the build, and not in the sources of nix/package.nix",
        included
            .into_iter()
            .chain(named_by_build_script())
            .filter(|(_, path)| !is_part(path))
            .map(|(reader, path)| format!("{path}, by {reader}")),
    );
}

/// The paths of the file set that has `build.rs`.
fn package_sources(package: &str) -> Vec<String> {
    let set = package
        .split("fileset.unions [")
        .find(|set| set.contains("../build.rs"))
        .expect("nix/package.nix has a set of sources");
    let set = set.split(']').next().unwrap_or_default();
    set.split_whitespace()
        .filter_map(|path| path.strip_prefix("../").map(str::to_owned))
        .collect()
}

/// The files that a Rust file includes as it is compiled, and its own path with each. Of a path with a variable part, only
/// the directory.
fn included_files(file: &File) -> Vec<(String, String)> {
    let directory = Path::new(&file.path).parent().expect("a file is in a directory");
    let after_macro = ["include_str!(", "include_bytes!(", "include!("]
        .into_iter()
        .flat_map(|name| file.text.split(name).skip(1));
    after_macro
        .filter_map(|arguments| {
            let arguments = arguments.trim_start();
            let joined = arguments.strip_prefix("concat!(").map(str::trim_start);
            let literal = joined.unwrap_or(arguments).strip_prefix('"')?.split('"').next()?;
            let path = if joined.is_some() {
                literal.rsplit_once('/')?.0
            } else {
                literal
            };
            Some((file.path.clone(), normal(&directory.join(path))))
        })
        .collect()
}

/// The files and directories of the repository that the build script names.
fn named_by_build_script() -> Vec<(String, String)> {
    let script = text("build.rs");
    let named = script.split('"').skip(1).step_by(2);
    let found: Vec<_> = named
        .filter(|name| !name.is_empty() && root().join(name).exists())
        .map(|name| ("build.rs".to_owned(), name.to_owned()))
        .collect();
    assert!(!found.is_empty(), "build.rs reads the source of the guest");
    found
}

/// A relative path without `..`.
fn normal(path: &Path) -> String {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(parts.pop(), "{} leaves the repository", path.display()),
            other => parts.push(other),
        }
    }
    parts.display().to_string()
}

mod tests {
    use super::*;

    #[test]
    fn sources_are_those_of_the_set_with_the_build_script() {
        let package =
            "fileset.unions [ ../Cargo.toml ]; fileset.unions [\n ../build.rs\n ../src\n ]; other ../docs";
        assert_eq!(package_sources(package), ["build.rs", "src"]);
    }

    #[test]
    fn included_files_are_found_in_every_form() {
        let file = File {
            path: "src/a/b.rs".to_owned(),
            text: concat!(
                "include_str!(\"c.sh\") include_bytes!(\"../../docs/d.md\")\n",
                "include_str!(concat!(\n    \"../../tests/e/\", $name, \".f\"))\n",
                "include_bytes!(concat!(env!(\"OUT_DIR\"), \"/g\"))"
            )
            .to_owned(),
        };
        let paths: Vec<String> = included_files(&file).into_iter().map(|(_, path)| path).collect();
        assert_eq!(paths, ["src/a/c.sh", "tests/e", "docs/d.md"]);
    }
}
