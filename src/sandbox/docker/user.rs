//! The user of the agent inside a container: not root, and the owner of the workspace.

use std::fmt;

use rustix::process::{getgid, getuid};

use super::super::SandboxError;
use super::super::files::FileOwner;
use super::unshared;
use super::workspace::WorkspacePlace;
use crate::engine::UserMapping;

/// The user of the agent if ralph runs as root: usually the first regular user, and `agent` in ralph's images.
const REGULAR: FileOwner = FileOwner { uid: 1000, gid: 1000 };

/// The user of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AgentUser {
    /// The user inside.
    pub(super) inside: FileOwner,
    /// The user on the host, if that is not the user of this process.
    pub(super) outside: Option<FileOwner>,
}

impl AgentUser {
    /// Chooses a user such that both the agent and this process can write to the workspace.
    pub(super) fn new(users: UserMapping, place: WorkspacePlace) -> Result<Self, SandboxError> {
        let me = FileOwner {
            uid: getuid().as_raw(),
            gid: getgid().as_raw(),
        };
        Self::for_user(me, users, place)
    }

    fn for_user(me: FileOwner, users: UserMapping, place: WorkspacePlace) -> Result<Self, SandboxError> {
        let (inside, outside) = match users {
            // Only the agent needs to write to it.
            _ if place == WorkspacePlace::Volume => (REGULAR, None),
            UserMapping::Same if me.uid == 0 => (REGULAR, Some(REGULAR)),
            UserMapping::Same => (me, None),
            // Root inside is the user of the engine on the host; other users inside cannot write to that user's files.
            UserMapping::Rootless => (FileOwner { uid: 0, gid: 0 }, None),
            UserMapping::Remapped => {
                return Err(unshared(
                    "the engine maps user ids (`userns-remap`)",
                    "set sandbox.docker.workspace = \"auto\"",
                ));
            }
        };
        Ok(Self { inside, outside })
    }

    /// Whether the programs of an image belong to this user, so that only a read-only file system protects them.
    pub(super) fn owns_programs(self) -> bool {
        self.inside.uid == 0
    }
}

/// In the format of an engine, `uid:gid`.
impl fmt::Display for AgentUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.inside.uid, self.inside.gid)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::WorkspacePlace::{Shared, Volume};
    use super::*;

    #[rstest]
    #[case::a_plain_user(1234, UserMapping::Same, Shared, "1234:1234", None)]
    #[case::root(0, UserMapping::Same, Shared, "1000:1000", Some(REGULAR))]
    #[case::an_engine_of_ones_own(1234, UserMapping::Rootless, Shared, "0:0", None)]
    #[case::a_volume(1234, UserMapping::Same, Volume, "1000:1000", None)]
    #[case::a_volume_of_an_engine_of_ones_own(1234, UserMapping::Rootless, Volume, "1000:1000", None)]
    #[case::a_volume_with_mapped_ids(1234, UserMapping::Remapped, Volume, "1000:1000", None)]
    fn the_agent_owns_its_workspace(
        #[case] uid: u32,
        #[case] users: UserMapping,
        #[case] place: WorkspacePlace,
        #[case] inside: &str,
        #[case] outside: Option<FileOwner>,
    ) {
        let agent = AgentUser::for_user(FileOwner { uid, gid: uid }, users, place).unwrap();
        assert_eq!((agent.to_string().as_str(), agent.outside), (inside, outside));
        assert_eq!(agent.owns_programs(), inside == "0:0");
    }

    #[test]
    fn an_engine_that_maps_user_ids_cannot_share_a_workspace() {
        let me = FileOwner { uid: 1, gid: 1 };
        let error = AgentUser::for_user(me, UserMapping::Remapped, Shared).unwrap_err();
        assert!(error.to_string().ends_with("(`userns-remap`)"), "{error}");
    }
}
