//! What `git diff` prints, as files and lines of a page.

use serde::Serialize;
use serde_json::Value;

use crate::text::{cut_middle, visible};

/// A file with more changed lines is folded, and only its first lines are shown.
const FOLDED_FROM: usize = 1000;

/// How many lines a page shows in all.
const MOST_LINES: usize = 20_000;

/// How many characters of one line are shown.
const LONGEST_LINE: usize = 500;

/// Changes, by file.
#[derive(Debug, Default, Serialize)]
pub(super) struct DiffView {
    files: Vec<FileDiff>,
    /// Whether something was left out because there is too much, here or by the API.
    is_cut: bool,
}

/// The changes of one file.
#[derive(Debug, Default, Serialize)]
struct FileDiff {
    path: String,
    added: usize,
    removed: usize,
    is_folded: bool,
    lines: Vec<DiffLine>,
}

#[derive(Debug, Serialize)]
struct DiffLine {
    /// `added`, `removed`, `hunk`, `note` or `same`.
    kind: &'static str,
    text: String,
}

impl DiffView {
    /// The view of what the API answers about changes.
    pub(super) fn new(answer: &Value) -> Self {
        let mut view = Self::parse(answer["diff"].as_str().unwrap_or_default());
        view.is_cut |= answer["is_cut"] == true;
        view
    }

    fn parse(text: &str) -> Self {
        let mut view = Self::default();
        let (mut shown, mut in_hunk) = (0, false);
        for line in text.lines() {
            if let Some(paths) = line.strip_prefix("diff --git ") {
                view.files.push(FileDiff::new(paths));
                in_hunk = false;
                continue;
            }
            let Some(file) = view.files.last_mut() else {
                continue;
            };
            in_hunk |= line.starts_with("@@");
            if !in_hunk {
                file.read_header(line);
                continue;
            }
            let kind = file.count(line);
            if shown >= MOST_LINES || file.lines.len() >= FOLDED_FROM {
                view.is_cut = true;
                continue;
            }
            shown += 1;
            let text = cut_middle(&visible(line), LONGEST_LINE).into_owned();
            file.lines.push(DiffLine { kind, text });
        }
        for file in &mut view.files {
            file.is_folded = file.added + file.removed > FOLDED_FROM;
        }
        view
    }
}

impl FileDiff {
    /// A file by the two paths of the first line. The lines `---` and `+++` say it exactly.
    fn new(paths: &str) -> Self {
        let path = paths.rsplit_once(" b/").map_or(paths, |(_, path)| path);
        Self {
            path: visible(path.trim_end_matches('"')).into_owned(),
            ..Self::default()
        }
    }

    fn read_header(&mut self, line: &str) {
        if let Some(path) = line.strip_prefix("+++ b/") {
            self.path = visible(path).into_owned();
        } else if line.starts_with("Binary files ") || line.starts_with("rename ") || line.contains(" mode ")
        {
            self.lines.push(DiffLine {
                kind: "note",
                text: visible(line).into_owned(),
            });
        }
    }

    /// The kind of a line of a hunk, which is counted.
    fn count(&mut self, line: &str) -> &'static str {
        match line.as_bytes().first() {
            Some(b'+') => {
                self.added += 1;
                "added"
            }
            Some(b'-') => {
                self.removed += 1;
                "removed"
            }
            Some(b'@') => "hunk",
            Some(b'\\') => "note",
            _ => "same",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = "diff --git a/one.txt b/one.txt\nindex 1..2 100644\n--- a/one.txt\n+++ b/one.txt\n@@ -1,2 +1,2 @@\n \
                        same\n-old\n+++ plus\ndiff --git a/two b/two\nnew file mode 100755\n--- /dev/null\n+++ b/two\n@@ -0,0 \
                        +1 @@\n+x\n\\ No newline at end of file\n";

    #[test]
    fn lines_are_counted_by_file() {
        let view = DiffView::new(&json!({"diff": TEXT, "is_cut": false}));
        assert!(!view.is_cut);
        let counts: Vec<(&str, usize, usize)> = view
            .files
            .iter()
            .map(|file| (file.path.as_str(), file.added, file.removed))
            .collect();
        assert_eq!(counts, [("one.txt", 1, 1), ("two", 1, 0)]);
        let kinds: Vec<&str> = view.files[1].lines.iter().map(|line| line.kind).collect();
        assert_eq!(kinds, ["note", "hunk", "added", "note"]);
    }

    #[test]
    fn a_long_file_is_folded_and_cut() {
        let text = format!(
            "diff --git a/x b/x\n@@ -0,0 +1,2000 @@\n{}",
            "+line\n".repeat(2000)
        );
        let view = DiffView::parse(&text);
        assert!(view.is_cut && view.files[0].is_folded);
        assert_eq!(
            (view.files[0].added, view.files[0].lines.len()),
            (2000, FOLDED_FROM)
        );
    }

    #[test]
    fn a_diff_that_the_api_cut_is_cut() {
        assert!(DiffView::new(&json!({"diff": TEXT, "is_cut": true})).is_cut);
    }
}
