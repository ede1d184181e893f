//! What goes wrong with an engine.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::endpoint::Endpoint;

/// Why an engine did not do what it was asked.
#[derive(Debug, Error)]
pub enum EngineError {
    /// Nothing answers.
    #[error("no container engine answers at {}", list(.tried))]
    NoEngine {
        /// Where one was looked for.
        tried: Vec<Endpoint>,
    },
    /// An engine is there, but this user may not talk to it.
    #[error("this user may not talk to the container engine at {endpoint}")]
    NoPermission {
        /// Where it is.
        endpoint: Endpoint,
    },
    /// The address the user chose cannot be used.
    #[error("the engine's address `{address}` cannot be used: {reason}")]
    Address {
        /// As it was written.
        address: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The context the user chose does not exist.
    #[error("there is no docker context `{name}`")]
    NoContext {
        /// Its name.
        name: String,
    },
    /// A file of the Docker CLI, or one of ours, cannot be used.
    #[error("`{}` cannot be used", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The engine's disk is full.
    #[error("the engine's disk is full: {message}")]
    DiskFull {
        /// What the engine said.
        message: String,
    },
    /// A registry is out of reach.
    #[error("the registry of {subject} cannot be reached: {message}")]
    RegistryUnreachable {
        /// The image, or the build, that needs it.
        subject: String,
        /// What the engine said.
        message: String,
    },
    /// A registry refuses this user.
    #[error("the registry refuses access to {subject}: {message}")]
    RegistryDenied {
        /// The image, or the build, that needs it.
        subject: String,
        /// What the engine said.
        message: String,
    },
    /// The engine does not know it.
    #[error("not found: {subject}")]
    NotFound {
        /// What was asked for.
        subject: String,
    },
    /// It is not in a state for that: a container that does not run, a name that is taken.
    #[error("the engine cannot do that with {subject} now: {message}")]
    Conflict {
        /// What was asked about.
        subject: String,
        /// What the engine said.
        message: String,
    },
    /// The engine stopped answering.
    #[error("the container engine went away while it was asked about {subject}")]
    WentAway {
        /// What it was asked about.
        subject: String,
        /// How that showed.
        source: Box<bollard::errors::Error>,
    },
    /// An image is given and sent under tags only.
    #[error("`{name}` names an image by its content; a tag is needed")]
    NoTag {
        /// The name.
        name: String,
    },
    /// A build ended without an image.
    #[error("the build of {tag} failed; its log is {}\n{tail}", log.display())]
    Build {
        /// The image to be.
        tag: String,
        /// The last lines of the log.
        tail: String,
        /// The whole log.
        log: PathBuf,
    },
    /// What was to be sent could not be made.
    #[error("what was to be sent for {subject} could not be read")]
    Content {
        /// What it was for.
        subject: String,
        /// Why.
        source: io::Error,
    },
    /// A program of the host could not be run.
    #[error("`{program}` could not be run")]
    Program {
        /// Its name.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The engine answered something we cannot read.
    #[error("the engine's answer about {subject} makes no sense: {reason}")]
    Answer {
        /// What was asked about.
        subject: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// Everything else the engine said.
    #[error("the engine failed at {subject}")]
    Api {
        /// What it was asked about.
        subject: String,
        /// What it said.
        source: Box<bollard::errors::Error>,
    },
}

impl EngineError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoEngine { .. } => "start Docker or podman, or set DOCKER_HOST to where one listens",
            Self::NoPermission { .. } => "add this user to the group `docker`, or use a rootless engine",
            Self::Address { .. } => "set DOCKER_HOST to an address like unix:///var/run/docker.sock",
            Self::NoContext { .. } => "list them with `docker context ls`, then `docker context use NAME`",
            Self::DiskFull { .. } => "free some space: `ralph image prune`, then `docker system df`",
            Self::RegistryUnreachable { .. } => {
                "check the network and the proxy of the engine, or work with what is here"
            }
            Self::RegistryDenied { .. } => "log in with `docker login`, and check the name of the image",
            Self::NotFound { .. } => "check its name, or pull or build it first",
            Self::WentAway { .. } => "see whether it runs: `docker info`",
            Self::NoTag { .. } => "name it like `registry/name:tag`",
            Self::Build { .. } => {
                "the lines above are the end of the log; mend what they name and build again"
            }
            Self::File { .. }
            | Self::Content { .. }
            | Self::Program { .. }
            | Self::Answer { .. }
            | Self::Conflict { .. }
            | Self::Api { .. } => return None,
        })
    }

    /// Whether no engine answers, which may pass.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::NoEngine { .. } | Self::WentAway { .. })
    }

    /// Sorts what the client library reports about `subject`.
    pub(super) fn from_api(subject: &str, error: bollard::errors::Error) -> Self {
        if let Some(known) = Self::from_words(subject, &said(&error)) {
            return known;
        }
        let subject = subject.to_owned();
        match status(&error) {
            Some(404) => Self::NotFound { subject },
            Some(409) => Self::Conflict {
                subject,
                message: said(&error),
            },
            // One that is being removed is told of as if the engine had failed.
            Some(500) if said(&error).contains("is not running") => Self::Conflict {
                subject,
                message: said(&error),
            },
            None if is_of_the_connection(&error) => Self::WentAway {
                subject,
                source: Box::new(error),
            },
            _ => Self::Api {
                subject,
                source: Box::new(error),
            },
        }
    }

    /// Sorts what an engine says only in words, as far as they are known. Nothing else reads them.
    pub(super) fn from_words(subject: &str, message: &str) -> Option<Self> {
        let lower = message.to_lowercase();
        let (_, kind) = WORDS.iter().find(|(words, _)| lower.contains(words))?;
        let (subject, message) = (subject.to_owned(), message.to_owned());
        Some(match kind {
            Kind::DiskFull => Self::DiskFull { message },
            Kind::Unreachable => Self::RegistryUnreachable { subject, message },
            Kind::Denied => Self::RegistryDenied { subject, message },
        })
    }

    /// Why there is no talking to the engine at this address.
    pub(super) fn from_connecting(endpoint: &Endpoint, error: bollard::errors::Error) -> Self {
        match io_kind(&error) {
            Some(io::ErrorKind::PermissionDenied) => Self::NoPermission {
                endpoint: endpoint.clone(),
            },
            Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Self::NoEngine {
                tried: vec![endpoint.clone()],
            },
            // Whether a socket is there cannot be seen in a directory that this user may not enter.
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

fn is_hidden(endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Unix(path) => path
            .symlink_metadata()
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied),
        Endpoint::Tcp(_) | Endpoint::Tls { .. } => false,
    }
}

#[derive(Clone, Copy)]
enum Kind {
    DiskFull,
    Unreachable,
    Denied,
}

const WORDS: [(&str, Kind); 14] = [
    ("no space left on device", Kind::DiskFull),
    ("disk quota exceeded", Kind::DiskFull),
    ("no such host", Kind::Unreachable),
    ("dial tcp", Kind::Unreachable),
    ("i/o timeout", Kind::Unreachable),
    ("tls handshake timeout", Kind::Unreachable),
    ("client.timeout exceeded", Kind::Unreachable),
    ("server misbehaving", Kind::Unreachable),
    ("network is unreachable", Kind::Unreachable),
    ("proxyconnect", Kind::Unreachable),
    ("unauthorized", Kind::Denied),
    ("access denied", Kind::Denied),
    ("access to the resource is denied", Kind::Denied),
    ("no basic auth credentials", Kind::Denied),
];

/// The engine's own words.
fn said(error: &bollard::errors::Error) -> String {
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

/// Whether it is the way to the engine that failed, and not the engine.
fn is_of_the_connection(error: &bollard::errors::Error) -> bool {
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

/// The operating system's reason, which lies deep in the chain of causes.
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

fn list(endpoints: &[Endpoint]) -> String {
    let shown: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::disk(500, "write /var/lib/docker/tmp/x: no space left on device", "disk is full")]
    #[case::name(
        500,
        "Get \"https://registry-1.docker.io/v2/\": dial tcp: lookup registry-1.docker.io: no such host",
        "cannot be reached"
    )]
    #[case::timeout(500, "net/http: TLS handshake timeout", "cannot be reached")]
    #[case::denied(
        500,
        "pull access denied for x, repository does not exist or may require 'docker login'",
        "refuses"
    )]
    #[case::missing(404, "No such image: x", "not found: x")]
    #[case::other(500, "something else", "failed at x")]
    fn what_the_engine_says_is_sorted(
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
