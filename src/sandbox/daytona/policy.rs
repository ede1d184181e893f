//! A network policy in Daytona's words, as far as it has them.

use super::wire::Network;
use crate::network::{HostPattern, Policy};
use crate::sandbox::reach::{Reach, wildcard};

/// How many names Daytona's list holds.
const MOST: usize = 10;

/// What to ask of Daytona; the error is why it cannot enforce the policy.
pub(super) fn compile(policy: &Policy) -> Result<Network, String> {
    match Reach::of(policy)? {
        Reach::Nothing => Ok(Network {
            block_all: Some(true),
            domains: None,
        }),
        Reach::Everything { but } | Reach::Only { but, .. } if !but.is_empty() => {
            Err("it has no list of names that are denied".to_owned())
        }
        Reach::Everything { .. } => Ok(Network::default()),
        Reach::Only { hosts, .. } if hosts.len() > MOST => Err(format!(
            "its list holds {MOST} names, and the policy has {}",
            hosts.len()
        )),
        Reach::Only { hosts, .. } => {
            let names: Vec<String> = hosts.into_iter().map(name).collect::<Result<_, _>>()?;
            Ok(Network {
                block_all: None,
                domains: Some(names.join(",")),
            })
        }
    }
}

/// One entry of the list. It has no ports: a name is reached on each, or on none.
fn name(pattern: &HostPattern) -> Result<String, String> {
    if let Some(port) = pattern.port {
        return Err(format!(
            "its list has names without ports, and the policy names port {port}"
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
    fn a_policy_becomes_fields_of_the_request(#[case] policy: Policy, #[case] json: &str) {
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
