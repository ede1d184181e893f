//! How the agent programs of a run reach their models, and a repository, while the credentials stay here.

mod door;
mod github;
mod hand_over;
mod service;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::agent::{AgentCredential, ModelAccess};
use crate::clock;
use crate::config::{Config, SandboxType};
use crate::gateway::Phantom;
use crate::gateway::broker::{
    self, Broker, BrokerHandle, GitHubSetup, GitHubUpstream, ModelUpstream, UpstreamError,
};
use crate::gateway::meter::{Allowance, Meter, MeterSetup, PriceList};
use crate::network::{HostName, PackageConfig, Policy, PolicyMode, PolicyRule};
use crate::runner::{AgentMetering, MeterNotices};
use crate::sandbox::Egress;
use crate::sandbox::daytona::DaytonaSecret;
use crate::sandbox::docker::SealPlan;
use crate::secret::{Redactor, Secret};

use super::AssemblyContext;
use super::AssemblyError;
pub(crate) use door::Door;
use door::{Inside, Named};
use service::Member;
pub(crate) use service::Service;

/// The services that agent programs reach through the broker. Nothing is open yet.
pub(crate) struct Services {
    way: Way,
    list: Vec<Service>,
    /// The repository that agents may reach.
    github: Option<GitHubSetup>,
    /// What is stored, which no output may show.
    secrets: Vec<Secret>,
}

/// How agents come to use credentials that their sandboxes do not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// They ask the broker, which adds them.
    Broker(Lead),
    /// The provider keeps them, and adds them where its sandboxes leave it.
    Provider,
}

/// How a sandbox comes to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lead {
    /// By the names of the services, which its gateway leads to the broker.
    Gateway,
    /// By a port of loopback for each service: there is no gateway.
    Loopback(Inside),
}

impl Services {
    /// Those of this configuration: none where the credential is given away by choice, or nothing could hold it back.
    pub(crate) async fn of(context: &AssemblyContext, config: &Config) -> Result<Self, AssemblyError> {
        let way = way(config.provider(), &config.network_policy(&PackageConfig::EMPTY));
        let mut found = Self {
            way: way.unwrap_or(Way::Broker(Lead::Loopback(Inside::Here))),
            list: Vec::new(),
            github: github::setup(config, way)?,
            secrets: Vec::new(),
        };
        if way.is_none() || config.settings.agent.dangerously_pass_credential {
            return Ok(found);
        }
        for profile in config.profiles.keys() {
            if let Some(service) = Service::of_profile(context, config, profile).await? {
                found.add(service)?;
            }
        }
        Ok(found)
    }

    /// The profiles that reach their models so.
    pub(crate) fn serve(&self, profile: &str) -> bool {
        self.list.iter().any(|service| service.serves(profile))
    }

    /// Profiles with the same credential for the same address share a service. A name leads to one of them: whoever comes
    /// later gets a name of its own.
    fn add(&mut self, mut service: Service) -> Result<(), AssemblyError> {
        if let Some(same) = self.list.iter_mut().find(|other| other.is_like(&service)) {
            same.share_with(service);
            return Ok(());
        }
        let taken = |other: &Service| other.upstream.host == service.upstream.host;
        if self.list.iter().any(taken) {
            let own = format!("{}.{}", self.list.len(), ModelUpstream::GATEWAY_HOST);
            service.upstream.host = HostName::parse(&own).map_err(UpstreamError::from)?;
        }
        self.secrets.extend(service.secrets.iter().cloned());
        self.list.push(service);
        Ok(())
    }

    /// Opens them, with a meter that writes to this file and a redactor that comes to know every credential; `None` when
    /// there are none.
    pub(crate) async fn open(
        mut self,
        config: &Config,
        spending: PathBuf,
        redactor: &Redactor,
    ) -> Result<Option<Brokered>, AssemblyError> {
        if self.list.is_empty() && self.github.is_none() {
            return Ok(None);
        }
        redactor.learn(std::mem::take(&mut self.secrets));
        match self.way {
            Way::Broker(lead) => self.serve_by(lead, config, (spending, redactor)).await,
            Way::Provider => hand_over::to_provider(self, redactor).await,
        }
        .map(Some)
    }

    async fn serve_by(
        self,
        lead: Lead,
        config: &Config,
        (spending, redactor): (PathBuf, &Redactor),
    ) -> Result<Brokered, AssemblyError> {
        let phantom = Phantom::random().map_err(|error| AssemblyError::runtime(error.to_string()))?;
        let (meter, notices) = meter(config, spending)?;
        let (mut names, mut members, mut services) =
            (Vec::new(), Vec::new(), Vec::<broker::BrokerService>::new());
        for service in self.list {
            service.upstream.register_secrets(redactor);
            names.push(Named::of(&service.upstream));
            members.push(service.members);
            services.push(service.upstream.into());
        }
        if let Some(setup) = &self.github {
            let github = GitHubUpstream::new(setup.clone())?;
            names.push(Named {
                host: github.host().clone(),
                address: setup.url.clone(),
            });
            services.push(github.into());
        }
        let entrance = Broker::new(services, Vec::new())?.register(phantom.clone(), meter.clone());
        let mut loopback = JoinSet::new();
        let doors = doors(lead, &entrance, names, &mut loopback).await?;
        let allowed = doors.iter().filter_map(Door::rule).collect();
        // The repository's door is the last.
        let agent_env = match (&self.github, doors.last()) {
            (Some(setup), Some(door)) => github::variables(setup, &door.address(), &phantom),
            _ => BTreeMap::new(),
        };
        let open = doors.into_iter().zip(members).flat_map(|(door, members)| {
            let open = |member: Member| Open::at(&door, &phantom, member);
            members.into_iter().map(open).collect::<Vec<_>>()
        });
        let open: BTreeMap<String, Open> = open.collect();
        let profiles = open.keys().cloned().collect();
        Ok(Brokered {
            entrance: (lead == Lead::Gateway).then_some((phantom, entrance)),
            allowed,
            open,
            metering: Some(AgentMetering {
                meter,
                notices,
                profiles,
            }),
            handed_over: Vec::new(),
            agent_env,
            _loopback: loopback,
        })
    }
}

/// What one run has of the broker, for as long as it lasts.
pub(crate) struct Brokered {
    /// Where there is a gateway that leads to it.
    entrance: Option<(Phantom, BrokerHandle)>,
    /// What a policy must allow so that the services can be reached.
    allowed: Vec<String>,
    open: BTreeMap<String, Open>,
    /// What counts the calls, where they come this way.
    pub(crate) metering: Option<AgentMetering>,
    /// What the provider keeps.
    pub(crate) handed_over: Vec<DaytonaSecret>,
    /// What agents are told of the repository that they may reach.
    pub(crate) agent_env: BTreeMap<String, String>,
    /// The servers on loopback; they end with it.
    _loopback: JoinSet<()>,
}

/// What is open to the agent of one profile.
struct Open {
    /// Where its calls come in; `None` where they do not come this way.
    door: Option<Door>,
    access: ModelAccess,
}

impl Open {
    /// What is open by a door of the broker's, and to which profile.
    fn at(door: &Door, phantom: &Phantom, member: Member) -> (String, Self) {
        let credential = AgentCredential {
            kind: member.shown_as,
            value: Secret::new(phantom.expose()),
        };
        let (profile, access) = member.access(&door.address(), Some(credential));
        let door = Some(door.clone());
        (profile, Self { door, access })
    }
}

impl Brokered {
    /// Where the calls of a profile's agent come in.
    pub(crate) fn door(&self, profile: &str) -> Option<&Door> {
        self.open.get(profile)?.door.as_ref()
    }

    /// How the agent of a profile reaches its model: with an address and a phantom.
    pub(crate) fn access(&self, profile: &str) -> Option<&ModelAccess> {
        self.open.get(profile).map(|open| &open.access)
    }

    /// The same gateway, which leads to the broker too.
    pub(crate) fn join(&self, egress: Egress) -> Egress {
        let Some((phantom, entrance)) = &self.entrance else {
            return egress;
        };
        Egress {
            phantom: Some(phantom.clone()),
            injection: Some(Arc::new(entrance.clone())),
            ..egress
        }
    }

    /// The same policy with the services allowed: by plain HTTP where the broker serves them, else as they are. Where
    /// nothing is allowed, nothing else is.
    pub(crate) fn allow(&self, policy: Policy) -> Result<Policy, AssemblyError> {
        let rule = |line: &String| PolicyRule::parse(line).map(|rule| rule.at("added with a credential"));
        let rules: Result<Vec<PolicyRule>, _> = self.allowed.iter().map(rule).collect();
        let rules = rules.map_err(|error| AssemblyError::usage(error.to_string()))?;
        Ok(match policy.mode() {
            _ if rules.is_empty() => policy,
            PolicyMode::Deny => Policy::allowlist(rules),
            PolicyMode::Allowlist | PolicyMode::AllowAll | PolicyMode::Record => policy.allowing(rules),
        })
    }
}

/// How credentials are used that stay here; `None` where they are given away.
fn way(provider: SandboxType, policy: &Policy) -> Option<Way> {
    let restricts = policy.mode() != PolicyMode::AllowAll || policy.restricts();
    match provider {
        SandboxType::Local => Some(Way::Broker(Lead::Loopback(Inside::Here))),
        SandboxType::Docker => {
            let sealed = SealPlan::of(policy);
            // What is wrong with the policy is told when it is enforced.
            sealed.ok().flatten().map(|_| Way::Broker(Lead::Gateway))
        }
        SandboxType::Tart => restricts.then_some(Way::Broker(Lead::Gateway)),
        SandboxType::DockerSandbox => restricts.then_some(Way::Broker(Lead::Loopback(Inside::DockerHost))),
        SandboxType::Daytona => Some(Way::Provider),
    }
}

/// What counts the calls of a run, and who is told.
fn meter(config: &Config, spending: PathBuf) -> Result<(Meter, Arc<MeterNotices>), AssemblyError> {
    let notices: Arc<MeterNotices> = Arc::default();
    let meter = Meter::open(MeterSetup {
        file: spending,
        allowance: Allowance::default(),
        prices: price_list(config),
        sink: notices.clone(),
        clock: clock::system(),
    })?;
    Ok((meter, notices))
}

/// Makes a way to each of these services.
async fn doors(
    lead: Lead,
    entrance: &BrokerHandle,
    services: Vec<Named>,
    servers: &mut JoinSet<()>,
) -> Result<Vec<Door>, AssemblyError> {
    let failed =
        |error: std::io::Error| AssemblyError::runtime(format!("cannot listen on 127.0.0.1: {error}"));
    let mut doors = Vec::new();
    for service in services {
        doors.push(match lead {
            Lead::Gateway => Door::behind_gateway(entrance.clone(), service),
            Lead::Loopback(inside) => Door::on_loopback(entrance.clone(), service, inside, servers)
                .await
                .map_err(failed)?,
        });
    }
    Ok(doors)
}

/// What models cost, under every name that an agent may call them by.
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const GATEWAY: Option<Way> = Some(Way::Broker(Lead::Gateway));
    const BY_DOCKER: Option<Way> = Some(Way::Broker(Lead::Loopback(Inside::DockerHost)));
    const HERE: Option<Way> = Some(Way::Broker(Lead::Loopback(Inside::Here)));
    const BY_DAYTONA: Option<Way> = Some(Way::Provider);

    #[rstest]
    #[case::a_directory(SandboxType::Local, HERE, HERE)]
    #[case::a_container(SandboxType::Docker, GATEWAY, None)]
    #[case::a_mac(SandboxType::Tart, GATEWAY, None)]
    #[case::a_machine_of_dockers(SandboxType::DockerSandbox, BY_DOCKER, None)]
    #[case::elsewhere(SandboxType::Daytona, BY_DAYTONA, BY_DAYTONA)]
    fn whatever_is_kept_from_the_network_reaches_the_broker(
        #[case] provider: SandboxType,
        #[case] restricted: Option<Way>,
        #[case] open: Option<Way>,
    ) {
        assert_eq!(way(provider, &Policy::deny()), restricted);
        assert_eq!(way(provider, &Policy::allow_all()), open);
    }
}
