//! What a sandbox was made from, as a short text that is another one when that is.

use std::fmt::Debug;

use crate::engine::Digest;

/// How many digits of a hash tell two of them apart.
const DIGITS: usize = 32;

/// The fingerprint of these parts. It is made of how they are shown, which cannot fail as writing them down can: a path
/// need not be text, and two sandboxes that both could not be told would be taken for one.
pub(super) fn of(parts: &impl Debug) -> String {
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
    fn paths_that_are_no_text_make_nothing_alike() {
        let mount = |bytes: &[u8]| ReadOnlyMount {
            source: PathBuf::from(OsStr::from_bytes(bytes)),
            target: "/tools".into(),
        };
        let one = of(&("deny", mount(b"/a\xff")));
        assert_eq!(one, of(&("deny", mount(b"/a\xff"))));
        assert_ne!(one, of(&("allow-all", mount(b"/a\xff"))));
        assert_ne!(one, of(&("deny", mount(b"/a\xfe"))));
    }
}
