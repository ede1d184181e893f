//! What sandboxes are called: `agent-loop-{agent}-{branch}`, fit for a host name and never that of another.

use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::SandboxSpec;
use crate::engine::Digest;

/// What every name begins with.
const PREFIX: &str = "agent-loop";
/// Longer names are cut: a host name has 63 characters, and a person reads them in columns.
const LONGEST: usize = 63;
/// How many digits of a hash tell two names apart.
const HASH_DIGITS: usize = 8;

/// The names to try, in order. The first is the plain one, unless making it fit an engine changed the branch's name so
/// that another branch could come to the same; the second is this run's alone, among all of this machine.
pub(super) fn names(spec: &SandboxSpec, base: &Path) -> [String; 2] {
    let (agent, branch) = (spec.purpose.agent.as_str(), spec.purpose.branch.as_str());
    let plain = format!("{PREFIX}-{}-{}", sanitised(agent), sanitised(branch));
    // A slash is what every branch of ours has: that it became a dash is no reason for a hash.
    let faithful = sanitised(branch) == branch.replace('/', "-") && plain.len() <= LONGEST;
    let own = hashed(&plain, &[&base.to_string_lossy(), spec.run.as_str()]);
    if faithful {
        [plain, own]
    } else {
        [hashed(&plain, &[agent, branch]), own]
    }
}

/// The name, cut so that a hash of these texts has room behind it.
fn hashed(name: &str, texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.as_bytes());
        hash.update([0]);
    }
    let digest = Digest::from_hasher(hash);
    let kept = name.len().min(LONGEST - HASH_DIGITS - 1);
    format!(
        "{}-{}",
        name[..kept].trim_end_matches('-'),
        &digest.hex()[..HASH_DIGITS]
    )
}

/// Lower-case letters, digits and single dashes; `none` when nothing is left.
fn sanitised(text: &str) -> String {
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
    fn a_name_is_made_of_agent_and_branch(#[case] agent: &str, #[case] branch: &str, #[case] begins: &str) {
        let [first, _] = named(agent, branch, "r2345");
        assert!(first.starts_with(begins), "{first}");
        assert_eq!(
            first.len() - begins.len(),
            if begins.ends_with('-') { HASH_DIGITS } else { 0 }
        );
    }

    #[test]
    fn two_branches_that_look_alike_are_told_apart() {
        let names = ["a b", "a-b", "a.b", "A-b"].map(|branch| named("x", branch, "r2345")[0].clone());
        for (at, name) in names.iter().enumerate() {
            assert!(!names[at + 1..].contains(name), "{names:?}");
        }
    }

    #[test]
    fn two_runs_on_one_branch_are_told_apart() {
        let [first, second] = ["r2345", "r2346"].map(|run| named("x", "b", run));
        assert_eq!(first[0], second[0]);
        assert_ne!(first[1], second[1]);
    }

    proptest! {
        #[test]
        fn an_engine_takes_every_name(agent in ".{0,40}", branch in ".{0,300}") {
            for name in named(&agent, &branch, "r2345") {
                prop_assert!(name.len() <= LONGEST);
                prop_assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
            }
        }
    }
}
