//! How the agent programs of a run reach their models, and a repository, while the credentials stay here.

mod door;
mod doors;
mod github;
mod service;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::agent::{Access, Credential};
use crate::clock;
use crate::config::{Config, SandboxType};
use crate::gateway::Phantom;
use crate::gateway::broker::{Entrance, GitHub, GitHubSetup, Upstream, UpstreamError};
use crate::gateway::meter::{Allowance, Meter, MeterSetup, Tariffs};
use crate::network::{Clients, HostName, Mode, Policy, Rule};
use crate::runner::{Metering, Notices};
use crate::sandbox::Egress;
use crate::sandbox::docker::SealPlan;
use crate::secret::{Redactor, Secret};

use super::Context;
use super::error::CliError;
pub(super) use door::Door;
use doors::{Doors, Spot};
pub(super) use service::Service;

/// The services that agent programs reach through the broker. Nothing is open yet.
pub(super) struct Services {
    way: Way,
    list: Vec<Service>,
    /// The repository that agents may reach.
    github: Option<GitHubSetup>,
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
        let way = way(config);
        let mut found = Self {
            way: way.unwrap_or(Way::Loopback),
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

    /// Opens them for a run, whose redactor comes to know every credential; `None` when there are none. What calls use is
    /// written down in `spending`.
    pub(super) async fn open(
        self,
        config: &Config,
        spending: PathBuf,
        redactor: &Redactor,
    ) -> Result<Option<Brokered>, CliError> {
        if self.list.is_empty() && self.github.is_none() {
            return Ok(None);
        }
        redactor.learn(self.secrets);
        let phantom = Phantom::random().map_err(|error| CliError::runtime(error.to_string()))?;
        let (meter, notices) = meter(config, spending)?;
        let mut doors = Doors::new(self.way, phantom.clone(), meter.clone());
        let mut open = BTreeMap::new();
        for service in self.list {
            service.upstream.tell(redactor);
            let service_address = service.upstream.address().to_owned();
            let spot = doors.add(service.upstream).await?;
            for member in service.members {
                let access = Access {
                    base_url: Some(format!("{}{}", spot.address(), member.path)),
                    credential: Some(Credential {
                        kind: member.shown_as,
                        value: Secret::new(phantom.expose()),
                    }),
                    remedy: member.remedy,
                };
                let (service, spot) = (service_address.clone(), spot.clone());
                open.insert(
                    member.profile,
                    Open {
                        access,
                        service,
                        spot,
                    },
                );
            }
        }
        let agent_env = match self.github {
            Some(setup) => {
                let spot = doors.add(GitHub::new(setup.clone())?).await?;
                github::variables(&setup, &spot.address(), &phantom)
            }
            None => BTreeMap::new(),
        };
        let (entrance, loopback) = doors.open()?;
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
            agent_env,
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
    /// What agents are told of the repository that they may reach.
    pub(super) agent_env: BTreeMap<String, String>,
    /// The servers on loopback; they end with it.
    _loopback: JoinSet<()>,
}

/// What is open to the agent of one profile.
struct Open {
    access: Access,
    /// Where its model really is.
    service: String,
    spot: Spot,
}

impl Brokered {
    /// Where the calls of a profile's agent come in.
    pub(super) fn door(&self, profile: &str) -> Option<Door> {
        let Open { service, spot, .. } = self.open.get(profile)?;
        Door::at(spot, service, self.entrance.as_ref())
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
            rule.map(|rule| rule.at("added with a credential"))
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

/// How sandboxes come to the broker; `None` where they cannot.
fn way(config: &Config) -> Option<Way> {
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

/// What counts the calls of a run, and who is told.
fn meter(config: &Config, spending: PathBuf) -> Result<(Meter, Arc<Notices>), CliError> {
    let notices: Arc<Notices> = Arc::default();
    let meter = Meter::open(MeterSetup {
        file: spending,
        allowance: Allowance::default(),
        tariffs: tariffs(config),
        sink: notices.clone(),
        clock: clock::system(),
    })?;
    Ok((meter, notices))
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
