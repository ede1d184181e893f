//! How agents reach their models, and a GitHub repository, with credentials that stay outside the sandbox.

mod endpoint;
mod github;
mod provider_secrets;
mod service;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::agent::{AgentCredential, ModelAccess};
use crate::clock::Clock;
use crate::config::Config;
use crate::gateway::Phantom;
use crate::gateway::broker::{
    Broker, BrokerHandle, BrokerService, CallExceptions, GitHubSetup, GitHubUpstream, UpstreamError,
};
use crate::gateway::meter::{Allowance, Meter, MeterSetup, PriceList};
use crate::model::GATEWAY;
use crate::network::{HostName, PackageConfig, Policy, PolicyMode, PolicyRule};
use crate::runner::{AgentMetering, MeterNotices};
use crate::sandbox::daytona::DaytonaSecret;
use crate::sandbox::{CredentialRoute, Egress};
use crate::secret::{Redactor, Secret};

use super::{AssemblyContext, AssemblyError, ErrorTopic, provider};
pub(crate) use endpoint::BrokerEndpoint;
pub(crate) use service::BrokeredService;
use service::ServiceUser;

/// The services whose credentials stay outside the sandbox. Nothing is served yet.
pub(crate) struct BrokeredServices {
    route: CredentialRoute,
    list: Vec<BrokeredService>,
    /// The repository that agents may reach.
    github: Option<GitHubSetup>,
    /// Stored credentials, which no output may show.
    secrets: Vec<Secret>,
}

impl BrokeredServices {
    /// The services of the configured profiles: none where credentials are passed into the sandbox, or where the
    /// provider has no other way.
    pub(crate) async fn new(context: &AssemblyContext, config: &Config) -> Result<Self, AssemblyError> {
        let capabilities = provider::create_provider(context, config)?.capabilities();
        let route = capabilities
            .credentials
            .under(&config.network_policy(&PackageConfig::EMPTY));
        let mut found = Self {
            route,
            list: Vec::new(),
            github: github::setup(config, route)?,
            secrets: Vec::new(),
        };
        let passes_credential = config.settings.agent.dangerously_pass_credential;
        if route == CredentialRoute::None || passes_credential || context.agent.is_some() {
            return Ok(found);
        }
        for profile in config.profiles.keys() {
            if let Some(service) = BrokeredService::for_profile(context, config, profile).await? {
                found.add(service)?;
            }
        }
        Ok(found)
    }

    /// Whether the agent of this profile reaches its model through one of them.
    pub(crate) fn serves(&self, profile: &str) -> bool {
        self.list.iter().any(|service| service.serves(profile))
    }

    /// Profiles with the same credential for the same address share a service. Each service has its own name in the
    /// sandbox.
    fn add(&mut self, mut service: BrokeredService) -> Result<(), AssemblyError> {
        if let Some(same) = self.list.iter_mut().find(|other| other.is_same(&service)) {
            same.users.extend(service.users);
            return Ok(());
        }
        let taken = |other: &BrokeredService| other.upstream.host == service.upstream.host;
        if self.list.iter().any(taken) {
            let own = format!("{}.{}", self.list.len(), GATEWAY.sandbox_host);
            service.upstream.host = HostName::parse(&own).map_err(UpstreamError::from)?;
        }
        self.secrets.extend(service.secrets.iter().cloned());
        self.list.push(service);
        Ok(())
    }

    /// Starts to serve them, with a meter that records usage in this file; `None` when there are none. The redactor
    /// learns every credential.
    pub(crate) async fn open(
        mut self,
        config: &Config,
        usage_file: PathBuf,
        clock: Arc<dyn Clock>,
        redactor: &Redactor,
    ) -> Result<Option<RunBroker>, AssemblyError> {
        if self.list.is_empty() && self.github.is_none() {
            return Ok(None);
        }
        redactor.learn(std::mem::take(&mut self.secrets));
        if self.route == CredentialRoute::Provider {
            return provider_secrets::hand_over(self.list, redactor).await.map(Some);
        }
        let (meter, notices) = meter(config, usage_file, clock)?;
        let exceptions = call_exceptions(config);
        self.serve(meter, notices, exceptions, redactor).await.map(Some)
    }

    async fn serve(
        self,
        meter: Meter,
        notices: Arc<MeterNotices>,
        exceptions: CallExceptions,
        redactor: &Redactor,
    ) -> Result<RunBroker, AssemblyError> {
        let phantom = Phantom::random().map_err(|error| AssemblyError::runtime(error.to_string()))?;
        let mut services: Vec<BrokerService> = self
            .list
            .iter()
            .map(|service| BrokerService::Model(service.upstream.clone()))
            .collect();
        let mut repository_host = None;
        if let Some(setup) = &self.github {
            let github = GitHubUpstream::new(setup.clone())?;
            repository_host = Some((setup, github.host.clone()));
            services.push(BrokerService::Repository(github));
        }
        let handle = Broker::new(services, Vec::new())?.register(phantom.clone(), meter.clone(), exceptions);
        let mut servers = JoinSet::new();
        let mut allowed = Vec::new();
        let mut profiles = BTreeMap::new();
        for service in self.list {
            service.upstream.source.register_secrets(redactor);
            let host = service.upstream.host.clone();
            let address = service.upstream.address().to_owned();
            let endpoint =
                BrokerEndpoint::open(self.route, handle.clone(), host, address, &mut servers).await?;
            allowed.extend(endpoint.rule());
            for user in &service.users {
                let access = ProfileAccess::through(&endpoint, &phantom, user, &service.credential_hint);
                profiles.insert(user.profile.clone(), access);
            }
        }
        let mut agent_env = BTreeMap::new();
        if let Some((setup, host)) = repository_host {
            let address = setup.url.clone();
            let endpoint =
                BrokerEndpoint::open(self.route, handle.clone(), host, address, &mut servers).await?;
            allowed.extend(endpoint.rule());
            agent_env = github::variables(setup, &endpoint.address(), &phantom);
        }
        Ok(RunBroker {
            gateway: (self.route == CredentialRoute::Gateway).then_some((phantom, handle)),
            allowed,
            metering: Some(AgentMetering {
                meter,
                notices,
                profiles: profiles.keys().cloned().collect(),
            }),
            profiles,
            handed_over: Vec::new(),
            agent_env,
            _servers: servers,
        })
    }
}

/// How one run's agents use credentials, for as long as it lives.
pub(crate) struct RunBroker {
    /// What the sandbox's gateway forwards with, where there is one.
    gateway: Option<(Phantom, BrokerHandle)>,
    /// Rules that let a sandbox reach the services.
    allowed: Vec<String>,
    profiles: BTreeMap<String, ProfileAccess>,
    /// Counts usage, where requests pass the broker.
    pub(crate) metering: Option<AgentMetering>,
    /// Credentials that the provider stores.
    pub(crate) handed_over: Vec<DaytonaSecret>,
    /// Variables that name the repository to the agents.
    pub(crate) agent_env: BTreeMap<String, String>,
    /// The servers on the loopback interface.
    _servers: JoinSet<()>,
}

/// How the agent of one profile reaches its model.
struct ProfileAccess {
    /// Where its requests arrive; `None` where they do not pass the broker.
    endpoint: Option<BrokerEndpoint>,
    access: ModelAccess,
}

impl ProfileAccess {
    /// A profile's access through an endpoint of the broker.
    fn through(endpoint: &BrokerEndpoint, phantom: &Phantom, user: &ServiceUser, hint: &str) -> Self {
        let credential = AgentCredential {
            auth: user.auth,
            value: Secret::new(phantom.expose()),
        };
        Self {
            access: user.access(&endpoint.address(), Some(credential), hint),
            endpoint: Some(endpoint.clone()),
        }
    }
}

impl RunBroker {
    /// Where the requests of a profile's agent arrive.
    pub(crate) fn endpoint(&self, profile: &str) -> Option<&BrokerEndpoint> {
        self.profiles.get(profile)?.endpoint.as_ref()
    }

    /// How the agent of a profile reaches its model: an address and a phantom.
    pub(crate) fn access(&self, profile: &str) -> Option<&ModelAccess> {
        self.profiles.get(profile).map(|profile| &profile.access)
    }

    /// The same gateway, which forwards to the broker as well.
    pub(crate) fn join(&self, egress: Egress) -> Egress {
        let Some((phantom, handle)) = &self.gateway else {
            return egress;
        };
        Egress {
            phantom: Some(phantom.clone()),
            injection: Some(Arc::new(handle.clone())),
            ..egress
        }
    }

    /// The same policy with the services allowed.
    pub(crate) fn allow(&self, policy: Policy) -> Result<Policy, AssemblyError> {
        let rule = |line: &String| PolicyRule::parse(line).map(|rule| rule.at("added with a credential"));
        let rules: Result<Vec<PolicyRule>, _> = self.allowed.iter().map(rule).collect();
        let rules = rules
            .map_err(|error| AssemblyError::usage(error.to_string()).with_topic(ErrorTopic::Configuration))?;
        Ok(allow_rules(policy, rules))
    }
}

/// The same policy with these rules allowed. A policy that denies everything becomes an allowlist of them alone.
pub(super) fn allow_rules(policy: Policy, rules: Vec<PolicyRule>) -> Policy {
    match policy.mode {
        _ if rules.is_empty() => policy,
        PolicyMode::Deny => Policy::allowlist(rules),
        PolicyMode::Allowlist | PolicyMode::AllowAll | PolicyMode::Record => policy.allowing(rules),
    }
}

/// What the configuration allows calls to models.
pub(crate) fn call_exceptions(config: &Config) -> CallExceptions {
    let settings = &config.settings.sandbox.model_calls;
    CallExceptions {
        fields: settings.allowed_fields.clone(),
        headers: settings.allowed_headers.clone(),
        policy: Some(config.network_policy(&PackageConfig::EMPTY)),
    }
}

/// Counts the usage of a run.
fn meter(
    config: &Config,
    file: PathBuf,
    clock: Arc<dyn Clock>,
) -> Result<(Meter, Arc<MeterNotices>), AssemblyError> {
    let notices: Arc<MeterNotices> = Arc::default();
    let meter = Meter::open(MeterSetup {
        file,
        allowance: Allowance::default(),
        prices: price_list(config),
        sink: notices.clone(),
        clock,
    })?;
    Ok((meter, notices))
}

/// The prices of models, under every name that an agent may use for them.
fn price_list(config: &Config) -> PriceList {
    let of_agent = config.settings.agent.model.as_ref();
    let priced = config.profiles.iter().flat_map(|(name, profile)| {
        let model = config.settings.models.get(name);
        let by_agent = model.and_then(|model| model.agent_model.as_ref()).or(of_agent);
        let names = std::iter::once(&profile.litellm_model).chain(by_agent);
        names.filter_map(|name| Some((name.clone(), profile.price?)))
    });
    PriceList::new(priced)
}
