//! The test cases in a source file, found by their declarations.

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

impl TestCase {
    fn new(name: String) -> Self {
        Self {
            name,
            asserts: 0,
            body: String::new(),
        }
    }
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

/// Directories of data for tests.
const TEST_DATA: [&str; 7] = [
    "testdata",
    "fixtures",
    "__fixtures__",
    "snapshots",
    "__snapshots__",
    "golden",
    "goldens",
];

/// Words in the name of what an output is compared with.
const EXPECTATION_WORDS: [&str; 6] = [
    "golden",
    "expected",
    "expectation",
    "snapshot",
    "baseline",
    "reference",
];

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

/// Whether a file belongs to the tests, by its path.
pub(super) fn is_test_file(path: &str) -> bool {
    let spec = path.starts_with("spec/") || path.contains(".spec.") || path.contains("_spec.");
    spec || is_test_data(path) || words(path).any(|word| TEST_FILE_WORDS.contains(&word.as_str()))
}

/// Whether a file is data of tests: what they read, or compare with.
fn is_test_data(path: &str) -> bool {
    let in_directory = path.rsplit('/').skip(1).any(|name| TEST_DATA.contains(&name));
    let is_snapshot = path
        .rsplit_once('.')
        .is_some_and(|(_, extension)| extension == "snap");
    is_snapshot || (in_directory && !has_language(path))
}

/// Whether a file that a command names is what something is compared with.
pub(super) fn is_expectation(path: &str) -> bool {
    is_test_data(path) || words(path).any(|word| EXPECTATION_WORDS.contains(&word.as_str()))
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

/// What a file says as one of tests.
#[derive(Debug, Default)]
pub(super) struct TestFile {
    pub(super) cases: Vec<TestCase>,
    /// Its other lines that belong to tests, such as helpers, without imports.
    pub(super) outside: Vec<String>,
}

impl TestFile {
    pub(super) fn new(path: &str, text: &str) -> Self {
        let Some((extension, declaration)) = language(path) else {
            return Self::default();
        };
        let marks = MARKED.iter().find(|(language, _)| *language == extension);
        let is_mark =
            |line: &str| marks.is_some_and(|(_, marks)| marks.iter().any(|mark| line.contains(mark)));
        let mut cases: Vec<TestCase> = Vec::new();
        let mut outside: Vec<&str> = Vec::new();
        // Attributes and decorators of what comes next, with the indentation of the first.
        let (mut pending, mut pending_indent): (Vec<&str>, usize) = (Vec::new(), 0);
        let mut is_marked = marks.is_none();
        let mut inside: Option<usize> = None;
        for line in text.lines().filter(|line| !is_comment(line, extension)) {
            let trimmed = line.trim();
            let indent = line.len() - line.trim_start().len();
            if trimmed.is_empty() {
                continue;
            }
            if let Some(of) = inside {
                let (belongs, is_last) = place_in_test(trimmed, indent, of);
                if is_last {
                    inside = None;
                }
                if belongs {
                    add_line(&mut cases, line);
                    continue;
                }
            }
            let is_attribute = trimmed.starts_with(['@', '[']) || trimmed.starts_with("#[");
            is_marked |= is_attribute && is_mark(trimmed);
            if let Some(name) = declared(declaration, line) {
                if is_marked {
                    cases.push(TestCase::new(name));
                    pending.drain(..).for_each(|line| add_line(&mut cases, line));
                    let rest = line.split_once(['{', ',', ':']).map_or("", |(_, rest)| rest);
                    add_line(&mut cases, rest);
                    inside = Some(indent);
                } else {
                    outside.append(&mut pending);
                    outside.push(line);
                }
                is_marked = marks.is_none();
            } else if is_attribute && pending.is_empty() {
                pending_indent = indent;
                pending.push(line);
            } else if !pending.is_empty() && (is_attribute || closes(trimmed) || indent > pending_indent) {
                pending.push(line);
            } else {
                outside.append(&mut pending);
                outside.push(line);
            }
        }
        outside.append(&mut pending);
        Self {
            cases,
            outside: of_tests(path, &outside),
        }
    }
}

/// The extension of a file, and how its language declares tests.
fn language(path: &str) -> Option<(&str, &'static Regex)> {
    let (_, extension) = path.rsplit('/').next()?.rsplit_once('.')?;
    let (_, declaration) = DECLARATIONS
        .iter()
        .find(|(known, _)| known.contains(&extension))?;
    Some((extension, declaration))
}

/// Whether tests can be found in such a file.
pub(super) fn has_language(path: &str) -> bool {
    language(path).is_some()
}

/// Whether tests in a file run there: where nothing marks a test but its name, the name of the file decides.
pub(super) fn runs_tests(path: &str) -> bool {
    const BY_FILE_NAME: [&str; 12] = [
        "py", "go", "js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "php", "rb",
    ];
    let by_name = language(path).is_none_or(|(extension, _)| BY_FILE_NAME.contains(&extension));
    is_test_file(path) || !by_name
}

/// Whether a line after the declaration of a test belongs to it, and whether no later one does. `of` is the indentation of
/// the declaration.
fn place_in_test(line: &str, indent: usize, of: usize) -> (bool, bool) {
    if indent > of {
        return (true, false);
    }
    let is_closing = closes(line) || line == "end";
    let goes_on = line.starts_with('{') || (is_closing && line.ends_with(['{', ':', '(', '[']));
    let belongs = indent == of && (is_closing || goes_on);
    (belongs, !(belongs && goes_on))
}

fn closes(line: &str) -> bool {
    line.starts_with(['}', ')', ']'])
}

/// Lines of tests among those outside of test cases: all in a file of tests, and those of the module of tests in Rust.
fn of_tests(path: &str, lines: &[&str]) -> Vec<String> {
    let from = if is_test_file(path) {
        Some(0)
    } else {
        lines.iter().rposition(|line| line.contains("#[cfg(test)]"))
    };
    let Some(from) = from else {
        return Vec::new();
    };
    let mut open = 0;
    let mut is_import = |line: &str| {
        const IMPORTS: [&str; 7] = [
            "import ", "import(", "from ", "use ", "using ", "#include", "package ",
        ];
        let begins = IMPORTS.iter().any(|word| line.starts_with(word)) || line.contains("require(");
        let is_part = begins || open > 0;
        if is_part {
            let count = |brackets: &[char]| line.matches(brackets).count();
            open = (open + count(&['(', '{', '['])).saturating_sub(count(&[')', '}', ']']));
        }
        is_part
    };
    let mut outside: Vec<&str> = lines[from..].iter().map(|line| line.trim()).collect();
    outside.retain(|line| !is_import(line));
    outside.into_iter().map(str::to_owned).collect()
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

pub(super) fn makes_assertion(line: &str) -> bool {
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
