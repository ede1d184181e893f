//! Lines that hide failures, and thresholds, in files that run tests.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex_lite::Regex;

/// Files that decide how tests are run, by name.
const SETTINGS: [&str; 26] = [
    "Cargo.toml",
    "package.json",
    "Makefile",
    "makefile",
    "GNUmakefile",
    "justfile",
    "Justfile",
    "pyproject.toml",
    "setup.cfg",
    "tox.ini",
    "pytest.ini",
    "conftest.py",
    "noxfile.py",
    ".coveragerc",
    "codecov.yml",
    ".codecov.yml",
    "phpunit.xml",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "nextest.toml",
    ".nycrc",
    ".gitlab-ci.yml",
    ".travis.yml",
    "azure-pipelines.yml",
    "Jenkinsfile",
];

/// Beginnings of such names, and directories of such files.
const SETTINGS_BEGIN: [&str; 7] = [
    "jest.config.",
    "vitest.config.",
    ".mocharc",
    "karma.conf.",
    "playwright.config.",
    ".github/workflows/",
    ".circleci/",
];

/// What hides a failure in a new line.
const LAX: [&str; 24] = [
    "|| true",
    "||true",
    "|| :",
    "|| exit 0",
    "|| echo",
    "; true",
    "set +e",
    "exit 0",
    "os._exit(0)",
    "sys.exit(0)",
    "process.exit(0)",
    "exitstatus = 0",
    "continue-on-error: true",
    "allow_failure: true",
    "--passWithNoTests",
    "--pass-with-no-tests",
    "--exit-zero",
    "test.failure.ignore",
    "ignoreFailures = true",
    "ignoreFailures true",
    "--ignore=",
    "--deselect",
    "-k 'not ",
    "-k \"not ",
];

/// What lets a failure be seen, in a line that is gone.
const STRICT: [&str; 4] = ["set -e", "pipefail", "--fail-fast", "-Werror"];

/// A threshold and its number.
static THRESHOLD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"(?i)([\w.-]*(?:fail[_-]?under[\w-]*|min(?:imum)?[_-]?coverage|coverage[_-]?min\w*|threshold|max[_-]?warnings)|\b(?:branches|functions|lines|statements|target))["']?\s*[:= ]\s*["']?(\d+(?:\.\d+)?)"#,
    )
    .ok()
});

/// Whether a file decides how tests are run.
pub(super) fn is_runner_settings(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    SETTINGS.contains(&name)
        || SETTINGS_BEGIN
            .iter()
            .any(|begin| name.starts_with(begin) || path.starts_with(begin))
}

/// New lines that hide a failure, and lines that showed one and are gone, as sentences.
pub(super) fn lax_lines(before: &str, after: &str) -> Vec<String> {
    let new = new_lines(before, after);
    let gone = new_lines(after, before);
    let lax = |line: &&str| LAX.iter().any(|part| contains_command(line, part));
    let strict = |line: &&str| STRICT.iter().any(|part| line.contains(part));
    // A strict line may have been replaced by another one.
    let replaced = new.iter().any(&strict);
    let hidden = new
        .iter()
        .filter(|line| lax(line))
        .map(|line| format!("a failure may be hidden by `{line}`"));
    let gone = gone
        .iter()
        .filter(|line| !replaced && strict(line))
        .map(|line| format!("`{line}` is gone"));
    hidden.chain(gone).collect()
}

fn contains_command(line: &str, part: &str) -> bool {
    let comment = line.starts_with('#') || line.starts_with("//");
    !comment && line.contains(part)
}

/// The lines of `after` that are not in `before`, as often as they are not.
fn new_lines<'t>(before: &str, after: &'t str) -> Vec<&'t str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in before.lines() {
        *counts.entry(line.trim()).or_default() += 1;
    }
    let is_new = |line: &&str| match counts.get_mut(*line) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => !line.is_empty(),
    };
    after.lines().map(str::trim).filter(is_new).collect()
}

/// Thresholds that are lower than before, or gone, as sentences. More warnings allowed is lower, too.
pub(super) fn lowered_thresholds(before: &str, after: &str) -> Vec<String> {
    let (before, after) = (thresholds(before), thresholds(after));
    let lowered = before.iter().filter_map(|(name, old)| match after.get(name) {
        None => Some(format!("the threshold `{name}` of {old} is gone")),
        Some(new) if is_lower(name, *old, *new) => {
            Some(format!("the threshold `{name}` went from {old} to {new}"))
        }
        Some(_) => None,
    });
    lowered.collect()
}

fn is_lower(name: &str, old: f64, new: f64) -> bool {
    if name.to_lowercase().contains("warnings") {
        new > old
    } else {
        new < old
    }
}

fn thresholds(text: &str) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    let Some(pattern) = THRESHOLD.as_ref() else {
        return found;
    };
    for groups in pattern.captures_iter(text) {
        if let (Some(name), Some(number)) = (groups.get(1), groups.get(2))
            && let Ok(number) = number.as_str().parse::<f64>()
        {
            found.insert(name.as_str().trim_start_matches('-').to_owned(), number);
        }
    }
    found
}
