//! Checks before a run starts: credentials, the gateway that holds them, and whether an agent without one reaches its model.

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
use super::agents::{agent_name, credential, settings_of, variable_hint};
use super::broker::{BrokerEndpoint, BrokeredService, RunBroker};
use super::{AssemblyContext, provider};

/// How long a service may take to answer whether it accepts a credential.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(20);

/// The preconditions of a run with real models, for its default profile.
pub(crate) async fn preconditions(
    context: &AssemblyContext,
    config: &Config,
    brokered: Option<&RunBroker>,
) -> Result<Vec<Arc<dyn Precondition>>, AssemblyError> {
    if context.agent.is_some() {
        return Ok(Vec::new());
    }
    let profile = &config.settings.default_profile;
    let access = brokered.and_then(|broker| Some((broker.endpoint(profile)?, broker.access(profile)?)));
    if let Some((endpoint, access)) = access {
        return Ok(vec![
            Arc::new(GatewayHealth(endpoint.clone())),
            Arc::new(CredentialCheck {
                agent: agent_name(config, profile),
                verifier: CredentialVerifier::Broker(endpoint.clone()),
                hint: access.credential_hint.clone(),
            }),
        ]);
    }
    let mut policy = config.network_policy(&PackageConfig::EMPTY);
    if let Some(broker) = brokered {
        // The provider allows the hosts of the credentials that it stores.
        policy = broker.allow(policy)?;
    }
    let credential = credential_check(context, config, profile).await?;
    let network = network_check(context, config, profile, &policy)?;
    Ok(credential.into_iter().chain(network).collect())
}

/// The check of a credential that is not in the broker.
async fn credential_check(
    context: &AssemblyContext,
    config: &Config,
    profile: &str,
) -> Result<Option<Arc<dyn Precondition>>, AssemblyError> {
    let agent = agent_name(config, profile);
    let verifier = if agent.is_built_in {
        endpoint_verifier(config, profile)?
    } else {
        let service = BrokeredService::for_profile(context, config, profile).await?;
        service.map(|service| {
            (
                service.credential_hint(),
                CredentialVerifier::Sandbox(service.upstream),
            )
        })
    };
    if let Some((hint, verifier)) = verifier {
        return Ok(Some(Arc::new(CredentialCheck {
            agent,
            verifier,
            hint,
        })));
    }
    let result = match (
        agent.key_variables.first(),
        credential(config, profile, agent.key_variables),
    ) {
        (Some(_), Some((variable, _))) => PreflightResult::Ready {
            detail: format!("found in `{variable}`, not verified"),
        },
        (Some(key), None) if calls_vendor(config, profile) => PreflightResult::NotReady {
            why: "no credential found".to_owned(),
            next_step: format!(
                "store one with `ralph token store`, or set `{}`; then `ralph resume`",
                key.name
            ),
        },
        (Some(_), None) | (None, _) => return Ok(None),
    };
    Ok(Some(Arc::new(KnownResult {
        name: format!("credential of {}", agent.name),
        result,
    })))
}

/// Verifies the key of the built-in agent's endpoint, if it has one. Also returns what to do when it is refused.
fn endpoint_verifier(
    config: &Config,
    profile: &str,
) -> Result<Option<(String, CredentialVerifier)>, AssemblyError> {
    let model = settings_of(config, profile);
    let default = &config.settings.model_endpoint;
    let variable = model.and_then(|model| model.api_key_env.as_ref());
    let variable = variable.unwrap_or(&default.api_key_env);
    let url = model.and_then(|model| model.base_url.as_ref());
    let url = url.unwrap_or(&default.base_url);
    let Some(key) = config.credential(variable) else {
        return Ok(None);
    };
    let upstream = ModelUpstream::new(GATEWAY_KEY, CredentialSource::Fixed(key), Some(url))?;
    Ok(Some((
        variable_hint(variable),
        CredentialVerifier::Host(upstream),
    )))
}

/// Fails when the policy keeps an agent from its model. Nothing is allowed for it automatically.
fn network_check(
    context: &AssemblyContext,
    config: &Config,
    profile: &str,
    policy: &Policy,
) -> Result<Option<Arc<dyn Precondition>>, AssemblyError> {
    let enforced = provider::connected(context, config)?.capabilities().network;
    let agent = agent_name(config, profile);
    if enforced == NetworkEnforcement::Nothing || !calls_vendor(config, profile) {
        return Ok(None);
    }
    Ok(denied_host(agent, policy).map(|host| -> Arc<dyn Precondition> {
        Arc::new(KnownResult {
            name: format!("network of {}", agent.name),
            result: PreflightResult::NotReady {
                why: format!("the policy denies `{host}`, the host of its model"),
                next_step: format!("add \"{host}\" to sandbox.network.allowed"),
            },
        })
    }))
}

/// The first host of the agent's service that a policy denies.
fn denied_host(agent: AgentName, policy: &Policy) -> Option<&'static str> {
    let is_denied = |pattern: &&&str| {
        // Any name that matches the pattern.
        let name = HostName::parse(&pattern.replace("**.", "any."));
        name.is_ok_and(|name| !policy.judge_name(&name).is_allowed())
    };
    let hosts = agent.service.map_or(&[][..], |service| service.hosts);
    hosts.iter().find(is_denied).copied()
}

/// Whether the agent of a profile calls the service of its vendor, not an address of the configuration.
fn calls_vendor(config: &Config, profile: &str) -> bool {
    let has_url = settings_of(config, profile).is_some_and(|model| model.base_url.is_some());
    !agent_name(config, profile).accepts_base_url || !has_url
}

/// A result that is known without a check.
struct KnownResult {
    name: String,
    result: PreflightResult,
}

#[async_trait]
impl Precondition for KnownResult {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn check(&self) -> PreflightResult {
        self.result.clone()
    }
}

/// Checks that the gateway serves the requests of an agent.
struct GatewayHealth(BrokerEndpoint);

#[async_trait]
impl Precondition for GatewayHealth {
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
                next_step: "`ralph gateway check` checks the whole path".to_owned(),
            },
        }
    }
}

/// Checks that a service accepts a credential.
struct CredentialCheck {
    agent: AgentName,
    verifier: CredentialVerifier,
    /// What to do when it is refused.
    hint: String,
}

/// How a credential is verified.
enum CredentialVerifier {
    /// Through the broker, which the agent calls.
    Broker(BrokerEndpoint),
    /// From the host, which calls the service itself.
    Host(ModelUpstream),
    /// From the host, although only the sandbox calls the service. The host may not reach it.
    Sandbox(ModelUpstream),
}

impl CredentialVerifier {
    async fn verify(&self) -> Result<(), VerificationError> {
        let verification = async {
            match self {
                Self::Broker(endpoint) => Ok(endpoint.verify().await?),
                Self::Host(upstream) | Self::Sandbox(upstream) => {
                    Ok(upstream.verify(&broker::client(Vec::new())?).await?)
                }
            }
        };
        timeout(VERIFY_TIMEOUT, verification)
            .await
            .unwrap_or(Err(VerificationError::Timeout))
    }

    fn service(&self) -> &str {
        match self {
            Self::Broker(endpoint) => &endpoint.service,
            Self::Host(upstream) | Self::Sandbox(upstream) => upstream.address(),
        }
    }
}

/// Why a credential could not be verified.
#[derive(Debug, thiserror::Error)]
enum VerificationError {
    #[error(transparent)]
    Service(#[from] VerifyError),
    #[error(transparent)]
    Client(#[from] BrokerError),
    #[error("the service does not answer")]
    Timeout,
}

#[async_trait]
impl Precondition for CredentialCheck {
    fn name(&self) -> String {
        format!("credential of {}", self.agent.name)
    }

    async fn check(&self) -> PreflightResult {
        use VerificationError::{Service, Timeout};
        let service = self.verifier.service();
        let ready = |detail| PreflightResult::Ready { detail };
        let not_ready = |why, next_step: &str| PreflightResult::NotReady {
            why,
            next_step: next_step.to_owned(),
        };
        let error = match self.verifier.verify().await {
            Ok(()) => return ready(format!("{service} accepts it")),
            Err(error) => error,
        };
        match (&error, &self.verifier) {
            (Service(VerifyError::UnexpectedStatus { status, .. }), _) => {
                ready(format!("not verified: {service} answered with HTTP {status}"))
            }
            (Timeout | Service(VerifyError::Unreachable(_)), CredentialVerifier::Sandbox(_)) => {
                ready(format!("not verified: the host does not reach {service}"))
            }
            (Timeout | Service(VerifyError::Unreachable(_)), _) => not_ready(
                format!("{service}: {}", error_chain(&error)),
                "check the network of the host and the address, then `ralph resume`",
            ),
            (Service(VerifyError::Refused { status, .. }), _) => {
                not_ready(format!("{service} refused it (HTTP {status})"), &self.hint)
            }
            (_, _) => not_ready(error_chain(&error), &self.hint),
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
    fn the_first_denied_host_of_an_agent_is_found(#[case] policy: Policy, #[case] expected: Option<&str>) {
        assert_eq!(denied_host("claude".parse().unwrap(), &policy), expected);
    }
}
