//! Credentials that the provider keeps in the broker's place, because there is no gateway where its sandboxes are.

use std::collections::BTreeMap;

use tokio::task::JoinSet;

use crate::gateway::broker::UpstreamError;
use crate::network::HostName;
use crate::sandbox::daytona::DaytonaSecret;
use crate::secret::Redactor;

use super::super::AssemblyError;
use super::{Brokered, Open, Services};

/// Services whose credentials the provider keeps. Their agents speak to them directly, with what it gives them.
pub(super) async fn to_provider(services: Services, redactor: &Redactor) -> Result<Brokered, AssemblyError> {
    let mut open = BTreeMap::new();
    let mut secrets: BTreeMap<&str, DaytonaSecret> = BTreeMap::new();
    for service in services.list {
        let address = service.upstream.address();
        let domain = service.upstream.domain().ok_or_else(|| {
            AssemblyError::usage(format!(
                "`{address}` has no name, and Daytona gives credentials to names alone"
            ))
            .with_hint("give the model's address with a name that the internet knows")
        })?;
        let host = HostName::parse(domain).map_err(UpstreamError::from)?;
        for member in service.members {
            let secret = DaytonaSecret {
                variable: member.variable.to_owned(),
                value: service.upstream.credential().await?,
                hosts: vec![host.clone()],
            };
            let held = secrets.entry(member.variable).or_insert_with(|| secret.clone());
            if held.value.expose() != secret.value.expose() || held.hosts != secret.hosts {
                return Err(AssemblyError::usage(format!(
                    "two profiles need different credentials in `{}`, and a Daytona sandbox has one of each",
                    member.variable
                )));
            }
            let (profile, access) = member.access(address, None);
            open.insert(profile, Open { door: None, access });
        }
    }
    let handed_over: Vec<DaytonaSecret> = secrets.into_values().collect();
    redactor.learn(handed_over.iter().map(|secret| secret.value.clone()));
    let hosts = handed_over.iter().flat_map(|secret| &secret.hosts);
    Ok(Brokered {
        entrance: None,
        allowed: hosts.map(ToString::to_string).collect(),
        open,
        metering: None,
        handed_over,
        agent_env: BTreeMap::new(),
        _loopback: JoinSet::new(),
    })
}
