//! Where the workspaces of an engine's sandboxes are.

use std::io::{self, Write};
use std::path::Path;

use super::super::{SandboxError, SandboxErrorKind};
use super::container::ROOT;
use super::unshared;
use super::user::AgentUser;
use super::volume_files::STAGING;
use crate::engine::{Engine, EngineEndpoint, EngineError, TarStream, UserMapping};

/// Where workspaces are, as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceChoice {
    /// Shared if possible.
    Auto,
    /// In a directory of this host.
    Shared,
    /// In a volume of the engine.
    Volume,
}

/// Where workspaces are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkspacePlace {
    /// In a directory of this host.
    Shared,
    /// In a volume of the engine.
    Volume,
}

impl WorkspacePlace {
    /// Chooses the place on an engine that maps users so.
    pub(super) fn choose(
        choice: WorkspaceChoice,
        endpoint: &EngineEndpoint,
        users: UserMapping,
    ) -> Result<Self, SandboxError> {
        match choice {
            WorkspaceChoice::Volume => Ok(Self::Volume),
            WorkspaceChoice::Auto if endpoint.is_remote() || users == UserMapping::Remapped => {
                Ok(Self::Volume)
            }
            WorkspaceChoice::Shared if endpoint.is_remote() => Err(unshared(
                format!("the engine at {endpoint} is not on this host"),
                "set sandbox.docker.workspace = \"auto\", or use an engine on this host (unset DOCKER_HOST, or run \
                 `docker context use default`)",
            )),
            WorkspaceChoice::Auto | WorkspaceChoice::Shared => Ok(Self::Shared),
        }
    }

    /// Its name in `sandbox.docker.workspace`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Volume => "volume",
        }
    }
}

/// Makes the directories of a workspace in the volume of a container that was not started yet.
pub(super) async fn prepare_volume(
    engine: &Engine,
    container: &str,
    user: AgentUser,
) -> Result<(), EngineError> {
    let archive = TarStream::written_by(move |out| write_directories(out, user));
    engine.put_archive(container, "/", archive).await
}

fn write_directories(out: &mut dyn Write, user: AgentUser) -> io::Result<()> {
    let mut tar = tar::Builder::new(out);
    let root = ROOT.trim_start_matches('/');
    let work_dirs = ["work", "home", STAGING].map(|name| format!("{root}/{name}"));
    for name in std::iter::once(root.to_owned()).chain(work_dirs) {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(0o700);
        header.set_uid(user.inside.uid.into());
        header.set_gid(user.inside.gid.into());
        header.set_size(0);
        tar.append_data(&mut header, name, io::empty())?;
    }
    tar.finish()
}

/// The error for a directory of this host that a container on another host would need.
pub(super) fn unseen_mount(engine: &Engine, source: &Path) -> SandboxError {
    let message = format!(
        "the containers of the engine at {} cannot see `{}` of this host (sandbox.mounts)",
        engine.endpoint(),
        source.display()
    );
    SandboxError::new(SandboxErrorKind::Failed, message)
        .with_hint(Some("remove the mount, or put its files into the image"))
}

/// The error for podman on another host, which reads the filter of system calls from a file.
pub(super) fn remote_podman(engine: &Engine) -> SandboxError {
    let message = format!(
        "the podman at {} cannot read the filter of system calls, which is a file of this host",
        engine.endpoint()
    );
    SandboxError::new(SandboxErrorKind::Failed, message).with_hint(Some(
        "use Docker on that host, or run ralph on the host of podman",
    ))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::WorkspaceChoice::{Auto, Shared, Volume};
    use super::*;

    #[rstest]
    #[case::on_this_host(Auto, "unix", UserMapping::Same, "shared")]
    #[case::elsewhere(Auto, "tcp", UserMapping::Same, "volume")]
    #[case::rootless(Auto, "unix", UserMapping::Rootless, "shared")]
    #[case::mapped(Auto, "unix", UserMapping::Remapped, "volume")]
    #[case::as_configured(Volume, "unix", UserMapping::Same, "volume")]
    #[case::rootless_as_configured(Volume, "unix", UserMapping::Rootless, "volume")]
    fn a_place_is_chosen(
        #[case] choice: WorkspaceChoice,
        #[case] kind: &str,
        #[case] users: UserMapping,
        #[case] expected: &str,
    ) {
        let endpoint = match kind {
            "tcp" => EngineEndpoint::Tcp("h:2375".to_owned()),
            _ => EngineEndpoint::Unix("/run/docker.sock".into()),
        };
        let place = WorkspacePlace::choose(choice, &endpoint, users).unwrap();
        assert_eq!(place.name(), expected);
    }

    #[test]
    fn a_directory_cannot_be_shared_with_another_host() {
        let endpoint = EngineEndpoint::Tcp("h:2375".to_owned());
        let error = WorkspacePlace::choose(Shared, &endpoint, UserMapping::Same).unwrap_err();
        assert!(error.to_string().contains("tcp://h:2375"), "{error}");
    }
}
