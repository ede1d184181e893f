//! Errors of a container engine.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::iter;
use std::path::PathBuf;

use bollard::errors::Error as ApiError;
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
        source: Box<ApiError>,
    },
    /// An image is for another platform than the one that is needed.
    #[error("{image} is for {found}, not for {wanted}")]
    OtherPlatform {
        /// The image.
        image: String,
        /// The platform that it is for.
        found: String,
        /// The platform that is needed.
        wanted: String,
        /// Why the image for that platform could not be pulled, if that was tried.
        source: Option<Box<EngineError>>,
    },
    /// A tag is required to tag or push an image.
    #[error("the image reference `{name}` has a digest; a tag is required")]
    NoTag {
        /// The reference.
        name: String,
    },
    /// A build failed.
    #[error("the build of {tag} failed (log: {})", log.display())]
    Build {
        /// The tag of the image.
        tag: String,
        /// The last lines of the log. They are not part of the message, because the output was shown line by line.
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
    /// Any other error of the engine.
    #[error("the container engine failed for {subject}")]
    Api {
        /// The object of the request.
        subject: String,
        /// The error.
        source: Box<ApiError>,
    },
    /// Any other error.
    #[error("{message}")]
    Other {
        /// What failed.
        message: String,
        /// What the user can do next.
        hint: Option<&'static str>,
        /// The cause.
        source: Option<io::Error>,
    },
}

/// How the messages of podman about conflicts end.
const PODMAN_CONFLICTS: [&str; 2] = ["that name is already in use", "container state improper"];

impl EngineError {
    /// What the user can do next. Rendered as `hint:` by the CLI only.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoEngine { .. } => "start Docker or podman, or set DOCKER_HOST to its address",
            Self::DiskFull { .. } => {
                "free disk space with `ralph image prune`; `docker system df` shows what uses it"
            }
            Self::RegistryUnreachable { .. } => {
                "check the network, the proxy and the certificates of the engine; or name a base that it can reach \
                 (`image.base`), or an image that it has (`sandbox.image`)"
            }
            Self::NotFound { .. } => "check the name, or pull or build the image first",
            Self::Disconnected { .. } => "check that the engine is running: `docker info`",
            Self::OtherPlatform { .. } => OTHER_PLATFORM,
            Self::NoTag { .. } => "use a reference like `registry/name:tag`",
            Self::Build { tail, .. } if is_failed_download(tail) => {
                "a download failed: name a base (`image.base`) that has the certificates, mirrors and proxy of your \
                 network, with `NODE_MIRROR` for Node; or an image that needs no build (`sandbox.image`)"
            }
            Self::Build { .. } => "fix the error in the last lines of the log, then build again",
            Self::Other { hint, .. } => return *hint,
            Self::Content { .. } | Self::Conflict { .. } | Self::Api { .. } => return None,
        })
    }

    /// Whether no engine can be reached, which may be temporary.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::NoEngine { .. } | Self::Disconnected { .. })
    }

    pub(super) fn other(message: String, hint: impl Into<Option<&'static str>>) -> Self {
        let (hint, source) = (hint.into(), None);
        Self::Other {
            message,
            hint,
            source,
        }
    }

    /// The response of the engine to a request about `subject` is not valid.
    pub(crate) fn invalid_response(subject: impl fmt::Display, reason: impl fmt::Display) -> Self {
        let message = format!("invalid response of the container engine for {subject}: {reason}");
        Self::other(message, None)
    }

    /// For `map_err`: an I/O error with its operation and target.
    pub(super) fn io(operation: &str, target: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        let message = format!("cannot {operation} `{target}`");
        move |error| Self::Other {
            message,
            hint: None,
            source: Some(error),
        }
    }

    /// Classifies an error of the API client for a request about `subject`.
    pub(super) fn from_api(subject: &str, error: ApiError) -> Self {
        if let Some(known) = Self::from_message(subject, &message_of(&error)) {
            return known;
        }
        let (subject, message) = (subject.to_owned(), message_of(&error));
        let status = match &error {
            ApiError::DockerResponseServerError { status_code, .. } => Some(*status_code),
            _ => None,
        };
        match status {
            Some(404) => Self::NotFound { subject },
            Some(409) => Self::Conflict { subject, message },
            // Also sent for a container that is being removed.
            Some(500) if message.contains("is not running") => Self::Conflict { subject, message },
            // Podman's status for a name that is taken, and for a container in another state than is needed.
            Some(500) if PODMAN_CONFLICTS.iter().any(|text| message.contains(text)) => {
                Self::Conflict { subject, message }
            }
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

    /// Whether the engine killed a container and gave up waiting for its end.
    pub(super) fn is_slow_end(&self) -> bool {
        matches!(self, Self::Api { source, .. } if message_of(source).contains("did not receive an exit event"))
    }

    /// Classifies an error that engines report as text only. No other code reads these messages.
    pub(super) fn from_message(subject: &str, message: &str) -> Option<Self> {
        let lower = message.to_lowercase();
        let is_one_of = |known: &[&str]| known.iter().any(|text| lower.contains(text));
        let (subject, message) = (subject.to_owned(), message.to_owned());
        if is_one_of(&DISK_FULL) {
            Some(Self::DiskFull { message })
        } else if is_one_of(&UNREACHABLE) {
            Some(Self::RegistryUnreachable { subject, message })
        } else if is_one_of(&DENIED) {
            let message = format!("the registry denied access to {subject}: {message}");
            let hint = "run `docker login`, and check the name of the image";
            Some(Self::other(message, hint))
        } else if is_one_of(&NO_PLATFORM) {
            let message = format!("{subject} does not exist for that platform: {message}");
            Some(Self::other(message, OTHER_PLATFORM))
        } else {
            None
        }
    }

    /// The error of a failed connection attempt.
    pub(super) fn from_connecting(endpoint: &EngineEndpoint, error: ApiError) -> Self {
        let first: &(dyn StdError + 'static) = &error;
        let mut causes = iter::successors(Some(first), |&error| error.source());
        let io_error = causes.find_map(|error| error.downcast_ref::<io::Error>());
        match io_error.map(io::Error::kind) {
            Some(io::ErrorKind::PermissionDenied) => Self::no_permission(endpoint),
            None if is_hidden(endpoint) => Self::no_permission(endpoint),
            Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Self::no_engine(endpoint),
            None if matches!(error, ApiError::SocketNotFoundError(_)) => Self::no_engine(endpoint),
            _ => Self::from_api(&endpoint.to_string(), error),
        }
    }

    fn no_engine(endpoint: &EngineEndpoint) -> Self {
        let tried = vec![endpoint.clone()];
        Self::NoEngine { tried }
    }

    fn no_permission(endpoint: &EngineEndpoint) -> Self {
        let message = format!("permission denied for the container engine at {endpoint}");
        Self::other(
            message,
            "add your user to the group `docker`, or use a rootless engine",
        )
    }
}

/// Whether the directory of the socket is not accessible.
fn is_hidden(endpoint: &EngineEndpoint) -> bool {
    match endpoint {
        EngineEndpoint::Unix(path) => path
            .symlink_metadata()
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied),
        EngineEndpoint::Ssh { .. } | EngineEndpoint::Tcp(_) | EngineEndpoint::Tls { .. } => false,
    }
}

const DISK_FULL: [&str; 2] = ["no space left on device", "disk quota exceeded"];
const UNREACHABLE: [&str; 9] = [
    "no such host",
    "dial tcp",
    "i/o timeout",
    "tls handshake timeout",
    "client.timeout exceeded",
    "server misbehaving",
    "network is unreachable",
    "proxyconnect",
    // The certificate of a company's proxy, which the engine does not know.
    "x509: ",
];
const DENIED: [&str; 4] = [
    "unauthorized",
    "access denied",
    "access to the resource is denied",
    "no basic auth credentials",
];

const NO_PLATFORM: [&str; 2] = [
    "no matching manifest for",
    "does not match the specified platform",
];
/// The hint of an image for another platform.
const OTHER_PLATFORM: &str =
    "name a base for that platform (`image.base`), or build for the platform that the base is for";

/// What apt, curl, npm and pip print in a build without a network, or behind a proxy with a certificate of its own.
const FAILED_DOWNLOADS: [&str; 15] = [
    "could not resolve",
    "could not connect",
    "failed to connect",
    "failed to establish a new connection",
    "failed to fetch",
    "connection timed out",
    "operation timed out",
    "network is unreachable",
    "the requested url returned error",
    "certificate verif",
    "ssl certificate problem",
    "self-signed certificate",
    "unable to get local issuer certificate",
    "getaddrinfo",
    "temporary failure",
];

/// Whether a build failed because something could not be fetched.
fn is_failed_download(tail: &str) -> bool {
    let lower = tail.to_lowercase();
    FAILED_DOWNLOADS.iter().any(|text| lower.contains(text))
}

/// The message of the engine.
fn message_of(error: &ApiError) -> String {
    match error {
        ApiError::DockerResponseServerError { message, .. } => message.clone(),
        ApiError::DockerStreamError { error } => error.clone(),
        other => other.to_string(),
    }
}

/// Whether the connection failed, and not the engine.
fn is_connection_error(error: &ApiError) -> bool {
    matches!(
        error,
        ApiError::IOError { .. }
            | ApiError::HyperResponseError { .. }
            | ApiError::HyperLegacyError { .. }
            | ApiError::RequestTimeoutError
            | ApiError::SocketNotFoundError(_)
    )
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
    #[case::certificate(
        500,
        "x509: certificate signed by unknown authority",
        "cannot reach the registry"
    )]
    #[case::denied(
        500,
        "pull access denied for x, repository does not exist or may require 'docker login'",
        "denied access"
    )]
    #[case::platform(
        404,
        "no matching manifest for linux/arm64/v8 in the manifest list entries",
        "x does not exist for that platform"
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

    #[rstest]
    #[case("curl: (6) Could not resolve host: nodejs.org", true)]
    #[case(
        "curl: (60) SSL certificate problem: unable to get local issuer certificate",
        true
    )]
    #[case(
        "npm error code SELF_SIGNED_CERT_IN_CHAIN\nnpm error self-signed certificate in chain",
        true
    )]
    #[case(
        "E: Failed to fetch http://deb.debian.org/x  Temporary failure resolving 'deb.debian.org'",
        true
    )]
    #[case("curl: (22) The requested URL returned error: 404", true)]
    #[case("curl: (28) Connection timed out after 300000 milliseconds", true)]
    #[case(
        "npm error code ENOTFOUND\nnpm error network request to https://registry.npmjs.org/pnpm failed, reason: getaddrinfo ENOTFOUND",
        true
    )]
    #[case(
        "WARNING: Retrying after connection broken by 'NewConnectionError(': Failed to establish a new connection: [Errno 101] Network is unreachable')'",
        true
    )]
    #[case("make: *** [all] Error 2", false)]
    #[case("the test timed out", false)]
    fn the_hint_of_a_failed_download_names_the_settings(#[case] tail: &str, #[case] is_download: bool) {
        let error = EngineError::Build {
            tag: "x".to_owned(),
            tail: tail.to_owned(),
            log: "log".into(),
        };
        let hint = error.hint().unwrap();
        let names = |name: &str| hint.contains(name);
        let all = ["`image.base`", "`sandbox.image`", "`NODE_MIRROR`"];
        assert_eq!(all.into_iter().all(names), is_download, "{hint}");
    }
}
