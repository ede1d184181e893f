//! Changed files as text, for those who compare what they say.

use super::entry::{GITLINK, SYMLINK, TreeEntry};
use super::error::ScmError;
use super::git::unexpected;
use super::history::changes_between;
use super::objects;
use super::repository::Repository;
use crate::id::ObjectId;

/// The longest file that is read, in bytes. Of a longer one only its existence is known.
const MAX_TEXT: u64 = 1 << 20;
/// How many files are read at once, so that the output of one git process stays small.
const BATCH: usize = 48;

/// A file before and after. Text that is not UTF-8 is replaced, and a text that is too long is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextChange {
    /// The path.
    pub path: String,
    /// What it was; `None` if it did not exist.
    pub before: Option<String>,
    /// What it is; `None` if it does not exist.
    pub after: Option<String>,
}

/// The changed files between two commits whose path is `wanted`. Links and submodules are left out.
pub async fn text_changes(
    repository: &Repository,
    from: &ObjectId,
    to: &ObjectId,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<TextChange>, ScmError> {
    let changes = changes_between(&repository.git, from, to).await?;
    let name = |entry: &Option<TreeEntry>| {
        let file = entry
            .as_ref()
            .filter(|entry| ![GITLINK, SYMLINK].contains(&entry.mode));
        file.map(|entry| entry.id.to_string())
    };
    let mut paths = Vec::new();
    let mut names = Vec::new();
    for change in &changes {
        let path = String::from_utf8_lossy(change.path.as_bytes()).into_owned();
        if wanted(&path) {
            paths.push(path);
            names.extend([name(&change.before), name(&change.after)]);
        }
    }
    let mut texts = read_texts(repository, &names).await?.into_iter();
    let change = |path| TextChange {
        path,
        before: texts.next().flatten(),
        after: texts.next().flatten(),
    };
    Ok(paths.into_iter().map(change).collect())
}

/// The texts of files of a commit, in order; `None` for one that does not exist.
pub async fn texts_at(
    repository: &Repository,
    commit: &ObjectId,
    paths: &[String],
) -> Result<Vec<Option<String>>, ScmError> {
    let name = |path: &String| (!path.contains('\n')).then(|| format!("{commit}:{path}"));
    let names: Vec<Option<String>> = paths.iter().map(name).collect();
    read_texts(repository, &names).await
}

async fn read_texts(
    repository: &Repository,
    names: &[Option<String>],
) -> Result<Vec<Option<String>>, ScmError> {
    let mut texts: Vec<Option<String>> = vec![None; names.len()];
    let known: Vec<(usize, &String)> = names
        .iter()
        .enumerate()
        .filter_map(|(index, name)| Some((index, name.as_ref()?)))
        .collect();
    for batch in known.chunks(BATCH) {
        let git = &repository.git;
        let lines: Vec<&str> = batch.iter().map(|(_, name)| name.as_str()).collect();
        let command = git
            .command("cat-file")
            .arg("--batch-check=%(objecttype) %(objectsize)")
            .stdin(lines.join("\n") + "\n");
        let printed = git.run(&command).await?;
        let sizes = String::from_utf8_lossy(&printed).into_owned();
        if sizes.lines().count() != batch.len() {
            return Err(unexpected("one size per name", &printed));
        }
        let mut readable = Vec::new();
        for ((index, name), line) in batch.iter().zip(sizes.lines()) {
            let size = line
                .strip_prefix("blob ")
                .and_then(|size| size.parse::<u64>().ok());
            if let Some(size) = size {
                texts[*index] = Some(String::new());
                if size <= MAX_TEXT {
                    readable.push((*index, (*name).clone()));
                }
            }
        }
        let names: Vec<String> = readable.iter().map(|(_, name)| name.clone()).collect();
        let objects = objects::read(git, &names).await?;
        for ((index, _), object) in readable.into_iter().zip(objects) {
            texts[index] = object.map(|object| String::from_utf8_lossy(&object.bytes).into_owned());
        }
    }
    Ok(texts)
}
