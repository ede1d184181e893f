//! `host`, `*.host`, `**.host`, each with or without a port.

use std::fmt;

use super::host::HostName;
use super::rule::RuleError;

/// The ports of an allowed name that comes without one.
pub(super) const WEB_PORTS: [u16; 2] = [80, 443];

/// Which hosts a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    /// The names.
    pub names: Names,
    /// The port, where one is given.
    pub port: Option<u16>,
}

/// Which names a pattern is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// `host`: this one.
    Exactly(HostName),
    /// `*.host`: one label more, as in certificates; not the root.
    OneBelow(HostName),
    /// `**.host`: any number of labels more; not the root.
    AnyBelow(HostName),
}

impl HostPattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let (names, port) = match text.rsplit_once(':') {
            Some((names, port)) => (names, Some(parse_port(port)?)),
            None => (text, None),
        };
        Ok(Self {
            names: Names::parse(names)?,
            port,
        })
    }

    /// Whether the name is one of these.
    #[must_use]
    pub fn covers(&self, name: &HostName) -> bool {
        match &self.names {
            Names::Exactly(host) => name == host,
            Names::OneBelow(root) => name
                .split_first_label()
                .is_some_and(|(_, rest)| rest == root.as_str()),
            Names::AnyBelow(root) => name
                .as_str()
                .strip_suffix(root.as_str())
                .is_some_and(|labels| labels.len() > 1 && labels.ends_with('.')),
        }
    }

    /// Whether the name is one of these, and the port the one that is given, where one is.
    #[must_use]
    pub fn covers_at(&self, name: &HostName, port: u16) -> bool {
        self.covers(name) && self.port.is_none_or(|own| own == port)
    }
}

impl Names {
    fn parse(text: &str) -> Result<Self, RuleError> {
        let root = |name: &str| {
            let root = HostName::parse(name).map_err(RuleError::Host)?;
            match root.split_first_label() {
                Some(_) => Ok(root),
                None => Err(RuleError::TooWide(text.to_owned())),
            }
        };
        if let Some(name) = text.strip_prefix("**.") {
            root(name).map(Self::AnyBelow)
        } else if let Some(name) = text.strip_prefix("*.") {
            root(name).map(Self::OneBelow)
        } else if text.bytes().all(|b| b == b'*') && !text.is_empty() {
            Err(RuleError::TooWide(text.to_owned()))
        } else {
            HostName::parse(text).map(Self::Exactly).map_err(RuleError::Host)
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.names {
            Names::Exactly(host) => host.fmt(f)?,
            Names::OneBelow(root) => write!(f, "*.{root}")?,
            Names::AnyBelow(root) => write!(f, "**.{root}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

fn parse_port(text: &str) -> Result<u16, RuleError> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let port = text.parse().ok().filter(|port| digits && *port != 0);
    port.ok_or_else(|| RuleError::Port(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::itself("example.org", "example.org", true)]
    #[case::case("EXAMPLE.org", "example.ORG.", true)]
    #[case::suffix("example.org", "evilexample.org", false)]
    #[case::prefix("example.org", "example.org.evil.com", false)]
    #[case::below("example.org", "www.example.org", false)]
    #[case::one_below("*.example.org", "www.example.org", true)]
    #[case::root("*.example.org", "example.org", false)]
    #[case::deeper("*.example.org", "a.b.example.org", false)]
    #[case::wildcard_suffix("*.example.org", "wwwexample.org", false)]
    #[case::any_below("**.example.org", "www.example.org", true)]
    #[case::any_deeper("**.example.org", "a.b.example.org", true)]
    #[case::any_root("**.example.org", "example.org", false)]
    #[case::any_suffix("**.example.org", "a.evilexample.org", false)]
    fn a_pattern_covers_what_it_says(#[case] pattern: &str, #[case] name: &str, #[case] covered: bool) {
        let pattern = HostPattern::parse(pattern).unwrap();
        assert_eq!(pattern.covers(&HostName::parse(name).unwrap()), covered);
    }

    #[rstest]
    #[case("*", "too wide")]
    #[case("**", "too wide")]
    #[case("*.com", "too wide")]
    #[case("**.com", "too wide")]
    #[case("a.*.b.c", "name of a host")]
    #[case("*a.b.c", "name of a host")]
    #[case("a.b:0", "port")]
    #[case("a.b:65536", "port")]
    #[case("a.b:+80", "port")]
    #[case("a.b:", "port")]
    #[case("", "name of a host")]
    fn a_pattern_that_says_nothing_clear_is_refused(#[case] text: &str, #[case] expected: &str) {
        let error = HostPattern::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }

    #[rstest]
    fn a_pattern_is_written_as_it_was_read(#[values("a.b", "*.a.b", "**.a.b:8080", "a:1")] text: &str) {
        assert_eq!(HostPattern::parse(text).unwrap().to_string(), text);
    }
}
