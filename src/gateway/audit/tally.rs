//! How often what was asked for, and what an allowlist would have to say.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{Outcome, Protocol, Record};

/// Counts of what was asked for, by host and port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    counts: BTreeMap<(String, Option<u16>, Outcome), u64>,
    /// What came when there was no room for further hosts.
    others: u64,
}

/// How often one host was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// The name or address.
    pub host: String,
    /// The port, where it is known.
    pub port: Option<u16>,
    /// What came of it.
    pub verdict: Outcome,
    /// How often.
    pub count: u64,
}

impl Asked {
    /// The line of an allowlist that would let it through.
    #[must_use]
    pub fn suggestion(&self) -> String {
        match self.port {
            None | Some(80 | 443) => self.host.clone(),
            Some(port) => format!("{}:{port}", self.host),
        }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.suggestion();
        match self.verdict {
            Outcome::Allowed => write!(f, "reached {line} {}x", self.count),
            Outcome::Denied => write!(
                f,
                "blocked {line} {}x: to allow, add \"{line}\" to sandbox.network.allowed",
                self.count
            ),
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
        let port = match record.protocol {
            Protocol::Dns => None,
            _ => record.port,
        };
        let key = (host, port, record.verdict);
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
        let connected = |host: &String| {
            let from = (host.clone(), Some(0), Outcome::Allowed);
            let to = (host.clone(), Some(u16::MAX), Outcome::Denied);
            let mut ports = self.counts.range(from..=to);
            ports.any(|((_, _, own), _)| *own == verdict)
        };
        let mut asked: Vec<Asked> = self
            .counts
            .iter()
            .filter(|((host, port, own), _)| *own == verdict && (port.is_some() || !connected(host)))
            .map(|((host, port, _), count)| Asked {
                host: host.clone(),
                port: *port,
                verdict,
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

    use super::*;

    fn record(protocol: Protocol, host: &str, port: Option<u16>, verdict: Outcome) -> Record {
        Record {
            at: Timestamp::UNIX_EPOCH,
            protocol,
            host: Some(host.to_owned()),
            port,
            verdict,
            rule: String::new(),
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
