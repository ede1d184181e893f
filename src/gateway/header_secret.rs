//! Secrets of the host that the gateway puts into requests: the sandbox has a placeholder, and the host of the request
//! receives the value.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use thiserror::Error;

use crate::network::{Denial, HostName, HostPattern};
use crate::secret::Secret;

/// A secret that the sandbox does not have. Programs inside send its placeholder in header fields; the gateway replaces it
/// in requests over inspected TLS to the hosts that may receive it, and denies all other requests that contain it.
///
/// Placeholders are constant: in another sandbox, or sent past the gateway, one is worth nothing.
#[derive(Clone, Debug)]
pub struct HeaderSecret {
    name: String,
    placeholder: String,
    value: Secret,
    hosts: Vec<HostPattern>,
}

impl HeaderSecret {
    /// The secret of this variable, for these hosts.
    pub fn new(name: &str, value: Secret, hosts: Vec<HostPattern>) -> Result<Self, NotAFieldValue> {
        if !value.expose().bytes().all(|byte| (b' '..0x7f).contains(&byte)) {
            return Err(NotAFieldValue);
        }
        Ok(Self {
            name: name.to_owned(),
            // Names have no `-`, so that no placeholder is a part of another.
            placeholder: format!("ralph-{name}-placeholder"),
            value,
            hosts,
        })
    }

    /// The text that stands for the value inside the sandbox.
    #[must_use]
    pub fn placeholder(&self) -> &str {
        &self.placeholder
    }

    /// The value for a request to this host, or why it is not sent.
    fn value_for(&self, target: &SecretTarget<'_>) -> Result<&[u8], Denial> {
        let may_receive = |name: &HostName| self.hosts.iter().any(|hosts| hosts.covers_at(name, target.port));
        if !target.name.is_some_and(may_receive) {
            return Err(self.denial("is not for this host; sandbox.secrets lists its hosts"));
        }
        if !target.is_tls {
            return Err(self.denial("is sent over TLS only"));
        }
        Ok(self.value.expose().as_bytes())
    }

    fn denial(&self, reason: &'static str) -> Denial {
        Denial::Secret {
            name: self.name.clone(),
            reason,
        }
    }

    /// The bytes with the value in place of the placeholder; `None` when they do not contain it.
    fn replaced(&self, bytes: &[u8], target: &SecretTarget<'_>) -> Result<Option<Vec<u8>>, Denial> {
        let placeholder = self.placeholder.as_bytes();
        let mut rest = bytes;
        let mut replaced = Vec::new();
        while let Some(at) = find(rest, placeholder) {
            replaced.extend(&rest[..at]);
            replaced.extend(self.value_for(target)?);
            rest = &rest[at + placeholder.len()..];
        }
        if rest.len() == bytes.len() {
            return Ok(None);
        }
        replaced.extend(rest);
        Ok(Some(replaced))
    }
}

/// Where a request goes.
pub(super) struct SecretTarget<'a> {
    /// The name of its host; `None` when it is an address.
    pub(super) name: Option<&'a HostName>,
    pub(super) port: u16,
    pub(super) is_tls: bool,
}

/// The value of a header field with every placeholder replaced, also inside basic authentication; `None` when it has none.
pub(super) fn replace(
    secrets: &[HeaderSecret],
    value: &[u8],
    target: &SecretTarget<'_>,
) -> Result<Option<Bytes>, Denial> {
    let basic = value
        .split_at_checked(BASIC.len())
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(BASIC))
        .and_then(|(_, text)| BASE64_STANDARD.decode(text.trim_ascii()).ok());
    if let Some(pair) = &basic
        && let Some(pair) = replace_all(secrets, pair, target)?
    {
        return Ok(Some(
            [BASIC, BASE64_STANDARD.encode(pair).as_bytes()].concat().into(),
        ));
    }
    Ok(replace_all(secrets, value, target)?.map(Bytes::from))
}

const BASIC: &[u8] = b"Basic ";

fn replace_all(
    secrets: &[HeaderSecret],
    bytes: &[u8],
    target: &SecretTarget<'_>,
) -> Result<Option<Vec<u8>>, Denial> {
    let mut replaced: Option<Vec<u8>> = None;
    for secret in secrets {
        let current = replaced.as_deref().unwrap_or(bytes);
        if let Some(next) = secret.replaced(current, target)? {
            replaced = Some(next);
        }
    }
    Ok(replaced)
}

/// Refuses a request target that contains a placeholder: hosts write them into logs.
pub(super) fn check_path(secrets: &[HeaderSecret], path: &str) -> Result<(), Denial> {
    match secrets.iter().find(|secret| path.contains(secret.placeholder())) {
        Some(secret) => Err(secret.denial("is sent in header fields only, not in the path")),
        None => Ok(()),
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// The value of a secret cannot be sent in a header field.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the value has line breaks or other characters that no header field can have")]
pub struct NotAFieldValue;

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn secrets() -> Vec<HeaderSecret> {
        [("KEY", "one-value"), ("KEY_2", "other-value")]
            .map(|(name, value)| {
                let hosts = vec![HostPattern::parse("a.example").unwrap()];
                HeaderSecret::new(name, Secret::new(value), hosts).unwrap()
            })
            .into()
    }

    fn replaced(value: &str, host: &str, is_tls: bool) -> Result<Option<String>, String> {
        let name: HostName = host.parse().unwrap();
        let target = SecretTarget {
            name: Some(&name),
            port: 443,
            is_tls,
        };
        let replaced = replace(&secrets(), value.as_bytes(), &target);
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        replaced
            .map(|bytes| bytes.map(text))
            .map_err(|denial| denial.to_string())
    }

    #[rstest]
    #[case::whole("ralph-KEY-placeholder", Some("one-value"))]
    #[case::bearer("Bearer ralph-KEY-placeholder", Some("Bearer one-value"))]
    #[case::both(
        "ralph-KEY_2-placeholder,ralph-KEY-placeholder;",
        Some("other-value,one-value;")
    )]
    #[case::twice("ralph-KEY-placeholderralph-KEY-placeholder", Some("one-valueone-value"))]
    #[case::none("Bearer own", None)]
    #[case::part("ralph-KEY-placeholde", None)]
    fn a_placeholder_is_replaced_wherever_it_stands(#[case] value: &str, #[case] expected: Option<&str>) {
        assert_eq!(replaced(value, "a.example", true).unwrap().as_deref(), expected);
    }

    #[test]
    fn a_placeholder_is_replaced_inside_basic_authentication() {
        let header = |pair: &str| format!("Basic {}", BASE64_STANDARD.encode(pair));
        let sent = header("user:ralph-KEY-placeholder").replace("Basic", "basic");
        let expected = header("user:one-value");
        assert_eq!(replaced(&sent, "a.example", true).unwrap(), Some(expected));
        assert_eq!(replaced(&header("user:own"), "a.example", true).unwrap(), None);
    }

    #[rstest]
    #[case::another_host("b.example", true, "is not for this host")]
    #[case::below("c.a.example", true, "is not for this host")]
    #[case::plain("a.example", false, "is sent over TLS only")]
    fn a_placeholder_elsewhere_is_denied(#[case] host: &str, #[case] is_tls: bool, #[case] reason: &str) {
        let denied = replaced("ralph-KEY-placeholder", host, is_tls).unwrap_err();
        assert!(denied.contains("`KEY`") && denied.contains(reason), "{denied}");
        assert!(!denied.contains("one-value"));
        assert_eq!(replaced("Bearer own", host, is_tls).unwrap(), None);
    }

    #[test]
    fn a_path_never_has_one() {
        assert!(check_path(&secrets(), "/a?key=ralph-KEY-placeholder").is_err());
        assert!(check_path(&secrets(), "/a?key=own").is_ok());
    }

    #[rstest]
    #[case("a\nb")]
    #[case("a\r\nx-other: b")]
    #[case("\u{e9}")]
    fn a_value_that_no_field_can_have_is_refused(#[case] value: &str) {
        let created = HeaderSecret::new("KEY", Secret::new(value), Vec::new());
        assert_eq!(created.unwrap_err(), NotAFieldValue);
    }
}
