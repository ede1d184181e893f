//! The names of sandboxes: `agent-loop-{agent}-{branch}`, valid as a host name and unique.

use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::SandboxSpec;
use crate::engine::Digest;

/// The prefix of all names.
const PREFIX: &str = "agent-loop";
/// The length limit of a host name.
const MAX_LENGTH: usize = 63;
/// The length of a hash that makes a name unique.
const HASH_DIGITS: usize = 8;

/// The names to try, in order. The first contains the branch, with a hash if another branch could get the same name
/// otherwise. The second is unique to the run on this host.
pub(super) fn names(spec: &SandboxSpec, base: &Path) -> [String; 2] {
    let (agent, branch) = (spec.purpose.agent.as_str(), spec.purpose.branch.as_str());
    let plain = format!("{PREFIX}-{}-{}", sanitize(agent), sanitize(branch));
    // All branches of ralph contain slashes, so replacing them alone needs no hash.
    let is_unique = sanitize(branch) == branch.replace('/', "-") && plain.len() <= MAX_LENGTH;
    let own = with_hash(&plain, &[&base.to_string_lossy(), spec.run.as_str()]);
    if is_unique {
        [plain, own]
    } else {
        [with_hash(&plain, &[agent, branch]), own]
    }
}

/// A name that begins with these words and is unique to these texts.
pub(super) fn unique_name(words: &str, texts: &[&str]) -> String {
    with_hash(&sanitize(words), texts)
}

/// The name, shortened if necessary, with a hash of these texts.
fn with_hash(name: &str, texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.as_bytes());
        hash.update([0]);
    }
    let digest = Digest::from_hasher(hash);
    let kept = name.len().min(MAX_LENGTH - HASH_DIGITS - 1);
    format!(
        "{}-{}",
        name[..kept].trim_end_matches('-'),
        &digest.hex()[..HASH_DIGITS]
    )
}

/// Keeps lower-case letters, digits and single dashes; `none` if nothing is left.
fn sanitize(text: &str) -> String {
    let words: Vec<String> = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    if words.is_empty() {
        "none".to_owned()
    } else {
        words.join("-")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::super::Purpose;
    use super::*;
    use crate::id::RunId;

    fn named(agent: &str, branch: &str, run: &str) -> [String; 2] {
        let spec = SandboxSpec {
            purpose: Purpose {
                agent: agent.to_owned(),
                branch: branch.to_owned(),
                task: String::new(),
            },
            ..SandboxSpec::unrestricted(RunId::parse(run).unwrap())
        };
        names(&spec, Path::new("/data"))
    }

    #[rstest]
    #[case::a_branch_of_ours("claude", "ralph/t1/say-hello", "agent-loop-claude-ralph-t1-say-hello")]
    #[case::special_characters("codex", "fix: it's #1!", "agent-loop-codex-fix-it-s-1-")]
    #[case::nothing_left("codex", "\u{e9}\u{e9}", "agent-loop-codex-none-")]
    #[case::none_at_all("", "", "agent-loop-none-none-")]
    fn a_name_contains_agent_and_branch(#[case] agent: &str, #[case] branch: &str, #[case] begins: &str) {
        let [first, _] = named(agent, branch, "r2345");
        assert!(first.starts_with(begins), "{first}");
        assert_eq!(
            first.len() - begins.len(),
            if begins.ends_with('-') { HASH_DIGITS } else { 0 }
        );
    }

    #[test]
    fn similar_branches_get_different_names() {
        let names = ["a b", "a-b", "a.b", "A-b"].map(|branch| named("x", branch, "r2345")[0].clone());
        for (at, name) in names.iter().enumerate() {
            assert!(!names[at + 1..].contains(name), "{names:?}");
        }
    }

    #[test]
    fn two_runs_on_one_branch_get_different_second_names() {
        let [first, second] = ["r2345", "r2346"].map(|run| named("x", "b", run));
        assert_eq!(first[0], second[0]);
        assert_ne!(first[1], second[1]);
    }

    proptest! {
        #[test]
        fn every_name_is_valid(agent in ".{0,40}", branch in ".{0,300}") {
            for name in named(&agent, &branch, "r2345") {
                prop_assert!(name.len() <= MAX_LENGTH);
                prop_assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
            }
        }
    }
}
