//! Translates a network policy to the rules of Docker Sandboxes: names, with or without a port.

use super::super::host_policy::{HostPolicy, wildcard};
use crate::network::{HostPattern, Policy};

/// What a sandbox may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NetworkRules {
    Nothing,
    Only { hosts: Vec<String>, except: Vec<String> },
    Everything { except: Vec<String> },
}

/// The rules of a policy. The error says why they cannot be enforced.
pub(super) fn rules(policy: &Policy) -> Result<NetworkRules, String> {
    Ok(match HostPolicy::new(policy)? {
        HostPolicy::Nothing => NetworkRules::Nothing,
        HostPolicy::Everything { except } => NetworkRules::Everything { except: all(except)? },
        HostPolicy::Only { hosts, except } => NetworkRules::Only {
            hosts: all(hosts)?,
            except: all(except)?,
        },
    })
}

fn all(patterns: Vec<&HostPattern>) -> Result<Vec<String>, String> {
    patterns.into_iter().map(host).collect()
}

fn host(pattern: &HostPattern) -> Result<String, String> {
    let names = wildcard(pattern)?;
    Ok(match pattern.port {
        Some(port) => format!("{names}:{port}"),
        None => names,
    })
}
