//! Where an engine may answer.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Digest, EngineError};

/// What decides which engine is used, passed in by whoever knows the process.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// The environment: `DOCKER_HOST`, `DOCKER_CONTEXT`, `DOCKER_CONFIG`, `DOCKER_TLS_VERIFY`, `DOCKER_CERT_PATH`,
    /// `XDG_RUNTIME_DIR`.
    pub env: BTreeMap<String, String>,
    /// The user's home, where `.docker` is.
    pub home: Option<PathBuf>,
}

impl Surroundings {
    /// A variable that is set and not empty.
    pub(super) fn var(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The folder of the Docker CLI's own files.
    pub(super) fn docker_dir(&self) -> Option<PathBuf> {
        let default = || self.home.as_ref().map(|home| home.join(".docker"));
        self.var("DOCKER_CONFIG").map(PathBuf::from).or_else(default)
    }
}

/// Names of variables only: their values may be confidential.
impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings")
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("home", &self.home)
            .finish()
    }
}

/// An address an engine's API may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A socket on this machine.
    Unix(PathBuf),
    /// A host and port, in the clear.
    Tcp(String),
    /// A host and port, with the certificates that both sides prove themselves with.
    Tls {
        /// Host and port.
        address: String,
        /// The folder of `ca.pem`, `cert.pem` and `key.pem`.
        certificates: PathBuf,
    },
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) | Self::Tls { address, .. } => write!(f, "tcp://{address}"),
        }
    }
}

/// The addresses to try, in this order. One that the user chose is the only one.
pub fn endpoints(surroundings: &Surroundings) -> Result<Vec<Endpoint>, EngineError> {
    if let Some(host) = surroundings.var("DOCKER_HOST") {
        let verifies = surroundings.var("DOCKER_TLS_VERIFY").is_some();
        let folder = || {
            let named = surroundings.var("DOCKER_CERT_PATH").map(PathBuf::from);
            named.or_else(|| surroundings.docker_dir())
        };
        let certificates = if verifies { folder() } else { None };
        return parse(host, certificates).map(|endpoint| vec![endpoint]);
    }
    match chosen_context(surroundings)? {
        Some(name) => of_context(surroundings, &name).map(|endpoint| vec![endpoint]),
        None => Ok(usual(surroundings)),
    }
}

/// The sockets that engines open by themselves: Docker's, Docker's without root, Docker Desktop's, podman's.
fn usual(surroundings: &Surroundings) -> Vec<Endpoint> {
    let runtime = surroundings.var("XDG_RUNTIME_DIR").map(Path::new);
    let below_home = |path| surroundings.home.as_ref().map(|home| home.join(path));
    let sockets = [
        Some(PathBuf::from("/var/run/docker.sock")),
        runtime.map(|dir| dir.join("docker.sock")),
        below_home(".docker/run/docker.sock"),
        runtime.map(|dir| dir.join("podman/podman.sock")),
        Some(PathBuf::from("/run/podman/podman.sock")),
    ];
    sockets.into_iter().flatten().map(Endpoint::Unix).collect()
}

fn parse(host: &str, certificates: Option<PathBuf>) -> Result<Endpoint, EngineError> {
    let refuse = |reason| {
        let address = host.to_owned();
        Err(EngineError::Address { address, reason })
    };
    match host.split_once("://") {
        Some(("unix", path)) if path.starts_with('/') => Ok(Endpoint::Unix(path.into())),
        Some(("unix", _)) => refuse("the path of a socket must be absolute"),
        Some(("tcp" | "http" | "https", "")) => refuse("it names no host"),
        Some(("tcp" | "http", address)) => Ok(match certificates {
            None => Endpoint::Tcp(address.to_owned()),
            Some(certificates) => tls(address, certificates),
        }),
        Some(("https", address)) => match certificates {
            Some(certificates) => Ok(tls(address, certificates)),
            None => refuse("https needs DOCKER_TLS_VERIFY and the certificates in DOCKER_CERT_PATH"),
        },
        Some(("ssh", _)) => refuse(
            "ssh is not spoken here; forward the socket: `ssh -L /tmp/docker.sock:/var/run/docker.sock HOST`",
        ),
        _ => refuse("expected unix://, tcp:// or https://"),
    }
}

fn tls(address: &str, certificates: PathBuf) -> Endpoint {
    let address = address.to_owned();
    Endpoint::Tls {
        address,
        certificates,
    }
}

/// The context the user switched to, unless it is the one that stands for the usual sockets.
fn chosen_context(surroundings: &Surroundings) -> Result<Option<String>, EngineError> {
    let named = surroundings.var("DOCKER_CONTEXT").map(ToOwned::to_owned);
    let name = match (named, surroundings.docker_dir()) {
        (Some(name), _) => Some(name),
        (None, Some(dir)) => {
            read::<CliConfig>(&dir.join("config.json"))?.and_then(|config| config.current_context)
        }
        (None, None) => None,
    };
    Ok(name.filter(|name| !name.is_empty() && name != "default"))
}

/// A context's files are named after the hash of its name.
fn of_context(surroundings: &Surroundings, name: &str) -> Result<Endpoint, EngineError> {
    let unknown = || EngineError::NoContext {
        name: name.to_owned(),
    };
    let contexts = surroundings.docker_dir().ok_or_else(unknown)?.join("contexts");
    let id = Digest::of(name.as_bytes());
    let meta: ContextMeta =
        read(&contexts.join("meta").join(id.hex()).join("meta.json"))?.ok_or_else(unknown)?;
    let certificates = contexts.join("tls").join(id.hex()).join("docker");
    parse(
        &meta.endpoints.docker.host,
        certificates.is_dir().then_some(certificates),
    )
}

/// Reads a JSON file of the Docker CLI, if it is there.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, EngineError> {
    let wrong = |source: io::Error| EngineError::File {
        path: path.to_owned(),
        source,
    };
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| wrong(error.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(wrong(error)),
    }
}

/// What we read of the CLI's `config.json`.
#[derive(Deserialize)]
struct CliConfig {
    #[serde(rename = "currentContext")]
    current_context: Option<String>,
}

/// What we read of a context's `meta.json`.
#[derive(Deserialize)]
struct ContextMeta {
    #[serde(rename = "Endpoints")]
    endpoints: ContextEndpoints,
}

#[derive(Deserialize)]
struct ContextEndpoints {
    docker: ContextEndpoint,
}

#[derive(Deserialize)]
struct ContextEndpoint {
    #[serde(rename = "Host")]
    host: String,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn surroundings(env: &[(&str, &str)], home: &Path) -> Surroundings {
        Surroundings {
            env: env
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
            home: Some(home.into()),
        }
    }

    fn shown(surroundings: &Surroundings) -> Vec<String> {
        endpoints(surroundings)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// A home with the context `remote`, as `docker context create` writes it.
    fn home_with_context(current: &str) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        let id = Digest::of(b"remote");
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
    fn docker_host_is_the_only_address(#[case] host: &str, #[case] expected: &str) {
        let home = home_with_context("remote");
        assert_eq!(
            shown(&surroundings(&[("DOCKER_HOST", host)], home.path())),
            [expected]
        );
    }

    #[rstest]
    #[case::relative("unix://x.sock")]
    #[case::ssh("ssh://host")]
    #[case::no_host("tcp://")]
    #[case::no_scheme("10.0.0.1:2375")]
    fn an_address_that_cannot_be_used_is_refused(#[case] host: &str) {
        let error = endpoints(&surroundings(&[("DOCKER_HOST", host)], Path::new("/nowhere"))).unwrap_err();
        assert!(error.to_string().contains(host), "{error}");
    }

    #[test]
    fn a_verified_address_takes_its_certificates_from_the_folder_named() {
        let env = [
            ("DOCKER_HOST", "tcp://h:2376"),
            ("DOCKER_TLS_VERIFY", "1"),
            ("DOCKER_CERT_PATH", "/certs"),
        ];
        let found = endpoints(&surroundings(&env, Path::new("/nowhere"))).unwrap();
        assert_eq!(found, [tls("h:2376", "/certs".into())]);
    }

    #[rstest]
    #[case::current("remote", &[])]
    #[case::by_variable("default", &[("DOCKER_CONTEXT", "remote")])]
    fn a_context_is_the_only_address(#[case] current: &str, #[case] env: &[(&str, &str)]) {
        let home = home_with_context(current);
        assert_eq!(shown(&surroundings(env, home.path())), ["unix:///ctx.sock"]);
    }

    #[test]
    fn a_context_that_is_not_there_is_an_error() {
        let home = home_with_context("gone");
        let error = endpoints(&surroundings(&[], home.path())).unwrap_err();
        assert!(matches!(error, EngineError::NoContext { name } if name == "gone"));
    }

    #[test]
    fn without_a_choice_the_usual_sockets_are_tried() {
        let home = home_with_context("default");
        let found = shown(&surroundings(&[("XDG_RUNTIME_DIR", "/run/user/7")], home.path()));
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
