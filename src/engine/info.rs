//! Asks an engine for its version, platform and storage.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use bollard::models::{SystemInfo, SystemInfoCgroupVersionEnum, SystemVersion};
use bollard::{API_DEFAULT_VERSION, ClientVersion};
use serde::Deserialize;

use super::{Engine, EngineEndpoint, EngineError, TIMEOUT};

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
    /// The OCI runtimes that containers can choose from, by the names that it knows them by.
    pub runtimes: BTreeSet<String>,
    /// The limits that it cannot apply to its containers: an engine without control groups of its own ignores them.
    pub ignored_limits: Vec<LimitKind>,
}

/// What a limit of a container is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// Bytes of memory.
    Memory,
    /// Processor time.
    Processors,
    /// Processes and threads.
    Processes,
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Processors => "processors",
            Self::Processes => "processes",
        })
    }
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
        let info = self.docker.info().await.map_err(failed)?;
        let is_rootless_podman = self.kind == EngineKind::Podman && self.is_rootless_podman().await?;
        Ok(read(&self.version, &info, is_rootless_podman))
    }

    /// Podman says in a field of its own whether it runs as an ordinary user; newer versions also say it as Docker does.
    async fn is_rootless_podman(&self) -> Result<bool, EngineError> {
        let EngineEndpoint::Unix(socket) = self.near_endpoint() else {
            return Ok(false);
        };
        let failed = |error: reqwest::Error| EngineError::invalid_response("the engine itself", error);
        let client = reqwest::Client::builder()
            .unix_socket(socket.as_path())
            .tls_built_in_root_certs(false)
            .timeout(TIMEOUT)
            .build()
            .map_err(failed)?;
        let response = client.get("http://podman/info").send().await.map_err(failed)?;
        let response = response.error_for_status().map_err(failed)?;
        let info: PodmanInfo = response.json().await.map_err(failed)?;
        Ok(info.rootless)
    }
}

/// What only podman reports.
#[derive(Deserialize)]
struct PodmanInfo {
    #[serde(rename = "Rootless")]
    rootless: bool,
}

/// The limits of a container.
const LIMITS: [LimitKind; 3] = [LimitKind::Memory, LimitKind::Processors, LimitKind::Processes];

fn read(version: &SystemVersion, info: &SystemInfo, is_rootless_podman: bool) -> EngineInfo {
    let kind = kind(version);
    let users = if is_rootless_podman {
        UserMapping::Rootless
    } else {
        users(info)
    };
    EngineInfo {
        kind,
        version: version.version.clone().unwrap_or_default(),
        store: store(info),
        os: version.os.clone().unwrap_or_default(),
        arch: version.arch.clone().unwrap_or_default(),
        cpus: info.ncpu.and_then(|count| u32::try_from(count).ok()).unwrap_or(1),
        users,
        id: match kind {
            EngineKind::Docker => info.id.clone().unwrap_or_default(),
            EngineKind::Podman => String::new(),
        },
        has_other_kernel: has_other_kernel(info, &HostKernel::running()),
        data_dir: info.docker_root_dir.as_ref().map(PathBuf::from),
        runtimes: info
            .runtimes
            .iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect(),
        ignored_limits: ignored_limits(info, users),
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

/// The limits that the engine says it ignores. No ordinary user may change control groups of version 1, but podman does not
/// say that it ignores limits there.
fn ignored_limits(info: &SystemInfo, users: UserMapping) -> Vec<LimitKind> {
    if users == UserMapping::Rootless && info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_1) {
        return LIMITS.to_vec();
    }
    let applied = [info.memory_limit, info.cpu_cfs_quota, info.pids_limit];
    let limits = LIMITS.into_iter().zip(applied);
    let ignored = limits.filter(|(_, applies)| *applies == Some(false));
    ignored.map(|(limit, _)| limit).collect()
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
            &serde_json::from_value(version).unwrap(),
            &serde_json::from_value(info).unwrap(),
            false,
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
    #[case::all_apply(json!({"MemoryLimit": true, "CpuCfsQuota": true, "PidsLimit": true}), UserMapping::Same, &[])]
    #[case::not_said(json!({}), UserMapping::Same, &[])]
    #[case::one_is_ignored(json!({"MemoryLimit": false, "PidsLimit": true}), UserMapping::Rootless, &[LimitKind::Memory])]
    #[case::rootless(json!({"MemoryLimit": true, "CgroupVersion": "1"}), UserMapping::Rootless, &LIMITS)]
    #[case::delegated(json!({"MemoryLimit": true, "CgroupVersion": "2"}), UserMapping::Rootless, &[])]
    fn limits_that_an_engine_ignores_are_known(
        #[case] info: serde_json::Value,
        #[case] users: UserMapping,
        #[case] expected: &[LimitKind],
    ) {
        let info = serde_json::from_value(info).unwrap();
        assert_eq!(ignored_limits(&info, users), expected);
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
