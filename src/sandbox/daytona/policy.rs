//! Translates a network policy to Daytona's network settings.

use super::wire::DaytonaNetwork;
use crate::network::{HostPattern, Policy};
use crate::sandbox::host_policy::{HostPolicy, wildcard};

/// The most names in Daytona's allow list.
const MAX_DOMAINS: usize = 10;

/// The network settings for a policy. The error says why Daytona cannot enforce it.
pub(super) fn compile(policy: &Policy) -> Result<DaytonaNetwork, String> {
    match HostPolicy::new(policy)? {
        HostPolicy::Nothing => Ok(DaytonaNetwork {
            block_all: Some(true),
            domains: None,
        }),
        HostPolicy::Everything { except } | HostPolicy::Only { except, .. } if !except.is_empty() => {
            Err("Daytona has no list of denied names".to_owned())
        }
        HostPolicy::Everything { .. } => Ok(DaytonaNetwork::default()),
        HostPolicy::Only { hosts, .. } if hosts.len() > MAX_DOMAINS => Err(format!(
            "Daytona's allow list holds {MAX_DOMAINS} names, and the policy has {}",
            hosts.len()
        )),
        HostPolicy::Only { hosts, .. } => {
            let names: Vec<String> = hosts.into_iter().map(domain).collect::<Result<_, _>>()?;
            Ok(DaytonaNetwork {
                block_all: None,
                domains: Some(names.join(",")),
            })
        }
    }
}

/// One entry of the allow list. Entries have no ports: a name is allowed on all ports.
fn domain(pattern: &HostPattern) -> Result<String, String> {
    if let Some(port) = pattern.port {
        return Err(format!(
            "Daytona's allow list has names without ports, and the policy names port {port}"
        ));
    }
    wildcard(pattern)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::network::PolicyRule;

    fn allowing(lines: &[&str]) -> Policy {
        Policy::allowlist(lines.iter().map(|line| PolicyRule::parse(line).unwrap()))
    }

    #[rstest]
    #[case::nothing(Policy::deny(), r#"{"networkBlockAll":true}"#)]
    #[case::everything(Policy::allow_all(), "{}")]
    #[case::names(allowing(&["github.com", "**.example.org"]), r#"{"domainAllowList":"github.com,*.example.org"}"#)]
    fn a_policy_becomes_network_settings(#[case] policy: Policy, #[case] json: &str) {
        assert_eq!(serde_json::to_string(&compile(&policy).unwrap()).unwrap(), json);
    }

    #[rstest]
    #[case::a_port(allowing(&["github.com:22"]), "port 22")]
    #[case::too_many(allowing(&["a.org", "b.org", "c.org", "d.org", "e.org", "f.org", "g.org", "h.org", "i.org", "j.org", "k.org"]), "holds 10 names, and the policy has 11")]
    #[case::denied(Policy::allow_all().denying([PolicyRule::parse("a.org").unwrap()]), "denied")]
    fn what_daytona_cannot_enforce_is_refused(#[case] policy: Policy, #[case] reason: &str) {
        let refused = compile(&policy).unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }
}
