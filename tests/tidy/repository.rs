//! The files of this repository.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A text file, by its path from the root.
pub struct File {
    pub path: String,
    pub text: String,
}

impl File {
    pub fn extension(&self) -> Option<&str> {
        Path::new(&self.path).extension()?.to_str()
    }
}

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file that git tracks or would track, sorted by path.
pub fn files() -> Vec<File> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git is installed");
    assert!(listed.status.success(), "these tests run in a git checkout");
    let names = String::from_utf8(listed.stdout).expect("paths are UTF-8");
    let mut files: Vec<File> = names.split_terminator('\0').filter_map(read).collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// The Rust files of the product: below `src/`, without test modules in files of their own.
pub fn sources() -> Vec<File> {
    let sources: Vec<File> = files()
        .into_iter()
        .filter(|file| is_product(&file.path))
        .collect();
    assert!(!sources.is_empty(), "there is code to look at");
    sources
}

fn is_product(path: &str) -> bool {
    let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
    path.starts_with("src/") && Path::new(path).extension().is_some_and(|end| end == "rs") && !is_test
}

/// The text of one file that must be there.
pub fn text(path: &str) -> String {
    read(path).unwrap_or_else(|| panic!("{path} is missing")).text
}

/// The committed file is this text; with `RALPH_UPDATE_REFERENCE=1` it becomes it.
#[track_caller]
pub fn check(file: &str, text: &str) {
    let path = root().join(file);
    if is_update() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "{file} is stale; `RALPH_UPDATE_REFERENCE=1 cargo test --test tidy` rewrites it"
    );
}

pub fn is_update() -> bool {
    std::env::var_os("RALPH_UPDATE_REFERENCE").is_some_and(|value| value == "1")
}

/// `None` for what is no text, and for a tracked file that was deleted and not yet committed.
fn read(path: &str) -> Option<File> {
    let text = std::fs::read_to_string(PathBuf::from(root()).join(path)).ok()?;
    Some(File {
        path: path.to_owned(),
        text,
    })
}

mod tests {
    #[test]
    fn the_product_is_the_code_without_its_tests() {
        let product = ["src/a.rs", "src/a/mod.rs"];
        let other = [
            "src/a/tests.rs",
            "src/a/tests/b.rs",
            "tests/it/main.rs",
            "src/a.txt",
        ];
        assert!(product.iter().all(|path| super::is_product(path)));
        assert!(!other.iter().any(|path| super::is_product(path)));
    }
}
