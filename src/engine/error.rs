//! Errors of a container engine.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::endpoint::EngineEndpoint;

/// A request to a container engine failed.
#[derive(Debug, Error)]
pub enum EngineError {
    /// No engine can be reached.
    #[error("cannot reach a container engine (tried {})", list(.tried))]
    NoEngine {
        /// The addresses that were tried.
        tried: Vec<EngineEndpoint>,
    },
    /// The user has no permission to use the engine.
    #[error("permission denied for the container engine at {endpoint}")]
    NoPermission {
        /// Its address.
        endpoint: EngineEndpoint,
    },
    /// The address in `DOCKER_HOST` or in a context is not supported.
    #[error("cannot use the container engine address `{address}`: {reason}")]
    Address {
        /// The address.
        address: String,
        /// Why it is not supported.
        reason: &'static str,
    },
    /// The selected Docker context does not exist.
    #[error("the Docker context `{name}` does not exist")]
    NoContext {
        /// The name of the context.
        name: String,
    },
    /// A file or program of the host cannot be used.
    #[error("cannot {operation} `{target}`")]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file or program.
        target: String,
        /// The cause.
        source: io::Error,
    },
    /// The disk of the engine is full.
    #[error("the disk of the container engine is full: {message}")]
    DiskFull {
        /// The message of the engine.
        message: String,
    },
    /// A registry cannot be reached.
    #[error("cannot reach the registry of {subject}: {message}")]
    RegistryUnreachable {
        /// The image or build that needs it.
        subject: String,
        /// The message of the engine.
        message: String,
    },
    /// A registry denied access.
    #[error("the registry denied access to {subject}: {message}")]
    RegistryDenied {
        /// The image or build that needs it.
        subject: String,
        /// The message of the engine.
        message: String,
    },
    /// The engine does not have it.
    #[error("not found: {subject}")]
    NotFound {
        /// The object of the request.
        subject: String,
    },
    /// The state of an object does not allow the request: a container is not running, a name is in use.
    #[error("conflict with the state of {subject}: {message}")]
    Conflict {
        /// The object of the request.
        subject: String,
        /// The message of the engine.
        message: String,
    },
    /// The connection to the engine was lost.
    #[error("lost the connection to the container engine during a request for {subject}")]
    Disconnected {
        /// The object of the request.
        subject: String,
        /// The cause.
        source: Box<bollard::errors::Error>,
    },
    /// A tag is required to tag or push an image.
    #[error("the image reference `{name}` has a digest; a tag is required")]
    NoTag {
        /// The reference.
        name: String,
    },
    /// A build failed.
    #[error("the build of {tag} failed (log: {})\n{tail}", log.display())]
    Build {
        /// The tag of the image.
        tag: String,
        /// The last lines of the log.
        tail: String,
        /// The file of the whole log.
        log: PathBuf,
    },
    /// The archive to send could not be written, or a received one not read.
    #[error("cannot process the archive for {subject}")]
    Content {
        /// The image or path.
        subject: String,
        /// The cause.
        source: io::Error,
    },
    /// The response of the engine is not valid.
    #[error("invalid response of the container engine for {subject}: {reason}")]
    InvalidResponse {
        /// The object of the request.
        subject: String,
        /// Why it is not valid.
        reason: String,
    },
    /// Any other error of the engine.
    #[error("the container engine failed for {subject}")]
    Api {
        /// The object of the request.
        subject: String,
        /// The error.
        source: Box<bollard::errors::Error>,
    },
}

impl EngineError {
    /// What the user can do next. Rendered as `hint:` by the CLI only.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoEngine { .. } => "start Docker or podman, or set DOCKER_HOST to its address",
            Self::NoPermission { .. } => "add your user to the group `docker`, or use a rootless engine",
            Self::Address { .. } => "set DOCKER_HOST to an address like unix:///var/run/docker.sock",
            Self::NoContext { .. } => {
                "list the contexts with `docker context ls`, select one with `docker context use NAME`"
            }
            Self::DiskFull { .. } => {
                "free disk space with `ralph image prune`; `docker system df` shows what uses it"
            }
            Self::RegistryUnreachable { .. } => "check the network and the proxy settings of the engine",
            Self::RegistryDenied { .. } => "run `docker login`, and check the name of the image",
            Self::NotFound { .. } => "check the name, or pull or build the image first",
            Self::Disconnected { .. } => "check that the engine is running: `docker info`",
            Self::NoTag { .. } => "use a reference like `registry/name:tag`",
            Self::Build { .. } => "fix the error in the last lines of the log above, then build again",
            Self::Io { .. }
            | Self::Content { .. }
            | Self::InvalidResponse { .. }
            | Self::Conflict { .. }
            | Self::Api { .. } => return None,
        })
    }

    /// Whether no engine can be reached, which may be temporary.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::NoEngine { .. } | Self::Disconnected { .. })
    }

    /// For `map_err`: an I/O error with its operation and target.
    pub(super) fn io(operation: &'static str, target: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        let target = target.to_string();
        move |source| Self::Io {
            operation,
            target,
            source,
        }
    }

    /// Classifies an error of the API client for a request about `subject`.
    pub(super) fn from_api(subject: &str, error: bollard::errors::Error) -> Self {
        if let Some(known) = Self::from_message(subject, &message_of(&error)) {
            return known;
        }
        let subject = subject.to_owned();
        match status(&error) {
            Some(404) => Self::NotFound { subject },
            Some(409) => Self::Conflict {
                subject,
                message: message_of(&error),
            },
            // Also sent for a container that is being removed.
            Some(500) if message_of(&error).contains("is not running") => Self::Conflict {
                subject,
                message: message_of(&error),
            },
            None if is_connection_error(&error) => Self::Disconnected {
                subject,
                source: Box::new(error),
            },
            _ => Self::Api {
                subject,
                source: Box::new(error),
            },
        }
    }

    /// Classifies an error that engines report as text only. No other code reads these messages.
    pub(super) fn from_message(subject: &str, message: &str) -> Option<Self> {
        let lower = message.to_lowercase();
        let (_, kind) = KNOWN_MESSAGES.iter().find(|(text, _)| lower.contains(text))?;
        let (subject, message) = (subject.to_owned(), message.to_owned());
        Some(match kind {
            MessageKind::DiskFull => Self::DiskFull { message },
            MessageKind::Unreachable => Self::RegistryUnreachable { subject, message },
            MessageKind::Denied => Self::RegistryDenied { subject, message },
        })
    }

    /// The error of a failed connection attempt.
    pub(super) fn from_connecting(endpoint: &EngineEndpoint, error: bollard::errors::Error) -> Self {
        match io_kind(&error) {
            Some(io::ErrorKind::PermissionDenied) => Self::NoPermission {
                endpoint: endpoint.clone(),
            },
            Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Self::NoEngine {
                tried: vec![endpoint.clone()],
            },
            // The directory of the socket is not accessible.
            None if is_hidden(endpoint) => Self::NoPermission {
                endpoint: endpoint.clone(),
            },
            None if matches!(error, bollard::errors::Error::SocketNotFoundError(_)) => Self::NoEngine {
                tried: vec![endpoint.clone()],
            },
            _ => Self::from_api(&endpoint.to_string(), error),
        }
    }
}

fn is_hidden(endpoint: &EngineEndpoint) -> bool {
    match endpoint {
        EngineEndpoint::Unix(path) => path
            .symlink_metadata()
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied),
        EngineEndpoint::Tcp(_) | EngineEndpoint::Tls { .. } => false,
    }
}

#[derive(Clone, Copy)]
enum MessageKind {
    DiskFull,
    Unreachable,
    Denied,
}

const KNOWN_MESSAGES: [(&str, MessageKind); 14] = [
    ("no space left on device", MessageKind::DiskFull),
    ("disk quota exceeded", MessageKind::DiskFull),
    ("no such host", MessageKind::Unreachable),
    ("dial tcp", MessageKind::Unreachable),
    ("i/o timeout", MessageKind::Unreachable),
    ("tls handshake timeout", MessageKind::Unreachable),
    ("client.timeout exceeded", MessageKind::Unreachable),
    ("server misbehaving", MessageKind::Unreachable),
    ("network is unreachable", MessageKind::Unreachable),
    ("proxyconnect", MessageKind::Unreachable),
    ("unauthorized", MessageKind::Denied),
    ("access denied", MessageKind::Denied),
    ("access to the resource is denied", MessageKind::Denied),
    ("no basic auth credentials", MessageKind::Denied),
];

/// The message of the engine.
fn message_of(error: &bollard::errors::Error) -> String {
    use bollard::errors::Error;
    match error {
        Error::DockerResponseServerError { message, .. } => message.clone(),
        Error::DockerStreamError { error } => error.clone(),
        other => other.to_string(),
    }
}

fn status(error: &bollard::errors::Error) -> Option<u16> {
    match error {
        bollard::errors::Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// Whether the connection failed, and not the engine.
fn is_connection_error(error: &bollard::errors::Error) -> bool {
    use bollard::errors::Error;
    matches!(
        error,
        Error::IOError { .. }
            | Error::HyperResponseError { .. }
            | Error::HyperLegacyError { .. }
            | Error::RequestTimeoutError
            | Error::SocketNotFoundError(_)
    )
}

/// The kind of the I/O error in the chain of causes.
fn io_kind(error: &bollard::errors::Error) -> Option<io::ErrorKind> {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        cause = error.source();
    }
    None
}

fn list(endpoints: &[EngineEndpoint]) -> String {
    let shown: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::disk(
        500,
        "write /var/lib/docker/tmp/x: no space left on device",
        "the disk of the container engine is full"
    )]
    #[case::name(
        500,
        "Get \"https://registry-1.docker.io/v2/\": dial tcp: lookup registry-1.docker.io: no such host",
        "cannot reach the registry"
    )]
    #[case::timeout(500, "net/http: TLS handshake timeout", "cannot reach the registry")]
    #[case::denied(
        500,
        "pull access denied for x, repository does not exist or may require 'docker login'",
        "denied access"
    )]
    #[case::missing(404, "No such image: x", "not found: x")]
    #[case::other(500, "something else", "failed for x")]
    fn messages_of_the_engine_are_classified(
        #[case] status_code: u16,
        #[case] message: &str,
        #[case] expected: &str,
    ) {
        let message = message.to_owned();
        let error = EngineError::from_api(
            "x",
            bollard::errors::Error::DockerResponseServerError { status_code, message },
        );
        assert!(error.to_string().contains(expected), "{error}");
    }
}
