//! Parses the header of a git bundle strictly, because it comes from the sandbox.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::id::ObjectId;

/// The longest header in bytes. A valid one is a few lines.
const LONGEST_HEADER: usize = 1024 * 1024;

/// The header of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleHeader {
    /// The commits that it requires.
    pub prerequisites: BTreeSet<ObjectId>,
    /// The object of its only ref.
    pub tip: ObjectId,
    /// The length of the header: the position of the pack.
    pub length: usize,
}

/// Why a bundle is not valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BundleError {
    /// The first line is not that of a bundle.
    #[error("not a git bundle of version 2 or 3")]
    Signature,
    /// It requires an unknown capability.
    #[error("the capability `{0}` is not supported")]
    Capability(String),
    /// A malformed line.
    #[error("malformed header line `{0}`")]
    Line(String),
    /// The header has no end.
    #[error("the header is truncated or too long")]
    Truncated,
    /// It does not contain exactly one ref.
    #[error("expected one ref, found {0}")]
    Refs(usize),
    /// Its ref points at another commit.
    #[error("expected the commit {expected}, found {found}")]
    WrongTip {
        /// The expected commit.
        expected: ObjectId,
        /// The actual commit.
        found: ObjectId,
    },
    /// It requires an unknown commit.
    #[error("it requires {0}, which the repository does not have")]
    UnknownPrerequisite(ObjectId),
}

impl BundleHeader {
    /// Parses the header of a bundle with exactly one ref.
    pub fn parse(bundle: &[u8]) -> Result<Self, BundleError> {
        let mut length = 0;
        let mut lines = bundle[..bundle.len().min(LONGEST_HEADER)].split_inclusive(|byte| *byte == b'\n');
        let mut next_line = || {
            let line = lines.next().and_then(|line| line.strip_suffix(b"\n"));
            length += line.map_or(0, <[u8]>::len) + 1;
            line.ok_or(BundleError::Truncated)
        };
        let capabilities = match next_line()? {
            b"# v2 git bundle" => false,
            b"# v3 git bundle" => true,
            _ => return Err(BundleError::Signature),
        };
        let mut prerequisites = BTreeSet::new();
        let mut refs = Vec::new();
        loop {
            let line = next_line()?;
            match line {
                b"" => break,
                [b'@', capability @ ..] if capabilities => supported(capability)?,
                [b'-', rest @ ..] if refs.is_empty() => {
                    prerequisites.insert(leading_id(rest).ok_or_else(|| malformed(line))?);
                }
                _ => refs.push(leading_id(line).ok_or_else(|| malformed(line))?),
            }
        }
        match <[_; 1]>::try_from(refs) {
            Ok([tip]) => Ok(Self {
                prerequisites,
                tip,
                length,
            }),
            Err(refs) => Err(BundleError::Refs(refs.len())),
        }
    }
}

fn supported(capability: &[u8]) -> Result<(), BundleError> {
    match capability {
        b"object-format=sha1" | b"object-format=sha256" => Ok(()),
        other => Err(BundleError::Capability(shown(other))),
    }
}

fn leading_id(line: &[u8]) -> Option<ObjectId> {
    let text = std::str::from_utf8(line).ok()?;
    ObjectId::parse(text.split(' ').next()?).ok()
}

fn malformed(line: &[u8]) -> BundleError {
    BundleError::Line(shown(line))
}

/// The beginning of a line: the sandbox decides how long it is.
fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(100)]).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    #[test]
    fn a_header_says_what_the_bundle_builds_on_and_where_the_pack_is() {
        let text = format!("# v2 git bundle\n-{A} base\n{B} HEAD\n\nPACK");
        let header = BundleHeader::parse(text.as_bytes()).unwrap();
        assert_eq!(header.tip, ObjectId::parse(B).unwrap());
        assert_eq!(
            header.prerequisites,
            BTreeSet::from([ObjectId::parse(A).unwrap()])
        );
        assert_eq!(&text[header.length..], "PACK");
    }

    #[rstest]
    #[case::empty("", BundleError::Truncated)]
    #[case::other_file("PACK\n", BundleError::Signature)]
    #[case::no_end(&format!("# v2 git bundle\n{A} HEAD\n"), BundleError::Truncated)]
    #[case::no_ref("# v2 git bundle\n\n", BundleError::Refs(0))]
    #[case::two_refs(&format!("# v2 git bundle\n{A} HEAD\n{B} refs/heads/x\n\n"), BundleError::Refs(2))]
    #[case::short_id("# v2 git bundle\nabc HEAD\n\n", BundleError::Line("abc HEAD".into()))]
    #[case::filter("# v3 git bundle\n@filter=blob:none\n\n", BundleError::Capability("filter=blob:none".into()))]
    #[case::capability_in_v2("# v2 git bundle\n@object-format=sha1\n\n", BundleError::Line("@object-format=sha1".into()))]
    fn anything_else_is_refused(#[case] bundle: &str, #[case] expected: BundleError) {
        assert_eq!(BundleHeader::parse(bundle.as_bytes()), Err(expected));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(tail in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = BundleHeader::parse(&tail);
            let _ = BundleHeader::parse(&[b"# v3 git bundle\n".as_slice(), &tail].concat());
        }
    }
}
