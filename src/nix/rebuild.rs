//! Builds the parts of a package a second time, to see whether they come out the same.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::error::{NixError, tail};
use super::flake::Flake;
use crate::exec::{Command, Discard, ExitStatus, OutputSink};

/// How many files an error names.
const NAMED: usize = 10;
/// What `nix path-info --sigs` prints for a path that was built on this host.
const BUILT_HERE: &str = "ultimate";
/// What it prints for a path whose name is the hash of its content: sources and downloads.
const BY_CONTENT: &str = "ca:";
/// How `nix-store --check` ends if the second build differs.
const DIFFERENT: i32 = 104;

impl Flake {
    /// Builds again what the package at `built` is made of and was built on this host or by one of its builders, and
    /// compares it with what is in the store. Everything else came from a binary cache. Fails at the first part that
    /// comes out different.
    pub(super) async fn rebuild_parts(
        &self,
        built: &Path,
        progress: &mut dyn OutputSink,
    ) -> Result<(), NixError> {
        let derivation = self.query(&["--deriver"], &[path_text(built)]).await?;
        let paths = self
            .query(&["--requisites", "--include-outputs"], &derivation)
            .await?;
        let outputs: Vec<String> = paths.into_iter().filter(|path| !is_derivation(path)).collect();
        let known = self
            .lines(&self.nix("path-info").arg("--sigs").args(&outputs))
            .await?;
        let local: Vec<String> = known
            .iter()
            .filter_map(|line| path_not_from_cache(line))
            .collect();
        let derivations: BTreeSet<String> = self
            .query(&["--deriver"], &local)
            .await?
            .into_iter()
            .filter(|path| is_derivation(path))
            .collect();
        for derivation in derivations {
            self.rebuild(&derivation, progress).await?;
        }
        Ok(())
    }

    /// Builds one derivation again. Nix keeps an output that differs beside the first, as `NAME.check`.
    async fn rebuild(&self, derivation: &str, progress: &mut dyn OutputSink) -> Result<(), NixError> {
        let command = Command::new("nix-store").args(["--realise", "--check", "--keep-failed", derivation]);
        let exit = self.run(&command, progress).await?;
        if exit.success() {
            return Ok(());
        }
        let outputs = self.query(&["--outputs"], &[derivation.to_owned()]).await?;
        let is_different = exit.status == ExitStatus::Code(DIFFERENT);
        let different = outputs
            .into_iter()
            .map(PathBuf::from)
            .find(|output| is_different && check_output(output).exists());
        let Some(output) = different else {
            let (status, log_tail) = (exit.status, tail(&exit.stderr));
            let message = format!("cannot build `{derivation}` a second time ({status}):\n{log_tail}");
            return Err(NixError::Other(message, None));
        };
        let files = differing_files(&output, &check_output(&output))
            .map_err(NixError::file("compare the two builds of", &output))?;
        Err(NixError::NotReproducible { output, files })
    }

    async fn query(&self, options: &[&str], paths: &[String]) -> Result<Vec<String>, NixError> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let command = Command::new("nix-store")
            .arg("--query")
            .args(options.iter().copied())
            .args(paths);
        self.lines(&command).await
    }

    /// Runs a command of Nix and returns the lines that it prints.
    async fn lines(&self, command: &Command) -> Result<Vec<String>, NixError> {
        /// The longest list of store paths that is read.
        const KEEP: usize = 64 * 1024 * 1024;
        let exit = self.run(&command.clone().keep(KEEP), &mut Discard).await?;
        if !exit.success() {
            let message = format!(
                "cannot query the Nix store ({}): {}",
                exit.status,
                tail(&exit.stderr)
            );
            return Err(NixError::Other(message, None));
        }
        let printed = super::flake::stdout(&exit)?;
        Ok(String::from_utf8_lossy(&printed)
            .lines()
            .map(ToOwned::to_owned)
            .collect())
    }
}

fn is_derivation(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|end| end == "drv")
}

/// The path in a line of `nix path-info --sigs`, unless it came from a binary cache. A path that another builder made for
/// this host has no mark at all; one of a cache has a signature.
fn path_not_from_cache(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let path = words.next()?;
    let marks: Vec<&str> = words.collect();
    let is_built = marks.is_empty() || marks.contains(&BUILT_HERE);
    let is_by_content = marks.iter().any(|mark| mark.starts_with(BY_CONTENT));
    (is_built && !is_by_content).then(|| path.to_owned())
}

/// Where Nix keeps the second build of an output that differs from the first.
fn check_output(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".check");
    name.into()
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The first files that differ between two trees, by their paths in it. A tree that is a single file goes by its name.
fn differing_files(first: &Path, second: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let name = if first.is_dir() { None } else { first.file_name() };
    compare(first, second, name.unwrap_or_default().as_ref(), &mut found)?;
    Ok(found)
}

fn compare(first: &Path, second: &Path, name: &Path, found: &mut Vec<String>) -> io::Result<()> {
    if found.len() >= NAMED {
        return Ok(());
    }
    let kinds = (first.symlink_metadata(), second.symlink_metadata());
    let is_same = match kinds {
        (Ok(one), Ok(other)) if one.is_dir() && other.is_dir() => {
            for entry in names(first)?.union(&names(second)?) {
                compare(&first.join(entry), &second.join(entry), &name.join(entry), found)?;
            }
            true
        }
        (Ok(one), Ok(other)) if one.is_symlink() && other.is_symlink() => {
            fs::read_link(first)? == fs::read_link(second)?
        }
        (Ok(one), Ok(other)) if one.is_file() && other.is_file() => {
            one.permissions().mode() == other.permissions().mode() && fs::read(first)? == fs::read(second)?
        }
        _ => false,
    };
    if !is_same {
        found.push(name.display().to_string());
    }
    Ok(())
}

fn names(dir: &Path) -> io::Result<BTreeSet<std::ffi::OsString>> {
    fs::read_dir(dir)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::built_here("/nix/store/a-tool\tultimate", Some("/nix/store/a-tool"))]
    #[case::signed_too("/nix/store/a-tool  ultimate cache.example:abc=", Some("/nix/store/a-tool"))]
    #[case::from_a_cache("/nix/store/a-tool\tcache.nixos.org-1:abc=", None)]
    #[case::source("/nix/store/a-source\tultimate ca:fixed:r:sha256:abc", None)]
    #[case::from_another_builder("/nix/store/a-tool", Some("/nix/store/a-tool"))]
    fn a_path_that_no_cache_has_is_found(#[case] line: &str, #[case] expected: Option<&str>) {
        assert_eq!(path_not_from_cache(line).as_deref(), expected);
    }

    #[test]
    fn an_output_that_is_a_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = ["abc-layers.json", "abc-layers.json.check"].map(|name| dir.path().join(name));
        fs::write(&first, "1").unwrap();
        fs::write(&second, "2").unwrap();
        assert_eq!(differing_files(&first, &second).unwrap(), ["abc-layers.json"]);
    }

    #[test]
    fn files_that_differ_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
        for tree in [&first, &second] {
            fs::create_dir_all(tree.join("share/doc")).unwrap();
            fs::write(tree.join("share/same"), "same").unwrap();
        }
        fs::write(first.join("share/doc/stamp"), "1").unwrap();
        fs::write(second.join("share/doc/stamp"), "2").unwrap();
        fs::write(second.join("share/more"), "").unwrap();
        std::os::unix::fs::symlink("same", first.join("share/link")).unwrap();
        std::os::unix::fs::symlink("doc", second.join("share/link")).unwrap();
        let files = differing_files(&first, &second).unwrap();
        assert_eq!(files, ["share/doc/stamp", "share/link", "share/more"]);
    }
}
