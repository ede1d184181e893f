//! How often what was asked for, and what an allowlist would have to say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::{Needs, Outcome, Protocol, Record};

/// Counts of what was asked for, by host, port and what it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    counts: BTreeMap<Key, u64>,
    /// What came when there was no room for further hosts.
    others: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    host: String,
    port: Option<u16>,
    verdict: Outcome,
    needs: Option<Needs>,
}

/// How often something was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// The name or address.
    pub host: String,
    /// The port, where it is known.
    pub port: Option<u16>,
    /// What came of it.
    pub verdict: Outcome,
    /// What it needs in order to pass, where that is not a line with its host and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<Needs>,
    /// How often.
    pub count: u64,
}

impl Asked {
    /// The line of an allowlist that lets it through; `None` where no line does.
    #[must_use]
    pub fn suggestion(&self) -> Option<String> {
        match &self.needs {
            None | Some(Needs::Allowlist | Needs::Line(_)) => Some(self.subject()),
            Some(Needs::Inspection | Needs::Without(_) | Needs::Address(_) | Needs::Never) => None,
        }
    }

    /// What was asked for, as a line would say it.
    fn subject(&self) -> String {
        match (&self.needs, self.port) {
            (Some(Needs::Line(line)), _) => line.clone(),
            (_, None | Some(80 | 443)) => self.host.clone(),
            (_, Some(port)) => format!("{}:{port}", self.host),
        }
    }

    /// What would let it through.
    fn advice(&self) -> String {
        let to = |change: String| format!("to allow, {change}");
        match &self.needs {
            None | Some(Needs::Line(_)) => {
                to(format!("add \"{}\" to sandbox.network.allowed", self.subject()))
            }
            Some(Needs::Allowlist) => to(format!(
                "add \"{}\" to sandbox.network.allowed, with policy = \"allowlist\"",
                self.subject()
            )),
            Some(Needs::Inspection) => to(format!(
                "add \"{}\" to sandbox.network.inspect: a line decides by the request, which cannot be seen",
                self.host
            )),
            Some(Needs::Without(line)) => to(format!("remove {line} from sandbox.network.denied")),
            Some(Needs::Address(address)) => to(format!(
                "add \"{address}\" to sandbox.network.dangerously_allow_addresses"
            )),
            Some(Needs::Never) => "no line allows that; network.jsonl says what was wrong".to_owned(),
        }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, count) = (self.subject(), self.count);
        match self.verdict {
            Outcome::Allowed => write!(f, "reached {subject} {count}x"),
            Outcome::Denied => write!(f, "blocked {subject} {count}x: {}", self.advice()),
        }
    }
}

impl Tally {
    /// The most hosts that are told apart, so that a sandbox cannot fill the host's memory with names.
    const MOST_HOSTS: usize = 4096;

    /// Counts one more.
    pub fn add(&mut self, record: &Record) {
        let Some(host) = record.host.clone() else {
            return;
        };
        let key = Key {
            host,
            port: match record.protocol {
                Protocol::Dns => None,
                _ => record.port,
            },
            verdict: record.verdict,
            needs: record.needs.clone(),
        };
        if self.counts.len() < Self::MOST_HOSTS || self.counts.contains_key(&key) {
            *self.counts.entry(key).or_default() += 1;
        } else {
            self.others += 1;
        }
    }

    /// What was denied, most frequent first. A lookup stands for a host only when nothing else does.
    pub fn blocked(&self) -> impl Iterator<Item = Asked> {
        self.asked(Outcome::Denied)
    }

    /// What was allowed and used, most frequent first.
    pub fn reached(&self) -> impl Iterator<Item = Asked> {
        self.asked(Outcome::Allowed).filter(|asked| asked.port.is_some())
    }

    /// How often something was asked for that is not listed, because there were too many hosts.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.others
    }

    fn asked(&self, verdict: Outcome) -> std::vec::IntoIter<Asked> {
        let own = || self.counts.iter().filter(move |(key, _)| key.verdict == verdict);
        let connected: BTreeSet<&str> = own()
            .filter(|(key, _)| key.port.is_some())
            .map(|(key, _)| key.host.as_str())
            .collect();
        let mut asked: Vec<Asked> = own()
            .filter(|(key, _)| key.port.is_some() || !connected.contains(key.host.as_str()))
            .map(|(key, count)| Asked {
                host: key.host.clone(),
                port: key.port,
                verdict,
                needs: key.needs.clone(),
                count: *count,
            })
            .collect();
        asked.sort_by_key(|asked| std::cmp::Reverse(asked.count));
        asked.into_iter()
    }
}

impl<'a> FromIterator<&'a Record> for Tally {
    fn from_iter<I: IntoIterator<Item = &'a Record>>(records: I) -> Self {
        let mut tally = Self::default();
        for record in records {
            tally.add(record);
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use rstest::rstest;

    use super::*;

    fn record(protocol: Protocol, host: &str, port: Option<u16>, verdict: Outcome) -> Record {
        Record {
            at: Timestamp::UNIX_EPOCH,
            protocol,
            host: Some(host.to_owned()),
            port,
            verdict,
            rule: String::new(),
            needs: None,
            sent: 1,
            received: 2,
        }
    }

    #[test]
    fn what_was_blocked_is_told_with_the_line_that_would_allow_it() {
        let mut tally = Tally::default();
        for _ in 0..14 {
            tally.add(&record(Protocol::Dns, "packages.example", None, Outcome::Denied));
        }
        tally.add(&record(Protocol::Tcp, "db.example", Some(5432), Outcome::Denied));
        tally.add(&record(Protocol::Dns, "db.example", None, Outcome::Denied));
        tally.add(&record(
            Protocol::Tls,
            "good.example",
            Some(443),
            Outcome::Allowed,
        ));
        tally.add(&record(Protocol::Dns, "unused.example", None, Outcome::Allowed));
        let blocked: Vec<String> = tally.blocked().map(|asked| asked.to_string()).collect();
        assert_eq!(
            blocked,
            [
                "blocked packages.example 14x: to allow, add \"packages.example\" to sandbox.network.allowed",
                "blocked db.example:5432 1x: to allow, add \"db.example:5432\" to sandbox.network.allowed",
            ]
        );
        let reached: Vec<String> = tally.reached().map(|asked| asked.to_string()).collect();
        assert_eq!(reached, ["reached good.example 1x"]);
    }

    #[rstest]
    #[case(Needs::Line("POST a.example/x".into()), "blocked POST a.example/x 1x: to allow, add \"POST a.example/x\" to sandbox.network.allowed", Some("POST a.example/x"))]
    #[case(
        Needs::Allowlist,
        "blocked a.example:22 1x: to allow, add \"a.example:22\" to sandbox.network.allowed, with policy = \"allowlist\"",
        Some("a.example:22")
    )]
    #[case(
        Needs::Inspection,
        "blocked a.example:22 1x: to allow, add \"a.example\" to sandbox.network.inspect: a line decides by the request, which cannot be seen",
        None
    )]
    #[case(Needs::Without("`a.example` (ralph.toml:4:11)".into()), "blocked a.example:22 1x: to allow, remove `a.example` (ralph.toml:4:11) from sandbox.network.denied", None)]
    #[case(Needs::Address([10, 1, 2, 3].into()), "blocked a.example:22 1x: to allow, add \"10.1.2.3\" to sandbox.network.dangerously_allow_addresses", None)]
    #[case(
        Needs::Never,
        "blocked a.example:22 1x: no line allows that; network.jsonl says what was wrong",
        None
    )]
    fn what_else_was_blocked_is_told_with_what_it_needs(
        #[case] needs: Needs,
        #[case] told: &str,
        #[case] line: Option<&str>,
    ) {
        let denied = Record {
            needs: Some(needs),
            ..record(Protocol::Tcp, "a.example", Some(22), Outcome::Denied)
        };
        let asked = Tally::from_iter([&denied]).blocked().next().unwrap();
        assert_eq!(asked.to_string(), told);
        assert_eq!(asked.suggestion().as_deref(), line);
    }

    #[test]
    fn a_sandbox_cannot_fill_the_memory_with_names() {
        let mut tally = Tally::default();
        for index in 0..5000 {
            let host = format!("n{index}.example");
            tally.add(&record(Protocol::Dns, &host, None, Outcome::Denied));
        }
        assert_eq!(tally.blocked().count(), Tally::MOST_HOSTS);
        assert_eq!(tally.others(), 5000 - Tally::MOST_HOSTS as u64);
    }
}
