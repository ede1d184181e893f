//! The header of a git bundle, read strictly: it was written where the agent was.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::id::ObjectId;

/// A header of ours is a few lines; a longer one is not ours.
const LONGEST_HEADER: usize = 1024 * 1024;

/// What a bundle says it holds, and where its pack begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Commits that it builds on.
    pub prerequisites: BTreeSet<ObjectId>,
    /// The one ref in it: what it points at, and its name.
    pub tip: (ObjectId, String),
    /// How many bytes come before the pack.
    pub length: usize,
}

/// Why a bundle is not one of ours.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BundleError {
    /// The first line is not that of a bundle.
    #[error("it is not a git bundle of version 2 or 3")]
    Signature,
    /// It asks for something that is not understood here.
    #[error("it needs `{0}`, which is not supported")]
    Capability(String),
    /// A line that cannot be read.
    #[error("its header holds a line that cannot be read: `{0}`")]
    Line(String),
    /// The header has no end.
    #[error("its header is cut off or too long")]
    Truncated,
    /// There must be one ref and there is another number.
    #[error("it holds {0} refs where one was asked for")]
    Refs(usize),
    /// The ref is not what was asked for.
    #[error("it holds {found} where {expected} was asked for")]
    WrongTip {
        /// What was asked for.
        expected: ObjectId,
        /// What is in it.
        found: ObjectId,
    },
    /// It builds on a commit that was not named as known.
    #[error("it builds on {0}, which the repository does not have")]
    UnknownPrerequisite(ObjectId),
}

impl Header {
    /// Reads the header of a bundle with exactly one ref.
    pub fn parse(bundle: &[u8]) -> Result<Self, BundleError> {
        let mut lines = Lines { bundle, at: 0 };
        let capabilities = match lines.next()? {
            b"# v2 git bundle" => false,
            b"# v3 git bundle" => true,
            _ => return Err(BundleError::Signature),
        };
        let mut prerequisites = BTreeSet::new();
        let mut refs = Vec::new();
        loop {
            let line = lines.next()?;
            match line {
                b"" => break,
                [b'@', capability @ ..] if capabilities => supported(capability)?,
                [b'-', rest @ ..] if refs.is_empty() => {
                    prerequisites.insert(id_and_rest(rest).ok_or_else(|| unreadable(line))?.0);
                }
                _ => refs.push(id_and_rest(line).ok_or_else(|| unreadable(line))?),
            }
        }
        match <[_; 1]>::try_from(refs) {
            Ok([tip]) => Ok(Self {
                prerequisites,
                tip,
                length: lines.at,
            }),
            Err(refs) => Err(BundleError::Refs(refs.len())),
        }
    }
}

struct Lines<'a> {
    bundle: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Result<&'a [u8], BundleError> {
        let window = &self.bundle[self.at..self.bundle.len().min(LONGEST_HEADER)];
        let length = window
            .iter()
            .position(|byte| *byte == b'\n')
            .ok_or(BundleError::Truncated)?;
        self.at += length + 1;
        Ok(&window[..length])
    }
}

fn supported(capability: &[u8]) -> Result<(), BundleError> {
    match capability {
        b"object-format=sha1" | b"object-format=sha256" => Ok(()),
        other => Err(BundleError::Capability(
            String::from_utf8_lossy(other).into_owned(),
        )),
    }
}

fn id_and_rest(line: &[u8]) -> Option<(ObjectId, String)> {
    let text = std::str::from_utf8(line).ok()?;
    let (id, rest) = text.split_once(' ').unwrap_or((text, ""));
    Some((ObjectId::parse(id).ok()?, rest.to_owned()))
}

fn unreadable(line: &[u8]) -> BundleError {
    BundleError::Line(String::from_utf8_lossy(&line[..line.len().min(100)]).into_owned())
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
        let header = Header::parse(text.as_bytes()).unwrap();
        assert_eq!(header.tip, (ObjectId::parse(B).unwrap(), "HEAD".to_owned()));
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
        assert_eq!(Header::parse(bundle.as_bytes()), Err(expected));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(tail in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Header::parse(&tail);
            let _ = Header::parse(&[b"# v3 git bundle\n".as_slice(), &tail].concat());
        }
    }
}
