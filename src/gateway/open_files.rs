//! The limit of open files of this process.

use crate::text::error_chain;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limits of open files that ralph asks for: enough for everything, and what every system allows.
const OPEN_FILES: [u64; 2] = [65_536, 10_240];

/// Raises the limit of open files as far as needed and allowed: every connection of a sandbox takes two.
pub(super) fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = raise_limit(limit, |raised| setrlimit(Resource::Nofile, raised)) {
        tracing::warn!(error = %error_chain(&error), "cannot raise the limit of open files");
    }
}

/// Tries one value of [`OPEN_FILES`] after another: macOS reports no maximum, and refuses what exceeds its own.
fn raise_limit(limit: Rlimit, set: impl Fn(Rlimit) -> Result<(), Errno>) -> Result<(), Errno> {
    let mut result = Ok(());
    for files in OPEN_FILES {
        let wanted = limit.maximum.map_or(files, |maximum| maximum.min(files));
        if limit.current.is_none_or(|current| current >= wanted) {
            return Ok(());
        }
        result = set(Rlimit {
            current: Some(wanted),
            ..limit
        });
        if result.is_ok() {
            break;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::linux(1024, Some(524_288), u64::MAX, &[65_536], true)]
    #[case::low_maximum(1024, Some(4096), u64::MAX, &[4096], true)]
    #[case::macos_has_less_than_it_reports(256, None, 61_440, &[65_536, 10_240], true)]
    #[case::everything_is_refused(256, None, 256, &[65_536, 10_240], false)]
    #[case::enough_already(70_000, None, 61_440, &[], true)]
    fn the_limit_of_open_files_is_raised_as_far_as_allowed(
        #[case] current: u64,
        #[case] maximum: Option<u64>,
        #[case] allowed: u64,
        #[case] attempts: &[u64],
        #[case] succeeds: bool,
    ) {
        let tried = RefCell::new(Vec::new());
        let limit = Rlimit {
            current: Some(current),
            maximum,
        };
        let raised = raise_limit(limit, |limit| {
            assert_eq!(limit.maximum, maximum);
            tried.borrow_mut().extend(limit.current);
            if limit.current.is_some_and(|files| files <= allowed) {
                Ok(())
            } else {
                Err(Errno::INVAL)
            }
        });
        assert_eq!(raised.is_ok(), succeeds);
        assert_eq!(tried.into_inner(), attempts);
    }
}
