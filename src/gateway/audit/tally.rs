//! Counts requests, and suggests policy lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::{AuditProtocol, AuditRecord, AuditRemedy, AuditVerdict};

/// Counts of requests by host, port and remedy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditTally {
    counts: BTreeMap<AuditVerdict, BTreeMap<TallyKey, u64>>,
    /// Whether some requests were not recorded.
    pub is_incomplete: bool,
}

/// What is counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct TallyKey {
    /// The host name or address.
    pub host: String,
    /// The port, if known.
    pub port: Option<u16>,
    /// Whether it was allowed.
    pub verdict: AuditVerdict,
    /// What would allow it, when that is not a line with its host and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<AuditRemedy>,
}

/// The count of one kind of request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TallyEntry {
    /// The kind.
    #[serde(flatten)]
    pub key: TallyKey,
    /// The number of requests.
    pub count: u64,
}

impl TallyEntry {
    /// The line of an allowlist that would allow it; `None` when no line does.
    #[must_use]
    pub fn suggestion(&self) -> Option<String> {
        match &self.key.needs {
            None | Some(AuditRemedy::Allowlist | AuditRemedy::Line(_)) => Some(self.subject()),
            Some(
                AuditRemedy::Inspection
                | AuditRemedy::Without(_)
                | AuditRemedy::Address(_)
                | AuditRemedy::Never,
            ) => None,
        }
    }

    /// The request as a policy line.
    fn subject(&self) -> String {
        let TallyKey {
            host, port, needs, ..
        } = &self.key;
        match (needs, port) {
            (Some(AuditRemedy::Line(line)), _) => line.clone(),
            (_, None | Some(80 | 443)) => host.clone(),
            (_, Some(port)) => format!("{host}:{port}"),
        }
    }

    /// What would allow it.
    fn advice(&self) -> String {
        let to = |change: String| format!("to allow, {change}");
        match &self.key.needs {
            None | Some(AuditRemedy::Line(_)) => {
                to(format!("add \"{}\" to sandbox.network.allowed", self.subject()))
            }
            Some(AuditRemedy::Allowlist) => to(format!(
                "add \"{}\" to sandbox.network.allowed, with policy = \"allowlist\"",
                self.subject()
            )),
            Some(AuditRemedy::Inspection) => to(format!(
                "add \"{}\" to sandbox.network.inspect: a policy line depends on the request, which is encrypted",
                self.key.host
            )),
            Some(AuditRemedy::Without(line)) => to(format!("remove {line} from sandbox.network.denied")),
            Some(AuditRemedy::Address(address)) => to(format!(
                "add \"{address}\" to sandbox.network.dangerously_allow_addresses"
            )),
            Some(AuditRemedy::Never) => {
                "no policy line can allow it; see network.jsonl for the reason".to_owned()
            }
        }
    }
}

impl fmt::Display for TallyEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, count) = (self.subject(), self.count);
        match self.key.verdict {
            AuditVerdict::Allowed => write!(f, "reached {subject} {count}x"),
            AuditVerdict::Denied => write!(f, "blocked {subject} {count}x: {}", self.advice()),
        }
    }
}

impl AuditTally {
    /// The most kinds that are counted separately, of allowed and of denied requests each: a sandbox that asks for many
    /// denied names hides no allowed ones. It protects the memory of the host.
    const MAX_KINDS: usize = 4096;

    /// Counts a record.
    pub fn add(&mut self, record: &AuditRecord) {
        self.is_incomplete |= record.rule == AuditRecord::FULL;
        let Some(host) = record.host.clone() else {
            return;
        };
        let key = TallyKey {
            host,
            port: match record.protocol {
                AuditProtocol::Dns => None,
                _ => record.port,
            },
            verdict: record.verdict,
            needs: record.needs.clone(),
        };
        let counts = self.counts.entry(record.verdict).or_default();
        if counts.len() < Self::MAX_KINDS || counts.contains_key(&key) {
            *counts.entry(key).or_default() += record.count;
        }
    }

    /// Denied requests, most frequent first. Lookups are included only for hosts without other requests.
    pub fn blocked(&self) -> impl Iterator<Item = TallyEntry> {
        self.entries(AuditVerdict::Denied)
    }

    /// Allowed requests except for lookups, most frequent first.
    pub fn reached(&self) -> impl Iterator<Item = TallyEntry> {
        self.entries(AuditVerdict::Allowed)
            .filter(|entry| entry.key.port.is_some())
    }

    fn entries(&self, verdict: AuditVerdict) -> std::vec::IntoIter<TallyEntry> {
        let own = || self.counts.get(&verdict).into_iter().flatten();
        let connected: BTreeSet<&str> = own()
            .filter(|(key, _)| key.port.is_some())
            .map(|(key, _)| key.host.as_str())
            .collect();
        let mut entries: Vec<TallyEntry> = own()
            .filter(|(key, _)| key.port.is_some() || !connected.contains(key.host.as_str()))
            .map(|(key, count)| TallyEntry {
                key: key.clone(),
                count: *count,
            })
            .collect();
        entries.sort_by_key(|entries| std::cmp::Reverse(entries.count));
        entries.into_iter()
    }
}

impl<'a> FromIterator<&'a AuditRecord> for AuditTally {
    fn from_iter<I: IntoIterator<Item = &'a AuditRecord>>(records: I) -> Self {
        let mut tally = Self::default();
        for record in records {
            tally.add(record);
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn record(protocol: AuditProtocol, host: &str, port: Option<u16>, verdict: AuditVerdict) -> AuditRecord {
        AuditRecord {
            protocol,
            host: Some(host.to_owned()),
            port,
            verdict,
            rule: String::new(),
            needs: None,
            failed: None,
            sent: 1,
            received: 2,
            count: 1,
        }
    }

    #[test]
    fn a_blocked_request_is_shown_with_the_line_that_allows_it() {
        let mut tally = AuditTally::default();
        for _ in 0..14 {
            tally.add(&record(
                AuditProtocol::Dns,
                "packages.example",
                None,
                AuditVerdict::Denied,
            ));
        }
        tally.add(&record(
            AuditProtocol::Tcp,
            "db.example",
            Some(5432),
            AuditVerdict::Denied,
        ));
        tally.add(&record(
            AuditProtocol::Dns,
            "db.example",
            None,
            AuditVerdict::Denied,
        ));
        tally.add(&record(
            AuditProtocol::Tls,
            "good.example",
            Some(443),
            AuditVerdict::Allowed,
        ));
        tally.add(&record(
            AuditProtocol::Dns,
            "unused.example",
            None,
            AuditVerdict::Allowed,
        ));
        let blocked: Vec<String> = tally.blocked().map(|entry| entry.to_string()).collect();
        assert_eq!(
            blocked,
            [
                "blocked packages.example 14x: to allow, add \"packages.example\" to sandbox.network.allowed",
                "blocked db.example:5432 1x: to allow, add \"db.example:5432\" to sandbox.network.allowed",
            ]
        );
        let reached: Vec<String> = tally.reached().map(|entry| entry.to_string()).collect();
        assert_eq!(reached, ["reached good.example 1x"]);
    }

    #[rstest]
    #[case(AuditRemedy::Line("POST a.example/x".into()), "blocked POST a.example/x 1x: to allow, add \"POST a.example/x\" to sandbox.network.allowed", Some("POST a.example/x"))]
    #[case(
        AuditRemedy::Allowlist,
        "blocked a.example:22 1x: to allow, add \"a.example:22\" to sandbox.network.allowed, with policy = \"allowlist\"",
        Some("a.example:22")
    )]
    #[case(
        AuditRemedy::Inspection,
        "blocked a.example:22 1x: to allow, add \"a.example\" to sandbox.network.inspect: a policy line depends on the request, which is encrypted",
        None
    )]
    #[case(AuditRemedy::Without("`a.example` (ralph.toml:4:11)".into()), "blocked a.example:22 1x: to allow, remove `a.example` (ralph.toml:4:11) from sandbox.network.denied", None)]
    #[case(AuditRemedy::Address([10, 1, 2, 3].into()), "blocked a.example:22 1x: to allow, add \"10.1.2.3\" to sandbox.network.dangerously_allow_addresses", None)]
    #[case(
        AuditRemedy::Never,
        "blocked a.example:22 1x: no policy line can allow it; see network.jsonl for the reason",
        None
    )]
    fn a_blocked_request_is_shown_with_its_remedy(
        #[case] needs: AuditRemedy,
        #[case] shown: &str,
        #[case] line: Option<&str>,
    ) {
        let denied = AuditRecord {
            needs: Some(needs),
            ..record(AuditProtocol::Tcp, "a.example", Some(22), AuditVerdict::Denied)
        };
        let entry = AuditTally::from_iter([&denied]).blocked().next().unwrap();
        assert_eq!(entry.to_string(), shown);
        assert_eq!(entry.suggestion().as_deref(), line);
    }

    #[test]
    fn the_number_of_denied_hosts_is_limited_and_hides_no_allowed_one() {
        let mut tally = AuditTally::default();
        for index in 0..5000 {
            let host = format!("n{index}.example");
            tally.add(&record(AuditProtocol::Dns, &host, None, AuditVerdict::Denied));
        }
        tally.add(&record(
            AuditProtocol::Tls,
            "good.example",
            Some(443),
            AuditVerdict::Allowed,
        ));
        assert_eq!(tally.blocked().count(), AuditTally::MAX_KINDS);
        assert_eq!(tally.reached().count(), 1);
    }
}
