//! Checks before a run starts: credentials, the gateway that holds them, and whether an agent without one reaches its model.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

use crate::agent::KnownAgent;
use crate::config::Config;
use crate::credential::CredentialSource;
use crate::event::PreflightResult;
use crate::gateway::broker::{self, ModelUpstream, VerifyError};
use crate::model::{DirectService, GATEWAY_KEY, ModelError, OpenAiCompatible, is_nearby};
use crate::network::{HostName, PackageConfig, Policy};
use crate::runner::Precondition;
use crate::sandbox::NetworkEnforcement;
use crate::text::error_chain;

use super::AssemblyError;
use super::agents::{agent_of_profile, find_credential, settings_of, variable_hint};
use super::broker::{BrokerEndpoint, BrokeredService, RunBroker};
use super::routes::{MissingRoute, ProfileRoute, missing_in_run};
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
    let served = brokered.and_then(|broker| {
        let hint = broker.access(profile)?.credential_hint.clone()?;
        Some((broker.endpoint(profile)?, hint))
    });
    if let Some((endpoint, hint)) = served {
        return Ok(vec![
            Arc::new(AgentCheck {
                name: format!("gateway for {}", endpoint.service),
                subject: CheckSubject::Gateway(endpoint.clone()),
            }),
            Arc::new(AgentCheck::of_credential(
                agent_of_profile(config, profile),
                CheckSubject::Credential {
                    verifier: CredentialVerifier::Broker(endpoint.clone()),
                    hint,
                },
            )),
        ]);
    }
    let mut policy = config.network_policy(&PackageConfig::EMPTY);
    if let Some(broker) = brokered {
        // The provider allows the hosts of the credentials that it stores.
        policy = broker.allow(policy)?;
    }
    let mut checks: Vec<Arc<dyn Precondition>> = Vec::new();
    if let Some(subject) = credential_check(context, config, profile).await? {
        let agent = agent_of_profile(config, profile);
        checks.push(Arc::new(AgentCheck::of_credential(agent, subject)));
    }
    if let Some(check) = network_check(context, config, profile, &policy)? {
        checks.push(Arc::new(check));
    }
    Ok(checks)
}

/// The check of a credential that is not in the broker.
async fn credential_check(
    context: &AssemblyContext,
    config: &Config,
    profile: &str,
) -> Result<Option<CheckSubject>, AssemblyError> {
    let agent = agent_of_profile(config, profile);
    if agent.is_built_in {
        return route_check(config, profile);
    }
    if let Some(service) = BrokeredService::for_profile(context, config, profile).await? {
        return Ok(Some(CheckSubject::Credential {
            hint: service.credential_hint,
            verifier: CredentialVerifier::Sandbox(service.upstream, broker::client(Vec::new())?),
        }));
    }
    let found = find_credential(config, profile, agent.key_variables);
    Ok(match (agent.key_variables.first(), found) {
        (Some(_), Some((variable, _))) => {
            let detail = format!("found in `{variable}`, not verified");
            Some(CheckSubject::Known(ready(detail)))
        }
        (Some(key), None) if calls_vendor(config, profile) => Some(CheckSubject::Known(not_ready(
            "no credential found".to_owned(),
            format!(
                "store one with `ralph token store`, or set `{}`; then `ralph resume`",
                key.name
            ),
        ))),
        (Some(_), None) | (None, _) => None,
    })
}

/// What is missing for the credential of a profile; `None` if there is one or none is needed.
pub(super) async fn missing_credential(
    context: &AssemblyContext,
    config: &Config,
    profile: &str,
) -> Result<Option<MissingRoute>, AssemblyError> {
    Ok(match credential_check(context, config, profile).await? {
        Some(CheckSubject::Known(PreflightResult::NotReady { why, next_step })) => {
            Some(MissingRoute { why, next_step })
        }
        _ => None,
    })
}

/// The check of the key of the built-in agent. An endpoint of the configuration may need none.
fn route_check(config: &Config, profile: &str) -> Result<Option<CheckSubject>, AssemblyError> {
    let Some(profile) = config.profiles.get(profile) else {
        return Ok(None);
    };
    let route = ProfileRoute::new(config, profile);
    if let Some(MissingRoute { why, next_step }) = missing_in_run(config, &profile.name) {
        let why = format!("{why}, for the model `{}`", profile.litellm_model);
        return Ok(Some(CheckSubject::Known(not_ready(why, next_step))));
    }
    let client = route.client()?;
    Ok(match route {
        ProfileRoute::Endpoint {
            url, variable, key, ..
        } => match key {
            Some(key) => {
                let upstream = ModelUpstream::new(GATEWAY_KEY, CredentialSource::Fixed(key), Some(&url))?;
                Some(CheckSubject::Credential {
                    verifier: CredentialVerifier::Host(upstream, broker::client(Vec::new())?),
                    hint: variable_hint(&variable),
                })
            }
            None => None,
        },
        ProfileRoute::Direct {
            service,
            variable,
            url,
            ..
        } => client.map(|client| CheckSubject::Direct {
            client,
            service,
            url,
            variable,
        }),
        ProfileRoute::Unknown { .. } => None,
    })
}

/// Asks a service that is called directly whether it accepts its key.
async fn check_direct(
    client: &OpenAiCompatible,
    service: &DirectService,
    url: &str,
    variable: Option<&str>,
) -> PreflightResult {
    let verified = timeout(VERIFY_TIMEOUT, client.verify()).await;
    let free = if variable.is_none() && service.list_price("", url).is_some() {
        "; its models cost nothing"
    } else {
        ""
    };
    let program = match service.prefix {
        "ollama" => "Ollama (`ollama serve`)",
        _ => "the service",
    };
    let unreachable = || format!("{}, then `ralph resume`", unreachable_hint(url, program));
    match (verified, variable) {
        (Ok(Some(Ok(()))), Some(variable)) => ready(format!("{url} accepts `{variable}`")),
        (Ok(Some(Ok(()))), None) => ready(format!("{} answers at {url} without a key{free}", service.name)),
        (Ok(None), Some(variable)) => ready(format!("found in `{variable}`, not verified")),
        (Ok(None), None) => ready("none is needed"),
        (Ok(Some(Err(ModelError::Unauthorized { status, .. }))), variable) => not_ready(
            format!("{url} refused it (HTTP {status})"),
            variable.map_or_else(String::new, variable_hint),
        ),
        (
            Ok(Some(Err(ModelError::Refused {
                status: 403, message, ..
            }))),
            variable,
        ) => not_ready(
            format!("{url} refused it (HTTP 403): {message}"),
            forbidden_hint(&variable.map_or_else(String::new, variable_hint)),
        ),
        (Ok(Some(Err(ModelError::Refused { status, .. }))), _) => {
            ready(format!("not verified: {url} answered with HTTP {status}"))
        }
        (Ok(Some(Err(error))), _) => not_ready(error_chain(&error), unreachable()),
        (Err(_), _) => not_ready(format!("{url}: the service does not answer"), unreachable()),
    }
}

/// The next step after a 403, whose cause may be the account or the region. `hint` says how to give another credential.
fn forbidden_hint(hint: &str) -> String {
    let account = "check the account and its region at the service";
    if hint.is_empty() {
        account.to_owned()
    } else {
        format!("{account}; or {hint}")
    }
}

/// What to do about a program that does not answer at this address.
pub(crate) fn unreachable_hint(url: &str, program: &str) -> String {
    if is_nearby(url) {
        format!("start {program}, or correct its address {url}")
    } else {
        "check the network of the host and the address".to_owned()
    }
}

/// Fails when the policy keeps an agent from its model. Nothing is allowed for it automatically.
fn network_check(
    context: &AssemblyContext,
    config: &Config,
    profile: &str,
    policy: &Policy,
) -> Result<Option<AgentCheck>, AssemblyError> {
    let enforced = provider::create_provider(context, config)?.capabilities().network;
    let agent = agent_of_profile(config, profile);
    if enforced == NetworkEnforcement::Nothing || !calls_vendor(config, profile) {
        return Ok(None);
    }
    Ok(denied_host(agent, policy).map(|host| AgentCheck {
        name: format!("network of {}", agent.name),
        subject: CheckSubject::Known(not_ready(
            format!("the policy denies `{host}`, the host of its model"),
            format!("add \"{host}\" to sandbox.network.allowed"),
        )),
    }))
}

/// The first host of the agent's service that a policy denies.
fn denied_host(agent: KnownAgent, policy: &Policy) -> Option<&'static str> {
    let is_denied = |pattern: &&&str| {
        // Any name that matches the pattern.
        let name = HostName::parse(&pattern.replace("**.", "any."));
        name.is_ok_and(|name| policy.judge_name(&name).is_err())
    };
    let hosts = agent.service.map_or(&[][..], |service| service.hosts);
    hosts.iter().find(is_denied).copied()
}

/// Whether the agent of a profile calls the service of its vendor, not an address of the configuration.
fn calls_vendor(config: &Config, profile: &str) -> bool {
    let has_url = settings_of(config, profile).is_some_and(|model| model.base_url.is_some());
    !agent_of_profile(config, profile).accepts_base_url || !has_url
}

/// A check of what an agent needs.
struct AgentCheck {
    name: String,
    subject: CheckSubject,
}

enum CheckSubject {
    /// Whether a service that is called directly accepts its key.
    Direct {
        client: OpenAiCompatible,
        service: &'static DirectService,
        url: String,
        /// The variable with the key, if the service needs one.
        variable: Option<String>,
    },
    /// A result that is known without a check.
    Known(PreflightResult),
    /// Whether the gateway serves the requests of the agent.
    Gateway(BrokerEndpoint),
    /// Whether a service accepts a credential.
    Credential {
        verifier: CredentialVerifier,
        /// What to do when it is refused.
        hint: String,
    },
}

/// How a credential is verified.
enum CredentialVerifier {
    /// Through the broker, which the agent calls.
    Broker(BrokerEndpoint),
    /// From the host, which calls the service itself.
    Host(ModelUpstream, reqwest::Client),
    /// From the host, although only the sandbox calls the service. The host may not reach it.
    Sandbox(ModelUpstream, reqwest::Client),
}

impl AgentCheck {
    fn of_credential(agent: KnownAgent, subject: CheckSubject) -> Self {
        let name = format!("credential of {}", agent.name);
        Self { name, subject }
    }
}

#[async_trait]
impl Precondition for AgentCheck {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn check(&self) -> PreflightResult {
        match &self.subject {
            CheckSubject::Known(result) => result.clone(),
            CheckSubject::Direct {
                client,
                service,
                url,
                variable,
            } => check_direct(client, service, url, variable.as_deref()).await,
            CheckSubject::Gateway(endpoint) => match endpoint.health().await {
                Ok(()) => ready("it answers"),
                Err(error) => not_ready(error.to_string(), "`ralph gateway check` checks the whole path"),
            },
            CheckSubject::Credential { verifier, hint } => verifier.check(hint).await,
        }
    }
}

impl CredentialVerifier {
    async fn check(&self, hint: &str) -> PreflightResult {
        let (service, verified) = match self {
            Self::Broker(endpoint) => (
                endpoint.service.as_str(),
                timeout(VERIFY_TIMEOUT, endpoint.verify()).await,
            ),
            Self::Host(upstream, http) | Self::Sandbox(upstream, http) => (
                upstream.address(),
                timeout(VERIFY_TIMEOUT, upstream.verify(http)).await,
            ),
        };
        let unreachable = match verified {
            Ok(Ok(())) => return ready(format!("{service} accepts it")),
            Ok(Err(VerifyError::UnexpectedStatus { status, .. })) => {
                return ready(format!("not verified: {service} answered with HTTP {status}"));
            }
            Ok(Err(VerifyError::Refused { status, .. })) => {
                return not_ready(format!("{service} refused it (HTTP {status})"), hint);
            }
            // A gateway of the user may forbid only this path.
            Ok(Err(VerifyError::Forbidden { message, .. })) if matches!(self, Self::Host(..)) => {
                return ready(format!(
                    "not verified: {service} answered with HTTP 403: {message}"
                ));
            }
            Ok(Err(VerifyError::Forbidden { message, .. })) => {
                let why = format!("{service} refused it (HTTP 403): {message}");
                return not_ready(why, forbidden_hint(hint));
            }
            Ok(Err(error @ VerifyError::Unreachable(_))) => error_chain(&error),
            Ok(Err(error)) => return not_ready(error_chain(&error), hint),
            Err(_) => "the service does not answer".to_owned(),
        };
        if matches!(self, Self::Sandbox(..)) {
            return ready(format!("not verified: the host does not reach {service}"));
        }
        let hint = unreachable_hint(service, "the service");
        not_ready(
            format!("{service}: {unreachable}"),
            format!("{hint}, then `ralph resume`"),
        )
    }
}

fn ready(detail: impl Into<String>) -> PreflightResult {
    let detail = detail.into();
    PreflightResult::Ready { detail }
}

fn not_ready(why: String, next_step: impl Into<String>) -> PreflightResult {
    let next_step = next_step.into();
    PreflightResult::NotReady { why, next_step }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::network::PolicyRule;

    #[rstest]
    #[case::here(
        "http://127.0.0.1:11434/v1",
        "start Ollama (`ollama serve`), or correct its address http://127.0.0.1:11434/v1"
    )]
    #[case::elsewhere("https://models.example/v1", "check the network of the host and the address")]
    fn a_service_here_is_to_be_started(#[case] url: &str, #[case] expected: &str) {
        assert_eq!(unreachable_hint(url, "Ollama (`ollama serve`)"), expected);
    }

    #[rstest]
    #[case::nothing_is_open(Policy::deny(), Some("api.anthropic.com"))]
    #[case::its_host_is(Policy::allowlist([PolicyRule::parse("api.anthropic.com").unwrap()]), None)]
    #[case::everything_is(Policy::allow_all(), None)]
    fn the_first_denied_host_of_an_agent_is_found(#[case] policy: Policy, #[case] expected: Option<&str>) {
        assert_eq!(denied_host("claude".parse().unwrap(), &policy), expected);
    }
}
