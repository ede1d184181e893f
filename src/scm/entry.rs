//! Entries of trees, as git prints them.

use super::path::RepoPath;
use crate::id::ObjectId;

/// The mode of a directory.
pub(super) const TREE: u32 = 0o040_000;
/// The mode of a symbolic link.
pub(super) const SYMLINK: u32 = 0o120_000;
/// The mode of a commit of another repository.
pub(super) const GITLINK: u32 = 0o160_000;

/// What stands at a path in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) mode: u32,
    pub(super) id: ObjectId,
}

/// An entry that changed; a directory too, where git was asked for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryChange {
    pub(super) path: RepoPath,
    pub(super) before: Option<Entry>,
    pub(super) after: Option<Entry>,
}

/// Text that is no entry.
#[derive(Debug)]
pub(super) struct Unreadable;

impl Entry {
    /// From a mode and an id; mode 0 stands for "nothing".
    pub(super) fn parse(mode: &[u8], id: &[u8]) -> Result<Option<Self>, Unreadable> {
        match parse_mode(mode).ok_or(Unreadable)? {
            0 => Ok(None),
            mode => Ok(Some(Self {
                mode,
                id: parse_id(id).ok_or(Unreadable)?,
            })),
        }
    }
}

impl EntryChange {
    /// From `:<mode> <mode> <id> <id> <letter>` of git's `--raw` format, and the path that follows it.
    pub(super) fn parse(record: &[u8], path: &[u8]) -> Option<Self> {
        let fields: Vec<&[u8]> = record.strip_prefix(b":")?.split(|byte| *byte == b' ').collect();
        let [mode_before, mode_after, before, after, _letter] = fields.as_slice() else {
            return None;
        };
        Some(Self {
            path: RepoPath::new(path),
            before: Entry::parse(mode_before, before).ok()?,
            after: Entry::parse(mode_after, after).ok()?,
        })
    }
}

pub(super) fn parse_mode(text: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(text).ok()?, 8).ok()
}

pub(super) fn parse_id(text: &[u8]) -> Option<ObjectId> {
    ObjectId::parse(std::str::from_utf8(text).ok()?).ok()
}
