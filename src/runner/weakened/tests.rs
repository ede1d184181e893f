use std::collections::{BTreeMap, BTreeSet};

use rstest::rstest;

use super::follow::runner_parts;
use super::*;

fn change(path: &str, before: &str, after: Option<String>) -> TextChange {
    TextChange {
        path: path.to_owned(),
        before: Some(before.to_owned()),
        after,
    }
}

fn kinds(change: TextChange) -> Vec<WeakeningKind> {
    compare(&[change], &[])
        .into_iter()
        .map(|found| found.kind)
        .collect()
}

const RUST: &str = "fn add() {}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn adds() {\n        assert_eq!(add(), 2);\n        \
                    assert!(small());\n    }\n\n    #[test]\n    fn adds_more() {\n        assert_eq!(add(), 3);\n    }\n}\n";
const PYTHON: &str = "import unittest\n\nclass Adds(unittest.TestCase):\n    def test_two(self):\n        self.assertEqual(add(1), 2)\n";
const JS: &str = "describe('add', () => {\n  it('adds', () => {\n    expect(add(1)).toBe(2);\n  });\n});\n";
const GO: &str = "func TestAdd(t *testing.T) {\n\tif add(1) != 2 {\n\t\tt.Fatal(\"no\")\n\t}\n}\n";
const JAVA: &str = "class AddTest {\n  @Test\n  void adds() {\n    assertEquals(2, add(1));\n  }\n}\n";

#[rstest]
#[case::rust_test_gone("src/add.rs", RUST, RUST.replace("    #[test]\n    fn adds_more() {\n        assert_eq!(add(), 3);\n    }\n", ""), WeakeningKind::Deleted)]
#[case::rust_test_ignored("src/add.rs", RUST, RUST.replace("    #[test]\n    fn adds()", "    #[test]\n    #[ignore]\n    fn adds()"), WeakeningKind::Skipped)]
#[case::rust_module_out("src/add.rs", RUST, RUST.replace("#[cfg(test)]", "#[cfg(any())]"), WeakeningKind::Skipped)]
#[case::rust_attribute_gone("src/add.rs", RUST, RUST.replace("    #[test]\n    fn adds_more", "    fn adds_more"), WeakeningKind::Deleted)]
#[case::rust_assertion_gone("src/add.rs", RUST, RUST.replace("        assert!(small());\n", ""), WeakeningKind::Weakened)]
#[case::rust_cannot_fail("src/add.rs", RUST, RUST.replace("assert_eq!(add(), 3)", "assert_eq!(1, 1)"), WeakeningKind::Weakened)]
#[case::rust_commented_out("src/add.rs", RUST, RUST.replace("assert_eq!(add(), 3)", "// assert_eq!(add(), 3)"), WeakeningKind::Weakened)]
#[case::no_tests_of_the_crate("Cargo.toml", "[package]\n", "[package]\nautotests = false\n".to_owned(), WeakeningKind::Skipped)]
#[case::python_class_skipped("tests/test_add.py", PYTHON, PYTHON.replace("class Adds", "@unittest.skip('later')\nclass Adds"), WeakeningKind::Skipped)]
#[case::python_method_skips("test_add.py", PYTHON, PYTHON.replace("        self.assertEqual", "        self.skipTest('x')\n        self.assertEqual"), WeakeningKind::Skipped)]
#[case::python_asserts_nothing("test_add.py", PYTHON, PYTHON.replace("self.assertEqual(add(1), 2)", "pass"), WeakeningKind::Weakened)]
#[case::python_asserts_true("test_add.py", PYTHON, PYTHON.replace("self.assertEqual(add(1), 2)", "assert True"), WeakeningKind::Weakened)]
#[case::python_renamed_away("test_add.py", PYTHON, PYTHON.replace("test_two", "two"), WeakeningKind::Deleted)]
#[case::js_skipped("add.test.ts", JS, JS.replace("it('adds'", "it.skip('adds'"), WeakeningKind::Skipped)]
#[case::js_focus("add.test.ts", JS, format!("{JS}it.only('other', () => {{ expect(1).toBe(x); }});\n"), WeakeningKind::Skipped)]
#[case::js_expects_true("add.test.ts", JS, JS.replace("expect(add(1)).toBe(2)", "expect(true).toBe(true)"), WeakeningKind::Weakened)]
#[case::go_skipped("add_test.go", GO, GO.replace("\tif add", "\tt.Skip()\n\tif add"), WeakeningKind::Skipped)]
#[case::go_no_failure("add_test.go", GO, GO.replace("t.Fatal", "t.Log"), WeakeningKind::Weakened)]
#[case::java_class_disabled("src/test/AddTest.java", JAVA, format!("@Disabled\n{JAVA}"), WeakeningKind::Skipped)]
#[case::java_annotation_gone("src/test/AddTest.java", JAVA, JAVA.replace("  @Test\n", ""), WeakeningKind::Deleted)]
#[case::emptied(
    "tests/add.sh",
    "test \"$(add)\" = 2\n",
    String::new(),
    WeakeningKind::Deleted
)]
#[case::expectation_edited("tests/expected.txt", "2\n", "3\n".to_owned(), WeakeningKind::Edited)]
#[case::value_edited("test_add.py", PYTHON, PYTHON.replace("add(1), 2", "add(1), 3"), WeakeningKind::Edited)]
#[case::coverage_lowered("pyproject.toml", "fail_under = 90\n", "fail_under = 10\n".to_owned(), WeakeningKind::Threshold)]
#[case::coverage_gone("jest.config.js", "lines: 90,\n", "\n".to_owned(), WeakeningKind::Threshold)]
#[case::warnings_allowed("package.json", "{\"scripts\":{\"lint\":\"eslint --max-warnings 0\"}}", "{\"scripts\":{\"lint\":\"eslint --max-warnings 50\"}}".to_owned(), WeakeningKind::Threshold)]
#[case::ci_goes_on(".github/workflows/ci.yml", "- run: cargo test\n", "- run: cargo test\n  continue-on-error: true\n".to_owned(), WeakeningKind::ExitHandling)]
#[case::exit_of_pytest("conftest.py", "import pytest\n", "import pytest\ndef pytest_sessionfinish(session):\n    session.exitstatus = 0\n".to_owned(), WeakeningKind::ExitHandling)]
fn a_weakened_check_is_found(
    #[case] path: &str,
    #[case] before: &str,
    #[case] after: String,
    #[case] expected: WeakeningKind,
) {
    assert_ne!(before, after, "the case changes nothing");
    let found = kinds(change(path, before, Some(after)));
    assert!(found.contains(&expected), "{found:?}");
}

#[rstest]
#[case::a_test_is_added("src/add.rs", RUST, RUST.replace("    #[test]\n    fn adds()", "    #[test]\n    fn new() {\n        assert!(x());\n    }\n\n    #[test]\n    fn adds()"))]
#[case::the_product_changes("src/add.rs", RUST, RUST.replace("fn add() {}", "fn add() { 2 }"))]
#[case::a_dependency_is_added("Cargo.toml", "[dependencies]\n", "[dependencies]\nserde = \"1\"\n".to_owned())]
#[case::coverage_raised("pyproject.toml", "fail_under = 80\n", "fail_under = 90\n".to_owned())]
#[case::a_word_in_the_product("src/skip.rs", "fn main() {}\n", "fn skip() { list.skip(1); }\n".to_owned())]
#[case::an_iterator_skips("src/add.rs", RUST, RUST.replace("fn add() {}", "fn add() { list.skip(1); exit(1) }"))]
#[case::an_exit_is_no_skip("add.test.ts", JS, JS.replace("describe('add', () => {\n", "describe('add', () => {\n  before(() => process.exit(1));\n"))]
#[case::a_product_with_a_misleading_name("src/testimonials.js", "a\n", "b\n".to_owned())]
#[case::a_product_that_checks("src/check/lint.rs", "fn a() {}\n", "fn b() {}\n".to_owned())]
#[case::renamed("test_add.py", PYTHON, PYTHON.replace("test_two", "test_two_is_two"))]
fn other_changes_are_not(#[case] path: &str, #[case] before: &str, #[case] after: String) {
    assert_eq!(kinds(change(path, before, Some(after))), []);
}

#[test]
fn a_deleted_file_of_tests_is_found_unless_it_moved() {
    assert_eq!(
        kinds(change("tests/test_add.py", PYTHON, None)),
        [WeakeningKind::Deleted]
    );
    let moved = TextChange {
        path: "tests/unit/test_add.py".to_owned(),
        before: None,
        after: Some(PYTHON.to_owned()),
    };
    assert_eq!(
        compare(&[change("tests/test_add.py", PYTHON, None), moved], &[]),
        []
    );
}

#[test]
fn a_test_that_asserts_less_where_it_moved_to_is_found() {
    let moved = TextChange {
        path: "tests/unit/test_add.py".to_owned(),
        before: None,
        after: Some(PYTHON.replace("self.assertEqual(add(1), 2)", "pass")),
    };
    for after in [None, Some("import unittest\n".to_owned())] {
        let found = compare(&[change("tests/test_add.py", PYTHON, after), moved.clone()], &[]);
        let details: Vec<&str> = found.iter().map(|found| found.detail.as_str()).collect();
        assert_eq!(details, ["the test `test_two` asserts nothing now"]);
    }
}

/// The paths and names of the parts that a command runs in these files.
fn followed(command: &str, files: &[(&str, &str)]) -> Vec<String> {
    let texts: BTreeMap<String, Option<String>> = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned())))
        .collect();
    let command = command.to_owned();
    let parts = runner_parts(&[&command], &texts, &mut BTreeSet::new());
    parts
        .into_iter()
        .map(|part| format!("{}: {}", part.path, part.name))
        .collect()
}

#[rstest]
#[case::a_script("sh test.sh", &[("test.sh", "true")], &["test.sh: the file"])]
#[case::a_script_by_its_path("./run && echo ok", &[("run", "true")], &["run: the file"])]
#[case::a_script_of_a_script("sh test.sh", &[("test.sh", "set -e\nsh tests/unit.sh\n. lib/helpers.sh\n"), ("tests/unit.sh", ""), ("lib/helpers.sh", "")], &["test.sh: the file", "tests/unit.sh: the file", "lib/helpers.sh: the file"])]
#[case::the_product_of_a_script("sh test.sh", &[("test.sh", "test \"$(sh convert.sh 1)\" = 2\nsh convert.sh 2 | grep 3\nsh build.sh\n"), ("convert.sh", ""), ("build.sh", "")], &["test.sh: the file"])]
#[case::the_product_of_a_command("sh convert.sh 1 | grep -q 2", &[("convert.sh", "")], &[])]
#[case::a_file_that_is_read("grep -qx right answer.txt", &[("answer.txt", "")], &[])]
#[case::package_scripts("npm test", &[("package.json", r#"{"scripts":{"test":"npm run unit && node scripts/check.js","unit":"jest","pretest":"lint"}}"#), ("scripts/check.js", "")], &["package.json: the script `pretest`", "package.json: the script `test`", "package.json: the script `unit`", "scripts/check.js: the file"])]
#[case::a_target("make test", &[("Makefile", "all: build\n\ntest: build\n\tsh tests/all.sh\n"), ("tests/all.sh", "")], &["Makefile: the target `test`", "tests/all.sh: the file"])]
#[case::a_recipe("CI=1 just check", &[("justfile", "check:\n    cargo test\n")], &["justfile: the target `check`"])]
fn commands_are_followed(#[case] command: &str, #[case] files: &[(&str, &str)], #[case] expected: &[&str]) {
    assert_eq!(followed(command, files), expected);
}

#[rstest]
#[case::the_script("{\"scripts\":{\"test\":\"jest || true\"}}", true)]
#[case::another_script("{\"scripts\":{\"test\":\"jest\",\"build\":\"tsc\"}}", false)]
#[case::a_dependency("{\"scripts\":{\"test\":\"jest\"},\"dependencies\":{}}", false)]
fn only_the_part_that_runs_counts(#[case] after: &str, #[case] counts: bool) {
    let before = "{\"scripts\":{\"test\":\"jest\"}}";
    let texts = BTreeMap::from([("package.json".to_owned(), Some(before.to_owned()))]);
    let command = "npm test".to_owned();
    let parts = runner_parts(&[&command], &texts, &mut BTreeSet::new());
    let found = compare(&[change("package.json", before, Some(after.to_owned()))], &parts);
    let runner = found.iter().find(|found| found.kind == WeakeningKind::Runner);
    assert_eq!(runner.is_some(), counts, "{found:?}");
    assert!(runner.is_none_or(|runner| runner.command.as_ref() == Some(&command)));
}
