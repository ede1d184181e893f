//! Reads many objects with one git process.

use super::error::ScmError;
use super::git::{GitDir, unexpected};
use crate::id::ObjectId;

/// An object and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GitObject {
    pub(super) id: ObjectId,
    pub(super) bytes: Vec<u8>,
}

/// Reads objects by name, in order. `None` for an object that does not exist. A name must not contain a line break.
pub(super) async fn read(git: &GitDir, names: &[String]) -> Result<Vec<Option<GitObject>>, ScmError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let command = git.command("cat-file --batch").stdin(names.join("\n") + "\n");
    let printed = git.run(&command).await?;
    let objects = parse(&printed).ok_or_else(|| unexpected("objects", &printed))?;
    if objects.len() == names.len() {
        Ok(objects)
    } else {
        Err(unexpected("one object per name", &printed))
    }
}

/// The names in a tree object, whose entries are mode, name and id.
pub(super) fn tree_names(bytes: &[u8], id_bytes: usize) -> Option<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ')?;
        let end = space + 1 + rest[space + 1..].iter().position(|byte| *byte == 0)?;
        names.push(rest[space + 1..end].to_vec());
        rest = rest.get(end + 1 + id_bytes..)?;
    }
    Some(names)
}

pub(super) fn parse(printed: &[u8]) -> Option<Vec<Option<GitObject>>> {
    let mut objects = Vec::new();
    let mut rest = printed;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let header = std::str::from_utf8(&rest[..end]).ok()?;
        rest = &rest[end + 1..];
        if header.ends_with(" missing") {
            objects.push(None);
            continue;
        }
        let mut fields = header.split(' ');
        let id = ObjectId::parse(fields.next()?).ok()?;
        let size: usize = fields.nth(1)?.parse().ok()?;
        let bytes = rest.get(..size)?.to_vec();
        objects.push(Some(GitObject { id, bytes }));
        rest = rest.get(size + 1..)?;
    }
    Some(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_prints_is_read_whole_or_not_at_all() {
        let id = "a".repeat(40);
        let printed = format!("{id} blob 3\nx\ny\nHEAD:none missing\n{id} tree 0\n\n");
        let objects = parse(printed.as_bytes()).unwrap();
        assert_eq!(objects.len(), 3);
        assert_eq!(objects[0].as_ref().unwrap().bytes, b"x\ny");
        assert!(objects[1].is_none());
        for cut in 1..printed.len() {
            if let Some(part) = parse(&printed.as_bytes()[..cut]) {
                assert!(part.len() < 3, "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_tree_gives_its_names() {
        let tree = [b"100644 a b\0".as_slice(), &[7; 20], b"40000 d\0", &[0; 20]].concat();
        assert_eq!(tree_names(&tree, 20).unwrap(), [b"a b".to_vec(), b"d".to_vec()]);
        assert!(tree_names(&tree[..tree.len() - 1], 20).is_none());
    }
}
