//! The registry credentials that `docker login` stored.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use serde::Deserialize;

use super::endpoint::read_json;
use super::{Engine, EngineError};
use crate::exec::{Command, Discard, Host};
use crate::secret::Secret;

/// Docker Hub, and its key in the file.
const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_KEY: &str = "https://index.docker.io/v1/";

/// A credential helper that prompts the user must not block a run.
const HELPER_TIMEOUT: Duration = Duration::from_secs(30);

impl Engine {
    /// The credentials for a registry: from the helper that is configured for it, otherwise from the file.
    pub(super) async fn credentials(&self, registry: &str) -> Result<Option<DockerCredentials>, EngineError> {
        let Some(dir) = self.environment.docker_dir() else {
            return Ok(None);
        };
        let file: AuthFile = read_json(&dir.join("config.json"))?.unwrap_or_default();
        let key = match registry {
            DOCKER_HUB => DOCKER_HUB_KEY,
            other => other,
        };
        let login = match file.helper(key) {
            Some(helper) => run_helper(&self.host, helper, key).await?,
            None => match file.auths.get(key) {
                Some(entry) => entry.login(key)?,
                None => None,
            },
        };
        Ok(login.map(|login| login.to_api(key)))
    }
}

/// Runs a credential helper, which fails when it has no credentials for the registry.
async fn run_helper(host: &Host, helper: &str, key: &str) -> Result<Option<RegistryLogin>, EngineError> {
    let program = format!("docker-credential-{helper}");
    let command = Command::new(&program)
        .arg("get")
        .stdin(key)
        .timeout(HELPER_TIMEOUT);
    let exit = host.run(&command, &mut Discard).await;
    let exit = exit.map_err(EngineError::io("run", &program))?;
    if !exit.success() {
        return Ok(None);
    }
    let output = exit.stdout.complete();
    let login: Option<RegistryLogin> = output.and_then(|output| serde_json::from_slice(&output).ok());
    // What is wrong with it is not shown: that could quote the password.
    let invalid = || {
        let message = format!("`{program}` printed something other than a login for `{key}`");
        let hint = "check the credential helper in `config.json` of Docker, or run `docker login` again";
        EngineError::other(message, hint)
    };
    login.map(Some).ok_or_else(invalid)
}

/// The part of the `config.json` of the Docker CLI that is used.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AuthFile {
    auths: BTreeMap<String, AuthEntry>,
    #[serde(rename = "credsStore")]
    store: Option<String>,
    #[serde(rename = "credHelpers")]
    helpers: BTreeMap<String, String>,
}

impl AuthFile {
    fn helper(&self, key: &str) -> Option<&str> {
        self.helpers.get(key).or(self.store.as_ref()).map(String::as_str)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AuthEntry {
    auth: Option<Secret>,
}

impl AuthEntry {
    /// Decodes `user:password`. With a helper the entry exists but is empty.
    fn login(&self, key: &str) -> Result<Option<RegistryLogin>, EngineError> {
        let Some(auth) = self.auth.as_ref().filter(|auth| !auth.expose().is_empty()) else {
            return Ok(None);
        };
        let decoded = || {
            let bytes = STANDARD.decode(auth.expose()).ok()?;
            let text = String::from_utf8(bytes).ok()?;
            let (username, secret) = text.split_once(':')?;
            Some(RegistryLogin {
                username: username.to_owned(),
                secret: Secret::new(secret),
            })
        };
        let invalid = || {
            let message = format!("the login for `{key}` in `config.json` of Docker cannot be read");
            EngineError::other(message, "run `docker login` for that registry again")
        };
        decoded().map(Some).ok_or_else(invalid)
    }
}

/// A user and password; also the output of a helper.
#[derive(Deserialize)]
struct RegistryLogin {
    #[serde(rename = "Username")]
    username: String,
    #[serde(rename = "Secret")]
    secret: Secret,
}

impl RegistryLogin {
    /// The type of the API client. The user name `<token>` marks an identity token.
    fn to_api(&self, key: &str) -> DockerCredentials {
        let secret = Some(self.secret.expose().to_owned());
        let serveraddress = Some(key.to_owned());
        if self.username == "<token>" {
            return DockerCredentials {
                identitytoken: secret,
                serveraddress,
                ..Default::default()
            };
        }
        DockerCredentials {
            username: Some(self.username.clone()),
            password: secret,
            serveraddress,
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> AuthFile {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_login_is_read_from_the_file() {
        let file = file(r#"{"auths": {"ghcr.io": {"auth": "YW5uOnBhc3M6d29yZA=="}}}"#);
        let login = file.auths["ghcr.io"].login("ghcr.io").unwrap().unwrap();
        let sent = login.to_api("ghcr.io");
        assert_eq!(sent.username.as_deref(), Some("ann"));
        assert_eq!(sent.password.as_deref(), Some("pass:word"));
    }

    #[test]
    fn the_helper_of_a_registry_takes_precedence() {
        let file =
            file(r#"{"credsStore": "desktop", "credHelpers": {"ghcr.io": "gh"}, "auths": {"ghcr.io": {}}}"#);
        assert_eq!(file.helper("ghcr.io"), Some("gh"));
        assert_eq!(file.helper("quay.io"), Some("desktop"));
        assert!(file.auths["ghcr.io"].login("ghcr.io").unwrap().is_none());
    }

    #[test]
    fn a_login_that_cannot_be_read_is_an_error_that_names_the_registry() {
        // Not base64, and base64 of text without a colon.
        let file = file(r#"{"auths": {"a.example": {"auth": "?"}, "b.example": {"auth": "YW5u"}}}"#);
        for (key, entry) in &file.auths {
            let error = entry.login(key).err().unwrap().to_string();
            assert_eq!(
                error,
                format!("the login for `{key}` in `config.json` of Docker cannot be read")
            );
        }
    }

    #[test]
    fn an_identity_token_is_sent_as_one() {
        let login: RegistryLogin =
            serde_json::from_str(r#"{"ServerURL": "x", "Username": "<token>", "Secret": "abc"}"#).unwrap();
        let sent = login.to_api("x");
        assert_eq!(
            (sent.username, sent.identitytoken.as_deref()),
            (None, Some("abc"))
        );
    }

    /// A host with this script as the credential helper `test`.
    fn host_with_helper(script: &str) -> (tempfile::TempDir, Host) {
        use std::os::unix::fs::PermissionsExt;

        let dir = tempfile::tempdir().unwrap();
        let helper = dir.path().join("docker-credential-test");
        std::fs::write(&helper, script).unwrap();
        std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", dir.path().display());
        (dir, Host::new(BTreeMap::from([("PATH".to_owned(), path)])))
    }

    #[tokio::test]
    async fn a_helper_that_prints_no_login_is_an_error_that_names_it() {
        let script = "#!/bin/sh\ncat >&2\necho '{\"Username\":\"ann\",\"Secret\":[\"s3cret\"]}'\n";
        let (_dir, host) = host_with_helper(script);
        let error = run_helper(&host, "test", "ghcr.io").await.err().unwrap();
        let shown = crate::text::error_chain(&error);
        assert!(
            shown.contains("`docker-credential-test`") && shown.contains("`ghcr.io`"),
            "{shown}"
        );
        assert!(!shown.contains("s3cret"), "{shown}");
    }

    #[tokio::test]
    async fn a_helper_is_run_for_its_registry() {
        let script = "#!/bin/sh\nread key || [ -n \"$key\" ]\n[ \"$key\" = ghcr.io ] || exit 1\necho '{\"Username\":\"ann\",\"Secret\":\"s3cret\"}'\n";
        let (_dir, host) = host_with_helper(script);
        let login = run_helper(&host, "test", "ghcr.io").await.unwrap().unwrap();
        assert_eq!(
            (login.username.as_str(), login.secret.expose()),
            ("ann", "s3cret")
        );
        assert!(run_helper(&host, "test", "quay.io").await.unwrap().is_none());
    }
}
