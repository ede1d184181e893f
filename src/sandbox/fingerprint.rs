//! Hashes what a sandbox is created from.

use std::fmt::Debug;

use crate::engine::Digest;

/// The length of a fingerprint in hexadecimal digits.
const DIGITS: usize = 32;

/// Hashes the `Debug` output of the parts. Serializing them could fail, because a path need not be UTF-8.
pub(super) fn fingerprint(parts: &impl Debug) -> String {
    Digest::sha256(format!("{parts:?}").as_bytes()).hex()[..DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    use super::super::ReadOnlyMount;
    use super::*;

    #[test]
    fn paths_that_are_not_utf8_differ() {
        let mount = |bytes: &[u8]| ReadOnlyMount {
            source: PathBuf::from(OsStr::from_bytes(bytes)),
            target: "/tools".into(),
        };
        let one = fingerprint(&("deny", mount(b"/a\xff")));
        assert_eq!(one, fingerprint(&("deny", mount(b"/a\xff"))));
        assert_ne!(one, fingerprint(&("allow-all", mount(b"/a\xff"))));
        assert_ne!(one, fingerprint(&("deny", mount(b"/a\xfe"))));
    }
}
