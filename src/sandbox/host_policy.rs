//! A policy as host names and ports, for providers whose own firewall sees no requests.

use crate::network::{HostPattern, NamePattern, Policy, PolicyMode, PolicyRule};

/// The hosts that a policy allows, in the syntax of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostPolicy {
    Nothing,
    Only { hosts: Vec<String>, except: Vec<String> },
    Everything { except: Vec<String> },
}

impl HostPolicy {
    /// Converts a policy, each pattern with `host`. The error is the reason why the provider cannot express it.
    pub(super) fn new(
        policy: &Policy,
        host: fn(&HostPattern) -> Result<String, String>,
    ) -> Result<Self, String> {
        if let Some(reason) = inspection_unsupported(policy) {
            return Err(reason);
        }
        let one = |rule: &PolicyRule| {
            if rule.is_host_only() {
                return host(&rule.pattern);
            }
            let text = &rule.line.text;
            Err(format!(
                "it can only restrict hosts, and `{text}` restricts methods or paths"
            ))
        };
        let all = |rules: &[PolicyRule]| rules.iter().map(one).collect::<Result<Vec<_>, _>>();
        let except = all(&policy.denied);
        match policy.mode {
            PolicyMode::Deny => Ok(Self::Nothing),
            PolicyMode::AllowAll => Ok(Self::Everything { except: except? }),
            PolicyMode::Record => {
                Err("it does not report which hosts are used, so nothing can be recorded".to_owned())
            }
            PolicyMode::Allowlist if policy.allowed.is_empty() => Ok(Self::Nothing),
            PolicyMode::Allowlist => Ok(Self::Only {
                hosts: all(&policy.allowed)?,
                except: except?,
            }),
        }
    }
}

/// The reason if a policy needs TLS inspection, for providers that cannot inspect TLS.
pub(super) fn inspection_unsupported(policy: &Policy) -> Option<String> {
    (policy.mode != PolicyMode::Deny && policy.inspects_any())
        .then(|| "it cannot inspect TLS, which sandbox.network.inspect requires".to_owned())
}

/// A pattern in the syntax of providers whose `*.` matches any number of labels.
pub(super) fn wildcard(pattern: &HostPattern) -> Result<String, String> {
    match &pattern.names {
        NamePattern::Exactly(host) => Ok(host.as_str().to_owned()),
        NamePattern::AnyBelow(root) => Ok(format!("*.{}", root.as_str())),
        NamePattern::OneBelow(root) => Err(format!(
            "it cannot match exactly one label: use `**.{root}` to allow all subdomains"
        )),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn rules(lines: &[&str]) -> Vec<PolicyRule> {
        lines
            .iter()
            .map(|line| PolicyRule::parse(line).unwrap())
            .collect()
    }

    #[rstest]
    #[case::record(Policy::record(), "nothing can be recorded")]
    #[case::a_path(Policy::allowlist(rules(&["docs.example.org/api/*"])), "methods or paths")]
    #[case::a_method(Policy::allow_all().denying(rules(&["POST example.org"])), "methods or paths")]
    #[case::inspection(Policy::allow_all().inspecting([HostPattern::parse("example.org").unwrap()]), "cannot inspect TLS")]
    fn a_policy_that_hosts_cannot_express_is_an_error(#[case] policy: Policy, #[case] reason: &str) {
        let reason_given = HostPolicy::new(&policy, wildcard).unwrap_err();
        assert!(reason_given.contains(reason), "{reason_given}");
    }

    #[test]
    fn an_empty_allowlist_allows_nothing() {
        assert_eq!(
            HostPolicy::new(&Policy::allowlist([]), wildcard),
            Ok(HostPolicy::Nothing)
        );
    }
}
