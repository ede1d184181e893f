//! The service of a profile's agent, and the credential for it.

use crate::agent::{AgentCredential, AgentName, ModelAccess};
use crate::config::Config;
use crate::credential::{CredentialKind, CredentialSource};
use crate::gateway::broker::ModelUpstream;
use crate::model::{AuthMethod, GATEWAY_KEY};
use crate::secret::Secret;

use super::super::AssemblyError;
use super::super::agents::{agent_name, credential, settings_of, variable_hint};
use super::super::credentials::{from_environment, kind, upstream, vault};
use super::AssemblyContext;

/// A service and the profiles that use it.
pub(crate) struct BrokeredService {
    pub(crate) upstream: ModelUpstream,
    kind: CredentialKind,
    /// The variable with its credential, if the configuration names one or the agent reads one; else the credential is in
    /// the vault or in the usual variable.
    variable: Option<String>,
    pub(super) users: Vec<ServiceUser>,
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
    /// What to do when the credential is refused.
    pub(super) credential_hint: String,
}

impl BrokeredService {
    /// The service of a profile's agent, if the broker knows the service and there is a credential. A stored credential
    /// wins over the environment, unless the profile names a variable.
    pub(crate) async fn for_profile(
        context: &AssemblyContext,
        config: &Config,
        profile: &str,
    ) -> Result<Option<Self>, AssemblyError> {
        let agent = agent_name(config, profile);
        let Some(service) = agent.brokered_service() else {
            return Ok(None);
        };
        let settings = settings_of(config, profile);
        let base = settings.and_then(|model| model.base_url.as_deref());
        if settings.is_none_or(|model| model.api_key_env.is_none()) {
            for kind in usable_kinds(config, agent)? {
                if let Some(secrets) = stored_secrets(context, config, kind).await? {
                    let hint = format!("{}, then `ralph resume`", kind.store_hint());
                    return Ok(Some(Self {
                        upstream: upstream(context, config, kind, base).await?,
                        kind,
                        variable: None,
                        users: vec![ServiceUser::new(profile, agent, kind, hint)],
                        secrets,
                    }));
                }
            }
        }
        let Some((variable, found)) = credential(config, profile, agent.key_variables) else {
            return Ok(None);
        };
        let kind = service.credential(found.auth).unwrap_or(GATEWAY_KEY);
        let hint = variable_hint(&variable);
        Ok(Some(Self {
            upstream: ModelUpstream::new(kind, CredentialSource::Fixed(found.value), base)?,
            users: vec![ServiceUser::new(profile, agent, kind, hint)],
            kind,
            variable: Some(variable),
            secrets: Vec::new(),
        }))
    }

    /// Whether this profile uses it.
    pub(super) fn serves(&self, profile: &str) -> bool {
        self.users.iter().any(|user| user.profile == profile)
    }

    /// What to do when the credential is refused.
    pub(crate) fn credential_hint(&self) -> String {
        let first = self.users.first();
        first.map(|user| user.credential_hint.clone()).unwrap_or_default()
    }

    /// Whether it is the same service with the same credential.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let address = self.upstream.address() == other.upstream.address();
        address && (self.kind, &self.variable) == (other.kind, &other.variable)
    }
}

impl ServiceUser {
    fn new(profile: &str, agent: AgentName, kind: CredentialKind, credential_hint: String) -> Self {
        Self {
            profile: profile.to_owned(),
            auth: kind.auth,
            variable: agent.key_variable(kind.auth).unwrap_or_default(),
            path: agent.base_path,
            credential_hint,
        }
    }

    /// How the agent of the profile reaches the service at this address.
    pub(super) fn access(self, address: &str, credential: Option<AgentCredential>) -> (String, ModelAccess) {
        let access = ModelAccess {
            base_url: Some(format!("{address}{}", self.path)),
            credential,
            credential_hint: self.credential_hint,
        };
        (self.profile, access)
    }
}

/// The kinds of credentials that an agent can use, in order of preference.
fn usable_kinds(config: &Config, agent: AgentName) -> Result<Vec<CredentialKind>, AssemblyError> {
    let chosen = config.settings.agent.auth.is_some() && config.settings.agent.name == agent;
    if chosen {
        return Ok(vec![kind(config)?]);
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
    if let Some((stored, _)) = vault(context)?.load(kind).await? {
        return Ok(Some(stored.secrets().collect()));
    }
    let chosen = config.settings.agent.auth == Some(kind.auth);
    Ok((chosen && from_environment(config, kind).is_some()).then(Vec::new))
}
