//! Finds the addresses of container engines.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Digest, EngineError};

/// The part of the process environment that selects the engine.
#[derive(Clone, Default)]
pub struct EngineEnvironment {
    /// Environment variables: `DOCKER_HOST`, `DOCKER_CONTEXT`, `DOCKER_CONFIG`, `DOCKER_TLS_VERIFY`, `DOCKER_CERT_PATH`,
    /// `XDG_RUNTIME_DIR`.
    pub env: BTreeMap<String, String>,
    /// The home directory, which contains `.docker`.
    pub home: Option<PathBuf>,
}

impl EngineEnvironment {
    /// The value of a variable, unless it is empty.
    pub(super) fn var(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The configuration directory of the Docker CLI.
    pub(super) fn docker_dir(&self) -> Option<PathBuf> {
        let default = || self.home.as_ref().map(|home| home.join(".docker"));
        self.var("DOCKER_CONFIG").map(PathBuf::from).or_else(default)
    }
}

/// Shows the names of variables only, since their values may be confidential.
impl fmt::Debug for EngineEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineEnvironment")
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("home", &self.home)
            .finish()
    }
}

/// The socket of an engine on another host whose address names none.
const REMOTE_SOCKET: &str = "/var/run/docker.sock";

/// The address of an engine's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineEndpoint {
    /// A Unix socket.
    Unix(PathBuf),
    /// A socket of another host, by SSH.
    Ssh {
        /// The address of the host, such as `ssh://me@host:22`.
        destination: String,
        /// The socket there.
        socket: PathBuf,
    },
    /// A host name and port, without encryption.
    Tcp(String),
    /// A host name and port, with mutual TLS.
    Tls {
        /// The host name and port.
        address: String,
        /// The directory of `ca.pem`, `cert.pem` and `key.pem`.
        certificates: PathBuf,
    },
}

impl EngineEndpoint {
    /// Whether the engine may be on another host, which has none of the files of this one.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        !matches!(self, Self::Unix(_))
    }
}

impl fmt::Display for EngineEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Ssh { destination, socket } if socket == Path::new(REMOTE_SOCKET) => {
                f.write_str(destination)
            }
            Self::Ssh { destination, socket } => write!(f, "{destination}{}", socket.display()),
            Self::Tcp(address) | Self::Tls { address, .. } => write!(f, "tcp://{address}"),
        }
    }
}

/// The addresses to try, in order. When the user selected one, it is the only one.
pub fn endpoints(environment: &EngineEnvironment) -> Result<Vec<EngineEndpoint>, EngineError> {
    if let Some(host) = environment.var("DOCKER_HOST") {
        let verify = environment.var("DOCKER_TLS_VERIFY").is_some();
        let cert_path = environment.var("DOCKER_CERT_PATH").map(PathBuf::from);
        let certificates = cert_path.or_else(|| environment.docker_dir()).filter(|_| verify);
        return parse(host, certificates).map(|endpoint| vec![endpoint]);
    }
    match current_context(environment)? {
        Some(name) => context_endpoint(environment, &name).map(|endpoint| vec![endpoint]),
        None => Ok(default_endpoints(environment)),
    }
}

/// The default sockets of Docker, rootless Docker, Docker Desktop and podman.
fn default_endpoints(environment: &EngineEnvironment) -> Vec<EngineEndpoint> {
    let runtime = environment.var("XDG_RUNTIME_DIR").map(Path::new);
    let below_home = |path| environment.home.as_ref().map(|home| home.join(path));
    let sockets = [
        Some(PathBuf::from("/var/run/docker.sock")),
        runtime.map(|dir| dir.join("docker.sock")),
        below_home(".docker/run/docker.sock"),
        runtime.map(|dir| dir.join("podman/podman.sock")),
        Some(PathBuf::from("/run/podman/podman.sock")),
    ];
    sockets.into_iter().flatten().map(EngineEndpoint::Unix).collect()
}

fn parse(host: &str, certificates: Option<PathBuf>) -> Result<EngineEndpoint, EngineError> {
    let invalid = |reason| {
        let message = format!("cannot use the container engine address `{host}`: {reason}");
        let hint = "set DOCKER_HOST to an address like unix:///var/run/docker.sock";
        Err(EngineError::other(message, hint))
    };
    match host.split_once("://") {
        Some(("unix", path)) if path.starts_with('/') => Ok(EngineEndpoint::Unix(path.into())),
        Some(("unix", _)) => invalid("the path of a socket must be absolute"),
        Some(("tcp" | "http" | "https", "")) => invalid("the host name is missing"),
        Some(("tcp" | "http", address)) => Ok(match certificates {
            None => EngineEndpoint::Tcp(address.to_owned()),
            Some(certificates) => tls(address, certificates),
        }),
        Some(("https", address)) => match certificates {
            Some(certificates) => Ok(tls(address, certificates)),
            None => invalid("https requires DOCKER_TLS_VERIFY, and certificates in DOCKER_CERT_PATH"),
        },
        Some(("ssh", address)) => {
            let (name, path) = address.split_at(address.find('/').unwrap_or(address.len()));
            if name.is_empty() {
                return invalid("the host name is missing");
            }
            Ok(EngineEndpoint::Ssh {
                destination: format!("ssh://{name}"),
                socket: if path.len() > 1 { path } else { REMOTE_SOCKET }.into(),
            })
        }
        _ => invalid("expected unix://, ssh://, tcp:// or https://"),
    }
}

fn tls(address: &str, certificates: PathBuf) -> EngineEndpoint {
    let address = address.to_owned();
    EngineEndpoint::Tls {
        address,
        certificates,
    }
}

/// The current context, unless it is `default`, which stands for the default sockets.
fn current_context(environment: &EngineEnvironment) -> Result<Option<String>, EngineError> {
    let name = match (environment.var("DOCKER_CONTEXT"), environment.docker_dir()) {
        (Some(name), _) => Some(name.to_owned()),
        (None, Some(dir)) => {
            let config = read_json::<Value>(&dir.join("config.json"))?.unwrap_or_default();
            config["currentContext"].as_str().map(ToOwned::to_owned)
        }
        (None, None) => None,
    };
    Ok(name.filter(|name| !name.is_empty() && name != "default"))
}

/// Reads the address of a context. Its files are named after the hash of its name.
fn context_endpoint(environment: &EngineEnvironment, name: &str) -> Result<EngineEndpoint, EngineError> {
    let unknown = || {
        let hint = "list the contexts with `docker context ls`, select one with `docker context use NAME`";
        EngineError::other(format!("the Docker context `{name}` does not exist"), hint)
    };
    let contexts = environment.docker_dir().ok_or_else(unknown)?.join("contexts");
    let id = Digest::sha256(name.as_bytes());
    let meta: Value =
        read_json(&contexts.join("meta").join(id.hex()).join("meta.json"))?.ok_or_else(unknown)?;
    let host = meta.pointer("/Endpoints/docker/Host").and_then(Value::as_str);
    let certificates = contexts.join("tls").join(id.hex()).join("docker");
    parse(
        host.ok_or_else(unknown)?,
        certificates.is_dir().then_some(certificates),
    )
}

/// Reads a JSON file of the Docker CLI; `None` when it does not exist.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, EngineError> {
    let failed = EngineError::io("read", path.display());
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| failed(error.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn environment(env: &[(&str, &str)], home: &Path) -> EngineEnvironment {
        EngineEnvironment {
            env: env
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
            home: Some(home.into()),
        }
    }

    fn shown(environment: &EngineEnvironment) -> Vec<String> {
        endpoints(environment)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// A home with the context `remote`, as `docker context create` writes it.
    fn home_with_context(current: &str) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let id = Digest::sha256(b"remote");
        let meta = home.path().join(".docker/contexts/meta").join(id.hex());
        fs::create_dir_all(&meta).unwrap();
        let text = r#"{"Name":"remote","Metadata":{},"Endpoints":{"docker":{"Host":"unix:///ctx.sock","SkipTLSVerify":false}}}"#;
        fs::write(meta.join("meta.json"), text).unwrap();
        let config = format!(r#"{{"auths":{{}},"currentContext":"{current}"}}"#);
        fs::write(home.path().join(".docker/config.json"), config).unwrap();
        home
    }

    #[rstest]
    #[case::socket("unix:///run/x.sock", "unix:///run/x.sock")]
    #[case::tcp("tcp://10.0.0.1:2375", "tcp://10.0.0.1:2375")]
    #[case::http("http://10.0.0.1:2375", "tcp://10.0.0.1:2375")]
    #[case::ssh("ssh://me@far:2222", "ssh://me@far:2222")]
    #[case::ssh_with_a_slash("ssh://far/", "ssh://far")]
    #[case::ssh_with_a_socket("ssh://far/run/x.sock", "ssh://far/run/x.sock")]
    fn docker_host_takes_precedence(#[case] host: &str, #[case] expected: &str) {
        let home = home_with_context("remote");
        assert_eq!(
            shown(&environment(&[("DOCKER_HOST", host)], home.path())),
            [expected]
        );
    }

    #[rstest]
    #[case::relative("unix://x.sock")]
    #[case::ssh_without_a_host("ssh:///run/x.sock")]
    #[case::no_host("tcp://")]
    #[case::no_scheme("10.0.0.1:2375")]
    fn an_unsupported_address_is_an_error(#[case] host: &str) {
        let error = endpoints(&environment(&[("DOCKER_HOST", host)], Path::new("/nowhere"))).unwrap_err();
        assert!(error.to_string().contains(host), "{error}");
    }

    #[test]
    fn tls_certificates_are_read_from_the_configured_directory() {
        let env = [
            ("DOCKER_HOST", "tcp://h:2376"),
            ("DOCKER_TLS_VERIFY", "1"),
            ("DOCKER_CERT_PATH", "/certs"),
        ];
        let found = endpoints(&environment(&env, Path::new("/nowhere"))).unwrap();
        assert_eq!(found, [tls("h:2376", "/certs".into())]);
    }

    #[rstest]
    #[case::current("remote", &[])]
    #[case::by_variable("default", &[("DOCKER_CONTEXT", "remote")])]
    fn a_context_takes_precedence_over_the_default_sockets(
        #[case] current: &str,
        #[case] env: &[(&str, &str)],
    ) {
        let home = home_with_context(current);
        assert_eq!(shown(&environment(env, home.path())), ["unix:///ctx.sock"]);
    }

    #[test]
    fn an_unknown_context_is_an_error() {
        let home = home_with_context("gone");
        let error = endpoints(&environment(&[], home.path())).unwrap_err();
        assert_eq!(error.to_string(), "the Docker context `gone` does not exist");
    }

    #[test]
    fn without_a_selection_the_default_sockets_are_tried() {
        let home = home_with_context("default");
        let found = shown(&environment(&[("XDG_RUNTIME_DIR", "/run/user/7")], home.path()));
        let desktop = format!("unix://{}/.docker/run/docker.sock", home.path().display());
        let expected = [
            "unix:///var/run/docker.sock",
            "unix:///run/user/7/docker.sock",
            &desktop,
            "unix:///run/user/7/podman/podman.sock",
            "unix:///run/podman/podman.sock",
        ];
        assert_eq!(found, expected);
    }
}
