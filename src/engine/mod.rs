//! A container engine, through its API: Docker, rootless or not, near or far, and podman.
//!
//! [`Engine::connect`] finds one the way the `docker` command does; [`EngineError`] says what stood in the way and what
//! to do about it.

mod build;
mod buildx;
mod container;
mod container_spec;
mod credentials;
mod digest;
mod endpoint;
mod error;
mod events;
mod exec;
mod image;
mod image_files;
mod info;
mod log;
mod reference;
mod save;
mod tar_stream;
mod transfer;
mod trial;

use std::fmt;
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker};

pub use build::{Base, Build, BuildCache};
pub use container::{Container, ContainerState};
pub use container_spec::{ContainerSpec, Limits, Mount, MountAccess, Network, Power};
pub use digest::{Digest, DigestError};
pub use endpoint::{Endpoint, Surroundings, endpoints};
pub use error::EngineError;
pub use exec::{Exec, ExecInput, ExecOutput, ExecSpec, ExecState, ExecStdout};
pub use image::{Image, Removal};
pub use image_files::ImageFiles;
pub use info::{EngineInfo, Flavour, ImageStore, Kernel, UserMapping};
pub use reference::{Reference, ReferenceError};
pub use tar_stream::TarStream;
pub use transfer::{Amount, Progress, ProgressSink};
pub use trial::Trial;

use crate::exec::Host;

/// How long an engine may take to begin an answer that costs it little.
const SHORT: Duration = Duration::from_secs(120);
/// How long it may take to begin one that moves or makes an image: it says nothing while it unpacks.
const LONG: Duration = Duration::from_secs(6 * 60 * 60);

/// A container engine that answered. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    docker: Docker,
    endpoint: Endpoint,
    surroundings: Surroundings,
    host: Host,
    flavour: Flavour,
    arch: String,
}

impl Engine {
    /// Finds the engine that the `docker` command would use: `DOCKER_HOST`, the chosen context, then the usual
    /// sockets, podman's last. `host` starts the few programs that are needed beside the API: `docker buildx` and the
    /// helpers that keep credentials.
    pub async fn connect(surroundings: &Surroundings, host: &Host) -> Result<Self, EngineError> {
        let candidates = endpoints(surroundings)?;
        let mut refusal = None;
        for endpoint in &candidates {
            match Self::at(endpoint, surroundings, host).await {
                Ok(engine) => return Ok(engine),
                Err(EngineError::NoEngine { .. }) => {}
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        Err(refusal.unwrap_or(EngineError::NoEngine { tried: candidates }))
    }

    /// Where it answers.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The processor its containers see, as images name it: `amd64`, `arm64`.
    #[must_use]
    pub fn arch(&self) -> &str {
        &self.arch
    }

    /// Asks what it is just once: an engine takes longer to tell its version than to tell of an image.
    async fn at(endpoint: &Endpoint, surroundings: &Surroundings, host: &Host) -> Result<Self, EngineError> {
        let refused = |error| EngineError::from_connecting(endpoint, error);
        let asking = client(endpoint, API_DEFAULT_VERSION).map_err(refused)?;
        let version = asking.version().await.map_err(refused)?;
        Ok(Self {
            docker: client(endpoint, &info::spoken(endpoint, &version)?).map_err(refused)?,
            endpoint: endpoint.clone(),
            surroundings: surroundings.clone(),
            host: host.clone(),
            flavour: info::flavour(&version),
            arch: version.arch.unwrap_or_default(),
        })
    }

    /// The same engine, for calls that take long to begin their answer.
    fn patient(&self) -> Docker {
        self.docker.clone().with_timeout(LONG)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({})", self.endpoint)
    }
}

fn client(endpoint: &Endpoint, version: &ClientVersion) -> Result<Docker, bollard::errors::Error> {
    let timeout = SHORT.as_secs();
    match endpoint {
        Endpoint::Unix(path) => Docker::connect_with_unix(&path.to_string_lossy(), timeout, version),
        Endpoint::Tcp(address) => Docker::connect_with_http(address, timeout, version),
        Endpoint::Tls {
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
