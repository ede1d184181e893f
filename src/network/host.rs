//! Host names, and hosts as a request names them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

/// A DNS name: lower case, without a trailing dot, and never an IP address in any notation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct HostName(String);

impl HostName {
    /// The maximum length of a name in bytes.
    pub const LONGEST: usize = 253;

    /// Parses a name. International names must be in punycode (`xn--...`), as they are on the wire.
    pub fn parse(text: &str) -> Result<Self, HostNameError> {
        let name = text.strip_suffix('.').unwrap_or(text);
        let fits = name.len() <= Self::LONGEST && name.split('.').all(is_label);
        if fits && !ends_in_a_number(name) {
            Ok(Self(name.to_ascii_lowercase()))
        } else {
            Err(HostNameError(text.to_owned()))
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The parts before and after the first dot. `None` if there is no dot.
    #[must_use]
    pub fn split_first_label(&self) -> Option<(&str, &str)> {
        self.0.split_once('.')
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        Self::parse(text)
    }
}

/// A text that is not a host name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{}` is not a host name", .0.escape_debug())]
pub struct HostNameError(String);

/// The destination of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestHost {
    /// A name.
    Name(HostName),
    /// An IP address. Only a policy that allows everything allows one.
    Address(IpAddr),
}

impl RequestHost {
    /// The name, if it is one.
    #[must_use]
    pub fn name(&self) -> Option<&HostName> {
        match self {
            Self::Name(name) => Some(name),
            Self::Address(_) => None,
        }
    }
}

impl fmt::Display for RequestHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl From<HostName> for RequestHost {
    fn from(name: HostName) -> Self {
        Self::Name(name)
    }
}

impl FromStr for RequestHost {
    type Err = HostNameError;

    /// Parses the host of a URL: a name, an IPv4 address, or an IPv6 address in brackets.
    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let address = match bracketed {
            Some(inner) => inner.parse().ok().map(IpAddr::V6),
            None => text.parse().ok().map(IpAddr::V4),
        };
        match address {
            Some(address) => Ok(Self::Address(address)),
            None => HostName::parse(text).map(Self::Name),
        }
    }
}

/// Underscores are not allowed in host names, but common.
fn is_label(label: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (1..=63).contains(&label.len())
        && label.bytes().all(allowed)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Whether some resolver would parse the text as an IPv4 address: `127.1`, `0x7f000001`, `2130706433`. Browsers use the
/// same test.
fn ends_in_a_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let hexadecimal = last
        .strip_prefix("0x")
        .or_else(|| last.strip_prefix("0X"))
        .is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    hexadecimal || last.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("github.com", "github.com")]
    #[case::case("GitHub.COM", "github.com")]
    #[case::trailing_dot("github.com.", "github.com")]
    #[case::one_label("mirror", "mirror")]
    #[case::punycode("xn--bcher-kva.example", "xn--bcher-kva.example")]
    #[case::digits_first("1password.com", "1password.com")]
    #[case::underscore("a_b.example", "a_b.example")]
    fn a_name_is_read_as_it_is_compared(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(HostName::parse(text).unwrap().as_str(), expected);
    }

    #[rstest]
    fn other_texts_are_refused(
        #[values(
            "",
            ".",
            "a..b",
            "github.com..",
            ".a",
            "-a.b",
            "a-.b",
            "a b",
            "bücher.example",
            "*.a.b",
            "a/b",
            "a:1",
            "a@b",
            "a%2eb",
            "a\0b",
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "a.0x1",
            "1.2.3.4.5",
            "::1",
            "[::1]",
            "a\r\nb"
        )]
        text: &str,
    ) {
        assert!(HostName::parse(text).is_err(), "{text:?}");
    }

    #[test]
    fn a_name_has_the_length_it_can_have_in_dns() {
        assert!(HostName::parse(&"a".repeat(63)).is_ok());
        assert!(HostName::parse(&"a".repeat(64)).is_err());
        let longest = ["a"; 127].join(".");
        assert!(HostName::parse(&longest).is_ok());
        assert!(HostName::parse(&format!("{longest}.a")).is_err());
    }

    #[rstest]
    #[case("example.org", "example.org")]
    #[case("10.0.0.1", "10.0.0.1")]
    #[case("[::1]", "[::1]")]
    fn a_host_is_written_as_it_was_read(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(RequestHost::from_str(text).unwrap().to_string(), expected);
    }
}
