//! The API of a container engine: Docker, rootless or not, local or remote, and podman.
//!
//! [`Engine::connect`] finds one like the `docker` command does. [`EngineError`] has a hint for the user.

mod archive;
mod build;
mod buildx;
mod container;
mod container_spec;
mod content_archive;
mod credentials;
mod endpoint;
mod error;
mod exec;
mod image;
mod image_files;
mod info;
mod log;
mod reference;
mod save;
mod tar_stream;
mod transfer;
mod tunnel;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bollard::models::SystemVersion;
use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker};

pub use crate::digest::Digest;
pub use build::ImageBuild;
pub use container::{Container, ContainerState};
pub use container_spec::{
    ContainerLimits, ContainerMount, ContainerNetwork, ContainerSpec, ContainerVolume, ReadOnlyFiles,
    SeccompProfile,
};
pub use content_archive::ContentArchive;
pub use endpoint::{EngineEndpoint, EngineEnvironment, endpoints};
pub use error::EngineError;
pub use exec::{ContainerExec, ExecOutput, ExecSpec, ExecState, ExecStdout};
pub use image::EngineImage;
pub use image_files::ImageFiles;
pub use info::{EngineInfo, EngineKind, ImageStore, LimitKind, UserMapping};
pub use reference::{EngineImageReference, EngineImageReferenceError};
pub use tar_stream::TarStream;
pub use transfer::{ProgressSink, TransferAmount, TransferProgress};

use self::tunnel::SshTunnel;
use crate::exec::Host;

/// Timeout until a response starts.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Timeout until a response starts for pulls, loads and builds: the engine sends nothing while it unpacks.
const LONG_TIMEOUT: Duration = Duration::from_secs(6 * 60 * 60);

/// A connected container engine. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    docker: Docker,
    endpoint: EngineEndpoint,
    environment: EngineEnvironment,
    host: Host,
    kind: EngineKind,
    version: Arc<SystemVersion>,
    /// Leads to an engine that is reached by SSH.
    tunnel: Option<Arc<SshTunnel>>,
}

impl Engine {
    /// Connects to the engine that the `docker` command would use: `DOCKER_HOST`, the current context, then the default
    /// sockets, with podman's last. `host` runs `docker buildx` and credential helpers.
    pub async fn connect(environment: &EngineEnvironment, host: &Host) -> Result<Self, EngineError> {
        let candidates = endpoints(environment)?;
        let mut failure = None;
        for endpoint in &candidates {
            match Self::connect_to(endpoint, environment, host).await {
                Ok(engine) => return Ok(engine),
                Err(EngineError::NoEngine { .. }) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or(EngineError::NoEngine { tried: candidates }))
    }

    /// The address of its API.
    #[must_use]
    pub fn endpoint(&self) -> &EngineEndpoint {
        &self.endpoint
    }

    /// The address by which programs of this host reach it, as long as this value lives.
    fn near_endpoint(&self) -> EngineEndpoint {
        match &self.tunnel {
            Some(tunnel) => EngineEndpoint::Unix(tunnel.socket()),
            None => self.endpoint.clone(),
        }
    }

    /// The CPU architecture of its containers: `amd64`, `arm64`.
    #[must_use]
    pub fn arch(&self) -> &str {
        self.version.arch.as_deref().unwrap_or_default()
    }

    /// Asks for the version only once: Docker starts `runc` and `docker-init` to answer, which takes longer than inspecting an image.
    async fn connect_to(
        endpoint: &EngineEndpoint,
        environment: &EngineEnvironment,
        host: &Host,
    ) -> Result<Self, EngineError> {
        let failed = |error| EngineError::from_connecting(endpoint, error);
        let tunnel = match endpoint {
            EngineEndpoint::Ssh { destination, socket } => {
                Some(SshTunnel::open(destination, socket, environment, host).await?)
            }
            EngineEndpoint::Unix(_) | EngineEndpoint::Tcp(_) | EngineEndpoint::Tls { .. } => None,
        };
        let near = match &tunnel {
            Some(tunnel) => EngineEndpoint::Unix(tunnel.socket()),
            None => endpoint.clone(),
        };
        let initial = client(&near, API_DEFAULT_VERSION).map_err(failed)?;
        let version = initial.version().await.map_err(failed)?;
        Ok(Self {
            docker: client(&near, &info::common_version(endpoint, &version)?).map_err(failed)?,
            tunnel: tunnel.map(Arc::new),
            endpoint: endpoint.clone(),
            environment: environment.clone(),
            host: host.clone(),
            kind: info::kind(&version),
            version: Arc::new(version),
        })
    }

    /// A client for requests whose response takes long to start.
    fn long_running(&self) -> Docker {
        self.docker.clone().with_timeout(LONG_TIMEOUT)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({})", self.endpoint)
    }
}

fn client(endpoint: &EngineEndpoint, version: &ClientVersion) -> Result<Docker, bollard::errors::Error> {
    let timeout = TIMEOUT.as_secs();
    match endpoint {
        EngineEndpoint::Unix(path) => Docker::connect_with_unix(&path.to_string_lossy(), timeout, version),
        EngineEndpoint::Tcp(address) => Docker::connect_with_http(address, timeout, version),
        // Only a tunnel leads there.
        EngineEndpoint::Ssh { socket, .. } => {
            Docker::connect_with_unix(&socket.to_string_lossy(), timeout, version)
        }
        EngineEndpoint::Tls {
            address,
            certificates,
        } => Docker::connect_with_ssl(
            address,
            &certificates.join("key.pem"),
            &certificates.join("cert.pem"),
            &certificates.join("ca.pem"),
            timeout,
            version,
        ),
    }
}
