//! The service of a profile's agent, and the credential for it.

use crate::agent::{AgentCredential, KnownAgent, ModelAccess};
use crate::config::Config;
use crate::credential::{CredentialKind, CredentialSource};
use crate::gateway::broker::ModelUpstream;
use crate::model::{AuthMethod, GATEWAY_KEY};
use crate::secret::Secret;

use super::super::agents::{agent_of_profile, find_credential, settings_of, variable_hint};
use super::super::credentials::{configured_kind, connect_upstream, from_environment, open_vault};
use super::super::{AssemblyError, ErrorTopic};
use super::AssemblyContext;

/// A service and the profiles that use it.
pub(crate) struct BrokeredService {
    pub(crate) upstream: ModelUpstream,
    kind: CredentialKind,
    /// The variable with its credential, if the configuration names one or the agent reads one; else the credential is in
    /// the vault or in the usual variable.
    variable: Option<String>,
    pub(super) users: Vec<ServiceUser>,
    /// What to do when the credential is refused.
    pub(crate) credential_hint: String,
    /// The stored credential.
    pub(super) secrets: Vec<Secret>,
}

/// A profile and how its agent reaches the service.
pub(super) struct ServiceUser {
    pub(super) profile: String,
    /// How the program authenticates with the phantom.
    pub(super) auth: AuthMethod,
    /// The variable in which the program looks for the credential.
    pub(super) variable: &'static str,
    /// The path that the program expects after the address.
    pub(super) path: &'static str,
}

impl BrokeredService {
    /// The service of a profile's agent, if the broker knows the service and there is a credential. A stored credential
    /// wins over the environment, unless the profile names a variable.
    pub(crate) async fn for_profile(
        context: &AssemblyContext,
        config: &Config,
        profile: &str,
    ) -> Result<Option<Self>, AssemblyError> {
        let agent = agent_of_profile(config, profile);
        let Some(service) = agent.brokered_service() else {
            return Ok(None);
        };
        let settings = settings_of(config, profile);
        let base = settings.and_then(|model| model.base_url.as_deref());
        if settings.is_none_or(|model| model.api_key_env.is_none()) {
            for kind in usable_kinds(config, agent)? {
                if let Some(secrets) = stored_secrets(context, config, kind).await? {
                    return Ok(Some(Self {
                        upstream: connect_upstream(context, config, kind, base).await?,
                        kind,
                        variable: None,
                        users: vec![ServiceUser::new(profile, agent, kind)?],
                        credential_hint: format!("{}, then `ralph resume`", kind.store_hint()),
                        secrets,
                    }));
                }
            }
        }
        let Some((variable, found)) = find_credential(config, profile, agent.key_variables) else {
            return Ok(None);
        };
        let kind = match found.auth {
            AuthMethod::Gateway => GATEWAY_KEY,
            auth => service
                .credential(auth)
                .ok_or_else(|| cannot_authenticate(profile, agent, auth))?,
        };
        Ok(Some(Self {
            upstream: ModelUpstream::new(kind, CredentialSource::Fixed(found.value), base)?,
            users: vec![ServiceUser::new(profile, agent, kind)?],
            credential_hint: variable_hint(&variable),
            kind,
            variable: Some(variable),
            secrets: Vec::new(),
        }))
    }

    /// Whether this profile uses it.
    pub(super) fn serves(&self, profile: &str) -> bool {
        self.users.iter().any(|user| user.profile == profile)
    }

    /// Whether it is the same service with the same credential.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let address = self.upstream.address() == other.upstream.address();
        address && (self.kind, &self.variable) == (other.kind, &other.variable)
    }
}

impl ServiceUser {
    fn new(profile: &str, agent: KnownAgent, kind: CredentialKind) -> Result<Self, AssemblyError> {
        Ok(Self {
            profile: profile.to_owned(),
            auth: kind.auth,
            variable: agent
                .key_variable(kind.auth)
                .ok_or_else(|| cannot_authenticate(profile, agent, kind.auth))?,
            path: agent.base_path,
        })
    }

    /// How the agent of the profile reaches the service at this address.
    pub(super) fn access(
        &self,
        address: &str,
        credential: Option<AgentCredential>,
        credential_hint: &str,
    ) -> ModelAccess {
        ModelAccess {
            base_url: Some(format!("{address}{}", self.path)),
            credential,
            credential_hint: Some(credential_hint.to_owned()),
        }
    }
}

fn cannot_authenticate(profile: &str, agent: KnownAgent, auth: AuthMethod) -> AssemblyError {
    AssemblyError::usage(format!(
        "models.{profile}: the agent `{}` cannot authenticate with `{auth}`",
        agent.name
    ))
    .with_topic(ErrorTopic::Credentials)
}

/// The kinds of credentials that an agent can use, in order of preference.
fn usable_kinds(config: &Config, agent: KnownAgent) -> Result<Vec<CredentialKind>, AssemblyError> {
    let chosen = config.settings.agent.auth.is_some() && config.settings.agent.kind == agent;
    if chosen {
        return Ok(vec![configured_kind(config)?]);
    }
    let service = agent.brokered_service();
    Ok(service.map_or(Vec::new(), |service| service.credentials.to_vec()))
}

/// The stored secrets of a kind. Empty if the configuration chose the kind and the environment has it; `None` if there is no
/// credential.
async fn stored_secrets(
    context: &AssemblyContext,
    config: &Config,
    kind: CredentialKind,
) -> Result<Option<Vec<Secret>>, AssemblyError> {
    if let Some((stored, _)) = open_vault(context)?.load(kind).await? {
        return Ok(Some(stored.secrets().collect()));
    }
    let chosen = config.settings.agent.auth == Some(kind.auth);
    Ok((chosen && from_environment(config, kind).is_some()).then(Vec::new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ANTHROPIC_LOGIN;

    #[test]
    fn an_agent_without_a_variable_for_its_credential_is_refused() {
        let codex = "codex".parse().unwrap();
        let error = ServiceUser::new("cheap", codex, ANTHROPIC_LOGIN).err().unwrap();
        assert_eq!(
            error.to_string(),
            "models.cheap: the agent `codex` cannot authenticate with `oauth`"
        );
    }
}
