//! The options that name a credential.

use super::{CliError, Context, agent_help, configuration, flags};
use crate::assembly::credentials::configured_kind;
use crate::config::Config;
use crate::credential::{AuthMethod, CredentialKind, CredentialLocation, Keychain};

/// Options that name a credential.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CredentialArgs {
    #[arg(long, value_name = "NAME", help = agent_help("The agent whose credential it is"))]
    agent: Option<String>,
    /// How it authenticates: oauth, api-key or gateway
    #[arg(long, value_name = "HOW")]
    auth: Option<AuthMethod>,
}

impl CredentialArgs {
    /// The configuration, and the credential that the options name in it.
    pub(super) fn kind(self, context: &Context) -> Result<(Config, CredentialKind), CliError> {
        let given = flags([
            ("--agent", "agent.name", self.agent),
            ("--auth", "agent.auth", self.auth.map(|auth| auth.to_string())),
        ]);
        let config = configuration(context, given)?;
        let kind = configured_kind(&config)?;
        Ok((config, kind))
    }
}

/// Where a credential is stored, in words.
pub(super) fn describe_location(location: CredentialLocation) -> &'static str {
    match location {
        CredentialLocation::Keychain(Keychain::MacOs) => "the keychain",
        CredentialLocation::Keychain(Keychain::SecretService) => "the Secret Service",
        CredentialLocation::File => "a file that only you can read",
    }
}
