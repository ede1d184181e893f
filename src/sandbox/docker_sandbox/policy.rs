//! A network policy in the words of Docker Sandboxes: names, each with or without a port.

use super::super::reach::{Reach, wildcard};
use crate::network::{HostPattern, Policy};

/// What a sandbox may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    Nothing,
    Only { hosts: Vec<String>, but: Vec<String> },
    Everything { but: Vec<String> },
}

/// The rules of a policy; the error is why they cannot be enforced.
pub(super) fn rules(policy: &Policy) -> Result<Rules, String> {
    Ok(match Reach::of(policy)? {
        Reach::Nothing => Rules::Nothing,
        Reach::Everything { but } => Rules::Everything { but: all(but)? },
        Reach::Only { hosts, but } => Rules::Only {
            hosts: all(hosts)?,
            but: all(but)?,
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
