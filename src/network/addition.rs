//! What a person may add to the policy of a run.

use super::host::{HostName, RequestHost};
use super::pattern::{HostPattern, NamePattern};
use super::rule::PolicyRule;

/// Last labels of names that are not public.
const PRIVATE_LABELS: [&str; 9] = [
    "arpa",
    "corp",
    "home",
    "internal",
    "intranet",
    "lan",
    "local",
    "localhost",
    "private",
];

/// Which hosts a person may add to the policy of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowableHosts {
    /// Every public name, on any port. No wildcards.
    PublicNames,
    /// The hosts that these patterns cover, and the patterns themselves. A pattern without a port covers every port.
    Listed(Vec<HostPattern>),
}

impl AllowableHosts {
    /// The rule for `HOST[:PORT]`, or why it may not be added, for people.
    pub fn rule(&self, text: &str) -> Result<PolicyRule, String> {
        let rule = host_rule(text)?;
        let pattern = &rule.pattern;
        match (self, &pattern.names) {
            (Self::Listed(listed), _) if listed.contains(pattern) => Ok(rule),
            (Self::Listed(listed), _) if listed.is_empty() => Err(
                "`sandbox.network.may_be_allowed` is empty: nothing may be added to the policy of a run"
                    .to_owned(),
            ),
            (Self::Listed(listed), NamePattern::Exactly(name)) => {
                let covers = |one: &HostPattern| {
                    one.covers(name) && one.port.is_none_or(|port| pattern.port == Some(port))
                };
                if listed.iter().any(covers) {
                    return Ok(rule);
                }
                let patterns: Vec<String> = listed.iter().map(ToString::to_string).collect();
                Err(format!(
                    "`{text}` may not be added: `sandbox.network.may_be_allowed` lists {}",
                    patterns.join(", ")
                ))
            }
            (Self::PublicNames, NamePattern::Exactly(name)) if is_public(name) => Ok(rule),
            (Self::PublicNames, NamePattern::Exactly(_)) => Err(format!(
                "`{text}` is not a public name: it may be added only if `sandbox.network.may_be_allowed` lists it"
            )),
            (_, NamePattern::OneBelow(_) | NamePattern::AnyBelow(_)) => Err(format!(
                "`{text}` is a wildcard: it may be added only if `sandbox.network.may_be_allowed` lists it"
            )),
        }
    }
}

impl From<Option<Vec<HostPattern>>> for AllowableHosts {
    fn from(listed: Option<Vec<HostPattern>>) -> Self {
        listed.map_or(Self::PublicNames, Self::Listed)
    }
}

/// The rule for `HOST[:PORT]`.
pub fn host_rule(text: &str) -> Result<PolicyRule, String> {
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    let is_address = |text: &str| matches!(text.parse(), Ok(RequestHost::Address(_)));
    if is_address(text) || is_address(host) || text.parse::<std::net::IpAddr>().is_ok() {
        return Err(format!(
            "`{text}` is an IP address: the policy allows host names only"
        ));
    }
    let rule = PolicyRule::parse(text).map_err(|error| error.to_string())?;
    if rule.is_host_only() {
        Ok(rule)
    } else {
        Err(format!("`{text}` has a method or a path: expected HOST[:PORT]"))
    }
}

fn is_public(name: &HostName) -> bool {
    let last = name.as_str().rsplit_once('.');
    last.is_some_and(|(_, last)| !PRIVATE_LABELS.contains(&last))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn listed(patterns: &[&str]) -> AllowableHosts {
        let patterns = patterns.iter().map(|text| HostPattern::parse(text).unwrap());
        AllowableHosts::Listed(patterns.collect())
    }

    #[rstest]
    #[case::name("api.example", "")]
    #[case::port("db.example:5432", "")]
    #[case::wildcard("*.api.example", "is a wildcard")]
    #[case::address("93.184.216.34", "is an IP address")]
    #[case::address_with_port("10.0.0.1:80", "is an IP address")]
    #[case::address_of_six("[2606:2800:220:1::1]:443", "is an IP address")]
    #[case::bare_address_of_six("2606:2800:220:1::1", "is an IP address")]
    #[case::one_label("database", "is not a public name")]
    #[case::of_the_host("localhost", "is not a public name")]
    #[case::of_a_cloud("metadata.google.internal", "is not a public name")]
    #[case::of_a_network("printer.local", "is not a public name")]
    #[case::scheme("https://api.example", "has a scheme")]
    #[case::path("api.example/x", "has a method or a path")]
    #[case::method("GET api.example", "has a method or a path")]
    fn a_public_name_may_be_added(#[case] text: &str, #[case] refused: &str) {
        check(&AllowableHosts::PublicNames, text, refused);
    }

    #[rstest]
    #[case::covered("api.corp.example", "")]
    #[case::covered_on_another_port("api.corp.example:8443", "")]
    #[case::itself("*.corp.example", "")]
    #[case::private("db.internal:5432", "")]
    #[case::another_port(
        "db.internal:22",
        "`sandbox.network.may_be_allowed` lists *.corp.example, db.internal:5432"
    )]
    #[case::no_port("db.internal", "may not be added")]
    #[case::not_listed("api.example", "may not be added")]
    #[case::another_wildcard("**.corp.example", "is a wildcard")]
    fn a_list_narrows_and_widens(#[case] text: &str, #[case] refused: &str) {
        check(&listed(&["*.corp.example", "db.internal:5432"]), text, refused);
    }

    #[test]
    fn an_empty_list_permits_nothing() {
        check(&listed(&[]), "api.example", "is empty: nothing may be added");
    }

    #[track_caller]
    fn check(allowable: &AllowableHosts, text: &str, refused: &str) {
        match allowable.rule(text) {
            Ok(rule) => assert!(refused.is_empty(), "{rule:?}"),
            Err(reason) => assert!(!refused.is_empty() && reason.contains(refused), "{reason}"),
        }
    }
}
