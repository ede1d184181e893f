//! Tree entries as git prints them.

use super::path::RepoPath;
use crate::id::ObjectId;

/// The mode of a directory.
pub(super) const TREE: u32 = 0o040_000;
/// The mode of a symbolic link.
pub(super) const SYMLINK: u32 = 0o120_000;
/// The mode of a submodule commit.
pub(super) const GITLINK: u32 = 0o160_000;

/// The object at a path in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TreeEntry {
    pub(super) mode: u32,
    pub(super) id: ObjectId,
}

/// A changed tree entry. Includes directories if git was asked for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TreeChange {
    pub(super) path: RepoPath,
    pub(super) before: Option<TreeEntry>,
    pub(super) after: Option<TreeEntry>,
}

impl TreeEntry {
    /// Parses a mode and an id. Mode 0 means that there is no entry: `Some(None)`.
    #[expect(
        clippy::option_option,
        reason = "the outer one is a malformed record, the inner one git's mode 0"
    )]
    pub(super) fn parse(mode: &[u8], id: &[u8]) -> Option<Option<Self>> {
        match parse_mode(mode)? {
            0 => Some(None),
            mode => Some(Some(Self {
                mode,
                id: parse_id(id)?,
            })),
        }
    }
}

impl TreeChange {
    /// Parses `:<mode> <mode> <id> <id> <letter>` of git's `--raw` format, and the path after it.
    pub(super) fn parse(record: &[u8], path: &[u8]) -> Option<Self> {
        let fields: Vec<&[u8]> = record.strip_prefix(b":")?.split(|byte| *byte == b' ').collect();
        let [mode_before, mode_after, before, after, _letter] = fields.as_slice() else {
            return None;
        };
        Some(Self {
            path: RepoPath::new(path),
            before: TreeEntry::parse(mode_before, before)?,
            after: TreeEntry::parse(mode_after, after)?,
        })
    }
}

pub(super) fn parse_mode(text: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(text).ok()?, 8).ok()
}

pub(super) fn parse_id(text: &[u8]) -> Option<ObjectId> {
    ObjectId::parse(std::str::from_utf8(text).ok()?).ok()
}
