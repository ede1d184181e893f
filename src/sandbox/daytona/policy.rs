//! Translates a network policy to Daytona's network settings.

use crate::network::{HostPattern, Policy};
use crate::sandbox::host_policy::{HostPolicy, wildcard};

/// The most names in Daytona's allow list.
const MAX_DOMAINS: usize = 10;

/// The names that a sandbox may reach; `None` if it may reach all. The error says why Daytona cannot enforce the policy.
pub(super) fn allowed_domains(policy: &Policy) -> Result<Option<Vec<String>>, String> {
    match HostPolicy::new(policy, domain)? {
        HostPolicy::Nothing => Ok(Some(Vec::new())),
        HostPolicy::Everything { except } | HostPolicy::Only { except, .. } if !except.is_empty() => {
            Err("Daytona has no list of denied names".to_owned())
        }
        HostPolicy::Everything { .. } => Ok(None),
        HostPolicy::Only { hosts, .. } if hosts.len() > MAX_DOMAINS => Err(format!(
            "Daytona's allow list holds {MAX_DOMAINS} names, and the policy has {}",
            hosts.len()
        )),
        HostPolicy::Only { hosts, .. } => Ok(Some(hosts)),
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
    #[case::nothing(Policy::deny(), Some(&[][..]))]
    #[case::everything(Policy::allow_all(), None)]
    #[case::names(allowing(&["github.com", "**.example.org"]), Some(&["github.com", "*.example.org"][..]))]
    fn a_policy_becomes_a_list_of_names(#[case] policy: Policy, #[case] names: Option<&[&str]>) {
        let names = names.map(|names| names.iter().map(ToString::to_string).collect());
        assert_eq!(allowed_domains(&policy), Ok(names));
    }

    #[rstest]
    #[case::a_port(allowing(&["github.com:22"]), "port 22")]
    #[case::too_many(allowing(&["a.org", "b.org", "c.org", "d.org", "e.org", "f.org", "g.org", "h.org", "i.org", "j.org", "k.org"]), "holds 10 names, and the policy has 11")]
    #[case::denied(Policy::allow_all().denying([PolicyRule::parse("a.org").unwrap()]), "denied")]
    fn what_daytona_cannot_enforce_is_refused(#[case] policy: Policy, #[case] reason: &str) {
        let refused = allowed_domains(&policy).unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }
}
