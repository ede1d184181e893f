//! The credential of an agent: its kind, and where it is stored.

use crate::config::Config;
use crate::credential::{AuthMethod, CredentialKind, CredentialSource, Keychain, Login, TokenServer, Vault};
use crate::gateway::broker::{self, ModelUpstream, UpstreamError};
use crate::model::{GATEWAY_KEY, ModelService};
use crate::secret::Secret;

use super::{AssemblyContext, AssemblyError, ErrorTopic, Surroundings};

/// The credential of the configured agent.
pub(crate) fn configured_kind(config: &Config) -> Result<CredentialKind, AssemblyError> {
    let agent = config.settings.agent.kind;
    match (config.settings.agent.auth, agent.service) {
        (Some(AuthMethod::Gateway), _) | (None, None) => Ok(GATEWAY_KEY),
        (None, Some(service)) => {
            let usual = service.credentials.first().copied();
            usual.ok_or_else(|| no_credential(agent.name, AuthMethod::ApiKey))
        }
        (Some(auth), None) => Err(no_credential(agent.name, auth)),
        (Some(auth), Some(service)) => match (service.credential(auth), service.no_login) {
            (Some(kind), _) => Ok(kind),
            (None, Some(why)) if auth == AuthMethod::OAuth => Err(no_login(why, service)),
            (None, _) => Err(no_credential(agent.name, auth)),
        },
    }
}

/// Why a service has no logins, with its usual credential as the way out.
fn no_login(why: &str, service: &ModelService) -> AssemblyError {
    let usual = service.credentials.first();
    let hint = usual.map(|usual| format!("set agent.auth = \"{}\", and {}", usual.auth, usual.store_hint()));
    AssemblyError::usage(why)
        .with_topic(ErrorTopic::Credentials)
        .with_hint_of(hint)
}

fn no_credential(agent: &str, auth: AuthMethod) -> AssemblyError {
    AssemblyError::usage(format!("the agent `{agent}` cannot authenticate with `{auth}`"))
        .with_topic(ErrorTopic::Credentials)
}

/// The user's credentials on this host.
pub(crate) fn open_vault(context: &AssemblyContext) -> Result<Vault, AssemblyError> {
    let surroundings = &context.surroundings;
    let vault = Vault::in_files(surroundings.data_dir()?.join("credentials"));
    let host = surroundings.desktop_host();
    let keychain = if cfg!(target_os = "macos") {
        Some(Keychain::MacOs)
    } else {
        // Without a desktop session it cannot be unlocked.
        let session = surroundings.var("DBUS_SESSION_BUS_ADDRESS");
        session.map(|_| Keychain::SecretService)
    };
    Ok(
        match keychain.filter(|keychain| host.has_program(keychain.program())) {
            Some(keychain) => vault.with_keychain(keychain, host),
            None => vault,
        },
    )
}

/// The service of a credential, which is stored or else in the environment. `base` replaces the address of the service,
/// but not that of the server that renews logins.
pub(crate) async fn connect_upstream(
    context: &AssemblyContext,
    config: &Config,
    kind: CredentialKind,
    base: Option<&str>,
) -> Result<ModelUpstream, AssemblyError> {
    let vault = open_vault(context)?;
    let stored = vault.load(kind).await?;
    let login = || {
        let login = Login::new(
            kind,
            vault,
            token_server(&context.surroundings)?,
            context.surroundings.clock(),
        );
        Ok::<_, AssemblyError>(CredentialSource::Stored(login))
    };
    let source = match (stored, from_environment(config, kind)) {
        (None, Some(secret)) => CredentialSource::Fixed(secret),
        (Some(_), _) | (None, None) => login()?,
    };
    let own = config.settings.model_endpoint.base_url.as_deref();
    let own = own.filter(|_| kind == GATEWAY_KEY);
    Ok(ModelUpstream::new(kind, source, base.or(own))?)
}

/// The credential in the environment.
pub(crate) fn from_environment(config: &Config, kind: CredentialKind) -> Option<Secret> {
    if kind == GATEWAY_KEY {
        return config.model_api_key();
    }
    config.credential(kind.variable)
}

/// Replaces the vendor's token server, for tests.
const TOKEN_SERVER: &str = "RALPH_TOKEN_SERVER";

/// The server that renews logins: the vendor's own. A model gateway at another address never gets a refresh token.
fn token_server(surroundings: &Surroundings) -> Result<TokenServer, AssemblyError> {
    let url = surroundings.var(TOKEN_SERVER).unwrap_or(TokenServer::ANTHROPIC);
    let url = url.parse().map_err(|_| UpstreamError::InvalidUrl)?;
    let http = broker::client(Vec::new())?;
    Ok(TokenServer { url, http })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn logins_are_renewed_by_the_vendor_unless_a_test_replaces_it() {
        let surroundings = Surroundings::new(BTreeMap::new(), "/nowhere");
        let vendor = token_server(&surroundings).unwrap();
        assert_eq!(vendor.url.as_str(), TokenServer::ANTHROPIC);
        let replaced = surroundings.with_var(TOKEN_SERVER, "http://127.0.0.1:1/token");
        let replaced = token_server(&replaced).unwrap();
        assert_eq!(replaced.url.as_str(), "http://127.0.0.1:1/token");
    }
}
