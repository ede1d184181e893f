//! Parses the lines before the hunks of a diff.

use super::parse::DiffLines;
use super::{PatchEffect, PatchFormatError};

const EXPECTED: &str = "a line of a diff's header (`--- a/file`, `+++ b/file`) or a hunk (`@@ -1,3 +1,4 @@`)";

/// The lines before the first hunk.
pub(super) struct DiffHeader {
    pub(super) effect: PatchEffect,
    pub(super) names: Vec<String>,
}

impl DiffHeader {
    pub(super) fn parse(lines: &mut DiffLines<'_>) -> Result<Self, PatchFormatError> {
        let mut header = Self {
            effect: PatchEffect::Change,
            names: Vec::new(),
        };
        let (mut git_lines, mut name_lines) = (0, 0);
        while let Some(line) = lines.peek().filter(|line| !line.starts_with("@@")) {
            if line.starts_with("diff ") {
                git_lines += 1;
            } else if line.starts_with("--- ") {
                name_lines += 1;
            }
            if git_lines > 1 || name_lines > 1 {
                return Err(PatchFormatError::SeveralFiles { line: lines.number() });
            }
            header.parse_line(line, lines)?;
            lines.advance();
        }
        Ok(header)
    }

    fn parse_line(&mut self, line: &str, lines: &mut DiffLines<'_>) -> Result<(), PatchFormatError> {
        check_supported(line, lines.number())?;
        if line.starts_with("new file mode ") {
            self.effect = PatchEffect::Create;
        } else if line.starts_with("deleted file mode ") {
            self.effect = PatchEffect::Delete;
        } else if let Some(old) = line.strip_prefix("--- ") {
            lines.advance();
            let new = lines.peek().and_then(|line| line.strip_prefix("+++ "));
            let new = new.ok_or_else(|| lines.unexpected("`+++ b/file` after `--- a/file`"))?;
            self.add_names(&file_name(old), &file_name(new), lines)?;
        } else if !is_skipped(line) {
            return Err(lines.unexpected(EXPECTED));
        }
        Ok(())
    }

    fn add_names(&mut self, old: &str, new: &str, lines: &DiffLines<'_>) -> Result<(), PatchFormatError> {
        const NONE: &str = "/dev/null";
        match (old, new) {
            (NONE, NONE) => return Err(lines.unexpected("a file name on one side at least")),
            (NONE, name) => {
                self.effect = PatchEffect::Create;
                self.names.push(name.to_owned());
            }
            (name, NONE) => {
                self.effect = PatchEffect::Delete;
                self.names.push(name.to_owned());
            }
            (old, new) => self.names.extend([old.to_owned(), new.to_owned()]),
        }
        Ok(())
    }
}

/// Refuses everything except text changes of a regular file.
fn check_supported(line: &str, number: usize) -> Result<(), PatchFormatError> {
    let refuse = |what, instead| {
        Err(PatchFormatError::Unsupported {
            line: number,
            what,
            instead,
        })
    };
    let has_mode = |mode: &str| {
        let names_mode = ["new file mode ", "new mode ", "index "]
            .iter()
            .any(|start| line.starts_with(start));
        names_mode && line.trim_end().ends_with(mode)
    };
    if line.starts_with("rename ") || line.starts_with("copy ") {
        refuse("a rename or copy", "use `run` with `git mv` or `cp`")
    } else if line.starts_with("Binary files ") || line.starts_with("GIT binary patch") {
        refuse(
            "a change of a binary file",
            "use `run` with the program that makes it",
        )
    } else if has_mode(" 120000") {
        refuse("a symbolic link", "use `run` with `ln -s`")
    } else if has_mode(" 160000") {
        refuse("a submodule", "use `run` with `git submodule`")
    } else {
        Ok(())
    }
}

fn is_skipped(line: &str) -> bool {
    const SKIPPED: [&str; 6] = [
        "diff ",
        "index ",
        "old mode ",
        "new mode ",
        "similarity index ",
        "dissimilarity index ",
    ];
    line.trim().is_empty() || SKIPPED.iter().any(|start| line.starts_with(start))
}

/// The name in a `---` or `+++` line. It ends at a tab, or is quoted as git quotes unusual names.
fn file_name(text: &str) -> String {
    match text.strip_prefix('"') {
        Some(quoted) => unquoted(quoted),
        None => text.split('\t').next().unwrap_or_default().trim_end().to_owned(),
    }
}

/// Decodes git's quoting up to the closing quote: `\303\274` is `ü`.
fn unquoted(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] | [b'"', ..] => break,
            [
                b'\\',
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                rest @ ..,
            ] => {
                bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest
            }
            [b'\\', escaped, rest @ ..] => {
                bytes.push(match escaped {
                    b'a' => 7,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => b'\r',
                    other => *other,
                });
                rest
            }
            [byte, rest @ ..] => {
                bytes.push(*byte);
                rest
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
