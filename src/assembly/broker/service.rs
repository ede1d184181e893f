//! The service behind a profile's agent, and which credential is used for it.

use crate::agent::{AgentCredential, AgentName, ModelAccess};
use crate::config::Config;
use crate::credential::{CredentialKind, CredentialSource};
use crate::gateway::broker::ModelUpstream;
use crate::model::{AuthMethod, GATEWAY_KEY};
use crate::secret::Secret;

use super::super::AssemblyError;
use super::super::agents::{agent_name, credential, settings_of};
use super::super::credentials::{from_environment, kind, upstream, vault};
use super::AssemblyContext;

/// A service and the profiles that reach it.
pub(crate) struct Service {
    pub(crate) upstream: ModelUpstream,
    kind: CredentialKind,
    /// Where its credential comes from.
    from: From,
    pub(super) members: Vec<Member>,
    /// What is stored for it.
    pub(super) secrets: Vec<Secret>,
}

/// Where a credential comes from.
#[derive(PartialEq, Eq)]
enum From {
    /// It is the one of its kind that is stored or chosen.
    Kind,
    /// A variable.
    Variable(String),
}

/// One profile and how its agent reaches the service.
pub(super) struct Member {
    pub(super) profile: String,
    /// What the program takes its phantom for.
    pub(super) auth: AuthMethod,
    /// The variable in which the program looks for it.
    pub(super) variable: &'static str,
    /// What the program expects after the address.
    pub(super) path: &'static str,
    /// What a person does when the credential is refused.
    pub(super) remedy: String,
}

impl Service {
    /// The service of a profile whose agent is a program that the broker understands and has a credential for.
    /// What is stored comes before what the environment holds, unless the profile names a variable of its own.
    pub(crate) async fn of_profile(
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
            for kind in kinds(config, agent)? {
                if let Some(secrets) = known(context, config, kind).await? {
                    let service = Self {
                        upstream: upstream(context, config, kind, base).await?,
                        kind,
                        from: From::Kind,
                        members: vec![Member {
                            remedy: format!("run `{}`, then `ralph resume`", kind.store_command()),
                            ..member(profile, agent, kind)
                        }],
                        secrets,
                    };
                    return Ok(Some(service));
                }
            }
        }
        let Some((variable, found)) = credential(config, profile, agent.key_variables) else {
            return Ok(None);
        };
        let kind = service.credential(found.auth).unwrap_or(GATEWAY_KEY);
        Ok(Some(Self {
            upstream: ModelUpstream::new(kind, CredentialSource::Fixed(found.value), base)?,
            members: vec![Member {
                remedy: format!("put a valid one into `{variable}`, then `ralph resume`"),
                ..member(profile, agent, kind)
            }],
            kind,
            from: From::Variable(variable),
            secrets: Vec::new(),
        }))
    }

    /// Whether this profile reaches it.
    pub(super) fn serves(&self, profile: &str) -> bool {
        self.members.iter().any(|member| member.profile == profile)
    }

    /// What a person does when the credential is refused.
    pub(crate) fn remedy(&self) -> String {
        let first = self.members.first();
        first.map(|member| member.remedy.clone()).unwrap_or_default()
    }

    /// Whether it is the same service with the same credential.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let address = self.upstream.address() == other.upstream.address();
        address && (self.kind, &self.from) == (other.kind, &other.from)
    }

    /// Takes the profiles of its like.
    pub(super) fn share_with(&mut self, other: Self) {
        self.members.extend(other.members);
    }
}

impl Member {
    /// How the agent of the profile reaches the service at this address.
    pub(super) fn access(self, address: &str, credential: Option<AgentCredential>) -> (String, ModelAccess) {
        let access = ModelAccess {
            base_url: Some(format!("{address}{}", self.path)),
            credential,
            credential_hint: self.remedy,
        };
        (self.profile, access)
    }
}

fn member(profile: &str, agent: AgentName, kind: CredentialKind) -> Member {
    Member {
        profile: profile.to_owned(),
        auth: kind.auth(),
        variable: agent.key_variable(kind.auth()).unwrap_or_default(),
        path: agent.base_path,
        remedy: String::new(),
    }
}

/// Which stored credentials an agent can use, the most usual first.
fn kinds(config: &Config, agent: AgentName) -> Result<Vec<CredentialKind>, AssemblyError> {
    let chosen = config.settings.agent.auth.is_some() && config.settings.agent.name == agent;
    if chosen {
        return Ok(vec![kind(config)?]);
    }
    let service = agent.brokered_service();
    Ok(service.map_or(Vec::new(), |service| service.credentials.to_vec()))
}

/// What is stored of a kind; nothing, where the environment holds it and the configuration chose it; `None` where it is
/// nowhere.
async fn known(
    context: &AssemblyContext,
    config: &Config,
    kind: CredentialKind,
) -> Result<Option<Vec<Secret>>, AssemblyError> {
    if let Some((stored, _)) = vault(context)?.load(kind).await? {
        return Ok(Some(stored.secrets().collect()));
    }
    let chosen = config.settings.agent.auth == Some(kind.auth());
    Ok((chosen && from_environment(config, kind).is_some()).then(Vec::new))
}
