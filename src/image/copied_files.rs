//! The files of a build context that a Dockerfile copies, for a builder at another place.

use super::context::{BuildContext, ContextEntry};
use super::dockerignore::DockerIgnore;
use super::error::ImageError;
use super::spec::DockerfileContext;
use super::stages::{self, Instruction};
use crate::digest::Digest;

/// The name under which a builder keeps the Dockerfile that it gets, in front of the files.
const BUILDERS_FILE: &str = "Dockerfile";

/// What an instruction takes from the build context.
#[derive(Debug, PartialEq, Eq)]
enum ContextSource {
    /// What this pattern matches, and everything below it.
    Pattern(String),
    /// Paths that are known only during the build.
    Everything,
}

/// The part of a build context that its Dockerfile copies or mounts; `None` if it needs no files. The error says what the
/// builder would not find.
pub(super) fn copied_files(file: &DockerfileContext) -> Result<Option<BuildContext>, String> {
    let mut patterns = Vec::new();
    let mut takes_everything = false;
    for instruction in stages::instructions(&file.text) {
        for source in sources(&instruction) {
            match source {
                ContextSource::Everything => takes_everything = true,
                ContextSource::Pattern(text) => patterns.push(pattern(file, instruction.line, &text)?),
            }
        }
    }
    let is_copied = |path: &str| takes_everything || patterns.iter().any(|one| one.excludes(path));
    // The Dockerfile itself is at the builder.
    let itself = Digest::sha256(file.text.as_bytes());
    let is_itself = |path: &str| {
        let entry = file.context.entries().get(path);
        path == BUILDERS_FILE && matches!(entry, Some(ContextEntry::File { digest, .. }) if *digest == itself)
    };
    let part = file.context.part(|path| is_copied(path) && !is_itself(path));
    match unkept(&part) {
        Some(reason) => Err(format!("`{}` copies {reason}", file.name)),
        None => Ok(Some(part).filter(|part| !part.entries().is_empty())),
    }
}

/// The pattern of a source, which must match something.
fn pattern(file: &DockerfileContext, line: usize, text: &str) -> Result<DockerIgnore, String> {
    let name = &file.name;
    let parsed = DockerIgnore::parse(text);
    let parsed = parsed.map_err(|error: ImageError| format!("line {line} of `{name}`: {error}"))?;
    let mut paths = file.context.entries().keys();
    if paths.any(|path| parsed.excludes(path)) {
        return Ok(parsed);
    }
    Err(format!(
        "line {line} of `{name}` copies `{text}`, which is not in its directory or excluded by `.dockerignore`"
    ))
}

/// What an instruction takes from the build context.
fn sources(instruction: &Instruction) -> Vec<ContextSource> {
    let is = |name: &str| instruction.words[0].eq_ignore_ascii_case(name);
    let arguments = &instruction.words[1..];
    if is("RUN") {
        let mounts = arguments.iter().filter_map(|word| word.strip_prefix("--mount="));
        let mut binds = mounts.filter(|mount| !mount.contains("type=") || mount.contains("type=bind"));
        let takes = binds.any(|mount| !mount.contains("from="));
        return takes.then_some(ContextSource::Everything).into_iter().collect();
    }
    let has_other_source = arguments.iter().any(|word| word.starts_with("--from="));
    if !is("COPY") && !is("ADD") || has_other_source {
        return Vec::new();
    }
    let words = arguments.iter().skip_while(|word| word.starts_with("--"));
    let words: Vec<&str> = words.map(String::as_str).collect();
    let is_elsewhere = |path: &String| {
        path.starts_with("<<") || (is("ADD") && (path.contains("://") || path.starts_with("git@")))
    };
    let paths = paths(&words).into_iter().filter(|path| !is_elsewhere(path));
    paths.map(|path| source(&path)).collect()
}

/// The sources among the arguments: all but the last one, which is the destination. What looks like JSON and is not means
/// words, as for Docker.
fn paths(words: &[&str]) -> Vec<String> {
    let list = serde_json::from_str(&words.join(" "));
    let mut paths: Vec<String> = list.unwrap_or_else(|_| words.iter().map(ToString::to_string).collect());
    paths.pop();
    paths
}

/// A source with a variable, quotes or escapes may be any path, and one without a name is the context itself.
fn source(path: &str) -> ContextSource {
    let is_plain = !path.contains(['$', '"', '\'', '\\']) && !path.starts_with(['!', '#']);
    let has_name = !path.trim_matches(['.', '/']).is_empty();
    if is_plain && has_name {
        ContextSource::Pattern(path.to_owned())
    } else {
        ContextSource::Everything
    }
}

/// The first entry that is not sent: a file with keys, or what Daytona's builder would lose. It takes files out of the archive
/// one by one, and puts them after its Dockerfile.
fn unkept(part: &BuildContext) -> Option<String> {
    part.entries().iter().find_map(|(path, entry)| {
        let below = format!("{path}/");
        let mut following = part.entries().range(below.clone()..);
        let is_empty = !following.next().is_some_and(|(next, _)| next.starts_with(&below));
        match entry {
            ContextEntry::File { .. } | ContextEntry::Link { .. } if holds_keys(path) => {
                Some(format!("`{path}`, which holds keys; add it to `.dockerignore`"))
            }
            ContextEntry::Link { .. } => Some(format!("the symbolic link `{path}`, which the builder loses")),
            ContextEntry::Directory if is_empty => {
                Some(format!("the empty directory `{path}`, which the builder loses"))
            }
            ContextEntry::File { .. } if path == BUILDERS_FILE => Some(format!(
                "a file `{path}`, the name under which the builder keeps its own"
            )),
            ContextEntry::Directory | ContextEntry::File { .. } => None,
        }
    })
}

/// Whether a path has the name of a file with keys: `.env`, or `.env.local` and the like.
fn holds_keys(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name == ".env" || (name.starts_with(".env.") && name != ".env.example")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rstest::rstest;
    use tempfile::TempDir;

    use super::*;
    use crate::image::HashCache;

    /// A directory with some files, and a Dockerfile `own` in it with this text after its first line.
    fn file(dir: &TempDir, lines: &str) -> DockerfileContext {
        for folder in ["etc/deep", "empty"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        for name in [
            "a",
            "b.txt",
            "c.txt",
            "with space",
            "etc/x",
            "etc/deep/y",
            ".env.example",
            ".hidden",
            "secret",
        ] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        fs::write(dir.path().join(".dockerignore"), "secret\nempty\n.dockerignore\n").unwrap();
        let hashes = tempfile::tempdir().unwrap();
        let cache = HashCache::new(hashes.path(), crate::clock::system());
        DockerfileContext {
            name: "own".to_owned(),
            text: format!("FROM debian\n{lines}\n"),
            context: BuildContext::read(dir.path(), &[], &cache).unwrap(),
        }
    }

    const ALL: &str = ".env.example .hidden a b.txt c.txt etc etc/deep etc/deep/y etc/x with space";

    #[rstest]
    #[case::file("COPY a /a", "a")]
    #[case::wildcard("COPY --chown=1:1 *.txt /", "b.txt c.txt")]
    #[case::directory("copy ./etc/ /etc/", "etc etc/deep etc/deep/y etc/x")]
    #[case::several("ADD a /etc/x \\\n  b.txt /to/", "a b.txt etc/x")]
    #[case::json("COPY [\"with space\", \"a\", \"/\"]", "a with space")]
    #[case::everything("COPY . /src", ALL)]
    #[case::variable("ARG N=a\nCOPY $N /a", ALL)]
    #[case::mount("RUN --mount=type=bind,target=/a make", ALL)]
    #[case::mount_without_a_type("RUN --mount=target=/a make", ALL)]
    #[case::stage("COPY --from=build /a /a", "")]
    #[case::here_document("COPY <<EOF /a\nCOPY b /b\nEOF", "")]
    #[case::here_document_and_file("COPY <<EOF a /to/\nCOPY b /b\nEOF", "a")]
    #[case::address("ADD https://example.org/a.tar git@example.org:a.git /a/", "")]
    #[case::cache("RUN --mount=type=cache,target=/root/.cache make", "")]
    #[case::mounted_stage("RUN --mount=from=build,target=/b make # COPY a b", "")]
    fn the_files_that_are_copied_are_sent(#[case] lines: &str, #[case] expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        let part = copied_files(&file(&dir, lines)).unwrap();
        let sent: Vec<&str> = part
            .iter()
            .flat_map(|part| part.entries().keys().map(String::as_str))
            .collect();
        assert_eq!(sent.join(" "), expected);
        assert_eq!(part.is_none(), expected.is_empty());
    }

    #[rstest]
    #[case::missing(
        "COPY nothing /a",
        "line 2 of `own` copies `nothing`, which is not in its directory"
    )]
    #[case::ignored("RUN x\nADD secret /a", "line 3 of `own` copies `secret`, which is not")]
    #[case::bad_pattern("COPY [a- /a", "line 2 of `own`: line 1: invalid pattern")]
    fn a_file_that_cannot_be_sent_is_reported(#[case] lines: &str, #[case] expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        let error = copied_files(&file(&dir, lines)).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }

    #[rstest]
    #[case::link("link", "the symbolic link `link`")]
    #[case::empty_directory("hollow", "the empty directory `hollow`")]
    #[case::builders_file("Dockerfile", "a file `Dockerfile`")]
    #[case::keys(".env", "`.env`, which holds keys; add it to `.dockerignore`")]
    #[case::other_keys(".env.local", "`.env.local`, which holds keys")]
    #[case::keys_below("a.d/.env", "`a.d/.env`, which holds keys")]
    fn what_the_builder_would_lose_or_must_not_get_is_refused(#[case] name: &str, #[case] expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        match name {
            "link" => symlink("a", &path).unwrap(),
            "hollow" => fs::create_dir(&path).unwrap(),
            "a.d/.env" => {
                fs::create_dir(dir.path().join("a.d")).unwrap();
                fs::write(&path, "KEY=k").unwrap();
            }
            _ => fs::write(&path, "FROM another").unwrap(),
        }
        let error = copied_files(&file(&dir, "COPY . /all")).unwrap_err();
        assert!(error.starts_with(&format!("`own` copies {expected}")), "{error}");
        assert!(copied_files(&file(&dir, "COPY etc /all")).is_ok());
    }

    #[test]
    fn the_dockerfile_itself_is_not_sent_twice() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("Dockerfile"), "FROM debian\nCOPY . /all\n").unwrap();
        let part = copied_files(&file(&dir, "COPY . /all")).unwrap().unwrap();
        assert!(!part.entries().contains_key("Dockerfile"));
    }
}
