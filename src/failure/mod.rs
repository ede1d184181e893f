//! Failure signatures: whether two runs of a command failed in the same way.
//!
//! The names of failing tests identify a failure where a test runner printed them. Otherwise the output does, without
//! what differs from one run to the next: times, durations, process ids, addresses, hashes and the like. Pure functions,
//! linear in the size of the output.

mod duration;
mod junit;
mod noise;
mod number;
mod runners;
mod scan;
mod temp_path;
mod timestamp;

use std::collections::BTreeSet;

use crate::digest::Digest;
use crate::text::{first_bytes, last_bytes};

/// How much of the beginning and of the end of a stream is read, in bytes.
const HEAD_BYTES: usize = 64 * 1024;
const TAIL_BYTES: usize = 192 * 1024;
/// How many bytes of an output with a gap are compared on each side of it, after noise was removed. The length of the
/// noise moves the edges of the gap, so the text next to them is left out.
const STABLE_HEAD_BYTES: usize = 4 * 1024;
const STABLE_TAIL_BYTES: usize = 12 * 1024;

/// An output stream of a failed command: all of it, or its beginning and its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureStream {
    head: String,
    tail: Option<String>,
}

impl FailureStream {
    /// A stream that was captured without its middle.
    #[must_use]
    pub fn with_gap(head: &str, tail: &str) -> Self {
        let (head, tail) = (first_bytes(head, HEAD_BYTES), last_bytes(tail, TAIL_BYTES));
        // The lines at the gap are incomplete.
        let head = head.rsplit_once('\n').map_or("", |(lines, _)| lines);
        let tail = tail.split_once('\n').map_or("", |(_, lines)| lines);
        Self {
            head: noise::plain_text(head),
            tail: Some(noise::plain_text(tail)),
        }
    }

    fn lines(&self) -> impl Iterator<Item = &str> {
        self.head
            .lines()
            .chain(self.tail.iter().flat_map(|tail| tail.lines()))
    }

    fn normalised(&self) -> String {
        let head = noise::normalise(&self.head);
        let Some(tail) = &self.tail else { return head };
        let tail = noise::normalise(tail);
        let (head, tail) = (
            first_bytes(&head, STABLE_HEAD_BYTES),
            last_bytes(&tail, STABLE_TAIL_BYTES),
        );
        format!("{head}\0{tail}")
    }
}

impl From<&str> for FailureStream {
    fn from(text: &str) -> Self {
        if text.len() > HEAD_BYTES + TAIL_BYTES {
            return Self::with_gap(text, text);
        }
        Self {
            head: noise::plain_text(text),
            tail: None,
        }
    }
}

/// Identifies a failure of a command. Two runs that failed in the same way have equal signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureSignature {
    hash: String,
    tests: BTreeSet<String>,
}

impl FailureSignature {
    /// The signature of a command that exited with `code`.
    #[must_use]
    pub fn new(command: &str, code: i32, stdout: &FailureStream, stderr: &FailureStream) -> Self {
        let lines: Vec<&str> = stdout.lines().chain(stderr.lines()).collect();
        let tests = runners::failing_tests(&lines);
        let what = if tests.is_empty() {
            format!("text\0{}\0{}", stdout.normalised(), stderr.normalised())
        } else {
            let names: Vec<&str> = tests.iter().map(String::as_str).collect();
            format!("tests\0{}", names.join("\0"))
        };
        let digest = Digest::sha256(format!("{command}\0{code}\0{what}").as_bytes());
        Self {
            hash: digest.hex()[..16].to_owned(),
            tests,
        }
    }

    /// 16 hexadecimal digits.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The names of the failing tests; empty when the output does not list them in a form that is known.
    #[must_use]
    pub fn tests(&self) -> &BTreeSet<String> {
        &self.tests
    }
}

#[cfg(test)]
mod tests;
