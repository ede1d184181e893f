//! Lines that hide failures, marks that skip tests, and thresholds.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex_lite::Regex;

use crate::text::{code_span, first_bytes};

/// How much of a line is quoted, in bytes.
const QUOTED_BYTES: usize = 200;

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

/// Marks that keep tests from running, by file extension.
const SKIPS: [(&[&str], &[&str]); 7] = [
    (&["rs"], &["#[ignore", "cfg(any())", "cfg(false)", "cfg(FALSE)"]),
    (
        &["py", "cfg", "ini"],
        &[
            "mark.skip",
            "mark.xfail",
            "pytest.skip(",
            "unittest.skip",
            "@skip",
            ".skipTest(",
            "SkipTest",
            "importorskip(",
            "collect_ignore",
            "__test__ = False",
            "--deselect",
            "python_files",
            "python_functions",
            "python_classes",
        ],
    ),
    (&["go"], &["t.Skip", "//go:build ignore"]),
    (
        &["js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "json"],
        &[
            ".skip(",
            ".todo(",
            ".only(",
            ".failing(",
            "xit(",
            "xtest(",
            "xdescribe(",
            "fit(",
            "fdescribe(",
            "testPathIgnorePatterns",
            "modulePathIgnorePatterns",
        ],
    ),
    (
        &["java", "kt", "cs", "scala", "groovy", "php"],
        &["@Disabled", "@Ignore", "[Ignore", "Skip =", "markTestSkipped"],
    ),
    (&["rb", "ex", "exs"], &["skip", "pending", "xit"]),
    (
        &["toml"],
        &[
            "autotests = false",
            "test = false",
            "doctest = false",
            "harness = false",
            "--deselect",
        ],
    ),
];

/// What hides a failure in a new line.
const LAX: [&str; 27] = [
    "|| true",
    "||true",
    "|| :",
    "|| exit 0",
    "|| echo",
    "; true",
    "set +e",
    "exit 0",
    "if false",
    "/bin/true",
    ".IGNORE",
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
        .map(|line| format!("a failure may be hidden by {}", quoted(line)));
    let gone = gone
        .iter()
        .filter(|line| !replaced && strict(line))
        .map(|line| format!("{} is gone", quoted(line)));
    hidden.chain(gone).collect()
}

/// A line of a file, cut if it is long.
fn quoted(line: &str) -> String {
    code_span(first_bytes(line, QUOTED_BYTES))
}

fn contains_command(line: &str, part: &str) -> bool {
    let comment = line.starts_with('#') || line.starts_with("//");
    !comment && line.contains(part)
}

/// The lines of `after` that are not in `before`, as often as they are not.
pub(super) fn new_lines<'t>(before: &str, after: &'t str) -> Vec<&'t str> {
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
    let mut lowered = Vec::new();
    for (name, old) in &before {
        let new = after.get(name).map_or(&[][..], Vec::as_slice);
        for (at, old) in old.iter().enumerate() {
            match new.get(at) {
                None => lowered.push(format!("the threshold `{name}` of {old} is gone")),
                Some(new) if strictness(name, *new) < strictness(name, *old) => {
                    lowered.push(format!("the threshold `{name}` went from {old} to {new}"));
                }
                Some(_) => {}
            }
        }
    }
    lowered
}

fn strictness(name: &str, number: f64) -> f64 {
    if name.to_lowercase().contains("warnings") {
        -number
    } else {
        number
    }
}

/// The numbers of each threshold, the strictest first.
fn thresholds(text: &str) -> BTreeMap<String, Vec<f64>> {
    let mut found: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let Some(pattern) = THRESHOLD.as_ref() else {
        return found;
    };
    for groups in pattern.captures_iter(text) {
        if let (Some(name), Some(number)) = (groups.get(1), groups.get(2))
            && let Ok(number) = number.as_str().parse::<f64>()
        {
            let name = name.as_str().trim_start_matches('-').to_owned();
            found.entry(name).or_default().push(number);
        }
    }
    for (name, numbers) in &mut found {
        numbers.sort_by(|a, b| strictness(name, *b).total_cmp(&strictness(name, *a)));
    }
    found
}

/// How often each mark stands in a file that keeps tests from running.
pub(super) fn skip_marks(path: &str, text: &str) -> BTreeMap<&'static str, usize> {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let marks = SKIPS
        .iter()
        .find(|(extensions, _)| extensions.contains(&extension));
    let marks = marks.map_or(&[][..], |(_, marks)| marks).iter();
    let count = |mark: &str| {
        let found = text.match_indices(mark);
        found.filter(|(at, _)| begins_word(text, *at)).count()
    };
    let counts = marks.map(|mark| (*mark, count(mark)));
    counts.filter(|(_, count)| *count > 0).collect()
}

/// Whether what stands at this place is not the end of a longer word.
fn begins_word(text: &str, at: usize) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let starts = text[at..].starts_with(is_word);
    !starts || !text[..at].ends_with(is_word)
}
