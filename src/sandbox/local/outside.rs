//! What commands read outside a sandbox by themselves, and whether it was written since a point in time.
//!
//! Only files that this user can write are considered: others are not the agent's work, and an update of the system
//! must not stop a run.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Access, access};

/// Files in `/etc` that shells, interpreters, the dynamic loader and common tools read when they start, and directories
/// of such files.
const ETC: [&str; 16] = [
    "profile",
    "profile.d",
    "bash.bashrc",
    "bashrc",
    "zshenv",
    "zsh",
    "environment",
    "ld.so.preload",
    "ld.so.conf",
    "ld.so.conf.d",
    "gitconfig",
    "npmrc",
    "pip.conf",
    "gemrc",
    "python3",
    "alternatives",
];

/// Modules that Python imports by itself when it starts.
const PYTHON_MODULES: [&str; 4] = ["sitecustomize", "usercustomize", "site.py", "os.py"];

/// Settings of tools in a directory that a variable names, such as `CARGO_HOME`.
const SETTINGS: [&str; 3] = ["config", "config.toml", "settings.toml"];

/// The most links that are followed from one path.
const MAX_LINKS: usize = 8;

/// What evidence may read outside the sandbox.
#[derive(Clone, Debug, Default)]
pub(super) struct Outside {
    /// The `PATH` of commands.
    pub(super) path: String,
    /// The values of other variables that may name files or directories.
    pub(super) values: Vec<String>,
    /// The directory of the system's settings, which is `/etc` but for tests.
    pub(super) etc: PathBuf,
}

impl Outside {
    /// What of it was written after `since`, sorted.
    pub(super) fn written_since(&self, since: SystemTime) -> Vec<PathBuf> {
        let mut search = Search {
            since: since.duration_since(UNIX_EPOCH).unwrap_or_default(),
            seen: BTreeSet::new(),
            written: BTreeSet::new(),
        };
        for dir in absolute(&self.path) {
            search.programs(&dir);
            search.behind_programs(&dir);
        }
        for path in self.values.iter().flat_map(|value| absolute(value)) {
            search.named_path(&path);
        }
        for name in ETC {
            let path = self.etc.join(name);
            search.file(&path);
            search.entries(&path, |_| true);
        }
        search.written.into_iter().collect()
    }
}

fn absolute(list: &str) -> impl Iterator<Item = PathBuf> {
    let parts = list.split(':').map(PathBuf::from);
    parts.filter(|path| path.is_absolute() && path.parent().is_some())
}

struct Search {
    /// Since the epoch.
    since: Duration,
    /// Directories that were searched, without links.
    seen: BTreeSet<PathBuf>,
    written: BTreeSet<PathBuf>,
}

impl Search {
    /// Every program in a directory of the `PATH`. A directory that is new itself may hide another one's programs.
    fn programs(&mut self, dir: &Path) {
        let before = self.written.len();
        if self.entries(dir, |_| true) && self.written.len() == before {
            // A program that is gone leaves its trace in the directory only.
            self.file(dir);
        }
    }

    /// What stands behind the programs of a directory: the libraries of its interpreters, and the programs that shims
    /// and environments lead to.
    fn behind_programs(&mut self, dir: &Path) {
        let mut prefixes: BTreeSet<PathBuf> = dir.parent().map(Path::to_owned).into_iter().collect();
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_python = name.to_string_lossy().starts_with("python");
            if is_python && let Ok(target) = entry.path().canonicalize() {
                prefixes.extend(target.ancestors().nth(2).map(Path::to_owned));
            }
        }
        for prefix in prefixes.clone() {
            // A virtual environment names the directory of its interpreter.
            let settings = fs::read_to_string(prefix.join("pyvenv.cfg")).unwrap_or_default();
            let home = settings.lines().find_map(|line| {
                let (key, value) = line.split_once('=')?;
                (key.trim() == "home").then(|| PathBuf::from(value.trim()))
            });
            if let Some(home) = home {
                self.programs(&home);
                prefixes.extend(home.parent().map(Path::to_owned));
            }
        }
        if dir.ends_with("shims") {
            for root in prefixes.clone() {
                prefixes.extend(children(&root.join("versions")));
                prefixes.extend(children(&root.join("installs")).flat_map(|tool| children(&tool)));
            }
        }
        for prefix in prefixes {
            self.prefix(&prefix);
        }
    }

    /// The programs of an installation, and the start-up files of a Python in it.
    fn prefix(&mut self, prefix: &Path) {
        self.programs(&prefix.join("bin"));
        self.file(&prefix.join("pyvenv.cfg"));
        for lib in ["lib", "lib64", "local/lib"] {
            let dirs = children(&prefix.join(lib));
            for dir in dirs.filter(|dir| file_name(dir).starts_with("python")) {
                self.python_modules(&dir);
                for packages in ["site-packages", "dist-packages"] {
                    self.python_modules(&dir.join(packages));
                }
            }
        }
    }

    fn python_modules(&mut self, dir: &Path) {
        self.entries(dir, |name| {
            name.rsplit_once('.').is_some_and(|(_, end)| end == "pth")
                || PYTHON_MODULES.iter().any(|module| name.starts_with(module))
        });
    }

    /// A file or directory that a variable names.
    fn named_path(&mut self, path: &Path) {
        if !path.is_dir() {
            self.file(path);
            return;
        }
        self.python_modules(path);
        self.programs(&path.join("bin"));
        for dir in ["toolchains", "versions"] {
            for found in children(&path.join(dir)) {
                self.prefix(&found);
            }
        }
        for name in SETTINGS {
            self.file(&path.join(name));
        }
    }

    /// Checks the entries of a directory by name. False if it was not read, or was read before.
    fn entries(&mut self, dir: &Path, wanted: impl Fn(&str) -> bool) -> bool {
        let Ok(entries) = fs::read_dir(dir) else {
            return false;
        };
        let Ok(canonical) = dir.canonicalize() else {
            return false;
        };
        if !self.seen.insert(canonical) {
            return false;
        }
        for entry in entries.flatten() {
            if wanted(&entry.file_name().to_string_lossy()) {
                self.file(&entry.path());
            }
        }
        true
    }

    /// Checks a file and each link on the way to it.
    fn file(&mut self, path: &Path) {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            let Ok(found) = fs::symlink_metadata(&path) else {
                return;
            };
            let seconds = u64::try_from(found.ctime()).unwrap_or_default();
            let nanoseconds = u32::try_from(found.ctime_nsec()).unwrap_or_default();
            if Duration::new(seconds, nanoseconds) > self.since && can_write(&path) {
                self.written.insert(path.clone());
            }
            let Some(target) = found.is_symlink().then(|| fs::read_link(&path).ok()).flatten() else {
                return;
            };
            path = path
                .parent()
                .map_or_else(|| target.clone(), |dir| dir.join(&target));
        }
    }
}

/// Whether this user can change or replace a file.
fn can_write(path: &Path) -> bool {
    let writable = |path: &Path| access(path, Access::WRITE_OK).is_ok();
    writable(path) || path.parent().is_some_and(writable)
}

fn children(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir())
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rstest::rstest;
    use tempfile::TempDir;

    use super::*;

    /// A host with a Python behind a link, one behind shims, one in an environment, and settings.
    fn host() -> (TempDir, Outside) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for file in [
            "usr/bin/python3.12",
            "usr/lib/python3.12/site.py",
            "usr/lib/python3.12/site-packages/pytest/__init__.py",
            "pyenv/shims/python",
            "pyenv/versions/3.11/bin/python3.11",
            "pyenv/versions/3.11/lib/python3.11/site-packages/a.pth",
            "base/bin/python3.10",
            "base/lib/python3.10/site.py",
            "venv/bin/activate",
            "venv/lib/python3.10/site-packages/b.pth",
            "links/ls",
            "cargo/config.toml",
            "etc/profile",
            "etc/hosts",
        ] {
            fs::create_dir_all(at(file).parent().unwrap()).unwrap();
            fs::write(at(file), "old").unwrap();
        }
        let home = format!("home = {}\n", at("base/bin").display());
        fs::write(at("venv/pyvenv.cfg"), home).unwrap();
        symlink(at("usr/bin/python3.12"), at("links/python")).unwrap();
        let path = ["links", "pyenv/shims", "venv/bin", "nowhere"].map(|name| at(name).display().to_string());
        let outside = Outside {
            path: path.join(":"),
            values: vec![at("cargo").display().to_string(), "not a path".to_owned()],
            etc: at("etc"),
        };
        (dir, outside)
    }

    /// The time of the file system, which may lag behind the clock.
    fn now(dir: &Path) -> SystemTime {
        let mark = dir.join("mark");
        fs::write(&mark, "").unwrap();
        let start = fs::metadata(&mark).unwrap().modified().unwrap();
        loop {
            fs::write(&mark, "").unwrap();
            let now = fs::metadata(&mark).unwrap().modified().unwrap();
            if now > start {
                return start;
            }
        }
    }

    #[rstest]
    #[case::a_program("links/ls", true)]
    #[case::a_new_program("links/pytest", true)]
    #[case::a_program_behind_a_link("usr/bin/python3.12", true)]
    #[case::user_customisation_behind_a_link("usr/lib/python3.12/site-packages/usercustomize.py", true)]
    #[case::site_customisation_of_the_library("usr/lib/python3.12/sitecustomize.py", true)]
    #[case::a_path_file_behind_shims("pyenv/versions/3.11/lib/python3.11/site-packages/a.pth", true)]
    #[case::a_program_behind_shims("pyenv/versions/3.11/bin/pip", true)]
    #[case::a_path_file_of_an_environment("venv/lib/python3.10/site-packages/new.pth", true)]
    #[case::the_interpreter_of_an_environment("base/bin/python3.10", true)]
    #[case::customisation_below_an_environment("base/lib/python3.10/sitecustomize.py", true)]
    #[case::settings_of_a_tool("cargo/config.toml", true)]
    #[case::a_shell_profile("etc/profile", true)]
    #[case::a_preloaded_library("etc/ld.so.preload", true)]
    #[case::something_else_in_etc("etc/hosts", false)]
    #[case::a_file_of_a_library("usr/lib/python3.12/site-packages/pytest/cache", false)]
    fn what_commands_read_by_themselves_is_found_when_it_is_written(#[case] file: &str, #[case] found: bool) {
        let (dir, outside) = host();
        let since = now(dir.path());
        assert_eq!(outside.written_since(since), Vec::<PathBuf>::new());
        fs::write(dir.path().join(file), "new").unwrap();
        let written = outside.written_since(since);
        assert_eq!(written.contains(&dir.path().join(file)), found, "{written:?}");
    }

    #[test]
    fn a_program_that_is_gone_or_a_link_that_leads_elsewhere_is_found() {
        let (dir, outside) = host();
        let since = now(dir.path());
        fs::remove_file(dir.path().join("links/ls")).unwrap();
        assert_eq!(outside.written_since(since), [dir.path().join("links")]);
        fs::remove_file(dir.path().join("links/python")).unwrap();
        symlink("/bin/true", dir.path().join("links/python")).unwrap();
        assert_eq!(outside.written_since(since), [dir.path().join("links/python")]);
    }
}
