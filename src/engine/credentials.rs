//! What a registry asks of this user, as `docker login` left it.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use serde::Deserialize;

use super::endpoint::read;
use super::{Engine, EngineError};
use crate::exec::{Command, Discard, Host};
use crate::secret::Secret;

/// Under which name Docker's own registry is kept in the file.
const DOCKER_HUB: (&str, &str) = ("docker.io", "https://index.docker.io/v1/");

/// A helper that asks a person something must not hold up a run.
const HELPER_TIMEOUT: Duration = Duration::from_secs(30);

impl Engine {
    /// The user's credentials for a registry: those of the helper named for it, else those in the file, else none.
    pub(super) async fn credentials(&self, registry: &str) -> Result<Option<DockerCredentials>, EngineError> {
        let Some(dir) = self.surroundings.docker_dir() else {
            return Ok(None);
        };
        let file: AuthFile = read(&dir.join("config.json"))?.unwrap_or_default();
        let key = if registry == DOCKER_HUB.0 {
            DOCKER_HUB.1
        } else {
            registry
        };
        let login = match file.helper(key) {
            Some(helper) => ask(&self.host, helper, key).await?,
            None => file.auths.get(key).and_then(AuthEntry::login),
        };
        Ok(login.map(|login| login.for_registry(key)))
    }
}

/// Runs a credential helper. One that knows nothing leaves with another code than 0.
async fn ask(host: &Host, helper: &str, key: &str) -> Result<Option<Login>, EngineError> {
    let program = format!("docker-credential-{helper}");
    let command = Command::new(&program)
        .arg("get")
        .stdin(key)
        .timeout(HELPER_TIMEOUT);
    let exit = host.run(&command, &mut Discard).await;
    let exit = exit.map_err(|source| EngineError::Program { program, source })?;
    let answer = exit.stdout.complete().filter(|_| exit.success());
    Ok(answer.and_then(|answer| serde_json::from_slice(&answer).ok()))
}

/// What we read of the CLI's `config.json`.
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
    /// `user:password` in base64; with a helper the entry is there but empty.
    fn login(&self) -> Option<Login> {
        let bytes = STANDARD.decode(self.auth.as_ref()?.expose()).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (username, secret) = text.split_once(':')?;
        Some(Login {
            username: username.to_owned(),
            secret: Secret::new(secret),
        })
    }
}

/// A user and password; also what a helper answers.
#[derive(Deserialize)]
struct Login {
    #[serde(rename = "Username")]
    username: String,
    #[serde(rename = "Secret")]
    secret: Secret,
}

impl Login {
    /// The shape the client library sends. A helper gives a token in place of a password to the user `<token>`.
    fn for_registry(&self, key: &str) -> DockerCredentials {
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
        let sent = file.auths["ghcr.io"].login().unwrap().for_registry("ghcr.io");
        assert_eq!(sent.username.as_deref(), Some("ann"));
        assert_eq!(sent.password.as_deref(), Some("pass:word"));
    }

    #[test]
    fn the_helper_of_a_registry_goes_before_the_one_of_all() {
        let file =
            file(r#"{"credsStore": "desktop", "credHelpers": {"ghcr.io": "gh"}, "auths": {"ghcr.io": {}}}"#);
        assert_eq!(file.helper("ghcr.io"), Some("gh"));
        assert_eq!(file.helper("quay.io"), Some("desktop"));
        assert!(file.auths["ghcr.io"].login().is_none());
    }

    #[test]
    fn a_token_is_sent_as_one() {
        let login: Login =
            serde_json::from_str(r#"{"ServerURL": "x", "Username": "<token>", "Secret": "abc"}"#).unwrap();
        let sent = login.for_registry("x");
        assert_eq!(
            (sent.username, sent.identitytoken.as_deref()),
            (None, Some("abc"))
        );
    }

    #[tokio::test]
    async fn a_helper_is_asked_for_its_registry() {
        use std::os::unix::fs::PermissionsExt;

        let dir = tempfile::tempdir().unwrap();
        let helper = dir.path().join("docker-credential-test");
        let script = "#!/bin/sh\nread key || [ -n \"$key\" ]\n[ \"$key\" = ghcr.io ] || exit 1\necho '{\"Username\":\"ann\",\"Secret\":\"s3cret\"}'\n";
        std::fs::write(&helper, script).unwrap();
        std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", dir.path().display());
        let host = Host::new(BTreeMap::from([("PATH".to_owned(), path)]));

        let login = ask(&host, "test", "ghcr.io").await.unwrap().unwrap();
        assert_eq!(
            (login.username.as_str(), login.secret.expose()),
            ("ann", "s3cret")
        );
        assert!(ask(&host, "test", "quay.io").await.unwrap().is_none());
    }
}
