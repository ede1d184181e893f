//! Which credential an agent uses, and where it comes from.

use crate::clock;
use crate::config::{AgentName, Config};
use crate::credential::{
    AuthMethod, CredentialError, CredentialKind, CredentialLocation, CredentialSource, Keychain, Login,
    LoginError, TokenServer, Vault,
};
use crate::gateway::broker::{self, BrokerError, Upstream, UpstreamError};

use super::Context;
use super::assemble::{self, Given};
use super::error::{CliError, Exit};

/// Options that name a credential.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Which {
    /// The agent whose credential it is: claude, codex, cursor, actions or custom
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// How it authenticates: oauth, api-key or gateway
    #[arg(long, value_name = "HOW")]
    auth: Option<AuthMethod>,
}

impl Which {
    /// The configuration, and the credential that is meant under it.
    pub(super) fn kind(self, context: &Context) -> Result<(Config, CredentialKind), CliError> {
        let given = Given::of_flags([
            ("--agent", "agent.name", self.agent),
            ("--auth", "agent.auth", self.auth.map(|auth| auth.to_string())),
        ]);
        let config = assemble::configuration(context, None, &given)?;
        let kind = kind(&config)?;
        Ok((config, kind))
    }
}

/// The credential of the configured agent.
pub(super) fn kind(config: &Config) -> Result<CredentialKind, CliError> {
    let agent = config.settings.agent.name;
    match (agent, config.settings.agent.auth) {
        (AgentName::Claude, None | Some(AuthMethod::OAuth)) => Ok(CredentialKind::AnthropicOAuth),
        (AgentName::Claude, Some(AuthMethod::ApiKey)) => Ok(CredentialKind::AnthropicKey),
        (AgentName::Codex, None | Some(AuthMethod::ApiKey)) => Ok(CredentialKind::OpenAiKey),
        (AgentName::Cursor, None | Some(AuthMethod::ApiKey)) => Ok(CredentialKind::CursorKey),
        (AgentName::Actions | AgentName::Custom, None) | (_, Some(AuthMethod::Gateway)) => {
            Ok(CredentialKind::GatewayKey)
        }
        (AgentName::Codex, Some(AuthMethod::OAuth)) => Err(CliError::usage(
            "the login of ChatGPT is for a service of its own, which the gateway does not speak to",
        )
        .hint("use a key of the OpenAI API: `--agent codex --auth api-key`")),
        (agent, Some(auth)) => Err(CliError::usage(format!(
            "`{}` has no credential of the kind `{auth}`",
            agent.name()
        ))),
    }
}

/// Where credentials are kept on this machine.
pub(super) fn vault(context: &Context) -> Result<Vault, CliError> {
    let surroundings = &context.surroundings;
    let vault = Vault::in_files(surroundings.data_dir()?.join("credentials"));
    let host = surroundings.session_host();
    let keychain = if cfg!(target_os = "macos") {
        Some(Keychain::MacOs)
    } else {
        // Without a session there is nobody to unlock it.
        let session = surroundings.var("DBUS_SESSION_BUS_ADDRESS");
        session.map(|_| Keychain::SecretService)
    };
    Ok(match keychain.filter(|keychain| host.finds(keychain.program())) {
        Some(keychain) => vault.with_keychain(keychain, host),
        None => vault,
    })
}

/// The service of a credential: what is stored, or else what the environment holds. `base` stands in for the service.
pub(super) async fn upstream(
    context: &Context,
    config: &Config,
    kind: CredentialKind,
    base: Option<&str>,
) -> Result<Upstream, CliError> {
    let vault = vault(context)?;
    let stored = vault.load(kind).await?;
    let login = || {
        let login = Login::new(kind, vault, token_server(base)?, clock::system());
        Ok::<_, CliError>(CredentialSource::Stored(login))
    };
    let source = match (stored, from_environment(config, kind)) {
        (None, Some(secret)) => CredentialSource::Fixed(secret),
        (Some(_), _) | (None, None) => login()?,
    };
    let own =
        (kind == CredentialKind::GatewayKey).then_some(config.settings.model_endpoint.base_url.as_str());
    Ok(Upstream::new(kind, source, base.or(own))?)
}

/// The credential that the environment holds.
pub(super) fn from_environment(config: &Config, kind: CredentialKind) -> Option<crate::secret::Secret> {
    match kind {
        CredentialKind::AnthropicOAuth => config.credential("CLAUDE_CODE_OAUTH_TOKEN"),
        CredentialKind::AnthropicKey => config.credential("ANTHROPIC_API_KEY"),
        CredentialKind::OpenAiKey => config.credential("OPENAI_API_KEY"),
        CredentialKind::CursorKey => config.credential("CURSOR_API_KEY"),
        CredentialKind::GatewayKey => config.model_api_key(),
    }
}

/// Where logins are renewed. Whatever stands in for the service renews them too.
fn token_server(base: Option<&str>) -> Result<TokenServer, CliError> {
    let url = match base {
        Some(base) => format!("{}/v1/oauth/token", base.trim_end_matches('/')),
        None => TokenServer::ANTHROPIC.to_owned(),
    };
    let url = url.parse().map_err(|_| UpstreamError::NotAUrl)?;
    let http = broker::client(Vec::new())?;
    Ok(TokenServer { url, http })
}

/// A place, for people.
pub(super) fn describe(place: CredentialLocation) -> &'static str {
    match place {
        CredentialLocation::Keychain(Keychain::MacOs) => "the keychain",
        CredentialLocation::Keychain(Keychain::SecretService) => "the Secret Service",
        CredentialLocation::File => "a file that only you can read",
    }
}

impl From<CredentialError> for CliError {
    fn from(error: CredentialError) -> Self {
        Self::of(Exit::Failure, &error).maybe_hint(error.hint())
    }
}

impl From<LoginError> for CliError {
    fn from(error: LoginError) -> Self {
        Self::of(Exit::Failure, &error).maybe_hint(error.hint())
    }
}

impl From<BrokerError> for CliError {
    fn from(error: BrokerError) -> Self {
        Self::of(Exit::Failure, &error)
    }
}

impl From<UpstreamError> for CliError {
    fn from(error: UpstreamError) -> Self {
        Self::of(Exit::Usage, &error)
    }
}
