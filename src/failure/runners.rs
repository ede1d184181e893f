//! The names of failing tests in the output of common test runners.
//!
//! A name counts only inside the frame that its runner prints around it, so that no log line is taken for a test.

use std::collections::BTreeSet;

use super::{junit, noise};

/// The names that one runner printed. `None` when it also reports a failure without a test, such as a file that does not
/// compile: then the names are not the whole failure.
type Names = Option<BTreeSet<String>>;

/// The failing tests that an output lists; empty when it lists none, or when something else failed too.
pub(super) fn failing_tests(lines: &[&str]) -> BTreeSet<String> {
    let runners = [cargo, pytest, jest, vitest, go, go_json, junit::failing_tests];
    let found: Names =
        runners
            .iter()
            .map(|runner| runner(lines))
            .try_fold(BTreeSet::new(), |mut all, names| {
                all.extend(names?);
                Some(all)
            });
    let found = found.unwrap_or_default().into_iter();
    found.map(|name| noise::normalise_name(&name)).collect()
}

/// The list between `failures:` and `test result: FAILED`, and the targets to run again.
#[expect(clippy::unnecessary_wraps, reason = "one signature for all runners")]
fn cargo(lines: &[&str]) -> Names {
    let (mut names, mut listed, mut in_list) = (BTreeSet::new(), Vec::new(), false);
    let mut targets = Vec::new();
    for line in lines {
        if *line == "failures:" {
            (listed, in_list) = (Vec::new(), true);
        } else if let Some(name) = line.strip_prefix("    ").filter(|_| in_list) {
            listed.push(name.to_owned());
        } else if line.starts_with("test result: FAILED. ") {
            names.extend(listed.drain(..));
            in_list = false;
        } else if !line.is_empty() {
            in_list = false;
            targets.extend(
                line.strip_prefix("error: test failed, to rerun pass ")
                    .map(str::to_owned),
            );
        }
    }
    if !names.is_empty() {
        names.extend(targets);
    }
    Some(names)
}

/// `FAILED path::test - reason` in the short summary.
fn pytest(lines: &[&str]) -> Names {
    let is_summary =
        |line: &&str| line.starts_with("==") && line.trim_matches('=') == " short test summary info ";
    let Some(start) = lines.iter().rposition(is_summary) else {
        return Some(BTreeSet::new());
    };
    let summary = lines[start + 1..]
        .iter()
        .take_while(|line| !line.starts_with("=="));
    let entries = summary.filter_map(|line| {
        line.strip_prefix("FAILED ")
            .or_else(|| line.strip_prefix("ERROR "))
    });
    entries.map(pytest_name).collect()
}

/// The node id of an entry. The values in its brackets may contain ` - `, which otherwise begins the reason.
fn pytest_name(entry: &str) -> Option<String> {
    let values = entry.find('[').filter(|at| !entry[..*at].contains(" - "));
    let from = values.and_then(|at| entry[at..].find("] - ").map(|end| at + end + 1));
    let from = from.unwrap_or(0);
    let end = entry[from..].find(" - ").map_or(entry.len(), |at| from + at);
    let name = &entry[..end];
    name.contains("::").then(|| name.to_owned())
}

/// `● suite › test` below `FAIL file`, when the totals report failed tests.
fn jest(lines: &[&str]) -> Names {
    let has_total = |total: &str| {
        lines
            .iter()
            .any(|line| line.starts_with(total) && line.contains(" failed"))
    };
    if !has_total("Test Suites: ") || !has_total("Tests: ") {
        return Some(BTreeSet::new());
    }
    let (mut names, mut file) = (BTreeSet::new(), "");
    for line in lines {
        if let Some(path) = line.strip_prefix("FAIL ") {
            file = without_time(path.trim());
        } else if line.starts_with("PASS ") {
            file = "";
        }
        match line.strip_prefix("  \u{25cf} ") {
            None | Some("Console") => {}
            Some("Test suite failed to run") => return None,
            Some(test) if !file.is_empty() => {
                names.insert(format!("{file} > {test}"));
            }
            Some(_) => {}
        }
    }
    Some(names)
}

/// The file of a suite without the time that jest adds when it is long: ` (5.123 s)`.
fn without_time(file: &str) -> &str {
    let time = file.strip_suffix(" s)").and_then(|rest| rest.rsplit_once(" ("));
    match time {
        Some((name, seconds)) if seconds.parse::<f64>().is_ok() => name,
        _ => file,
    }
}

/// ` FAIL  file > suite > test`, when the totals report failed files.
fn vitest(lines: &[&str]) -> Names {
    let is_total = |line: &&str| line.trim_start().starts_with("Test Files ") && line.contains(" failed");
    if !lines.iter().any(is_total) {
        return Some(BTreeSet::new());
    }
    let failed = lines.iter().filter_map(|line| line.strip_prefix(" FAIL  "));
    failed
        .map(|name| name.contains(" > ").then(|| name.trim_end().to_owned()))
        .collect()
}

/// `--- FAIL: Test (0.00s)` before the result of its package.
fn go(lines: &[&str]) -> Names {
    let (mut names, mut tests, mut has_ended) = (BTreeSet::new(), Vec::new(), false);
    for line in lines {
        let failed = line.trim_start().strip_prefix("--- FAIL: ");
        if let Some((name, _)) = failed.and_then(|line| line.rsplit_once(" (")) {
            tests.push(name);
        } else if let Some(package) = line.strip_prefix("FAIL\t") {
            if tests.is_empty() {
                return None;
            }
            let package = package.split('\t').next().unwrap_or_default();
            names.extend(tests.drain(..).map(|test| format!("{package}.{test}")));
        }
        has_ended |= *line == "FAIL";
    }
    if has_ended {
        names.extend(tests.into_iter().map(str::to_owned));
    }
    Some(names)
}

/// The events of `go test -json`.
fn go_json(lines: &[&str]) -> Names {
    let (mut names, mut packages) = (BTreeSet::new(), BTreeSet::new());
    let is_event =
        |line: &&&str| line.starts_with('{') && line.contains("\"Action\":\"") && line.contains("fail\"");
    for line in lines.iter().filter(is_event) {
        let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else {
            continue;
        };
        let field = |key: &str| event.get(key).and_then(serde_json::Value::as_str);
        match (field("Action"), field("Package"), field("Test")) {
            (Some("fail"), Some(package), Some(test)) => {
                packages.insert(package.to_owned());
                names.insert(format!("{package}.{test}"));
            }
            // The package itself, after its tests.
            (Some("fail"), Some(package), None) if packages.contains(package) => {}
            (Some("fail" | "build-fail"), _, _) => return None,
            _ => {}
        }
    }
    Some(names)
}
