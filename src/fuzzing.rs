//! The fuzz targets: for each parser of input that others control, a body that any bytes must pass. A body panics where the
//! parser breaks one of its promises.
//!
//! `fuzz/run` drives the bodies with libFuzzer, which follows the coverage of the code, and keeps what it finds in
//! `fuzz/corpus`. The tests below run them on that corpus and on mutations of it, with any toolchain.

use crate::{agent, evidence, gateway, github, model, sandbox, scm, task};

/// A parser that is fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// The name, which is that of its directory in `fuzz/corpus`.
    pub name: &'static str,
    /// Parses the bytes and checks the result.
    pub body: fn(&[u8]),
}

/// All targets.
pub static FUZZ_TARGETS: &[FuzzTarget] = &[
    target("http_request", gateway::fuzz::http_request),
    target("http_response", gateway::fuzz::http_response),
    target("dns_query", gateway::fuzz::dns_query),
    target("tls_hello", gateway::fuzz::tls_hello),
    target("session_frames", sandbox::session::fuzz::session_frames),
    target("file_script", sandbox::docker::fuzz::file_script),
    target("bundle_header", scm::fuzz::bundle_header),
    target("git_output", scm::fuzz::git_output),
    target("yaml_mapping", task::fuzz::yaml_mapping),
    target("task_file", task::fuzz::task_file),
    target("spec_issue", task::fuzz::spec_issue),
    target("markdown_text", task::fuzz::markdown_text),
    target("agent_answer", agent::fuzz::agent_answer),
    target("unified_diff", agent::fuzz::unified_diff),
    target("transcript", agent::fuzz::transcript),
    target("model_call", model::fuzz::model_call),
    target("model_response", model::fuzz::model_response),
    target("github_answer", github::fuzz::github_answer),
    target("evidence_note", evidence::fuzz::evidence_note),
    #[cfg(feature = "serve")]
    target("api_body", crate::api::fuzz::api_body),
    #[cfg(feature = "serve")]
    target("program_output", crate::api::fuzz::program_output),
];

const fn target(name: &'static str, body: fn(&[u8])) -> FuzzTarget {
    FuzzTarget { name, body }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// How many mutations of the corpus each target gets.
    const MUTATIONS: usize = 2_000;
    /// The longest mutation, in bytes.
    const LONGEST: usize = 4 * 1024;

    fn corpus() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
    }

    fn inputs(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let files = fs::read_dir(corpus().join(target)).unwrap();
        let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        paths.sort();
        paths
            .into_iter()
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect()
    }

    #[test]
    fn every_target_has_a_corpus() {
        let named = FUZZ_TARGETS.iter().map(|target| target.name.to_owned());
        let mut named: BTreeSet<String> = named.collect();
        if cfg!(not(feature = "serve")) {
            named.extend(["api_body", "program_output"].map(str::to_owned));
        }
        let dirs = fs::read_dir(corpus()).unwrap();
        let dirs: BTreeSet<String> = dirs
            .map(|dir| dir.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(named, dirs);
        for target in FUZZ_TARGETS {
            assert!(!inputs(target.name).is_empty(), "{} has no seeds", target.name);
        }
    }

    #[test]
    fn every_input_of_the_corpus_passes() {
        for target in FUZZ_TARGETS {
            for (path, input) in inputs(target.name) {
                let passed = std::panic::catch_unwind(|| (target.body)(&input));
                assert!(passed.is_ok(), "{} breaks {}", path.display(), target.name);
            }
        }
    }

    #[test]
    fn mutations_of_the_corpus_pass() {
        for target in FUZZ_TARGETS {
            let mut random = fastrand::Rng::with_seed(1);
            let seeds: Vec<Vec<u8>> = inputs(target.name).into_iter().map(|(_, input)| input).collect();
            for _ in 0..MUTATIONS {
                let input = mutated(&seeds, &mut random);
                let passed = std::panic::catch_unwind(|| (target.body)(&input));
                assert!(
                    passed.is_ok(),
                    "{:?} breaks {}",
                    input.escape_ascii().to_string(),
                    target.name
                );
            }
        }
    }

    /// One of the seeds, with up to four changes.
    fn mutated(seeds: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
        let mut input = seeds[random.usize(..seeds.len())].clone();
        input.truncate(LONGEST);
        for _ in 0..random.usize(1..=4) {
            let from = random.usize(..=input.len());
            let to = random.usize(from..=input.len().min(from + 32));
            let new = match random.u8(..6) {
                0 => Vec::new(),
                1 => vec![random.u8(..)],
                2 => vec![*random.choice(b"\0\n\r\t \"'`{}[]<>:;,-+\\\x7f\x80\xff").unwrap()],
                3 => input[from..to].repeat(2),
                4 => input[from..to]
                    .iter()
                    .map(|byte| byte ^ (1 << random.u8(..8)))
                    .collect(),
                _ => {
                    let other = &seeds[random.usize(..seeds.len())];
                    let start = random.usize(..=other.len());
                    other[start..other.len().min(start + 64)].to_vec()
                }
            };
            input.splice(from..to, new);
        }
        input
    }
}
