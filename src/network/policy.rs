//! Which names a sandbox may reach.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::host::{Host, HostName};
use super::pattern::{HostPattern, WEB_PORTS};
use super::request::{Request, Seen};
use super::rule::{Fit, Rule};
use super::verdict::{Denial, Line, Verdict};

/// The ports of SSH, mail, directories and rsync. All are below 1024, where nothing of a sandbox's own can listen.
const USUAL_PORTS: [u16; 11] = [22, 25, 110, 143, 389, 465, 587, 636, 873, 993, 995];

/// Which names a sandbox may reach. A policy of which nothing is said denies everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    mode: Mode,
    line: Arc<Line>,
    allowed: Vec<Rule>,
    denied: Vec<Rule>,
    inspected: Vec<HostPattern>,
}

/// What happens to a name that no line denies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It is denied.
    #[default]
    Deny,
    /// It is denied unless a line allows it.
    Allowlist,
    /// It is allowed.
    AllowAll,
    /// It is allowed and written down, so that an allowlist can be made of what was used.
    Record,
}

impl Mode {
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
        Self::new(Mode::default())
    }
}

impl Policy {
    /// Nothing may be reached.
    #[must_use]
    pub fn deny() -> Self {
        Self::new(Mode::Deny)
    }

    /// What these lines allow may be reached.
    #[must_use]
    pub fn allowlist(allowed: impl IntoIterator<Item = Rule>) -> Self {
        Self::new(Mode::Allowlist).allowing(allowed)
    }

    /// Everything may be reached.
    #[must_use]
    pub fn allow_all() -> Self {
        Self::new(Mode::AllowAll)
    }

    /// Everything may be reached, and is written down.
    #[must_use]
    pub fn record() -> Self {
        Self::new(Mode::Record)
    }

    /// A policy without lines.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            line: Arc::new(Line::new(&format!("policy = \"{}\"", mode.name()), "")),
            allowed: Vec::new(),
            denied: Vec::new(),
            inspected: Vec::new(),
        }
    }

    /// The policy, with where its mode was chosen, for example `ralph.toml:2:10`.
    #[must_use]
    pub fn chosen_at(mut self, place: &str) -> Self {
        self.line = Arc::new(Line::new(self.line.text(), place));
        self
    }

    /// The policy with more lines that allow. They count for an allowlist only.
    #[must_use]
    pub fn allowing(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.allowed.extend(rules);
        self
    }

    /// The policy with more lines that deny. They count for every mode and win over those that allow.
    #[must_use]
    pub fn denying(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.denied.extend(rules);
        self
    }

    /// The policy with more hosts whose TLS is opened, so that lines with methods and paths hold in it too. They allow
    /// nothing. Without a port a pattern means every port.
    #[must_use]
    pub fn inspecting(mut self, hosts: impl IntoIterator<Item = HostPattern>) -> Self {
        self.inspected.extend(hosts);
        self
    }

    /// Whether TLS to this host is opened.
    #[must_use]
    pub fn inspects(&self, name: &HostName, port: u16) -> bool {
        self.inspected.iter().any(|hosts| hosts.covers_at(name, port))
    }

    /// Whether TLS to any host is opened, so that whoever serves the policy needs an authority.
    #[must_use]
    pub fn inspects_any(&self) -> bool {
        !self.inspected.is_empty()
    }

    /// What happens to a name that no line denies.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The lines that allow. They count for an allowlist only.
    #[must_use]
    pub fn allowed(&self) -> &[Rule] {
        &self.allowed
    }

    /// The lines that deny, whatever the mode.
    #[must_use]
    pub fn denied(&self) -> &[Rule] {
        &self.denied
    }

    /// What it says, wherever its lines stand: the same for two policies that judge alike line by line.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let line = |word: &'static str| move |rule: &Rule| format!("{word} {}", rule.line().text());
        let mode = std::iter::once(self.mode.name().to_owned());
        let denied = self.denied.iter().map(line("deny"));
        let allowed = self.allowed.iter().map(line("allow"));
        let inspected = self.inspected.iter().map(|hosts| format!("inspect {hosts}"));
        mode.chain(denied).chain(allowed).chain(inspected).collect()
    }

    /// Whether the policy restricts anything, so that a provider without enforcement must say so.
    #[must_use]
    pub fn restricts(&self) -> bool {
        match self.mode {
            Mode::Deny | Mode::Allowlist => true,
            // What is inspected must be for the host that it says.
            Mode::AllowAll | Mode::Record => !self.denied.is_empty() || self.inspects_any(),
        }
    }

    /// The ports that something may be reached on, as far as they are known: those of the web and those of the lines,
    /// and where every port is allowed the usual ones.
    #[must_use]
    pub fn ports(&self) -> BTreeSet<u16> {
        let named = self.allowed.iter().filter_map(|rule| rule.pattern().port);
        let usual = match self.mode {
            Mode::Deny | Mode::Allowlist => &[][..],
            Mode::AllowAll | Mode::Record => &USUAL_PORTS,
        };
        named.chain(WEB_PORTS).chain(usual.iter().copied()).collect()
    }

    /// Says whether a request may pass.
    #[must_use]
    pub fn judge(&self, request: &Request) -> Verdict {
        match &request.host {
            Host::Name(name) => self.judge_named(name, request.port, &request.seen),
            Host::Address(_) => match self.mode {
                Mode::AllowAll | Mode::Record => Verdict::Allowed(self.line.clone()),
                Mode::Allowlist => Verdict::Denied(Denial::BareAddress),
                Mode::Deny => Verdict::Denied(Denial::Mode(self.line.clone())),
            },
        }
    }

    /// Says whether a name may be known at all: whether some request to it could pass.
    #[must_use]
    pub fn judge_name(&self, name: &HostName) -> Verdict {
        if let Some(rule) = self.denied.iter().find(|rule| rule.is_about_all_of(name)) {
            return Verdict::Denied(Denial::Line(rule.line().clone()));
        }
        self.judge_mode(|| {
            let covering = self.allowed.iter().find(|rule| rule.pattern().covers(name));
            covering.map(|rule| rule.line().clone()).ok_or(Denial::NotListed)
        })
    }

    fn judge_named(&self, name: &HostName, port: u16, seen: &Seen) -> Verdict {
        for rule in &self.denied {
            match rule.denies(name, port, seen) {
                Fit::No => {}
                Fit::Unseen => return Verdict::Denied(Denial::Unseen(rule.line().clone())),
                Fit::Yes => return Verdict::Denied(Denial::Line(rule.line().clone())),
            }
        }
        self.judge_mode(|| self.allowing_line(name, port, seen))
    }

    fn judge_mode(&self, listed: impl FnOnce() -> Result<Arc<Line>, Denial>) -> Verdict {
        match self.mode {
            Mode::Deny => Verdict::Denied(Denial::Mode(self.line.clone())),
            Mode::AllowAll | Mode::Record => Verdict::Allowed(self.line.clone()),
            Mode::Allowlist => listed().map_or_else(Verdict::Denied, Verdict::Allowed),
        }
    }

    fn allowing_line(&self, name: &HostName, port: u16, seen: &Seen) -> Result<Arc<Line>, Denial> {
        let mut denial = Denial::NotListed;
        for rule in &self.allowed {
            match rule.allows(name, port, seen) {
                Fit::Yes => return Ok(rule.line().clone()),
                Fit::Unseen => denial = Denial::Unseen(rule.line().clone()),
                Fit::No if rule.pattern().covers(name) => {
                    match (near_miss(rule, name, port, seen), &denial) {
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

/// Why a line about the host does not let this through.
fn near_miss(rule: &Rule, name: &HostName, port: u16, seen: &Seen) -> Denial {
    let line = rule.line().clone();
    match rule.allows(name, port, &Seen::Nothing) {
        Fit::No => Denial::Port { port, line },
        Fit::Unseen | Fit::Yes => Denial::Request {
            wanted: Rule::narrowest(name, port, seen),
            line,
        },
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts
            .iter()
            .enumerate()
            .map(|(index, text)| {
                Rule::parse(text)
                    .unwrap()
                    .at(&format!("ralph.toml:{}", index + 1))
            })
            .collect()
    }

    #[track_caller]
    fn check(policy: &Policy, target: &str, expected: &str) {
        let (host, port) = target.rsplit_once(':').unwrap();
        let request = Request::opaque(host.parse().unwrap(), port.parse().unwrap());
        let said = match policy.judge(&request) {
            Verdict::Allowed(line) => format!("allowed by {line}"),
            Verdict::Denied(denial) => denial.to_string(),
        };
        assert_eq!(said, expected, "{target}");
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
        "`GET cdn.example/a/*` (ralph.toml:3) needs to see the request, and this connection is not inspected"
    )]
    #[case("93.184.216.34:443", "an address is not in the policy; only names are")]
    #[case("[2606:2800:220:1::1]:443", "an address is not in the policy; only names are")]
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
    fn a_request_to_a_host_that_is_listed_is_told_the_line_that_it_needs(
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
        let request = Request {
            host: "cdn.example".parse().unwrap(),
            port,
            seen: Seen::http(method, path),
        };
        let policy = Policy::allowlist(rules(&lines));
        let Verdict::Denied(Denial::Request { wanted, .. }) = policy.judge(&request) else {
            panic!("{:?}", policy.judge(&request));
        };
        assert_eq!(wanted, expected);
        let wider = policy.allowing([Rule::parse(&wanted).unwrap()]);
        assert!(wider.judge(&request).is_allowed());
    }

    #[rstest]
    #[case("good.example:443", "allowed by `policy = \"allow-all\"`")]
    #[case("bad.example:443", "denied by `bad.example` (ralph.toml:1)")]
    #[case("bad.example:8443", "denied by `bad.example` (ralph.toml:1)")]
    #[case("half.example:25", "denied by `half.example:25` (ralph.toml:2)")]
    #[case("half.example:443", "allowed by `policy = \"allow-all\"`")]
    #[case(
        "paths.example:443",
        "`paths.example/secret/*` (ralph.toml:3) needs to see the request, and this connection is not inspected"
    )]
    fn a_denying_line_wins(#[case] target: &str, #[case] expected: &str) {
        let denied = rules(&["bad.example", "half.example:25", "paths.example/secret/*"]);
        check(&Policy::allow_all().denying(denied), target, expected);
    }

    #[rstest]
    #[case(Policy::default(), "denied by `policy = \"deny\"`")]
    #[case(Policy::deny().allowing(rules(&["a.example"])), "denied by `policy = \"deny\"`")]
    #[case(Policy::new(Mode::Allowlist), "host not in policy")]
    #[case(Policy::allow_all().chosen_at("x:1"), "allowed by `policy = \"allow-all\"` (x:1)")]
    #[case(Policy::record(), "allowed by `policy = \"record\"`")]
    fn a_policy_that_is_half_written_denies(#[case] policy: Policy, #[case] expected: &str) {
        check(&policy, "a.example:443", expected);
    }

    #[rstest]
    #[case("github.com", true)]
    #[case("db.example", true)]
    #[case("paths.example", true)]
    #[case("other.example", false)]
    #[case("bad.example", false)]
    #[case("half.example", true)]
    fn a_name_is_known_when_some_request_could_pass(#[case] name: &str, #[case] known: bool) {
        let allowed = [
            "github.com",
            "db.example:1",
            "GET paths.example/a",
            "bad.example",
            "half.example",
        ];
        let policy = Policy::allowlist(rules(&allowed)).denying(rules(&["bad.example", "half.example/x"]));
        assert_eq!(policy.judge_name(&name.parse().unwrap()).is_allowed(), known);
    }

    #[rstest]
    #[case("a.example:443", true)]
    #[case("a.example:8443", true)]
    #[case("x.b.example:8443", true)]
    #[case("x.b.example:443", false)]
    #[case("other.example:443", false)]
    fn what_is_inspected_is_what_the_patterns_cover(#[case] target: &str, #[case] inspected: bool) {
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
