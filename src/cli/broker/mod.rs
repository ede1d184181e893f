//! How the agent programs of a run reach their models while the credentials stay here.

mod hand_over;
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
use crate::sandbox::daytona::DaytonaSecret;
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

/// How agents come to use credentials that their sandboxes do not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// They ask the broker, which adds them.
    Broker(Door),
    /// The provider keeps them, and adds them where its sandboxes leave it.
    Provider,
}

/// How a sandbox comes to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// By the names of the services, which its gateway leads to the broker.
    Gateway,
    /// By a port of loopback for each service: there is no gateway.
    Loopback,
}

impl Services {
    /// Those of this configuration: none where the credential is given away by choice, or nothing could hold it back.
    pub(super) async fn of(context: &Context, config: &Config) -> Result<Self, CliError> {
        let mut found = Self {
            way: Way::Broker(Door::Loopback),
            list: Vec::new(),
            secrets: Vec::new(),
        };
        let Some(way) = way(config) else {
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
        match self.way {
            Way::Broker(door) => self.serve_by(door, config, run).await,
            Way::Provider => hand_over::to_provider(self).await,
        }
        .map(Some)
    }

    async fn serve_by(self, door: Door, config: &Config, run: &RunDir) -> Result<Brokered, CliError> {
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
        let mut loopback = JoinSet::new();
        for service in self.list {
            let address = match door {
                Door::Gateway => {
                    let address = format!("http://{}", service.upstream.host);
                    upstreams.push(service.upstream);
                    address
                }
                Door::Loopback => {
                    let host = service.upstream.host.clone();
                    let broker = Broker::new(vec![service.upstream], Vec::new())?;
                    let entrance = broker.admit(phantom.clone(), meter.clone());
                    listen(entrance, host, &mut loopback).await?
                }
            };
            for member in service.members {
                let credential = Credential {
                    kind: member.shown_as,
                    value: Secret::new(phantom.expose()),
                };
                let (profile, access) = member.access(&address, Some(credential));
                accesses.insert(profile, access);
            }
        }
        let entrance = match door {
            Door::Gateway => {
                let entrance = Broker::new(upstreams, Vec::new())?.admit(phantom.clone(), meter.clone());
                Some((phantom, entrance))
            }
            Door::Loopback => None,
        };
        let profiles = accesses.keys().cloned().collect();
        Ok(Brokered {
            entrance,
            accesses,
            metering: Some(Metering {
                meter,
                notices,
                profiles,
            }),
            handed_over: Vec::new(),
            secrets: self.secrets,
            _loopback: loopback,
        })
    }
}

/// What one run has of the broker, for as long as it lasts.
pub(super) struct Brokered {
    /// Where there is a gateway that leads to it.
    entrance: Option<(Phantom, Entrance)>,
    accesses: BTreeMap<String, Access>,
    /// What counts the calls, where they come this way.
    pub(super) metering: Option<Metering>,
    /// What the provider keeps.
    pub(super) handed_over: Vec<DaytonaSecret>,
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
    pub(super) fn allow(&self, policy: Policy) -> Result<Policy, CliError> {
        let served = self.entrance.iter().flat_map(|(_, entrance)| entrance.hosts());
        let reached = self.handed_over.iter().flat_map(|secret| &secret.hosts);
        let lines = served.map(|host| format!("{host}:80"));
        let rules: Vec<Rule> = lines
            .chain(reached.map(ToString::to_string))
            .map(|line| Rule::parse(&line).map(|rule| rule.at("the agent's model")))
            .collect::<Result<_, _>>()
            .map_err(|error| CliError::usage(error.to_string()))?;
        if rules.is_empty() {
            return Ok(policy);
        }
        Ok(match policy.mode() {
            Mode::Deny => Policy::allowlist(rules),
            Mode::Allowlist | Mode::AllowAll | Mode::Record => policy.allowing(rules),
        })
    }
}

/// How credentials are used that stay here; `None` where they are given away.
fn way(config: &Config) -> Option<Way> {
    if config.settings.agent.dangerously_pass_credential {
        return None;
    }
    match config.provider() {
        SandboxType::Local => Some(Way::Broker(Door::Loopback)),
        SandboxType::Docker => {
            let sealed = SealPlan::of(&config.network_policy(&Clients::NONE));
            // What is wrong with the policy is told when it is enforced.
            sealed.ok().flatten().map(|_| Way::Broker(Door::Gateway))
        }
        SandboxType::Daytona => Some(Way::Provider),
        SandboxType::DockerSandbox | SandboxType::Tart => None,
    }
}

/// Serves a service on a port of loopback, and says where.
async fn listen(entrance: Entrance, host: HostName, servers: &mut JoinSet<()>) -> Result<String, CliError> {
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
    Ok(format!("http://{address}"))
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
