//! How the agent programs of a run reach their models while the credentials stay here.

mod service;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::agent::{Access, Credential};
use crate::clock;
use crate::config::{Config, SandboxType};
use crate::gateway::Phantom;
use crate::gateway::broker::{Broker, Entrance, Upstream, UpstreamError};
use crate::gateway::meter::{Allowance, Meter, MeterSetup, Tariffs};
use crate::network::{Clients, HostName, Mode, Policy, Rule};
use crate::runner::Metering;
use crate::sandbox::Egress;
use crate::sandbox::docker::SealPlan;
use crate::secret::Secret;
use crate::state::RunDir;

use super::Context;
use super::error::CliError;
use service::Service;

/// The services that agent programs reach through the broker. Nothing is open yet.
pub(super) struct Services {
    way: Way,
    list: Vec<Service>,
    /// What is stored, which no output may show.
    secrets: Vec<Secret>,
}

/// How a sandbox comes to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By the names of the services, which its gateway leads to the broker.
    Gateway,
    /// By a port of loopback for each service, at the name that this machine has inside: there is no gateway.
    Loopback(Inside),
}

/// Where this machine is for a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    /// Where it is for every program: the sandbox is a directory of it.
    Here,
    /// At a name that the proxy of Docker Sandboxes leads to this machine's loopback, as far as it was told to.
    DockerHost,
}

impl Inside {
    fn host(self) -> &'static str {
        match self {
            Self::Here => "127.0.0.1",
            Self::DockerHost => "host.docker.internal",
        }
    }
}

impl Services {
    /// Those of this configuration: none where the credential is given away by choice, or nothing could hold it back.
    pub(super) async fn of(context: &Context, config: &Config) -> Result<Self, CliError> {
        let mut found = Self {
            way: Way::Loopback(Inside::Here),
            list: Vec::new(),
            secrets: Vec::new(),
        };
        if config.settings.agent.dangerously_pass_credential {
            return Ok(found);
        }
        let Some(way) = way(config.provider(), &config.network_policy(&Clients::NONE)) else {
            return Ok(found);
        };
        found.way = way;
        for profile in config.profiles.keys() {
            if let Some(service) = Service::of_profile(context, config, profile).await? {
                found.add(service)?;
            }
        }
        Ok(found)
    }

    /// The profiles that reach their models so.
    pub(super) fn serve(&self, profile: &str) -> bool {
        self.list.iter().any(|service| service.serves(profile))
    }

    /// Profiles with the same credential for the same address share a service. A name leads to one of them: whoever comes
    /// later gets a name of its own.
    fn add(&mut self, mut service: Service) -> Result<(), CliError> {
        if let Some(same) = self.list.iter_mut().find(|other| other.is_like(&service)) {
            same.share_with(service);
            return Ok(());
        }
        let taken = |other: &Service| other.upstream.host == service.upstream.host;
        if self.list.iter().any(taken) {
            let own = format!("{}.{}", self.list.len(), Upstream::GATEWAY_HOST);
            service.upstream.host = HostName::parse(&own).map_err(UpstreamError::from)?;
        }
        self.secrets.extend(service.secrets.iter().cloned());
        self.list.push(service);
        Ok(())
    }

    /// Opens them for a run; `None` when there are none.
    pub(super) async fn open(self, config: &Config, run: &RunDir) -> Result<Option<Brokered>, CliError> {
        if self.list.is_empty() {
            return Ok(None);
        }
        let phantom = Phantom::random().map_err(|error| CliError::runtime(error.to_string()))?;
        let notices = Arc::new(Mutex::new(Vec::new()));
        let meter = Meter::open(MeterSetup {
            file: run.spending_file(),
            allowance: Allowance::default(),
            tariffs: tariffs(config),
            sink: notices.clone(),
            clock: clock::system(),
        })?;
        let mut accesses = BTreeMap::new();
        let mut upstreams = Vec::new();
        let mut allowed = Vec::new();
        let mut loopback = JoinSet::new();
        for service in self.list {
            let address = match self.way {
                Way::Gateway => {
                    let address = format!("http://{}", service.upstream.host);
                    allowed.push(format!("{}:80", service.upstream.host));
                    upstreams.push(service.upstream);
                    address
                }
                Way::Loopback(inside) => {
                    let host = service.upstream.host.clone();
                    let broker = Broker::new(vec![service.upstream], Vec::new())?;
                    let entrance = broker.admit(phantom.clone(), meter.clone());
                    let port = listen(entrance, host, &mut loopback).await?;
                    if inside == Inside::DockerHost {
                        allowed.push(format!("localhost:{port}"));
                    }
                    format!("http://{}:{port}", inside.host())
                }
            };
            for member in service.members {
                let access = Access {
                    base_url: Some(format!("{address}{}", member.path)),
                    credential: Some(Credential {
                        kind: member.shown_as,
                        value: Secret::new(phantom.expose()),
                    }),
                    remedy: member.remedy,
                };
                accesses.insert(member.profile, access);
            }
        }
        let entrance = match self.way {
            Way::Gateway => Some(Broker::new(upstreams, Vec::new())?.admit(phantom.clone(), meter.clone())),
            Way::Loopback(_) => None,
        };
        let profiles = accesses.keys().cloned().collect();
        Ok(Some(Brokered {
            phantom,
            entrance,
            allowed,
            accesses,
            metering: Metering {
                meter,
                notices,
                profiles,
            },
            secrets: self.secrets,
            _loopback: loopback,
        }))
    }
}

/// What one run has of the broker, for as long as it lasts.
pub(super) struct Brokered {
    phantom: Phantom,
    /// Where there is a gateway that leads to it.
    entrance: Option<Entrance>,
    /// What a policy must allow so that the services can be reached.
    allowed: Vec<String>,
    accesses: BTreeMap<String, Access>,
    /// What counts the calls.
    pub(super) metering: Metering,
    /// What is stored, which no output may show.
    pub(super) secrets: Vec<Secret>,
    /// The servers on loopback; they end with it.
    _loopback: JoinSet<()>,
}

impl Brokered {
    /// How the agent of a profile reaches its model: with an address and a phantom.
    pub(super) fn access(&self, profile: &str) -> Option<&Access> {
        self.accesses.get(profile)
    }

    /// The same gateway, which leads to the broker too.
    pub(super) fn join(&self, egress: Egress) -> Egress {
        let Some(entrance) = &self.entrance else {
            return egress;
        };
        Egress {
            phantom: Some(self.phantom.clone()),
            injection: Some(Arc::new(entrance.clone())),
            ..egress
        }
    }

    /// The same policy with the services allowed, as far as the broker serves them: by plain HTTP. Where nothing is
    /// allowed, nothing else is.
    pub(super) fn allow(&self, policy: Policy) -> Result<Policy, CliError> {
        let rule = |line: &String| Rule::parse(line).map(|rule| rule.at("the agent's model"));
        let rules: Result<Vec<Rule>, _> = self.allowed.iter().map(rule).collect();
        let rules = rules.map_err(|error| CliError::usage(error.to_string()))?;
        Ok(match policy.mode() {
            _ if rules.is_empty() => policy,
            Mode::Deny => Policy::allowlist(rules),
            Mode::Allowlist | Mode::AllowAll | Mode::Record => policy.allowing(rules),
        })
    }
}

/// How sandboxes come to the broker; `None` where they do not.
fn way(provider: SandboxType, policy: &Policy) -> Option<Way> {
    let restricts = policy.mode() != Mode::AllowAll || policy.restricts();
    match provider {
        SandboxType::Local => Some(Way::Loopback(Inside::Here)),
        SandboxType::Docker => {
            let sealed = SealPlan::of(policy);
            // What is wrong with the policy is told when it is enforced.
            sealed.ok().flatten().map(|_| Way::Gateway)
        }
        SandboxType::Tart => restricts.then_some(Way::Gateway),
        SandboxType::DockerSandbox => restricts.then_some(Way::Loopback(Inside::DockerHost)),
        SandboxType::Daytona => None,
    }
}

/// Serves a service on a port of loopback, and says on which.
async fn listen(entrance: Entrance, host: HostName, servers: &mut JoinSet<()>) -> Result<u16, CliError> {
    let failed = |error: std::io::Error| CliError::runtime(format!("cannot listen on 127.0.0.1: {error}"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    servers.spawn(async move {
        if let Err(error) = entrance.serve(listener, &host).await {
            tracing::warn!(%error, %host, "the broker serves no more");
        }
    });
    Ok(address.port())
}

/// What models cost, under every name that an agent may call them by.
fn tariffs(config: &Config) -> Tariffs {
    let of_agent = config.settings.agent.model.as_ref();
    let priced = config.profiles.iter().flat_map(|(name, profile)| {
        let model = config.settings.models.get(name);
        let by_agent = model.and_then(|model| model.agent_model.as_ref()).or(of_agent);
        let names = std::iter::once(&profile.litellm_model).chain(by_agent);
        names.filter_map(|name| Some((name.clone(), profile.price?)))
    });
    Tariffs::new(priced)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const GATEWAY: Option<Way> = Some(Way::Gateway);
    const BY_DOCKER: Option<Way> = Some(Way::Loopback(Inside::DockerHost));
    const HERE: Option<Way> = Some(Way::Loopback(Inside::Here));

    #[rstest]
    #[case::a_directory(SandboxType::Local, HERE, HERE)]
    #[case::a_container(SandboxType::Docker, GATEWAY, None)]
    #[case::a_mac(SandboxType::Tart, GATEWAY, None)]
    #[case::a_machine_of_dockers(SandboxType::DockerSandbox, BY_DOCKER, None)]
    #[case::elsewhere(SandboxType::Daytona, None, None)]
    fn whatever_is_kept_from_the_network_reaches_the_broker(
        #[case] provider: SandboxType,
        #[case] restricted: Option<Way>,
        #[case] open: Option<Way>,
    ) {
        assert_eq!(way(provider, &Policy::deny()), restricted);
        assert_eq!(way(provider, &Policy::allow_all()), open);
    }
}
