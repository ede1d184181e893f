//! Fuzz bodies of what git in the sandbox produces: bundles and output.

use super::bundle::BundleHeader;
use super::diff::Diff;
use super::git::one_id;
use super::path::{RepoPath, name_problem};
use super::status::GitStatus;
use super::{checkpoint, history, objects, snapshot};
use crate::id::ObjectId;

/// The longest message about malformed input, in bytes.
const LONGEST_MESSAGE: usize = 1000;

/// A bundle.
pub(crate) fn bundle_header(bundle: &[u8]) {
    let header = match BundleHeader::parse(bundle) {
        Ok(header) => header,
        Err(error) => return is_short(&error.to_string()),
    };
    let text = &bundle[..header.length];
    assert!(text.ends_with(b"\n\n"));
    assert_eq!(BundleHeader::parse(text).as_ref(), Ok(&header));
    let names = |id: &ObjectId| {
        text.windows(id.as_str().len())
            .any(|part| part == id.as_str().as_bytes())
    };
    assert!(names(&header.tip) && header.prerequisites.iter().all(names));
}

/// The output of a git command. The first byte says of which.
pub(crate) fn git_output(bytes: &[u8]) {
    let Some((command, printed)) = bytes.split_first() else {
        return;
    };
    match command % 7 {
        0 => status(printed),
        1 => diff(printed),
        2 => log(printed),
        3 => {
            let objects = objects::parse(printed).into_iter().flatten().flatten();
            assert!(objects.map(|object| object.bytes.len()).sum::<usize>() <= printed.len());
        }
        4 => {
            let names = objects::tree_names(printed, 20).unwrap_or_default();
            assert!(names.iter().map(Vec::len).sum::<usize>() <= printed.len());
        }
        5 => {
            let _ = one_id(printed).map_err(|error| is_short(&error.to_string()));
            let id = ObjectId::parse(&"a".repeat(40)).unwrap_or_else(|_| panic!("40 digits are an id"));
            let _ = checkpoint::parse(id, printed);
        }
        _ => stage(printed),
    }
}

fn status(printed: &[u8]) {
    match GitStatus::parse(printed) {
        Ok(status) => {
            assert!(status.differences.keys().all(|path| !path.is_private()));
            status.differences.keys().for_each(is_shown_plainly);
        }
        Err(error) => is_short(&error.to_string()),
    }
}

fn diff(printed: &[u8]) {
    let Some(diff) = Diff::parse(printed) else { return };
    let counts = || diff.files.iter().filter_map(|file| file.lines);
    let added: u128 = counts().map(|lines| u128::from(lines.added)).sum();
    let removed: u128 = counts().map(|lines| u128::from(lines.removed)).sum();
    let sum = diff.lines();
    assert_eq!(u128::from(sum.added), added.min(u128::from(u64::MAX)));
    assert_eq!(u128::from(sum.removed), removed.min(u128::from(u64::MAX)));
    assert!(String::from_utf8_lossy(printed).ends_with(&diff.patch));
    assert!(diff.summary().len() < LONGEST_MESSAGE);
    diff.files.iter().for_each(|file| is_shown_plainly(&file.path));
}

/// The entries of an index mean the same when they are written for git again.
fn stage(printed: &[u8]) {
    let Some(entries) = snapshot::parse_stage(printed) else {
        return;
    };
    entries.keys().for_each(is_shown_plainly);
    let lines: Vec<u8> = entries
        .iter()
        .flat_map(|(path, entry)| snapshot::index_line(entry, path))
        .collect();
    assert_eq!(snapshot::parse_stage(&lines), Some(entries));
}

fn log(printed: &[u8]) {
    for commit in history::parse_log(printed).into_iter().flatten() {
        for change in &commit.changes {
            is_shown_plainly(&change.path);
        }
    }
}

/// A path is shown in one line without characters that a terminal would obey.
fn is_shown_plainly(path: &RepoPath) {
    let _ = name_problem(path);
    assert!(!path.to_string().contains(char::is_control));
}

fn is_short(message: &str) {
    assert!(message.len() <= LONGEST_MESSAGE, "{} bytes", message.len());
}
