//! Failure signatures of the outputs of real tools, in `tests/fixtures/failures`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use ralph::failure::{FailureSignature, FailureStream};
use serde::Deserialize;

/// The cases of each tool, by what they were used for.
#[derive(Deserialize)]
struct Index {
    tuning: BTreeMap<String, Vec<String>>,
    held_out: BTreeMap<String, Vec<String>>,
}

/// The outputs of one case: the same failure twice, and a different one.
struct Case {
    name: String,
    /// Whether the outputs of the same failure are the same bytes, so that their signatures cannot differ.
    is_identical: bool,
    first: FailureSignature,
    again: FailureSignature,
    other: FailureSignature,
}

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/failures")
}

fn index() -> Index {
    toml::from_str(&fs::read_to_string(dir().join("index.toml")).unwrap()).unwrap()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// An output: `exit` and the code, the standard output, `== stderr ==`, the standard error.
fn signature(path: &Path) -> FailureSignature {
    let text = read(path);
    let (exit, output) = text.split_once('\n').unwrap();
    let code = exit.strip_prefix("exit ").unwrap().parse().unwrap();
    let (stdout, stderr) = output.split_once("== stderr ==\n").unwrap();
    FailureSignature::new(
        "check",
        code,
        &FailureStream::from(stdout),
        &FailureStream::from(stderr),
    )
}

fn cases(tools: &BTreeMap<String, Vec<String>>) -> Vec<Case> {
    let mut cases = Vec::new();
    for (tool, names) in tools {
        for name in names {
            let path = |which: &str| dir().join(tool).join(format!("{name}.{which}.txt"));
            let output = |which: &str| signature(&path(which));
            cases.push(Case {
                name: format!("{tool}/{name}"),
                is_identical: read(&path("first")) == read(&path("again")),
                first: output("first"),
                again: output("again"),
                other: output("other"),
            });
        }
    }
    cases
}

/// The wrong answers, a line each.
fn wrong(cases: &[Case]) -> String {
    let mut wrong = String::new();
    for case in cases {
        if case.first != case.again {
            let _ = writeln!(wrong, "{}: the same failure is taken for two", case.name);
        }
        if case.first.hash() == case.other.hash() {
            let _ = writeln!(wrong, "{}: two failures are taken for one", case.name);
        }
    }
    wrong
}

/// The outputs in cases whose pair of the same failure differs.
fn outputs(cases: &[Case]) -> usize {
    cases.iter().filter(|case| !case.is_identical).count() * 3
}

fn size(cases: &[Case]) -> String {
    let identical = cases.iter().filter(|case| case.is_identical).count();
    let counted = outputs(cases);
    format!("{counted} outputs; {identical} more cases print the same bytes each time and are not counted")
}

#[test]
fn failures_of_the_tools_used_for_tuning_are_distinguished() {
    let cases = cases(&index().tuning);
    let wrong = wrong(&cases);
    println!("tools used for tuning: {}", size(&cases));
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn failures_of_the_tools_held_out_are_distinguished() {
    let cases = cases(&index().held_out);
    let wrong = wrong(&cases);
    println!("tools held out: {}", size(&cases));
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn the_corpus_is_large_enough() {
    let index = index();
    let (tuning, held_out) = (outputs(&cases(&index.tuning)), outputs(&cases(&index.held_out)));
    assert!(tuning + held_out >= 120, "{tuning} + {held_out}");
    assert!(held_out * 3 >= tuning + held_out, "{tuning} + {held_out}");
    assert!(index.held_out.keys().all(|tool| !index.tuning.contains_key(tool)));
}

#[test]
fn the_runners_name_their_failing_tests() {
    let tests = |path: &str| {
        let signature = signature(&dir().join(path));
        signature.tests().iter().cloned().collect::<Vec<_>>().join(", ")
    };
    let expected = [
        ("cargo/one-test.first.txt", "`--lib`, tests::area_of_a_square"),
        (
            "cargo/many-tests.first.txt",
            "`--lib`, tests::case_3, tests::case_5, tests::case_7",
        ),
        ("cargo/integration.other.txt", "`--test zeta`, works"),
        ("pytest/assertion.first.txt", "test_shapes.py::test_area"),
        ("pytest/parametrised.first.txt", "test_shapes.py::test_line[2]"),
        ("pytest/fixture-error.first.txt", "test_db.py::test_reads"),
        ("pytest/collection.first.txt", ""),
        ("pytest/verbose-with-log.first.txt", "test_a.py::test_write"),
        (
            "jest/assertion.first.txt",
            "./shapes.test.js > shapes \u{203a} area of a square",
        ),
        ("jest/suite-fails.first.txt", ""),
        (
            "vitest/assertion.first.txt",
            "shapes.test.js > shapes > area of a square",
        ),
        ("vitest/suite-fails.first.txt", ""),
        (
            "go/test.first.txt",
            "example.com/shapes.TestArea, example.com/shapes.TestArea/square",
        ),
        (
            "go/test-json.first.txt",
            "example.com/shapes.TestArea, example.com/shapes.TestArea/square",
        ),
        ("go/build-failed.first.txt", ""),
        ("junit-xml/pytest-report.first.txt", "test_shapes.test_area"),
        ("unittest/assertion.first.txt", ""),
    ];
    for (path, names) in expected {
        assert_eq!(tests(path), names, "{path}");
    }
}
