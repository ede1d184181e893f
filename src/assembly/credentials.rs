//! Which credential an agent uses, and where it comes from.

use crate::config::{AgentName, Config};
use crate::credential::{AuthMethod, CredentialKind, CredentialSource, Keychain, Login, TokenServer, Vault};
use crate::gateway::broker::{self, ModelUpstream, UpstreamError};

use super::AssemblyContext;
use super::AssemblyError;

/// The credential of the configured agent.
pub(crate) fn kind(config: &Config) -> Result<CredentialKind, AssemblyError> {
    let agent = config.settings.agent.name;
    match (agent, config.settings.agent.auth) {
        (AgentName::Claude, None | Some(AuthMethod::OAuth)) => Ok(CredentialKind::AnthropicOAuth),
        (AgentName::Claude, Some(AuthMethod::ApiKey)) => Ok(CredentialKind::AnthropicKey),
        (AgentName::Codex, None | Some(AuthMethod::ApiKey)) => Ok(CredentialKind::OpenAiKey),
        (AgentName::Cursor, None | Some(AuthMethod::ApiKey)) => Ok(CredentialKind::CursorKey),
        (AgentName::Actions | AgentName::Custom, None) | (_, Some(AuthMethod::Gateway)) => {
            Ok(CredentialKind::GatewayKey)
        }
        (AgentName::Codex, Some(AuthMethod::OAuth)) => Err(AssemblyError::usage(
            "the login of ChatGPT is for a service of its own, which the gateway does not speak to",
        )
        .with_hint("use a key of the OpenAI API: `--agent codex --auth api-key`")),
        (agent, Some(auth)) => Err(AssemblyError::usage(format!(
            "`{}` has no credential of the kind `{auth}`",
            agent.name()
        ))),
    }
}

/// Where credentials are kept on this machine.
pub(crate) fn vault(context: &AssemblyContext) -> Result<Vault, AssemblyError> {
    let surroundings = &context.surroundings;
    let vault = Vault::in_files(surroundings.data_dir()?.join("credentials"));
    let host = surroundings.desktop_host();
    let keychain = if cfg!(target_os = "macos") {
        Some(Keychain::MacOs)
    } else {
        // Without a session there is nobody to unlock it.
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

/// The service of a credential: what is stored, or else what the environment holds. `base` stands in for the service.
pub(crate) async fn upstream(
    context: &AssemblyContext,
    config: &Config,
    kind: CredentialKind,
    base: Option<&str>,
) -> Result<ModelUpstream, AssemblyError> {
    let vault = vault(context)?;
    let stored = vault.load(kind).await?;
    let login = || {
        let login = Login::new(kind, vault, token_server(base)?, context.surroundings.clock());
        Ok::<_, AssemblyError>(CredentialSource::Stored(login))
    };
    let source = match (stored, from_environment(config, kind)) {
        (None, Some(secret)) => CredentialSource::Fixed(secret),
        (Some(_), _) | (None, None) => login()?,
    };
    let own =
        (kind == CredentialKind::GatewayKey).then_some(config.settings.model_endpoint.base_url.as_str());
    Ok(ModelUpstream::new(kind, source, base.or(own))?)
}

/// The credential that the environment holds.
pub(crate) fn from_environment(config: &Config, kind: CredentialKind) -> Option<crate::secret::Secret> {
    match kind {
        CredentialKind::AnthropicOAuth => config.credential("CLAUDE_CODE_OAUTH_TOKEN"),
        CredentialKind::AnthropicKey => config.credential("ANTHROPIC_API_KEY"),
        CredentialKind::OpenAiKey => config.credential("OPENAI_API_KEY"),
        CredentialKind::CursorKey => config.credential("CURSOR_API_KEY"),
        CredentialKind::GatewayKey => config.model_api_key(),
    }
}

/// Where logins are renewed. Whatever stands in for the service renews them too.
fn token_server(base: Option<&str>) -> Result<TokenServer, AssemblyError> {
    let url = match base {
        Some(base) => format!("{}/v1/oauth/token", base.trim_end_matches('/')),
        None => TokenServer::ANTHROPIC.to_owned(),
    };
    let url = url.parse().map_err(|_| UpstreamError::InvalidUrl)?;
    let http = broker::client(Vec::new())?;
    Ok(TokenServer { url, http })
}
