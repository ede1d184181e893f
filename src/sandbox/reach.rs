//! A policy as names and ports: what can be told to somebody who looks at no request.

use crate::network::{HostPattern, NamePattern, Policy, PolicyMode, PolicyRule};

/// What may be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reach<'a> {
    Nothing,
    Only {
        hosts: Vec<&'a HostPattern>,
        but: Vec<&'a HostPattern>,
    },
    Everything {
        but: Vec<&'a HostPattern>,
    },
}

impl<'a> Reach<'a> {
    /// What a policy says; the error is why that cannot be said in names and ports.
    pub(super) fn of(policy: &'a Policy) -> Result<Self, String> {
        if let Some(reason) = opens_no_tls(policy) {
            return Err(reason);
        }
        let but = hosts_of(policy.denied());
        match policy.mode() {
            PolicyMode::Deny => Ok(Self::Nothing),
            PolicyMode::AllowAll => Ok(Self::Everything { but: but? }),
            PolicyMode::Record => {
                Err("it does not tell which names are used, so there is nothing to record".to_owned())
            }
            PolicyMode::Allowlist if policy.allowed().is_empty() => Ok(Self::Nothing),
            PolicyMode::Allowlist => Ok(Self::Only {
                hosts: hosts_of(policy.allowed())?,
                but: but?,
            }),
        }
    }
}

/// Why a policy is not for somebody who opens no TLS; `None` when it is.
pub(super) fn opens_no_tls(policy: &Policy) -> Option<String> {
    (policy.mode() != PolicyMode::Deny && policy.inspects_any())
        .then(|| "it opens no TLS, and sandbox.network.inspect asks for that".to_owned())
}

/// The names of a pattern for somebody whose `*.` goes any number of labels deep.
pub(super) fn wildcard(pattern: &HostPattern) -> Result<String, String> {
    match &pattern.names {
        NamePattern::Exactly(host) => Ok(host.as_str().to_owned()),
        NamePattern::AnyBelow(root) => Ok(format!("*.{}", root.as_str())),
        NamePattern::OneBelow(root) => Err(format!(
            "it cannot tell one label from several: write `**.{root}` where every name below may be reached"
        )),
    }
}

fn hosts_of(rules: &[PolicyRule]) -> Result<Vec<&HostPattern>, String> {
    match rules.iter().find(|rule| !rule.is_host_only()) {
        Some(rule) => Err(format!(
            "it looks at names alone, and `{}` is about methods or paths",
            rule.line().text()
        )),
        None => Ok(rules.iter().map(PolicyRule::pattern).collect()),
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
    #[case::record(Policy::record(), "nothing to record")]
    #[case::a_path(Policy::allowlist(rules(&["docs.example.org/api/*"])), "methods or paths")]
    #[case::a_method(Policy::allow_all().denying(rules(&["POST example.org"])), "methods or paths")]
    #[case::inspection(Policy::allow_all().inspecting([HostPattern::parse("example.org").unwrap()]), "opens no TLS")]
    fn what_names_cannot_say_is_refused(#[case] policy: Policy, #[case] reason: &str) {
        let refused = Reach::of(&policy).unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }

    #[test]
    fn a_list_of_nothing_is_nothing() {
        assert_eq!(Reach::of(&Policy::allowlist([])), Ok(Reach::Nothing));
    }
}
