//! What must hold before a run begins, as far as the command line alone can look at it: credentials, the gateway that
//! holds them, and whether an agent without one reaches its model at all.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

use crate::agent::AgentName;
use crate::config::Config;
use crate::credential::CredentialSource;
use crate::event::PreflightResult;
use crate::gateway::broker::{self, BrokerError, ModelUpstream, VerifyError};
use crate::model::GATEWAY_KEY;
use crate::network::{HostName, PackageConfig, Policy};
use crate::runner::Precondition;
use crate::sandbox::NetworkEnforcement;
use crate::text::error_chain;

use super::AssemblyError;
use super::agents::{agent_name, credential, settings_of};
use super::broker::{BrokerEndpoint, Brokered, Service};
use super::{AssemblyContext, provider};

/// How long a service may take to say whether it takes a credential.
const PATIENCE: Duration = Duration::from_secs(20);

/// The preconditions of a run whose models are real ones, for the profile that it begins with.
pub(crate) async fn preconditions(
    context: &AssemblyContext,
    config: &Config,
    brokered: Option<&Brokered>,
) -> Result<Vec<Arc<dyn Precondition>>, AssemblyError> {
    if context.agent.is_some() {
        return Ok(Vec::new());
    }
    let own = &config.settings.default_profile;
    let open = brokered.and_then(|brokered| Some((brokered.endpoint(own)?, brokered.access(own)?)));
    let Some((door, access)) = open else {
        let credential = own_credential(context, config, own).await?;
        let policy = config.network_policy(&PackageConfig::EMPTY);
        // What is opened with a credential that the provider keeps is open to whoever uses it.
        let policy = match brokered {
            Some(brokered) => brokered.allow(policy)?,
            None => policy,
        };
        let reach = reach(context, config, (own, &policy))?;
        return Ok(credential.into_iter().chain(reach).collect());
    };
    Ok(vec![
        Arc::new(Health(door.clone())),
        Arc::new(Credential {
            agent: agent_name(config, own),
            asked: Asked::Through(door.clone()),
            remedy: access.credential_hint.clone(),
        }),
    ])
}

/// What is to be said of a credential that no gateway holds.
async fn own_credential(
    context: &AssemblyContext,
    config: &Config,
    profile: &str,
) -> Result<Option<Arc<dyn Precondition>>, AssemblyError> {
    let agent = agent_name(config, profile);
    let asked = if agent.is_built_in {
        endpoint(config, profile)?
    } else {
        let service = Service::of_profile(context, config, profile).await?;
        service.map(|service| (service.remedy(), Asked::FromAfar(service.upstream)))
    };
    if let Some((remedy, asked)) = asked {
        return Ok(Some(Arc::new(Credential { agent, asked, remedy })));
    }
    let found = match (
        agent.key_variables.first(),
        credential(config, profile, agent.key_variables),
    ) {
        (Some(_), Some((variable, _))) => PreflightResult::Ready {
            detail: format!("in `{variable}`; nobody can be asked whether it is taken"),
        },
        (Some(key), None) if asks_its_maker(config, profile) => PreflightResult::NotReady {
            why: "there is none".to_owned(),
            next_step: format!(
                "`ralph token store --agent {}`, or put one into `{}`; then `ralph resume`",
                agent.name, key.name
            ),
        },
        (Some(_), None) | (None, _) => return Ok(None),
    };
    Ok(Some(Arc::new(Known {
        name: format!("credential of {}", agent.name),
        found,
    })))
}

/// The endpoint that `actions` asks, where it has a key, and what to do when it does not take that.
fn endpoint(config: &Config, profile: &str) -> Result<Option<(String, Asked)>, AssemblyError> {
    let model = settings_of(config, profile);
    let usual = &config.settings.model_endpoint;
    let variable = model.and_then(|model| model.api_key_env.as_ref());
    let variable = variable.unwrap_or(&usual.api_key_env);
    let address = model.and_then(|model| model.base_url.as_ref());
    let address = address.unwrap_or(&usual.base_url);
    let Some(key) = config.credential(variable) else {
        return Ok(None);
    };
    let upstream = ModelUpstream::new(GATEWAY_KEY, CredentialSource::Fixed(key), Some(address))?;
    let remedy = format!("put a valid one into `{variable}`, then `ralph resume`");
    Ok(Some((remedy, Asked::FromHere(upstream))))
}

/// Whether the policy lets an agent reach its model by itself. Nothing is opened for it that nobody asked for.
fn reach(
    context: &AssemblyContext,
    config: &Config,
    (profile, policy): (&str, &Policy),
) -> Result<Option<Arc<dyn Precondition>>, AssemblyError> {
    let enforced = provider::connected(context, config)?.capabilities().network;
    let agent = agent_name(config, profile);
    if enforced == NetworkEnforcement::Nothing || !asks_its_maker(config, profile) {
        return Ok(None);
    }
    Ok(closed(agent, policy).map(|host| -> Arc<dyn Precondition> {
        Arc::new(Known {
            name: format!("network of {}", agent.name),
            found: PreflightResult::NotReady {
                why: format!("the policy does not let it reach `{host}`, where its model is"),
                next_step: format!("add \"{host}\" to sandbox.network.allowed"),
            },
        })
    }))
}

/// The first host of an agent's own model that a policy keeps it from.
fn closed(agent: AgentName, policy: &Policy) -> Option<&'static str> {
    let is_closed = |pattern: &&&str| {
        // One of the names that the pattern stands for.
        let name = HostName::parse(&pattern.replace("**.", "any."));
        name.is_ok_and(|name| !policy.judge_name(&name).is_allowed())
    };
    let hosts = agent.service.map_or(&[][..], |service| service.hosts);
    hosts.iter().find(is_closed).copied()
}

/// Whether the agent of a profile asks its maker's model. At an address of one's own somebody else knows how it is
/// reached, and what it wants to be shown; not every agent can be given one.
fn asks_its_maker(config: &Config, profile: &str) -> bool {
    let elsewhere = settings_of(config, profile).is_some_and(|model| model.base_url.is_some());
    !agent_name(config, profile).accepts_base_url || !elsewhere
}

/// What is known without looking.
struct Known {
    name: String,
    found: PreflightResult,
}

#[async_trait]
impl Precondition for Known {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn check(&self) -> PreflightResult {
        self.found.clone()
    }
}

/// Whether the gateway serves the calls of an agent.
struct Health(BrokerEndpoint);

#[async_trait]
impl Precondition for Health {
    fn name(&self) -> String {
        format!("gateway for {}", self.0.service)
    }

    async fn check(&self) -> PreflightResult {
        match self.0.health().await {
            Ok(()) => PreflightResult::Ready {
                detail: "it answers".to_owned(),
            },
            Err(error) => PreflightResult::NotReady {
                why: error.to_string(),
                next_step: "`ralph gateway check` tries the whole way".to_owned(),
            },
        }
    }
}

/// Whether a service takes a credential.
struct Credential {
    agent: AgentName,
    asked: Asked,
    remedy: String,
}

/// Who is asked about a credential, and from where.
enum Asked {
    /// The service behind the gateway, which asks it for every call.
    Through(BrokerEndpoint),
    /// The service that this machine itself asks for every call.
    FromHere(ModelUpstream),
    /// The service that a sandbox asks by itself; this machine need not reach it.
    FromAfar(ModelUpstream),
}

impl Asked {
    async fn verify(&self) -> Result<(), Unverified> {
        let asking = async {
            match self {
                Self::Through(door) => Ok(door.verify().await?),
                Self::FromHere(upstream) | Self::FromAfar(upstream) => {
                    Ok(upstream.verify(&broker::client(Vec::new())?).await?)
                }
            }
        };
        timeout(PATIENCE, asking).await.unwrap_or(Err(Unverified::Silent))
    }

    fn service(&self) -> String {
        match self {
            Self::Through(door) => door.service.clone(),
            Self::FromHere(upstream) | Self::FromAfar(upstream) => upstream.address().to_owned(),
        }
    }
}

/// Why a credential is not known to be good.
#[derive(Debug, thiserror::Error)]
enum Unverified {
    #[error(transparent)]
    Service(#[from] VerifyError),
    #[error(transparent)]
    Client(#[from] BrokerError),
    #[error("the service does not answer")]
    Silent,
}

#[async_trait]
impl Precondition for Credential {
    fn name(&self) -> String {
        format!("credential of {}", self.agent.name)
    }

    async fn check(&self) -> PreflightResult {
        let service = self.asked.service();
        let error = match self.asked.verify().await {
            Ok(()) => {
                return PreflightResult::Ready {
                    detail: format!("{service} takes it"),
                };
            }
            Err(error) => error,
        };
        let out_of_reach = matches!(
            error,
            Unverified::Silent | Unverified::Service(VerifyError::Unreachable(_))
        );
        match (&error, &self.asked) {
            (Unverified::Service(VerifyError::UnexpectedStatus { status, .. }), _) => {
                PreflightResult::Ready {
                    detail: format!("{service} does not say whether it takes it (HTTP {status})"),
                }
            }
            (_, Asked::FromAfar(_)) if out_of_reach => PreflightResult::Ready {
                detail: format!("{service} cannot be asked from this machine whether it takes it"),
            },
            (_, _) if out_of_reach => PreflightResult::NotReady {
                why: format!("{service}: {}", error_chain(&error)),
                next_step: "see that this machine reaches it, or correct its address; then `ralph resume`"
                    .to_owned(),
            },
            (Unverified::Service(VerifyError::Refused { status, .. }), _) => PreflightResult::NotReady {
                why: format!("{service} refused it (HTTP {status})"),
                next_step: self.remedy.clone(),
            },
            (_, _) => PreflightResult::NotReady {
                why: error_chain(&error),
                next_step: self.remedy.clone(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::network::PolicyRule;

    #[rstest]
    #[case::nothing_is_open(Policy::deny(), Some("api.anthropic.com"))]
    #[case::its_host_is(Policy::allowlist([PolicyRule::parse("api.anthropic.com").unwrap()]), None)]
    #[case::everything_is(Policy::allow_all(), None)]
    fn an_agent_is_kept_from_what_no_line_opens(#[case] policy: Policy, #[case] expected: Option<&str>) {
        assert_eq!(closed("claude".parse().unwrap(), &policy), expected);
    }
}
