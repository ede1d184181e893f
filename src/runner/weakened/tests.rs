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

const HELPER: &str =
    "import a\n\nLIMIT = 1\n\ndef check(a, b):\n    assert a == b\n\ndef test_two():\n    check(add(1), 2)\n";
const RUST_HELPER: &str = "fn add() {}\n\n#[cfg(test)]\nmod tests {\n    fn check(a: u8, b: u8) {\n        assert_eq!(a, b);\n    }\n\n    \
                           #[test]\n    fn adds() {\n        check(add(), 2);\n    }\n}\n";
const TWINS: &str = "class A:\n    def test_two(self):\n        assert add(1) == 2\n\nclass B:\n    def test_two(self):\n        assert sub(3) == 2\n";
const PARAMETERS: &str = "@pytest.mark.parametrize('a', [\n    pytest.param(1),\n    pytest.param(2),\n])\ndef test_a(a):\n    assert a\n";

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
#[case::helper_gutted("tests/test_add.py", HELPER, HELPER.replace("    assert a == b\n", "    pass\n"), WeakeningKind::Weakened)]
#[case::helper_changed("tests/test_add.py", HELPER, HELPER.replace("def check(a, b):\n", "def check(a, b):\n    b = a\n").replace("LIMIT = 1", "LIMIT = 2"), WeakeningKind::Edited)]
#[case::helper_of_a_rust_module("src/add.rs", RUST_HELPER, RUST_HELPER.replace("        assert_eq!(a, b);\n", ""), WeakeningKind::Weakened)]
#[case::one_of_two_with_a_name("test_add.py", TWINS, TWINS.replace("        assert add(1) == 2\n", "        pass\n"), WeakeningKind::Weakened)]
#[case::one_of_two_with_a_name_gone("test_add.py", TWINS, TWINS.replace("class A:\n    def test_two(self):\n        assert add(1) == 2\n", ""), WeakeningKind::Deleted)]
#[case::parameters_gone("test_add.py", PARAMETERS, PARAMETERS.replace("    pytest.param(2),\n", ""), WeakeningKind::Weakened)]
#[case::fixture_edited("src/testdata/answer.json", "1\n", "2\n".to_owned(), WeakeningKind::Edited)]
#[case::snapshot_edited("web/__snapshots__/a.snap", "1\n", "2\n".to_owned(), WeakeningKind::Edited)]
#[case::first_of_two_lowered("jest.config.js", "a: { lines: 90 },\nb: { lines: 80 }\n", "a: { lines: 50 },\nb: { lines: 80 }\n".to_owned(), WeakeningKind::Threshold)]
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
#[case::a_class_is_added("test_add.py", PYTHON, format!("{PYTHON}\nclass More(unittest.TestCase):\n    def test_more(self):\n        self.assertEqual(add(2), 3)\n"))]
#[case::a_suite_is_added("add.test.ts", JS, format!("{JS}\ndescribe('more', () => {{\n  it('adds more', () => {{\n    expect(add(2)).toBe(3);\n  }});\n}});\n"))]
#[case::parameters_of_another_test("test_add.py", PYTHON, format!("import pytest\n{PYTHON}\n{PARAMETERS}"))]
#[case::an_import_is_added("test_add.py", HELPER, HELPER.replace("import a\n", "from a import (\n    b,\n    c,\n)\n") + "\ndef test_b():\n    check(b, c)\n")]
#[case::a_rust_test_and_its_helper("src/add.rs", RUST_HELPER, RUST_HELPER.replace("    #[test]\n", "    fn small() -> bool {\n        true\n    }\n\n    #[test]\n    fn new() {\n        assert!(small());\n    }\n\n    #[test]\n"))]
#[case::a_go_test_is_added("add_test.go", GO, format!("{GO}\nfunc helper() int {{\n\treturn 1\n}}\n\nfunc TestMore(t *testing.T) {{\n\tt.Fatal(helper())\n}}\n"))]
#[case::thresholds_change_places("jest.config.js", "lines: 90,\nlines: 80\n", "lines: 80,\nlines: 90\n".to_owned())]
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

fn new_file(path: &str, text: &str) -> TextChange {
    TextChange {
        path: path.to_owned(),
        before: None,
        after: Some(text.to_owned()),
    }
}

#[rstest]
#[case::another_extension("tests/test_add.py.disabled")]
#[case::no_file_of_tests("attic/add.py")]
fn a_file_of_tests_that_moved_out_of_the_tests_is_gone(#[case] path: &str) {
    let found = compare(
        &[change("tests/test_add.py", PYTHON, None), new_file(path, PYTHON)],
        &[],
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].kind, found[0].tests.as_slice()),
        (WeakeningKind::Deleted, &["test_two".to_owned()][..])
    );
}

#[test]
fn a_test_that_was_there_before_is_not_where_another_one_moved() {
    let other = format!("{PYTHON}\n# more\n");
    let changes = [
        change("tests/test_add.py", PYTHON, None),
        change("tests/test_other.py", PYTHON, Some(other)),
    ];
    let kinds: Vec<WeakeningKind> = compare(&changes, &[])
        .into_iter()
        .map(|found| found.kind)
        .collect();
    assert_eq!(kinds, [WeakeningKind::Deleted]);
}

#[rstest]
#[case::exit_of_pytest(
    "conftest.py",
    "import os\n\ndef pytest_sessionfinish():\n    os._exit(0)\n",
    Some(WeakeningKind::ExitHandling)
)]
#[case::status_of_pytest(
    "tests/conftest.py",
    "def pytest_sessionfinish(session):\n    session.exitstatus = 0\n",
    Some(WeakeningKind::ExitHandling)
)]
#[case::settings_of_pytest(
    "pytest.ini",
    "[pytest]\naddopts = --ignore=tests/test_add.py\n",
    Some(WeakeningKind::ExitHandling)
)]
#[case::other_files_of_pytest(
    "pytest.ini",
    "[pytest]\npython_files = none.py\n",
    Some(WeakeningKind::Skipped)
)]
#[case::settings_of_jest(
    "jest.config.js",
    "module.exports = { testPathIgnorePatterns: ['add'] };\n",
    Some(WeakeningKind::Skipped)
)]
#[case::fixtures_of_pytest("tests/conftest.py", "import pytest\n", None)]
#[case::new_tests("tests/test_new.py", "@pytest.mark.skip\ndef test_new():\n    pass\n", None)]
fn a_new_file_is_looked_at_where_it_decides_how_tests_run(
    #[case] path: &str,
    #[case] text: &str,
    #[case] expected: Option<WeakeningKind>,
) {
    let found = compare(&[new_file(path, text)], &[]);
    assert_eq!(found.first().map(|found| found.kind), expected, "{found:?}");
}

#[test]
fn a_new_makefile_that_takes_the_place_of_another_is_found() {
    let parts = parts_of(&["make test"], &[("Makefile", "test:\n\tpytest\n")]);
    let found = compare(&[new_file("GNUmakefile", "test:\n\ttrue\n")], &parts);
    let details: Vec<(WeakeningKind, &str)> = found
        .iter()
        .map(|found| (found.kind, found.detail.as_str()))
        .collect();
    assert_eq!(
        details,
        [(
            WeakeningKind::Runner,
            "the new file takes the place of `Makefile`"
        )]
    );
}

#[test]
fn a_target_that_is_needed_often_is_followed_once() {
    let makefile = format!("test: {}\n\tpytest\n", "test ".repeat(5000));
    let parts = parts_of(&["make test"], &[("Makefile", makefile.as_str())]);
    assert_eq!(parts.len(), 1);
    assert_eq!(parts[0].text, "pytest\npytest\n");
}

#[test]
fn a_line_is_quoted_as_one_code_span_and_cut() {
    let line = format!("run `a` {} || true\n", "x".repeat(300));
    let lines = lax_lines("", &line.replace("run", "true || true; run"));
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0].starts_with("a failure may be hidden by ``true || true; run `a` xxx"),
        "{lines:?}"
    );
    assert!(lines[0].len() < 250, "{lines:?}");
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

fn parts_of(commands: &[&str], files: &[(&str, &str)]) -> Vec<RunnerPart> {
    let texts: BTreeMap<String, Option<String>> = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned())))
        .collect();
    let commands: Vec<String> = commands.iter().map(|command| (*command).to_owned()).collect();
    runner_parts(&commands.iter().collect::<Vec<_>>(), &texts, &mut BTreeSet::new())
}

/// The paths and names of the parts that a command uses in these files.
fn followed(command: &str, files: &[(&str, &str)]) -> Vec<String> {
    let parts = parts_of(&[command], files).into_iter();
    parts
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
#[case::uv("uv run sh test.sh", &[("test.sh", "")], &["test.sh: the file"])]
#[case::poetry("poetry run --quiet python run_tests.py", &[("run_tests.py", "")], &["run_tests.py: the file"])]
#[case::timeout("timeout -k 5 60 sh t.sh", &[("t.sh", "")], &["t.sh: the file"])]
#[case::a_directory("cd sub && sh check.sh", &[("sub/check.sh", "sh tests/a.sh\n"), ("sub/tests/a.sh", "")], &["sub/check.sh: the file", "sub/tests/a.sh: the file"])]
#[case::a_directory_and_back("(cd sub && true); sh ../t.sh; cd .. && sh t.sh", &[("t.sh", "")], &["t.sh: the file"])]
#[case::another_makefile("make -f x.mk test", &[("x.mk", "test:\n\ttrue\n"), ("Makefile", "test:\n\tfalse\n")], &["x.mk: the target `test`"])]
#[case::options_of_a_shell("bash -euo pipefail t.sh", &[("t.sh", ""), ("pipefail", "")], &["t.sh: the file"])]
#[case::a_shell_in_a_shell("bash -c 'sh t.sh && true'", &[("t.sh", "")], &["t.sh: the file"])]
#[case::what_is_compared("diff out.txt want.txt", &[("want.txt", "")], &["want.txt: the file"])]
#[case::what_is_expected("sh convert.sh | grep -f golden.txt", &[("golden.txt", ""), ("convert.sh", "")], &["golden.txt: the file"])]
#[case::settings("pytest -c strict.ini", &[("strict.ini", "")], &["strict.ini: the file"])]
fn commands_are_followed(#[case] command: &str, #[case] files: &[(&str, &str)], #[case] expected: &[&str]) {
    assert_eq!(followed(command, files), expected);
}

#[test]
fn a_script_of_two_commands_belongs_to_both() {
    let parts = parts_of(&["sh t.sh a", "sh t.sh b"], &[("t.sh", "true")]);
    let commands: Vec<&str> = parts.iter().map(|part| part.command.as_str()).collect();
    assert_eq!(commands, ["sh t.sh a", "sh t.sh b"]);
}

/// What is found when a file changes that a command uses.
fn found_in(command: &str, path: &str, before: &str, after: &str) -> Vec<WeakeningKind> {
    let parts = parts_of(&[command], &[(path, before)]);
    let found = compare(&[change(path, before, Some(after.to_owned()))], &parts);
    found.into_iter().map(|found| found.kind).collect()
}

const MAKEFILE: &str = "PYTEST = pytest\nOTHER = 1\n\ntest:\n\t$(PYTEST) tests\n\nclean:\n\trm -r out\n";

#[rstest]
#[case::a_check_is_added("sh t.sh", "t.sh", "a\n", "a\nb\n".to_owned(), &[WeakeningKind::Edited])]
#[case::a_failure_is_hidden("sh t.sh", "t.sh", "a\n", "a\nb || true\n".to_owned(), &[WeakeningKind::ExitHandling, WeakeningKind::Runner])]
#[case::a_check_is_gone("sh t.sh", "t.sh", "a\nb\n", "a\n".to_owned(), &[WeakeningKind::Runner])]
#[case::a_variable_of_the_target("make test", "Makefile", MAKEFILE, MAKEFILE.replace("= pytest", "= true"), &[WeakeningKind::Runner])]
#[case::the_shell("make test", "Makefile", MAKEFILE, format!("SHELL := /bin/true\n{MAKEFILE}"), &[WeakeningKind::ExitHandling, WeakeningKind::ExitHandling, WeakeningKind::Runner])]
#[case::another_variable("make test", "Makefile", MAKEFILE, MAKEFILE.replace("OTHER = 1", "OTHER = 2"), &[])]
#[case::another_target("make test", "Makefile", MAKEFILE, MAKEFILE.replace("rm -r", "rm -rf"), &[])]
#[case::tests_left_out("npm test", "package.json", r#"{"scripts":{"test":"jest"}}"#, r#"{"scripts":{"test":"jest"},"jest":{"testPathIgnorePatterns":["a"]}}"#.to_owned(), &[WeakeningKind::Skipped, WeakeningKind::Skipped, WeakeningKind::Edited])]
#[case::other_settings("npm test", "package.json", r#"{"scripts":{"test":"jest"},"jest":{"a":1}}"#, r#"{"scripts":{"test":"jest"},"jest":{"a":2}}"#.to_owned(), &[WeakeningKind::Edited])]
#[case::a_dependency("npm test", "package.json", r#"{"scripts":{"test":"jest"}}"#, r#"{"scripts":{"test":"jest"},"devDependencies":{"a":"1"}}"#.to_owned(), &[])]
#[case::what_is_compared("diff out.txt want.txt", "want.txt", "1\n", "2\n".to_owned(), &[WeakeningKind::Edited])]
fn a_change_of_what_a_command_uses_is_found(
    #[case] command: &str,
    #[case] path: &str,
    #[case] before: &str,
    #[case] after: String,
    #[case] expected: &[WeakeningKind],
) {
    assert_eq!(found_in(command, path, before, &after), expected);
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
