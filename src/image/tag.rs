//! The tags of ralph's images.

use std::fmt;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::agent::AgentImage;
use crate::digest::Digest;
use crate::engine::{EngineImageReference, EngineImageReferenceError};

/// Longer project names are truncated. Engines accept 255 characters for the whole name.
const LONGEST_NAME: usize = 64;

/// How many digits of the content hash a tag shows.
const SHORT_HASH: usize = 8;

/// The prefix of every repository.
const PREFIX: &str = "agent-loop-sandbox-";

/// The tag of one of ralph's images: `agent-loop-sandbox-claude:v1f2e3d4c`, or with the project's name after the agent's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(into = "String")]
pub struct ImageTag {
    repository: String,
    version: String,
}

impl ImageTag {
    /// The tag of a base.
    #[must_use]
    pub fn base(agent: AgentImage, hash: &Digest) -> Self {
        Self::new(format!("{PREFIX}{}", agent.name), hash)
    }

    /// The tag of a project's image.
    #[must_use]
    pub fn project(agent: AgentImage, project: &ProjectName, hash: &Digest) -> Self {
        Self::new(format!("{PREFIX}{}-{project}", agent.name), hash)
    }

    /// The tag at the end of a name (`ghcr.io/team/agent-loop-sandbox-claude:v1f2e3d4c`), if it is one of ralph's.
    #[must_use]
    pub fn at_end_of(name: &str) -> Option<Self> {
        let last = name.rsplit('/').next()?;
        let (repository, version) = last.split_once(':')?;
        let digits = version.strip_prefix('v')?;
        let is_hash =
            digits.len() == SHORT_HASH && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        (repository.starts_with(PREFIX) && is_hash).then(|| Self {
            repository: repository.to_owned(),
            version: version.to_owned(),
        })
    }

    /// A tag for a second image of the same content that replaces no other.
    #[must_use]
    pub(super) fn temporary(&self, suffix: &str) -> Self {
        Self {
            repository: format!("{}-check-{suffix}", self.repository),
            version: self.version.clone(),
        }
    }

    /// Whether the tag shows the first digits of this content hash.
    #[must_use]
    pub fn matches_hash(&self, hash: &str) -> bool {
        hash.starts_with(&self.version[1..])
    }

    /// The tag as a reference that engines take.
    pub(super) fn to_reference(&self) -> Result<EngineImageReference, EngineImageReferenceError> {
        EngineImageReference::parse(&self.to_string())
    }

    /// The part before the colon.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The part after the colon.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    fn new(repository: String, hash: &Digest) -> Self {
        let version = format!("v{}", hash.short());
        Self { repository, version }
    }
}

impl fmt::Display for ImageTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.repository, self.version)
    }
}

impl From<ImageTag> for String {
    fn from(tag: ImageTag) -> Self {
        tag.to_string()
    }
}

/// A project's name in a tag: words of lower-case letters and digits with single separators between them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectName(String);

impl ProjectName {
    /// Names a project after the directory of its repository. `My App!` becomes `my-app`. A name without any valid
    /// character becomes `project-` and a hash.
    #[must_use]
    pub fn from_directory(repository: &Path) -> Self {
        let name = repository.file_name().unwrap_or_default();
        let mut slug = slug(&name.to_string_lossy());
        slug.truncate(LONGEST_NAME);
        match slug.trim_end_matches(SEPARATORS) {
            "" => Self(format!(
                "project-{}",
                Digest::sha256(name.as_encoded_bytes()).short()
            )),
            rest => Self(rest.to_owned()),
        }
    }
}

impl fmt::Display for ProjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The separators that engines accept between two words of a name.
const SEPARATORS: [char; 3] = ['.', '_', '-'];

/// Lower-case ASCII words. A single valid separator is kept, everything else between words becomes a dash.
fn slug(name: &str) -> String {
    let mut slug = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric()) {
        if !slug.is_empty() {
            slug.push_str(match &rest[..start] {
                kept @ ("." | "_") => kept,
                _ => "-",
            });
        }
        let word = &rest[start..];
        let end = word
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(word.len());
        slug.push_str(&word[..end].to_ascii_lowercase());
        rest = &word[end..];
    }
    slug
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::agent::{CLAUDE, CODEX};

    #[rstest]
    #[case("ralph", "ralph")]
    #[case("My App!", "my-app")]
    #[case(".dotfiles", "dotfiles")]
    #[case("..Weird..Name__x_", "weird-name-x")]
    #[case("site.example_v2", "site.example_v2")]
    #[case("a - b", "a-b")]
    #[case("Übung 7", "bung-7")]
    #[case("日本語", "project-77710aed")]
    #[case("---", "project-cb3f91d5")]
    fn a_project_is_named_after_its_directory(#[case] directory: &str, #[case] expected: &str) {
        let name = ProjectName::from_directory(&Path::new("/srv").join(directory));
        assert_eq!(name.0, expected);
    }

    #[test]
    fn a_directory_without_a_name_still_names_a_project() {
        assert!(
            ProjectName::from_directory(Path::new("/"))
                .0
                .starts_with("project-")
        );
    }

    #[test]
    fn a_long_name_is_truncated_and_does_not_end_with_a_separator() {
        let long = format!("{}.{}", "a".repeat(LONGEST_NAME - 1), "b".repeat(300));
        let name = ProjectName::from_directory(Path::new(&long));
        assert_eq!(name.0, "a".repeat(LONGEST_NAME - 1));
    }

    #[test]
    fn a_tag_says_agent_project_and_content() {
        let hash = Digest::sha256(b"");
        let project = ProjectName::from_directory(Path::new("My App!"));
        assert_eq!(
            ImageTag::base(CLAUDE.image, &hash).to_string(),
            "agent-loop-sandbox-claude:ve3b0c442"
        );
        assert_eq!(
            ImageTag::project(CODEX.image, &project, &hash).to_string(),
            "agent-loop-sandbox-codex-my-app:ve3b0c442"
        );
    }

    #[rstest]
    #[case(
        "agent-loop-sandbox-claude:ve3b0c442",
        Some("agent-loop-sandbox-claude:ve3b0c442")
    )]
    #[case(
        "localhost:5000/team/agent-loop-sandbox-claude-app:ve3b0c442",
        Some("agent-loop-sandbox-claude-app:ve3b0c442")
    )]
    #[case::without_a_hash("agent-loop-sandbox-claude:latest", None)]
    #[case::too_long("agent-loop-sandbox-claude:ve3b0c4420", None)]
    #[case::no_hash("agent-loop-sandbox-claude:ve3b0c44g", None)]
    #[case::of_another_repository("debian:ve3b0c442", None)]
    #[case::no_tag("agent-loop-sandbox-claude", None)]
    fn a_tag_is_found_behind_any_registry(#[case] name: &str, #[case] expected: Option<&str>) {
        let found = ImageTag::at_end_of(name).map(|tag| tag.to_string());
        assert_eq!(found.as_deref(), expected);
    }

    /// The grammar of a name component in the distribution specification.
    fn is_component(name: &str) -> bool {
        let component = regex_lite::Regex::new(r"^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*$").unwrap();
        component.is_match(name)
    }

    proptest! {
        #[test]
        fn every_directory_gives_a_name_that_engines_accept(directory in "\\PC{0,300}") {
            let name = ProjectName::from_directory(Path::new(&directory));
            prop_assert!(is_component(&name.0), "{name}");
            prop_assert!(name.0.len() <= LONGEST_NAME);
        }
    }
}
