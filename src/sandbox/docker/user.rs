//! Who the agent is inside: not root, and the owner of its workspace.

use rustix::process::{getgid, getuid};

use super::super::files::FileOwner;
use super::unshared::Unshared;
use crate::engine::UserMapping;

/// Who works for a ralph that is root: the first plain user of a machine, and `agent` in our images.
const PLAIN: FileOwner = FileOwner { uid: 1000, gid: 1000 };

/// Who the agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agent {
    /// Inside.
    inside: FileOwner,
    /// On the host, where that is not ralph itself.
    pub(super) outside: Option<FileOwner>,
}

impl Agent {
    /// Who the agent is for this process on such an engine, so that both may write to the workspace.
    pub(super) fn on(users: UserMapping) -> Result<Self, Unshared> {
        let me = FileOwner {
            uid: getuid().as_raw(),
            gid: getgid().as_raw(),
        };
        Self::of(me, users)
    }

    fn of(me: FileOwner, users: UserMapping) -> Result<Self, Unshared> {
        match users {
            UserMapping::Same if me.uid == 0 => Ok(Self {
                inside: PLAIN,
                outside: Some(PLAIN),
            }),
            UserMapping::Same => Ok(Self {
                inside: me,
                outside: None,
            }),
            // Root inside is the engine's own plain user outside, and nobody else can write to that user's files.
            UserMapping::Rootless => Ok(Self {
                inside: FileOwner { uid: 0, gid: 0 },
                outside: None,
            }),
            UserMapping::Remapped => Err(Unshared::Remapped),
        }
    }

    /// As an engine writes it.
    pub(super) fn as_text(self) -> String {
        format!("{}:{}", self.inside.uid, self.inside.gid)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::a_plain_user(1234, UserMapping::Same, "1234:1234", None)]
    #[case::root(0, UserMapping::Same, "1000:1000", Some(PLAIN))]
    #[case::an_engine_of_ones_own(1234, UserMapping::Rootless, "0:0", None)]
    fn the_agent_owns_its_workspace(
        #[case] uid: u32,
        #[case] users: UserMapping,
        #[case] inside: &str,
        #[case] outside: Option<FileOwner>,
    ) {
        let agent = Agent::of(FileOwner { uid, gid: uid }, users).unwrap();
        assert_eq!((agent.as_text().as_str(), agent.outside), (inside, outside));
    }

    #[test]
    fn an_engine_that_gives_users_other_numbers_is_refused() {
        let me = FileOwner { uid: 1, gid: 1 };
        assert_eq!(Agent::of(me, UserMapping::Remapped), Err(Unshared::Remapped));
    }
}
