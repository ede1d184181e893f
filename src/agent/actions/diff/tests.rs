//! Diffs that are read, refused and applied.

use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn patch(text: &str) -> Patch {
    Patch::parse(text).unwrap()
}

fn refused(text: &str) -> String {
    Patch::parse(text).unwrap_err().to_string()
}

/// Applies a diff to a file that is there; the new content as text.
fn applied(original: &str, diff: &str) -> String {
    match patch(diff).apply(Some(original.as_bytes())).unwrap() {
        PatchedFile::Content(content) => String::from_utf8(content).unwrap(),
        PatchedFile::Deleted => panic!("deleted"),
    }
}

fn not_applied(original: &str, diff: &str) -> String {
    error_of(&patch(diff), Some(original))
}

fn error_of(patch: &Patch, original: Option<&str>) -> String {
    patch.apply(original.map(str::as_bytes)).unwrap_err().to_string()
}

#[rstest]
#[case::where_the_header_says("a\nb\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n", "a\nB\nc\n")]
#[case::with_names("a\n", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", "b\n")]
#[case::with_gits_header(
    "a\n",
    "diff --git a/x b/x\nold mode 100644\nnew mode 100755\nindex 1..2\n--- a/x\n+++ b/x\n@@ -1 +1 @@ fn x\n-a\n+b\n",
    "b\n"
)]
#[case::further_down("x\ny\na\nb\n", "@@ -1,2 +1,3 @@\n a\n+!\n b\n", "x\ny\na\n!\nb\n")]
#[case::further_up("a\nb\nx\ny\nz\n", "@@ -4,2 +4,3 @@\n a\n+!\n b\n", "a\n!\nb\nx\ny\nz\n")]
#[case::at_the_nearest_place("a\nx\nx\na\nx\n", "@@ -3 +3 @@\n-a\n+A\n", "a\nx\nx\nA\nx\n")]
#[case::beyond_the_end("a\nb\n", "@@ -90 +90 @@\n-b\n+B\n", "a\nB\n")]
#[case::far_beyond_the_end("a\nb\n", "@@ -4294967295,0 +1 @@\n-a\n+A\n@@ -1 +1 @@\n-b\n+B\n", "A\nB\n")]
#[case::with_wrong_counts("a\nb\nc\n", "@@ -1,9 +1,1 @@\n a\n-b\n+B\n c\n", "a\nB\nc\n")]
#[case::with_counts_too_small("a\nb\nc\n", "@@ -1,1 +1,1 @@\n a\n-b\n+B\n c\n", "a\nB\nc\n")]
#[case::without_numbers("a\nb\nc\n", "@@\n-b\n+B\n", "a\nB\nc\n")]
#[case::without_numbers_but_a_section("a\nb\n", "@@ @@ fn a()\n-b\n+B\n", "a\nB\n")]
#[case::several_hunks(
    "1\n2\n3\n4\n5\n6\n",
    "@@ -1,2 +1,1 @@\n-1\n 2\n@@ -5,2 +4,3 @@\n 5\n+!\n 6\n",
    "2\n3\n4\n5\n!\n6\n"
)]
#[case::later_hunks_move_with_the_first(
    "new\nnew\nnew\na\nx\nb\nb\nb\nb\nx\n",
    "@@ -1 +1 @@\n-a\n+A\n@@ -4 +4 @@\n-b\n+B\n",
    "new\nnew\nnew\nA\nx\nb\nB\nb\nb\nx\n"
)]
#[case::a_kept_blank_line_without_its_space("a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+B\n", "a\n\nB\n")]
#[case::blank_lines_after_the_hunk("a\nb\n", "@@ -1 +1 @@\n-a\n+A\n\n\n", "A\nb\n")]
#[case::blank_line_kept_at_the_end("a\n\nb\n", "@@ -1,2 +1,2 @@\n-a\n+A\n\n", "A\n\nb\n")]
#[case::without_a_last_line_break("a\nb\n", "@@ -2 +2 @@\n-b\n+B", "a\nB\n")]
#[case::removing_what_looks_like_a_header(
    "-- x\n++ y\na\n",
    "@@ -1,3 +1,2 @@\n--- x\n-++ y\n+++ z\n a\n",
    "++ z\na\n"
)]
fn a_diff_applies(#[case] original: &str, #[case] diff: &str, #[case] expected: &str) {
    assert_eq!(applied(original, diff), expected);
}

#[rstest]
#[case::taken_away("a\nb\n", "@@ -2 +2 @@\n-b\n+b\n\\ No newline at end of file\n", "a\nb")]
#[case::given("a\nb", "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+b\n", "a\nb\n")]
#[case::lacking_on_both_sides("a\nb", "@@ -1,2 +1,2 @@\n-a\n+A\n b\n\\ No newline at end of file\n", "A\nb")]
#[case::lacking_and_not_said("a\nb", "@@ -1,2 +1,2 @@\n-a\n+A\n b\n", "A\nb")]
#[case::needed_before_more("a", "@@ -1 +1,2 @@\n a\n+b\n", "a\nb\n")]
#[case::needed_in_the_middle("a\nb\n", "@@ -1 +1 @@\n-a\n+A\n\\ No newline at end of file\n", "A\nb\n")]
#[case::space_after_the_mark("a", "@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n\n", "b")]
fn the_last_line_break_is_kept_as_the_diff_says(
    #[case] original: &str,
    #[case] diff: &str,
    #[case] expected: &str,
) {
    assert_eq!(applied(original, diff), expected);
}

#[rstest]
#[case::kept_by_a_diff_without(
    "a\r\nb\r\nc\r\n",
    "@@ -1,2 +1,3 @@\n a\n-b\n+B\n+!\n",
    "a\r\nB\r\n!\r\nc\r\n"
)]
#[case::kept_by_a_diff_with("a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+B\r\n", "a\r\nB\r\n")]
#[case::kept_by_a_diff_all_in_it("a\r\nb\r\n", "@@ -1,2 +1,2 @@\r\n a\r\n-b\r\n+B\r\n", "a\r\nB\r\n")]
#[case::not_brought_in_by_a_diff_all_in_it("a\nb\n", "@@ -1,2 +1,2 @@\r\n a\r\n-b\r\n+B\r\n", "a\nB\n")]
#[case::kept_after_a_last_line_without("a\r\nb", "@@ -1,2 +1,3 @@\n a\n b\n+c\n", "a\r\nb\r\nc\r\n")]
#[case::given_on_purpose("a\nb\n", "@@ -1 +1 @@\n-a\n+a\r\n", "a\r\nb\n")]
#[case::taken_on_purpose("a\r\nb\r\n", "@@ -1 +1 @@\n-a\r\n+a\n", "a\nb\r\n")]
fn carriage_returns_stay_as_they_are(#[case] original: &str, #[case] diff: &str, #[case] expected: &str) {
    assert_eq!(applied(original, diff), expected);
}

#[rstest]
#[case("--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n", "a\nb\n")]
#[case(
    "diff --git a/x b/x\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n",
    "a"
)]
#[case("diff --git a/x b/x\nnew file mode 100644\nindex 0000000..e69de29\n", "")]
#[case("@@ -0,0 +1 @@\n+a\n", "a\n")]
fn a_file_is_created(#[case] diff: &str, #[case] expected: &str) {
    assert_eq!(
        patch(diff).apply(None),
        Ok(PatchedFile::Content(expected.as_bytes().to_vec()))
    );
}

#[test]
fn a_file_is_deleted() {
    let deletion = patch("--- a/x\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n");
    assert_eq!(deletion.apply(Some(b"a\nb\n")), Ok(PatchedFile::Deleted));
    let error = error_of(&deletion, Some("a\nb\nc\n"));
    assert!(error.ends_with("but leaves 1 line of it"), "{error}");
    let error = error_of(&deletion, None);
    assert!(error.starts_with("the file does not exist"), "{error}");
    let of_nothing = patch("diff --git a/x b/x\ndeleted file mode 100644\nindex e69de29..0000000\n");
    assert_eq!(of_nothing.apply(Some(b"")), Ok(PatchedFile::Deleted));
}

#[test]
fn a_file_that_is_not_text_keeps_its_bytes() {
    let result = patch("@@ -1,2 +1,2 @@\n-a\n+b\n c\n").apply(Some(b"a\nc\n\xff\xfe"));
    assert_eq!(result, Ok(PatchedFile::Content(b"b\nc\n\xff\xfe".to_vec())));
}

#[test]
fn an_existing_file_is_not_created_and_a_missing_one_is_not_changed() {
    let creation = patch("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n");
    let error = error_of(&creation, Some(""));
    assert!(error.starts_with("the file already exists"), "{error}");
    let error = error_of(&patch("@@ -1 +1 @@\n-a\n+b\n"), None);
    assert!(error.starts_with("the file does not exist"), "{error}");
}

#[test]
fn a_hunk_that_does_not_apply_is_shown_beside_the_file() {
    let file = "one\ntwo\nthree\nfour\nfive\n";
    let diff = "@@ -1 +1 @@\n-one\n+1\n@@ -3,3 +3,3 @@ fn x\n three\n-FOUR\n+4\n five\n";
    let error = not_applied(file, diff);
    let text = "hunk 2 (`@@ -3,3 +3,3 @@ fn x`) does not apply: it differs from line 4 of the file\n\
                the diff has:\n    three\n    FOUR\n    five\n\
                the file has:\n    three\n    four\n    five";
    assert_eq!(error, text);
}

#[test]
fn a_hunk_beyond_the_end_of_the_file_is_reported() {
    let error = not_applied("", "@@ -1 +1 @@\n-a\n+b\n");
    assert!(
        error.ends_with("the file has:\n    (the end of the file)"),
        "{error}"
    );
}

#[test]
fn a_hunk_is_not_applied_before_an_earlier_one() {
    let error = not_applied("a\nb\n", "@@ -2 +2 @@\n-b\n+B\n@@ -1 +1 @@\n-a\n+A\n");
    assert!(
        error.starts_with("hunk 2 (`@@ -1 +1 @@`) does not apply"),
        "{error}"
    );
}

#[test]
fn a_hunk_without_line_numbers_must_match_in_one_place() {
    let error = not_applied("a\nb\na\n", "@@\n-a\n+A\n");
    assert!(
        error.starts_with("hunk 1 fits at line 1 and at line 3 of the file"),
        "{error}"
    );
}

#[test]
fn lines_are_not_added_without_context() {
    let error = not_applied("a\n", "@@ -1,0 +2 @@\n+b\n");
    assert!(
        error.starts_with("hunk 1 (`@@ -1,0 +2 @@`) has no line of the file"),
        "{error}"
    );
    assert_eq!(applied("", "@@ -0,0 +1 @@\n+b\n"), "b\n");
}

#[test]
fn a_long_hunk_header_is_cut_in_messages() {
    let diff = format!("@@ -1,0 +2 @@ {}\n+b\n", "x".repeat(10_000));
    let error = not_applied("a\n", &diff);
    assert!(error.chars().count() < 400, "{error}");
}

#[rstest]
#[case("", "the diff changes nothing")]
#[case("--- a/x\n+++ b/x\n", "the diff changes nothing")]
#[case("@@ -1 +1 @@\n a\n", "hunk 1 changes nothing")]
#[case("@@ -1 +1 @@\n-a\n+b\n@@ -9 +9 @@\n", "hunk 2 changes nothing")]
#[case(
    "```diff\n@@ -1 +1 @@\n",
    "line 1 of the diff is \"```diff\": expected a line of a diff's header"
)]
#[case(
    "@@ -1 +1 @@\n-a\n+b\n```\n",
    "line 4 of the diff is \"```\": expected a line that begins with a space"
)]
#[case("@@ -1 +1 @@\n-a\nb\n", "line 3 of the diff is \"b\"")]
#[case(
    "@@ -x +1 @@\n-a\n",
    "line 1 of the diff is \"@@ -x +1 @@\": expected `@@ -line,count"
)]
#[case("@@ -99999999999999999999 +1 @@\n-a\n", "expected `@@ -line,count")]
#[case("@@ fn main() {\n-a\n", "expected `@@ -line,count")]
#[case(
    "--- a/x\n@@ -1 +1 @@\n-a\n",
    "line 2 of the diff is \"@@ -1 +1 @@\": expected `+++ b/file`"
)]
#[case("--- /dev/null\n+++ /dev/null\n@@\n-a\n", "expected a file name on one side")]
#[case(
    "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- a/y\n+++ b/y\n",
    "line 6 of the diff begins a second file"
)]
#[case(
    "@@ -1 +1 @@\n-a\n+b\ndiff --git a/y b/y\n",
    "line 4 of the diff begins a second file"
)]
#[case(
    "diff --git a/x b/x\ndiff --git a/y b/y\n@@\n-a\n",
    "line 2 of the diff begins a second file"
)]
#[case(
    "diff --git a/x b/y\nsimilarity index 90%\nrename from x\nrename to y\n",
    "line 3 of the diff asks for a rename"
)]
#[case("Binary files a/x and b/x differ\n", "a change of a binary file")]
#[case(
    "new file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc\n",
    "a symbolic link"
)]
#[case(
    "index 1..2 120000\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
    "a symbolic link"
)]
#[case("new file mode 160000\n", "a submodule")]
#[case(
    "--- /dev/null\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
    "hunk 1 keeps or removes lines of a file"
)]
#[case("@@ -1 +1 @@\n\\ No newline at end of file\n", "line 2 of the diff is")]
#[case(
    "@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n+c\n",
    "line 5 of the diff comes after"
)]
#[case(
    "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n c\n",
    "line 4 of the diff comes after"
)]
fn text_that_is_not_a_diff_of_one_file_is_refused(#[case] text: &str, #[case] expected: &str) {
    let error = refused(text);
    assert!(error.contains(expected), "{error}");
}

#[rstest]
#[case("--- a/src/x.rs\n+++ b/src/x.rs\n", true)]
#[case("--- src/x.rs\n+++ src/x.rs\n", true)]
#[case("--- ./src/x.rs\t2024-01-01 00:00:00\n+++ src//x.rs\t2024-01-02\n", true)]
#[case("--- \"a/src/x.rs\"\n+++ \"b/src/\\170.rs\"\n", true)]
#[case("--- /dev/null\n+++ b/src/x.rs\n", true)]
#[case("", true)]
#[case("--- a/src/x.rs\n+++ b/src/y.rs\n", false)]
#[case("--- a/x.rs\n+++ b/x.rs\n", false)]
#[case("--- a/../src/x.rs\n+++ b/src/x.rs\n", false)]
#[case("--- /src/x.rs\n+++ /src/x.rs\n", false)]
fn the_file_names_in_a_diff_must_be_the_path_of_the_action(#[case] names: &str, #[case] agree: bool) {
    let patch = patch(&format!("{names}@@ -0,0 +1 @@\n+a\n"));
    let path = RelPath::parse("src/x.rs").unwrap();
    assert_eq!(patch.check_names(&path).is_ok(), agree);
}

#[test]
fn a_search_without_a_match_is_bounded() {
    let file = "a\n".repeat(100_000);
    let diff = format!("@@ -1 +1 @@\n{}-b\n", " a\n".repeat(50_000));
    let error = not_applied(&file, &diff);
    assert!(error.contains("does not apply"), "{error}");
}

/// Text made of the lines that diffs are made of.
fn diff_like() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("@@ -1,2 +1,2 @@"),
        Just("@@"),
        Just("@@ -0,0 +1 @@"),
        Just("--- a/x"),
        Just("+++ b/x"),
        Just("+++ /dev/null"),
        Just("--- /dev/null"),
        Just("\\ No newline at end of file"),
        Just(" a"),
        Just("-a"),
        Just("+a"),
        Just("+ä\r"),
        Just(""),
        Just("\""),
    ];
    proptest::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn no_text_breaks_the_reader(text in any::<String>()) {
        let _ = Patch::parse(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn no_diff_breaks_the_applier(diff in diff_like(), file in proptest::option::of("(a|b|\n|\r|ä){0,20}")) {
        if let Ok(patch) = Patch::parse(&diff) {
            let _ = patch.apply(file.as_ref().map(String::as_bytes)).map_err(|error| error.to_string());
        }
    }
}
