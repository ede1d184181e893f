//! `host`, `*.host`, `**.host`, each with or without a port.

use std::fmt;

use super::host::HostName;
use super::rule::PolicyRuleError;

/// The ports of an allowed name without a port.
pub(super) const WEB_PORTS: [u16; 2] = [80, 443];

/// The hosts that a rule covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    /// The names.
    pub names: NamePattern,
    /// The port, if the pattern names one.
    pub port: Option<u16>,
}

/// The names that a pattern covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamePattern {
    /// `host`: this name.
    Exactly(HostName),
    /// `*.host`: exactly one more label, as in certificates. Does not cover `host`.
    OneBelow(HostName),
    /// `**.host`: one or more labels. Does not cover `host`.
    AnyBelow(HostName),
}

impl HostPattern {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Self, PolicyRuleError> {
        let (names, port) = match text.rsplit_once(':') {
            Some((names, port)) => (names, Some(parse_port(port)?)),
            None => (text, None),
        };
        Ok(Self {
            names: NamePattern::parse(names)?,
            port,
        })
    }

    /// Whether the pattern covers the name, on any port.
    #[must_use]
    pub fn covers(&self, name: &HostName) -> bool {
        match &self.names {
            NamePattern::Exactly(host) => name == host,
            NamePattern::OneBelow(root) => name
                .split_first_label()
                .is_some_and(|(_, rest)| rest == root.as_str()),
            NamePattern::AnyBelow(root) => name
                .as_str()
                .strip_suffix(root.as_str())
                .is_some_and(|labels| labels.len() > 1 && labels.ends_with('.')),
        }
    }

    /// Whether the pattern covers the name and, if it names a port, the port.
    #[must_use]
    pub fn covers_at(&self, name: &HostName, port: u16) -> bool {
        self.covers(name) && self.port.is_none_or(|own| own == port)
    }
}

impl NamePattern {
    fn parse(text: &str) -> Result<Self, PolicyRuleError> {
        let too_wide = || {
            PolicyRuleError(format!(
                "`{text}` is too wide: a wildcard needs at least two labels after it"
            ))
        };
        let root = |name: &str| {
            let root = HostName::parse(name)?;
            match root.split_first_label() {
                Some(_) => Ok(root),
                None => Err(too_wide()),
            }
        };
        if let Some(name) = text.strip_prefix("**.") {
            root(name).map(Self::AnyBelow)
        } else if let Some(name) = text.strip_prefix("*.") {
            root(name).map(Self::OneBelow)
        } else if text.bytes().all(|b| b == b'*') && !text.is_empty() {
            Err(too_wide())
        } else {
            Ok(Self::Exactly(HostName::parse(text)?))
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.names {
            NamePattern::Exactly(host) => host.fmt(f)?,
            NamePattern::OneBelow(root) => write!(f, "*.{root}")?,
            NamePattern::AnyBelow(root) => write!(f, "**.{root}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

fn parse_port(text: &str) -> Result<u16, PolicyRuleError> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let port = text.parse().ok().filter(|port| digits && *port != 0);
    port.ok_or_else(|| {
        PolicyRuleError(format!(
            "`{text}` is not a port: expected a number from 1 to 65535"
        ))
    })
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
    #[case("a.*.b.c", "host name")]
    #[case("*a.b.c", "host name")]
    #[case("a.b:0", "port")]
    #[case("a.b:65536", "port")]
    #[case("a.b:+80", "port")]
    #[case("a.b:", "port")]
    #[case("", "host name")]
    fn an_ambiguous_pattern_is_refused(#[case] text: &str, #[case] expected: &str) {
        let error = HostPattern::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }

    #[rstest]
    fn a_pattern_is_written_as_it_was_read(#[values("a.b", "*.a.b", "**.a.b:8080", "a:1")] text: &str) {
        assert_eq!(HostPattern::parse(text).unwrap().to_string(), text);
    }
}
