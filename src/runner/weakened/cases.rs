//! The test cases in a source file, found by their declarations.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex_lite::Regex;

/// One test and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TestCase {
    pub(super) name: String,
    /// How many assertions it makes. One that cannot fail does not count.
    pub(super) asserts: usize,
    /// Its lines without its name, comments and indentation.
    pub(super) body: String,
}

/// Declarations of tests: file extensions, and an expression whose last group is the name.
static DECLARATIONS: LazyLock<Vec<(&[&str], Regex)>> = LazyLock::new(|| {
    let table: [(&[&str], &str); 9] = [
        (&["rs"], r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:async\s+)?fn\s+(\w+)"),
        (&["py"], r"^\s*(?:async\s+)?def\s+(test\w*)"),
        (&["go"], r"^func\s+((?:Test|Fuzz|Example)\w*)\s*\("),
        (
            &["js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts"],
            r#"^\s*(?:it|test|xit|fit|xtest)(?:\.\w+)*\s*\(\s*['"`]([^'"`]+)"#,
        ),
        (
            &["java", "kt", "cs", "scala", "groovy"],
            r"^[\w\s<>\[\]@().]*?\b(?:void|fun|Task|def)\s+`?([\w ]+)`?\s*\(",
        ),
        (&["php"], r"^\s*(?:public\s+)?function\s+(test\w*)"),
        (
            &["rb"],
            r#"^\s*(?:it|test|specify|def)\s+\(?['"]?((?:test_)?[^'"]+)"#,
        ),
        (
            &["c", "cc", "cpp", "cxx", "h", "hpp"],
            r"^\s*TEST(?:_F|_P)?\s*\(\s*(\w+\s*,\s*\w+)",
        ),
        (
            &["sh", "bash", "bats"],
            r#"^\s*(?:@test\s+["']([^"']+)|(test_?\w+)\s*\(\))"#,
        ),
    ];
    let compile = |(extensions, pattern)| Some((extensions, Regex::new(pattern).ok()?));
    table.into_iter().filter_map(compile).collect()
});

/// Languages whose tests are marked by an attribute before the declaration.
const MARKED: [(&str, &[&str]); 6] = [
    ("rs", &["test]", "test(", "rstest"]),
    ("java", &["@Test", "@ParameterizedTest", "@RepeatedTest"]),
    ("kt", &["@Test", "@ParameterizedTest"]),
    ("scala", &["@Test"]),
    ("groovy", &["@Test"]),
    ("cs", &["[Fact", "[Theory", "[Test", "[TestMethod"]),
];

static ASSERTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\bassert\w*\b|\b[Aa]ssert\.\w+|\bexpect\w*\s*[\(\[]|\bshould\b|\brequire\.\w+\(|\bt\.(?:Error|Fatal|Fail)\w*\(|\b(?:EXPECT|ASSERT|CHECK|REQUIRE)(?:_\w+)?\(|\bpanic!\(|\braises\(|^\s*#\[case|\bpytest\.param\(|\bt\.(?:is|ok|deepEqual|equal|throws)\(",
    )
    .ok()
});

/// Assertions that cannot fail.
static TRIVIAL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)assert!?\s*\(?\s*(?:true|1)\s*[,);]?\s*$|assert_?true\(\s*true|expect\(\s*(?:true|1)\s*\)|assert(?:_?equals?|_eq!|\.equal|\.strictequal)?\s*\(?\s*(\w+)\s*(?:,|==)\s*(\w+)\s*\)?;?\s*$|assert\.ok\(\s*true",
    )
    .ok()
});

/// Words that make a directory or a file name one of tests.
const TEST_FILE_WORDS: [&str; 4] = ["test", "tests", "testing", "e2e"];

/// Words that make a script one of checks.
const CHECK_WORDS: [&str; 9] = [
    "spec",
    "check",
    "checks",
    "verify",
    "ci",
    "lint",
    "unit",
    "integration",
    "smoke",
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

/// Whether a file belongs to the tests, by its path.
pub(super) fn is_test_file(path: &str) -> bool {
    let spec = path.starts_with("spec/") || path.contains(".spec.") || path.contains("_spec.");
    spec || words(path).any(|word| TEST_FILE_WORDS.contains(&word.as_str()))
}

/// Whether a script is a check and not the product, by its path.
pub(super) fn is_check_script(path: &str) -> bool {
    is_test_file(path)
        || words(path).any(|word| {
            CHECK_WORDS.contains(&word.as_str()) || word.ends_with("tests") || word.starts_with("test")
        })
}

fn words(path: &str) -> impl Iterator<Item = String> {
    path.split(|c: char| !c.is_ascii_alphanumeric())
        .flat_map(camel_words)
}

/// The words of a name like `LoginTest`, in lower case.
fn camel_words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut previous_is_lower = false;
    for c in name.chars() {
        if words.is_empty() || (c.is_uppercase() && previous_is_lower) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(c.to_ascii_lowercase());
        }
        previous_is_lower = c.is_lowercase();
    }
    words
}

/// The tests in a file.
pub(super) fn test_cases(path: &str, text: &str) -> Vec<TestCase> {
    let extension = path.rsplit('/').next().and_then(|name| name.rsplit_once('.'));
    let Some((_, extension)) = extension else {
        return Vec::new();
    };
    let declaration = DECLARATIONS.iter().find(|(known, _)| known.contains(&extension));
    let Some((_, declaration)) = declaration else {
        return Vec::new();
    };
    let marks = MARKED.iter().find(|(language, _)| *language == extension);
    let mut cases: Vec<TestCase> = Vec::new();
    let mut pending: Vec<&str> = Vec::new();
    let mut is_marked = marks.is_none();
    let mut in_test = false;
    for line in text.lines().filter(|line| !is_comment(line, extension)) {
        if let Some((_, marks)) = marks {
            let trimmed = line.trim_start();
            if trimmed.starts_with(['#', '@', '[']) {
                is_marked |= marks.iter().any(|mark| trimmed.contains(mark));
                pending.push(line);
                continue;
            }
        }
        if let Some(name) = declared(declaration, line) {
            if is_marked {
                cases.push(TestCase {
                    name,
                    asserts: 0,
                    body: String::new(),
                });
                in_test = true;
                for line in pending.drain(..) {
                    add_line(&mut cases, line);
                }
                add_line(
                    &mut cases,
                    line.split_once(['{', ',', ':']).map_or("", |(_, rest)| rest),
                );
            } else {
                in_test = false;
            }
            is_marked = marks.is_none();
            pending.clear();
        } else if in_test {
            for line in pending.drain(..) {
                add_line(&mut cases, line);
            }
            add_line(&mut cases, line);
        } else {
            pending.clear();
        }
    }
    cases
}

fn declared(declaration: &Regex, line: &str) -> Option<String> {
    let groups = declaration.captures(line)?;
    let name = groups.iter().skip(1).flatten().last()?;
    Some(name.as_str().trim().to_owned())
}

fn add_line(cases: &mut [TestCase], line: &str) {
    let Some(case) = cases.last_mut() else {
        return;
    };
    if makes_assertion(line) {
        case.asserts += 1;
    }
    let line = line.trim();
    if !line.is_empty() {
        case.body.push_str(line);
        case.body.push('\n');
    }
}

fn makes_assertion(line: &str) -> bool {
    let asserts = ASSERTION
        .as_ref()
        .is_some_and(|assertion| assertion.is_match(line));
    let cannot_fail = |trivial: &Regex| {
        trivial
            .captures(line)
            .is_some_and(|found| match (found.get(1), found.get(2)) {
                (Some(left), Some(right)) => left.as_str() == right.as_str(),
                _ => true,
            })
    };
    asserts && !TRIVIAL.as_ref().is_some_and(cannot_fail)
}

fn is_comment(line: &str, extension: &str) -> bool {
    let line = line.trim_start();
    let hash = matches!(extension, "py" | "rb" | "sh" | "bash" | "bats" | "php");
    (hash && line.starts_with('#')) || (!hash && (line.starts_with("//") && !line.starts_with("//go:")))
}

/// How often each mark stands in a file that keeps tests from running.
pub(super) fn skip_marks(path: &str, text: &str) -> BTreeMap<&'static str, usize> {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let marks = SKIPS
        .iter()
        .find(|(extensions, _)| extensions.contains(&extension));
    let marks = marks.map_or(&[][..], |(_, marks)| marks).iter();
    let counts = marks.map(|mark| {
        (
            *mark,
            text.match_indices(mark)
                .filter(|(at, _)| begins_word(text, *at))
                .count(),
        )
    });
    counts.filter(|(_, count)| *count > 0).collect()
}

/// Whether what stands at this place is not the end of a longer word.
fn begins_word(text: &str, at: usize) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let starts = text[at..].starts_with(is_word);
    !starts || !text[..at].ends_with(is_word)
}
