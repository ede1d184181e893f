//! Asks an engine for its version, platform and storage.

use std::path::PathBuf;

use bollard::models::{SystemInfo, SystemVersion};
use bollard::{API_DEFAULT_VERSION, ClientVersion};

use super::{Engine, EngineEndpoint, EngineError};

/// Properties of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// The version of the engine.
    pub version: String,
    /// Docker or podman.
    pub kind: EngineKind,
    /// How it stores images.
    pub store: ImageStore,
    /// The operating system of its containers: `linux`.
    pub os: String,
    /// The CPU architecture of its containers: `amd64`, `arm64`.
    pub arch: String,
    /// The number of CPUs that a container can use.
    pub cpus: u32,
    /// How it maps the users of its containers.
    pub users: UserMapping,
    /// The random id of the engine; empty if it has none that stays. Podman draws a new one for each request.
    pub id: String,
    /// Whether its containers are known to run on another kernel than this process: in a VM (Docker Desktop, Colima,
    /// `OrbStack`), or on another host whose socket is forwarded. Two kernels of the same release look the same here.
    pub has_other_kernel: bool,
    /// Its data directory, on its own host.
    pub data_dir: Option<PathBuf>,
}

/// Which user of the host a user of a container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserMapping {
    /// The one with the same number.
    Same,
    /// The engine runs as an ordinary user, who is root inside.
    Rootless,
    /// One from a separate range of numbers.
    Remapped,
}

/// The software that an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Docker.
    Docker,
    /// podman, through its Docker-compatible API.
    Podman,
}

/// How an engine stores images, which decides which layers can be left out of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageStore {
    /// A graph driver such as overlay2, which identifies a layer by all layers up to it.
    GraphDriver,
    /// containerd, which identifies every layer by its content.
    Containerd,
}

impl Engine {
    /// Asks the engine for its properties.
    pub async fn info(&self) -> Result<EngineInfo, EngineError> {
        let failed = |error| EngineError::from_api("the engine itself", error);
        let (version, info) = tokio::join!(self.docker.version(), self.docker.info());
        Ok(read(version.map_err(failed)?, &info.map_err(failed)?))
    }
}

fn read(version: SystemVersion, info: &SystemInfo) -> EngineInfo {
    let kind = kind(&version);
    EngineInfo {
        kind,
        version: version.version.unwrap_or_default(),
        store: store(info),
        os: version.os.unwrap_or_default(),
        arch: version.arch.unwrap_or_default(),
        cpus: info.ncpu.and_then(|count| u32::try_from(count).ok()).unwrap_or(1),
        users: users(info),
        id: match kind {
            EngineKind::Docker => info.id.clone().unwrap_or_default(),
            EngineKind::Podman => String::new(),
        },
        has_other_kernel: has_other_kernel(info, &HostKernel::running()),
        data_dir: info.docker_root_dir.as_ref().map(PathBuf::from),
    }
}

/// The newest API version that the engine and the client support.
pub(super) fn common_version(
    endpoint: &EngineEndpoint,
    version: &SystemVersion,
) -> Result<ClientVersion, EngineError> {
    let named = version.api_version.as_deref().unwrap_or_default();
    let parsed = named.split_once('.').and_then(|(major, minor)| {
        Some(ClientVersion {
            major_version: major.parse().ok()?,
            minor_version: minor.parse().ok()?,
        })
    });
    let supported = parsed.ok_or_else(|| {
        EngineError::invalid_response(endpoint, format_args!("`{named}` is not an API version"))
    })?;
    let newest = *API_DEFAULT_VERSION;
    Ok(if supported < newest { supported } else { newest })
}

pub(super) fn kind(version: &SystemVersion) -> EngineKind {
    let mut components = version.components.iter().flatten();
    if components.any(|component| component.name.contains("Podman")) {
        EngineKind::Podman
    } else {
        EngineKind::Docker
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

/// The kernel of the host.
struct HostKernel {
    /// Its name: `Linux`, `Darwin`.
    name: String,
    /// Its release: `6.12.41`.
    release: String,
}

impl HostKernel {
    fn running() -> Self {
        let system = rustix::system::uname();
        Self {
            name: system.sysname().to_string_lossy().into_owned(),
            release: system.release().to_string_lossy().into_owned(),
        }
    }
}

/// Containers run on Linux, so a host with another kernel never shares its own with them.
fn has_other_kernel(info: &SystemInfo, host: &HostKernel) -> bool {
    let engine = info
        .kernel_version
        .as_deref()
        .filter(|version| !version.is_empty());
    host.name != "Linux" || engine.is_some_and(|engine| engine != host.release)
}

/// With containerd the driver status names its snapshotter.
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
    #[case::docker_20(json!([{"Name": "Engine", "Version": "20.10.24"}]), json!([["Backing Filesystem", "extfs"]]), EngineKind::Docker, ImageStore::GraphDriver)]
    #[case::docker_28(json!([{"Name": "Engine", "Version": "28.5.0"}]), json!([["driver-type", "io.containerd.snapshotter.v1"]]), EngineKind::Docker, ImageStore::Containerd)]
    #[case::podman(json!([{"Name": "Podman Engine", "Version": "4.3.1"}]), json!(null), EngineKind::Podman, ImageStore::GraphDriver)]
    fn an_engine_is_recognised_by_its_version_and_info(
        #[case] components: serde_json::Value,
        #[case] driver: serde_json::Value,
        #[case] kind: EngineKind,
        #[case] store: ImageStore,
    ) {
        let version = json!({"Version": "1", "Os": "linux", "Arch": "amd64", "Components": components});
        let info = json!({"Driver": "overlay2", "DriverStatus": driver, "ID": "1f"});
        let info = read(
            serde_json::from_value(version).unwrap(),
            &serde_json::from_value(info).unwrap(),
        );
        assert_eq!((info.kind, info.store), (kind, store));
        assert_eq!(info.id.is_empty(), kind == EngineKind::Podman);
        assert_eq!((info.os.as_str(), info.arch.as_str()), ("linux", "amd64"));
    }

    #[rstest]
    #[case::as_root(json!(["name=apparmor", "name=seccomp,profile=default"]), UserMapping::Same)]
    #[case::no_options(json!(null), UserMapping::Same)]
    #[case::rootless(json!(["name=seccomp,profile=default", "name=rootless"]), UserMapping::Rootless)]
    #[case::remapped(json!(["name=seccomp,profile=default", "name=userns"]), UserMapping::Remapped)]
    fn the_user_mapping_is_read_from_the_security_options(
        #[case] options: serde_json::Value,
        #[case] expected: UserMapping,
    ) {
        let info = serde_json::from_value(json!({ "SecurityOptions": options })).unwrap();
        assert_eq!(users(&info), expected);
    }

    #[rstest]
    #[case::same_release("6.12.41", "Linux", false)]
    #[case::kernel_is_unknown("", "Linux", false)]
    #[case::docker_desktop_on_linux("6.10.14-linuxkit", "Linux", true)]
    #[case::forwarded_from_another_host("6.8.0-45-generic", "Linux", true)]
    #[case::colima_on_a_mac("6.8.0-50-generic", "Darwin", true)]
    #[case::the_same_release_on_a_mac("6.12.41", "Darwin", true)]
    fn an_engine_with_another_kernel_is_recognised(
        #[case] kernel: &str,
        #[case] host: &str,
        #[case] expected: bool,
    ) {
        let info = json!({ "KernelVersion": kernel });
        let host = HostKernel {
            name: host.to_owned(),
            release: "6.12.41".to_owned(),
        };
        assert_eq!(
            has_other_kernel(&serde_json::from_value(info).unwrap(), &host),
            expected
        );
    }
}
