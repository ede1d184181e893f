//! Credentials that the provider stores and adds to requests itself, because its sandboxes have no gateway of ours.

use std::collections::BTreeMap;

use tokio::task::JoinSet;

use crate::gateway::broker::UpstreamError;
use crate::network::HostName;
use crate::sandbox::daytona::DaytonaSecret;
use crate::secret::Redactor;

use super::super::{AssemblyError, ErrorTopic};
use super::{BrokeredService, ProfileAccess, RunBroker};

/// Prepares the secrets of a Daytona sandbox. Its agents talk to the services directly.
pub(super) async fn hand_over(
    services: Vec<BrokeredService>,
    redactor: &Redactor,
) -> Result<RunBroker, AssemblyError> {
    let mut profiles = BTreeMap::new();
    let mut secrets: BTreeMap<&str, DaytonaSecret> = BTreeMap::new();
    for service in services {
        let address = service.upstream.address();
        let domain = service.upstream.domain().ok_or_else(|| {
            AssemblyError::usage(format!(
                "`{address}` has no host name, and Daytona adds credentials to requests by host name only"
            ))
            .with_topic(ErrorTopic::Credentials)
            .with_hint("give the model's address with a public host name")
        })?;
        let host = HostName::parse(domain).map_err(UpstreamError::from)?;
        for user in service.users {
            let secret = DaytonaSecret {
                variable: user.variable.to_owned(),
                value: service.upstream.source.current().await?,
                hosts: vec![host.clone()],
            };
            let held = secrets.entry(user.variable).or_insert_with(|| secret.clone());
            if held.value.expose() != secret.value.expose() || held.hosts != secret.hosts {
                return Err(AssemblyError::usage(format!(
                    "two profiles need different credentials in `{}`, and a Daytona sandbox holds one value per variable",
                    user.variable
                )).with_topic(ErrorTopic::Credentials));
            }
            let access = ProfileAccess {
                endpoint: None,
                access: user.access(address, None, &service.credential_hint),
            };
            profiles.insert(user.profile, access);
        }
    }
    let handed_over: Vec<DaytonaSecret> = secrets.into_values().collect();
    redactor.learn(handed_over.iter().map(|secret| secret.value.clone()));
    let hosts = handed_over.iter().flat_map(|secret| &secret.hosts);
    Ok(RunBroker {
        gateway: None,
        allowed: hosts.map(ToString::to_string).collect(),
        profiles,
        metering: None,
        handed_over,
        agent_env: BTreeMap::new(),
        _servers: JoinSet::new(),
    })
}
