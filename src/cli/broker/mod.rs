//! How the agent programs of a run reach their models while the credentials stay here.

mod door;
mod service;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::task::JoinSet;

use crate::agent::{Access, Credential};
use crate::clock;
use crate::config::{Config, SandboxType};
use crate::gateway::Phantom;
use crate::gateway::broker::{Broker, BrokerError, Entrance, Upstream, UpstreamError};
use crate::gateway::meter::{Allowance, Meter, MeterSetup, Tariffs};
use crate::network::{Clients, HostName, Mode, Policy, Rule};
use crate::runner::Metering;
use crate::sandbox::Egress;
use crate::sandbox::docker::SealPlan;
use crate::secret::Secret;

use super::Context;
use super::error::CliError;
pub(super) use door::Door;
use door::Named;
use service::Member;
pub(super) use service::Service;

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
    /// By a port of loopback for each service: there is no gateway.
    Loopback,
}

impl Services {
    /// Those of this configuration: none where the credential is given away by choice, or nothing could hold it back.
    pub(super) async fn of(context: &Context, config: &Config) -> Result<Self, CliError> {
        let mut found = Self {
            way: Way::Loopback,
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

    /// Opens them, with a meter that writes to this file; `None` when there are none.
    pub(super) async fn open(self, config: &Config, spending: PathBuf) -> Result<Option<Brokered>, CliError> {
        if self.list.is_empty() {
            return Ok(None);
        }
        let phantom = Phantom::random().map_err(|error| CliError::runtime(error.to_string()))?;
        let notices = Arc::new(Mutex::new(Vec::new()));
        let meter = Meter::open(MeterSetup {
            file: spending,
            allowance: Allowance::default(),
            tariffs: tariffs(config),
            sink: notices.clone(),
            clock: clock::system(),
        })?;
        let services = self.list.into_iter();
        let (upstreams, members): (Vec<_>, Vec<_>) = services
            .map(|service| (service.upstream, service.members))
            .unzip();
        let mut loopback = JoinSet::new();
        let admit = |upstreams| Ok(Broker::new(upstreams, Vec::new())?.admit(phantom.clone(), meter.clone()));
        let (entrance, doors) = match self.way {
            Way::Gateway => {
                let services: Vec<Named> = upstreams.iter().map(Named::of).collect();
                let entrance: Entrance = admit(upstreams)?;
                let door = |service| Door::behind_gateway(entrance.clone(), service);
                (Some(entrance.clone()), services.into_iter().map(door).collect())
            }
            Way::Loopback => (None, on_loopback(upstreams, admit, &mut loopback).await?),
        };
        let open = doors.into_iter().zip(members).flat_map(|(door, members)| {
            let open = |member: Member| (member.profile.clone(), Open::new(&phantom, &door, member));
            members.into_iter().map(open).collect::<Vec<_>>()
        });
        let open: BTreeMap<String, Open> = open.collect();
        let profiles = open.keys().cloned().collect();
        Ok(Some(Brokered {
            phantom,
            entrance,
            open,
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
    open: BTreeMap<String, Open>,
    /// What counts the calls.
    pub(super) metering: Metering,
    /// What is stored, which no output may show.
    pub(super) secrets: Vec<Secret>,
    /// The servers on loopback; they end with it.
    _loopback: JoinSet<()>,
}

/// What is open to the agent of one profile.
struct Open {
    door: Door,
    access: Access,
}

impl Open {
    fn new(phantom: &Phantom, door: &Door, member: Member) -> Self {
        Self {
            access: Access {
                base_url: Some(format!("{}{}", door.address(), member.path)),
                credential: Some(Credential {
                    kind: member.shown_as,
                    value: Secret::new(phantom.expose()),
                }),
                remedy: member.remedy,
            },
            door: door.clone(),
        }
    }
}

impl Brokered {
    /// Where the calls of a profile's agent come in.
    pub(super) fn door(&self, profile: &str) -> Option<&Door> {
        self.open.get(profile).map(|open| &open.door)
    }

    /// How the agent of a profile reaches its model: with an address and a phantom.
    pub(super) fn access(&self, profile: &str) -> Option<&Access> {
        self.open.get(profile).map(|open| &open.access)
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
        let Some(entrance) = &self.entrance else {
            return Ok(policy);
        };
        let rule = |host: &HostName| {
            let rule = Rule::parse(&format!("{host}:80"));
            rule.map(|rule| rule.at("the agent's model"))
        };
        let rules: Vec<Rule> = entrance
            .hosts()
            .map(rule)
            .collect::<Result<_, _>>()
            .map_err(|error| CliError::usage(error.to_string()))?;
        Ok(match policy.mode() {
            Mode::Deny => Policy::allowlist(rules),
            Mode::Allowlist | Mode::AllowAll | Mode::Record => policy.allowing(rules),
        })
    }
}

/// How sandboxes come to the broker; `None` where they do not.
fn way(config: &Config) -> Option<Way> {
    if config.settings.agent.dangerously_pass_credential {
        return None;
    }
    match config.provider() {
        SandboxType::Local => Some(Way::Loopback),
        SandboxType::Docker => {
            let sealed = SealPlan::of(&config.network_policy(&Clients::NONE));
            // What is wrong with the policy is told when it is enforced.
            sealed.ok().flatten().map(|_| Way::Gateway)
        }
        SandboxType::DockerSandbox | SandboxType::Tart | SandboxType::Daytona => None,
    }
}

/// Serves each service on a port of loopback.
async fn on_loopback(
    upstreams: Vec<Upstream>,
    admit: impl Fn(Vec<Upstream>) -> Result<Entrance, BrokerError>,
    servers: &mut JoinSet<()>,
) -> Result<Vec<Door>, CliError> {
    let failed = |error: std::io::Error| CliError::runtime(format!("cannot listen on 127.0.0.1: {error}"));
    let mut doors = Vec::new();
    for upstream in upstreams {
        let service = Named::of(&upstream);
        let door = Door::on_loopback(admit(vec![upstream])?, service, servers).await;
        doors.push(door.map_err(failed)?);
    }
    Ok(doors)
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
