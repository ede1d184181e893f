//! The network policy of a sandbox.

use std::collections::BTreeSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::host::{HostName, RequestHost};
use super::pattern::{HostPattern, NamePattern, WEB_PORTS};
use super::request::{PolicyRequest, RequestContent};
use super::rule::{Fit, PolicyRule};
use super::verdict::{Denial, PolicyLine, PolicyVerdict};

/// The ports of SSH, mail, LDAP and rsync. All are below 1024, where programs in a sandbox cannot listen.
const USUAL_PORTS: [u16; 11] = [22, 25, 110, 143, 389, 465, 587, 636, 873, 993, 995];

/// Which names a sandbox may reach. The default policy denies everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub(crate) mode: PolicyMode,
    line: Arc<PolicyLine>,
    /// Only an allowlist uses them.
    pub(crate) allowed: Vec<PolicyRule>,
    /// Every mode uses them.
    pub(crate) denied: Vec<PolicyRule>,
    inspected: Vec<HostPattern>,
}

/// What a policy does with a name that no line denies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyMode {
    /// Deny it unless a line allows it.
    Allowlist,
    /// Deny it.
    #[default]
    Deny,
    /// Allow it.
    AllowAll,
    /// Allow it and log it, so that an allowlist can be created from the log.
    Record,
}

impl PolicyMode {
    /// The name used in `sandbox.network.policy`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allowlist => "allowlist",
            Self::AllowAll => "allow-all",
            Self::Record => "record",
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::new(PolicyMode::default())
    }
}

impl Policy {
    /// Creates a policy that denies everything.
    #[must_use]
    pub fn deny() -> Self {
        Self::new(PolicyMode::Deny)
    }

    /// Creates a policy that allows what these rules allow.
    #[must_use]
    pub fn allowlist(allowed: impl IntoIterator<Item = PolicyRule>) -> Self {
        Self::new(PolicyMode::Allowlist).allowing(allowed)
    }

    /// Creates a policy that allows everything.
    #[must_use]
    pub fn allow_all() -> Self {
        Self::new(PolicyMode::AllowAll)
    }

    /// Creates a policy that allows and logs everything.
    #[must_use]
    pub fn record() -> Self {
        Self::new(PolicyMode::Record)
    }

    /// Creates a policy without rules.
    #[must_use]
    pub fn new(mode: PolicyMode) -> Self {
        Self {
            mode,
            line: Arc::new(PolicyLine {
                text: format!("policy = \"{}\"", mode.name()),
                place: String::new(),
            }),
            allowed: Vec::new(),
            denied: Vec::new(),
            inspected: Vec::new(),
        }
    }

    /// What it does with names that no rule is about.
    #[must_use]
    pub fn mode(&self) -> PolicyMode {
        self.mode
    }

    /// Sets the place where the mode is configured, for example `ralph.toml:2:10`.
    #[must_use]
    pub fn chosen_at(mut self, place: &str) -> Self {
        place.clone_into(&mut Arc::make_mut(&mut self.line).place);
        self
    }

    /// Adds rules that allow. Only an allowlist uses them.
    #[must_use]
    pub fn allowing(mut self, rules: impl IntoIterator<Item = PolicyRule>) -> Self {
        self.allowed.extend(rules);
        self
    }

    /// Adds rules that deny. Every mode uses them, and they take precedence over rules that allow.
    #[must_use]
    pub fn denying(mut self, rules: impl IntoIterator<Item = PolicyRule>) -> Self {
        self.denied.extend(rules);
        self
    }

    /// Adds hosts whose TLS is inspected, so that rules with methods and paths apply to it. This allows nothing by itself.
    /// A pattern without a port covers every port.
    #[must_use]
    pub fn inspecting(mut self, hosts: impl IntoIterator<Item = HostPattern>) -> Self {
        self.inspected.extend(hosts);
        self
    }

    /// Whether TLS to this host is inspected.
    #[must_use]
    pub fn inspects(&self, name: &HostName, port: u16) -> bool {
        self.inspected.iter().any(|hosts| hosts.covers_at(name, port))
    }

    /// Whether TLS to any host is inspected, so that the gateway needs a certificate authority.
    #[must_use]
    pub fn inspects_any(&self) -> bool {
        !self.inspected.is_empty()
    }

    /// The policy as text, without the places of its lines. Equal for two policies with the same mode and rules.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let line = |word: &'static str| move |rule: &PolicyRule| format!("{word} {}", rule.line.text);
        let mode = std::iter::once(self.mode.name().to_owned());
        let denied = self.denied.iter().map(line("deny"));
        let allowed = self.allowed.iter().map(line("allow"));
        let inspected = self.inspected.iter().map(|hosts| format!("inspect {hosts}"));
        mode.chain(denied).chain(allowed).chain(inspected).collect()
    }

    /// Whether the policy restricts anything, so that a provider has to enforce it.
    #[must_use]
    pub fn restricts(&self) -> bool {
        match self.mode {
            PolicyMode::Deny | PolicyMode::Allowlist => true,
            // An inspected request must be for the host of its connection.
            PolicyMode::AllowAll | PolicyMode::Record => !self.denied.is_empty() || self.inspects_any(),
        }
    }

    /// The ports that the gateway listens on: those of the web and of the rules, and a few common ones if every port is
    /// allowed.
    #[must_use]
    pub fn ports(&self) -> BTreeSet<u16> {
        let named = self.allowed.iter().filter_map(|rule| rule.pattern.port);
        let usual = match self.mode {
            PolicyMode::Deny | PolicyMode::Allowlist => &[][..],
            PolicyMode::AllowAll | PolicyMode::Record => &USUAL_PORTS,
        };
        named.chain(WEB_PORTS).chain(usual.iter().copied()).collect()
    }

    /// Why a rule that is added would have no effect, for people; `None` if it would have one.
    #[must_use]
    pub fn objection_to(&self, rule: &PolicyRule) -> Option<String> {
        match self.mode {
            PolicyMode::Deny => {
                return Some(format!(
                    "{} denies everything; only an allowlist can be extended",
                    self.line
                ));
            }
            PolicyMode::AllowAll | PolicyMode::Record => {
                return Some(format!(
                    "{} allows every host already, except for denied ones",
                    self.line
                ));
            }
            PolicyMode::Allowlist => {}
        }
        let NamePattern::Exactly(name) = &rule.pattern.names else {
            return None;
        };
        let ports = rule.pattern.port.map_or(WEB_PORTS.to_vec(), |port| vec![port]);
        let denies = |denied: &&PolicyRule| {
            let mut ports = ports.iter();
            ports.all(|port| denied.denies(name, *port, &RequestContent::Opaque) == Fit::Yes)
        };
        let winner = self.denied.iter().find(denies)?;
        Some(format!("{name} is denied by {}", winner.line))
    }

    /// Decides whether a request may pass.
    pub fn judge(&self, request: &PolicyRequest) -> PolicyVerdict {
        match &request.host {
            RequestHost::Name(name) => self.judge_named(name, request.port, &request.content),
            RequestHost::Address(_) => self.judge_mode(|| Err(Denial::BareAddress)),
        }
    }

    /// Decides whether a name resolves: whether any request to it could pass.
    pub fn judge_name(&self, name: &HostName) -> PolicyVerdict {
        if let Some(rule) = self.denied.iter().find(|rule| rule.denies_all_of(name)) {
            return Err(Denial::Line(rule.line.clone()));
        }
        self.judge_mode(|| {
            let covering = self.allowed.iter().find(|rule| rule.pattern.covers(name));
            covering.map(|rule| rule.line.clone()).ok_or(Denial::NotListed)
        })
    }

    fn judge_named(&self, name: &HostName, port: u16, content: &RequestContent) -> PolicyVerdict {
        for rule in &self.denied {
            match rule.denies(name, port, content) {
                Fit::No => {}
                Fit::NotInspected => return Err(Denial::NotInspected(rule.line.clone())),
                Fit::Yes => return Err(Denial::Line(rule.line.clone())),
            }
        }
        self.judge_mode(|| self.allowing_line(name, port, content))
    }

    fn judge_mode(&self, listed: impl FnOnce() -> PolicyVerdict) -> PolicyVerdict {
        match self.mode {
            PolicyMode::Deny => Err(Denial::Mode(self.line.clone())),
            PolicyMode::AllowAll | PolicyMode::Record => Ok(self.line.clone()),
            PolicyMode::Allowlist => listed(),
        }
    }

    fn allowing_line(&self, name: &HostName, port: u16, content: &RequestContent) -> PolicyVerdict {
        let mut denial = Denial::NotListed;
        for rule in &self.allowed {
            match rule.allows(name, port, content) {
                Fit::Yes => return Ok(rule.line.clone()),
                Fit::NotInspected => denial = Denial::NotInspected(rule.line.clone()),
                Fit::No if rule.pattern.covers(name) => {
                    match (near_miss(rule, name, port, content), &denial) {
                        (miss, Denial::NotListed) | (miss @ Denial::Request { .. }, Denial::Port { .. }) => {
                            denial = miss;
                        }
                        _ => {}
                    }
                }
                Fit::No => {}
            }
        }
        Err(denial)
    }
}

/// Why a rule for the host does not allow the request.
fn near_miss(rule: &PolicyRule, name: &HostName, port: u16, content: &RequestContent) -> Denial {
    let line = rule.line.clone();
    match rule.allows(name, port, &RequestContent::Opaque) {
        Fit::No => Denial::Port { port, line },
        Fit::NotInspected | Fit::Yes => Denial::Request {
            wanted: PolicyRule::narrowest(name, port, content),
            line,
        },
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn rules(texts: &[&str]) -> Vec<PolicyRule> {
        texts
            .iter()
            .enumerate()
            .map(|(index, text)| {
                PolicyRule::parse(text)
                    .unwrap()
                    .at(&format!("ralph.toml:{}", index + 1))
            })
            .collect()
    }

    #[track_caller]
    fn check(policy: &Policy, target: &str, expected: &str) {
        let (host, port) = target.rsplit_once(':').unwrap();
        let request = PolicyRequest::opaque(host.parse().unwrap(), port.parse().unwrap());
        let actual = match policy.judge(&request) {
            Ok(line) => format!("allowed by {line}"),
            Err(denial) => denial.to_string(),
        };
        assert_eq!(actual, expected, "{target}");
    }

    #[rstest]
    #[case("github.com:443", "allowed by `github.com` (ralph.toml:1)")]
    #[case("github.com:80", "allowed by `github.com` (ralph.toml:1)")]
    #[case(
        "github.com:22",
        "port 22 not in policy; `github.com` (ralph.toml:1) does not cover it"
    )]
    #[case("api.github.com:443", "host not in policy")]
    #[case("db.example:5432", "allowed by `db.example:5432` (ralph.toml:2)")]
    #[case(
        "db.example:443",
        "port 443 not in policy; `db.example:5432` (ralph.toml:2) does not cover it"
    )]
    #[case(
        "cdn.example:443",
        "`GET cdn.example/a/*` (ralph.toml:3) matches on method or path, and this connection is not inspected"
    )]
    #[case("93.184.216.34:443", "the policy allows host names, not IP addresses")]
    #[case("[2606:2800:220:1::1]:443", "the policy allows host names, not IP addresses")]
    fn an_allowlist_names_the_line_that_decided(#[case] target: &str, #[case] expected: &str) {
        let policy = Policy::allowlist(rules(&["github.com", "db.example:5432", "GET cdn.example/a/*"]));
        check(&policy, target, expected);
    }

    #[rstest]
    #[case("POST /a/b?c=d", 443, "POST cdn.example/a/b")]
    #[case("GET /b", 80, "GET cdn.example/b")]
    #[case("GET /b", 8443, "GET cdn.example:8443/b")]
    #[case("POST /a/../b", 443, "POST cdn.example")]
    #[case("post /a/b", 443, "cdn.example")]
    fn a_denied_request_to_a_listed_host_names_the_line_that_it_needs(
        #[case] asked: &str,
        #[case] port: u16,
        #[case] expected: &str,
    ) {
        let lines = [
            "cdn.example:22",
            "GET cdn.example/a/*",
            "GET cdn.example:8443/a/*",
        ];
        let (method, path) = asked.split_once(' ').unwrap();
        let request = PolicyRequest {
            host: "cdn.example".parse().unwrap(),
            port,
            content: RequestContent::http(method, path),
        };
        let policy = Policy::allowlist(rules(&lines));
        let Err(Denial::Request { wanted, .. }) = policy.judge(&request) else {
            panic!("{:?}", policy.judge(&request));
        };
        assert_eq!(wanted, expected);
        let wider = policy.allowing([PolicyRule::parse(&wanted).unwrap()]);
        assert!(wider.judge(&request).is_ok());
    }

    #[rstest]
    #[case("good.example:443", "allowed by `policy = \"allow-all\"`")]
    #[case("bad.example:443", "denied by `bad.example` (ralph.toml:1)")]
    #[case("bad.example:8443", "denied by `bad.example` (ralph.toml:1)")]
    #[case("half.example:25", "denied by `half.example:25` (ralph.toml:2)")]
    #[case("half.example:443", "allowed by `policy = \"allow-all\"`")]
    #[case(
        "paths.example:443",
        "`paths.example/secret/*` (ralph.toml:3) matches on method or path, and this connection is not inspected"
    )]
    fn a_denying_line_wins(#[case] target: &str, #[case] expected: &str) {
        let denied = rules(&["bad.example", "half.example:25", "paths.example/secret/*"]);
        check(&Policy::allow_all().denying(denied), target, expected);
    }

    #[rstest]
    #[case(Policy::default(), "denied by `policy = \"deny\"`")]
    #[case(Policy::deny().allowing(rules(&["a.example"])), "denied by `policy = \"deny\"`")]
    #[case(Policy::new(PolicyMode::Allowlist), "host not in policy")]
    #[case(Policy::allow_all().chosen_at("x:1"), "allowed by `policy = \"allow-all\"` (x:1)")]
    #[case(Policy::record(), "allowed by `policy = \"record\"`")]
    fn an_incomplete_policy_denies(#[case] policy: Policy, #[case] expected: &str) {
        check(&policy, "a.example:443", expected);
    }

    #[rstest]
    #[case(Policy::deny(), "a.example", "`policy = \"deny\"` denies everything")]
    #[case(
        Policy::record(),
        "a.example",
        "`policy = \"record\"` allows every host already"
    )]
    #[case(Policy::new(PolicyMode::Allowlist), "a.example", "")]
    #[case(
        Policy::allowlist([]).denying(rules(&["a.example"])),
        "a.example:22",
        "a.example is denied by `a.example` (ralph.toml:1)"
    )]
    #[case(Policy::allowlist([]).denying(rules(&["a.example:22"])), "a.example", "")]
    #[case(Policy::allowlist([]).denying(rules(&["a.example/x"])), "a.example", "")]
    fn a_rule_without_effect_is_not_added(
        #[case] policy: Policy,
        #[case] rule: &str,
        #[case] objection: &str,
    ) {
        let found = policy.objection_to(&PolicyRule::parse(rule).unwrap());
        assert_eq!(found.is_some(), !objection.is_empty(), "{found:?}");
        assert!(found.unwrap_or_default().contains(objection));
    }

    #[rstest]
    #[case("github.com", true)]
    #[case("db.example", true)]
    #[case("paths.example", true)]
    #[case("other.example", false)]
    #[case("bad.example", false)]
    #[case("half.example", true)]
    fn a_name_resolves_when_some_request_could_pass(#[case] name: &str, #[case] known: bool) {
        let allowed = [
            "github.com",
            "db.example:1",
            "GET paths.example/a",
            "bad.example",
            "half.example",
        ];
        let policy = Policy::allowlist(rules(&allowed)).denying(rules(&["bad.example", "half.example/x"]));
        assert_eq!(policy.judge_name(&name.parse().unwrap()).is_ok(), known);
    }

    #[rstest]
    #[case("a.example:443", true)]
    #[case("a.example:8443", true)]
    #[case("x.b.example:8443", true)]
    #[case("x.b.example:443", false)]
    #[case("other.example:443", false)]
    fn the_patterns_decide_what_is_inspected(#[case] target: &str, #[case] inspected: bool) {
        let hosts = ["a.example", "*.b.example:8443"].map(|text| HostPattern::parse(text).unwrap());
        let policy = Policy::deny().inspecting(hosts);
        let (name, port) = target.split_once(':').unwrap();
        assert_eq!(
            policy.inspects(&name.parse().unwrap(), port.parse().unwrap()),
            inspected
        );
        assert_eq!(
            policy.lines(),
            ["deny", "inspect a.example", "inspect *.b.example:8443"]
        );
    }

    #[test]
    fn the_ports_are_those_of_the_web_and_of_the_lines() {
        let policy = Policy::allowlist(rules(&["a.example", "b.example:22", "c.example:443"]));
        assert_eq!(policy.ports().into_iter().collect::<Vec<_>>(), [22, 80, 443]);
        let record = Policy::record().allowing(rules(&["db.example:5432"]));
        let open: Vec<u16> = record.ports().into_iter().collect();
        assert!(
            [22, 80, 443, 587, 5432].iter().all(|port| open.contains(port)),
            "{open:?}"
        );
        assert!(USUAL_PORTS.iter().all(|port| *port < 1024));
    }
}
