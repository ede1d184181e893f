//! What an engine is.

use std::path::PathBuf;

use bollard::models::{SystemInfo, SystemVersion};
use bollard::{API_DEFAULT_VERSION, ClientVersion};

use super::{Endpoint, Engine, EngineError};

/// What is known of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// Its version, as it writes it.
    pub version: String,
    /// Whose it is.
    pub flavour: Flavour,
    /// How it keeps images.
    pub store: ImageStore,
    /// The operating system its containers see, as images name it: `linux`.
    pub os: String,
    /// The processor its containers see, as images name it: `amd64`, `arm64`.
    pub arch: String,
    /// How many processors it can give to a container.
    pub processors: u32,
    /// Who its containers' users are outside.
    pub users: UserMapping,
    /// Whether its containers run on this machine's kernel, as far as it tells.
    pub kernel: Kernel,
    /// The directory of its machine that it keeps everything in, its containers among it.
    pub directory: Option<PathBuf>,
}

/// On whose kernel an engine's containers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Nothing says that it is another than that of the engine's machine.
    Own,
    /// That of a virtual machine which Docker Desktop keeps.
    Desktop,
}

/// Who the users of containers are outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserMapping {
    /// The same: user 1000 inside is user 1000.
    Same,
    /// The engine belongs to a plain user, who is root inside.
    Rootless,
    /// Others, from a range of their own.
    Remapped,
}

/// Whose engine it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Docker.
    Docker,
    /// podman, through the API it shares with Docker.
    Podman,
}

/// How an engine keeps images, which decides what may be left out when one is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageStore {
    /// A graph driver such as overlay2: layers are known by the chain they stand in.
    GraphDriver,
    /// containerd: every layer is known by its own content.
    Containerd,
}

impl Engine {
    /// Asks the engine what it is.
    pub async fn info(&self) -> Result<EngineInfo, EngineError> {
        let failed = |error| EngineError::from_api("the engine itself", error);
        let (version, info) = tokio::join!(self.docker.version(), self.docker.info());
        Ok(read(version.map_err(failed)?, &info.map_err(failed)?))
    }
}

fn read(version: SystemVersion, info: &SystemInfo) -> EngineInfo {
    EngineInfo {
        flavour: flavour(&version),
        version: version.version.unwrap_or_default(),
        store: store(info),
        os: version.os.unwrap_or_default(),
        arch: version.arch.unwrap_or_default(),
        processors: info.ncpu.and_then(|count| u32::try_from(count).ok()).unwrap_or(1),
        users: users(info),
        kernel: kernel(info),
        directory: info.docker_root_dir.as_ref().map(PathBuf::from),
    }
}

/// The version of the API that both sides know.
pub(super) fn spoken(endpoint: &Endpoint, version: &SystemVersion) -> Result<ClientVersion, EngineError> {
    let named = version.api_version.as_deref().unwrap_or_default();
    let parsed = named.split_once('.').and_then(|(major, minor)| {
        Some(ClientVersion {
            major_version: major.parse().ok()?,
            minor_version: minor.parse().ok()?,
        })
    });
    let theirs = parsed.ok_or_else(|| EngineError::Answer {
        subject: endpoint.to_string(),
        reason: format!("`{named}` is no version of its API"),
    })?;
    let ours = *API_DEFAULT_VERSION;
    Ok(if theirs < ours { theirs } else { ours })
}

pub(super) fn flavour(version: &SystemVersion) -> Flavour {
    let mut components = version.components.iter().flatten();
    if components.any(|component| component.name.contains("Podman")) {
        Flavour::Podman
    } else {
        Flavour::Docker
    }
}

fn users(info: &SystemInfo) -> UserMapping {
    let options = info.security_options.as_deref().unwrap_or_default();
    let has = |name: &str| options.iter().any(|option| option.starts_with(name));
    if has("name=rootless") {
        UserMapping::Rootless
    } else if has("name=userns") {
        UserMapping::Remapped
    } else {
        UserMapping::Same
    }
}

fn kernel(info: &SystemInfo) -> Kernel {
    match info.operating_system.as_deref() {
        Some("Docker Desktop") => Kernel::Desktop,
        Some(_) | None => Kernel::Own,
    }
}

/// With containerd the driver carries the name of its snapshotter, and says so beside it.
fn store(info: &SystemInfo) -> ImageStore {
    let facts = info.driver_status.iter().flatten().flatten();
    if facts
        .into_iter()
        .any(|fact| fact.starts_with("io.containerd.snapshotter"))
    {
        ImageStore::Containerd
    } else {
        ImageStore::GraphDriver
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::docker_20(json!([{"Name": "Engine", "Version": "20.10.24"}]), json!([["Backing Filesystem", "extfs"]]), Flavour::Docker, ImageStore::GraphDriver)]
    #[case::docker_28(json!([{"Name": "Engine", "Version": "28.5.0"}]), json!([["driver-type", "io.containerd.snapshotter.v1"]]), Flavour::Docker, ImageStore::Containerd)]
    #[case::podman(json!([{"Name": "Podman Engine", "Version": "4.3.1"}]), json!(null), Flavour::Podman, ImageStore::GraphDriver)]
    fn an_engine_is_told_by_its_answers(
        #[case] components: serde_json::Value,
        #[case] driver: serde_json::Value,
        #[case] flavour: Flavour,
        #[case] store: ImageStore,
    ) {
        let version = json!({"Version": "1", "Os": "linux", "Arch": "amd64", "Components": components});
        let info = json!({"Driver": "overlay2", "DriverStatus": driver});
        let info = read(
            serde_json::from_value(version).unwrap(),
            &serde_json::from_value(info).unwrap(),
        );
        assert_eq!((info.flavour, info.store), (flavour, store));
        assert_eq!((info.os.as_str(), info.arch.as_str()), ("linux", "amd64"));
    }

    #[rstest]
    #[case::as_root(json!(["name=apparmor", "name=seccomp,profile=default"]), UserMapping::Same)]
    #[case::nothing_said(json!(null), UserMapping::Same)]
    #[case::rootless(json!(["name=seccomp,profile=default", "name=rootless"]), UserMapping::Rootless)]
    #[case::remapped(json!(["name=seccomp,profile=default", "name=userns"]), UserMapping::Remapped)]
    fn who_users_are_outside_is_told_by_its_options(
        #[case] options: serde_json::Value,
        #[case] expected: UserMapping,
    ) {
        let info = serde_json::from_value(json!({ "SecurityOptions": options })).unwrap();
        assert_eq!(users(&info), expected);
    }
}
