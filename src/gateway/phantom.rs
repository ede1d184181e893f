//! The worthless credential of one run, which shows that a request comes from its sandbox.

use std::fmt;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use thiserror::Error;

use crate::secret::Secret;

/// The user name in front of a phantom; it means nothing.
const USER: &str = "ralph";

/// The credential that a sandbox holds: good for its own gateway and nothing else.
#[derive(Clone)]
pub struct Phantom(Secret);

impl Phantom {
    /// A new one that nobody can guess.
    pub fn random() -> Result<Self, NoRandomness> {
        let mut bytes = [0_u8; 24];
        getrandom::fill(&mut bytes).map_err(|error| NoRandomness(error.to_string()))?;
        let text = BASE64_URL_SAFE_NO_PAD.encode(bytes);
        Ok(Self(Secret::new(format!("ralph-phantom-{text}"))))
    }

    /// The text that the sandbox is given.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// The address of the explicit proxy, as `HTTP_PROXY` takes it.
    #[must_use]
    pub fn proxy_url(&self, address: impl fmt::Display) -> String {
        format!("http://{USER}:{}@{address}", self.expose())
    }

    /// Whether this `Proxy-Authorization` is the phantom's. Takes equally long however much of it is right.
    #[must_use]
    pub fn authorizes(&self, header: &[u8]) -> bool {
        let Some((scheme, value)) = header.split_at_checked(6) else {
            return false;
        };
        let given = BASE64_STANDARD.decode(value.trim_ascii()).unwrap_or_default();
        let expected = format!("{USER}:{}", self.expose());
        scheme.eq_ignore_ascii_case(b"basic ") && equal(&given, expected.as_bytes())
    }
}

impl PartialEq<[u8]> for Phantom {
    /// Takes equally long however much of it is right.
    fn eq(&self, given: &[u8]) -> bool {
        equal(given, self.expose().as_bytes())
    }
}

impl fmt::Debug for Phantom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Phantom(***)")
    }
}

/// The system has no randomness to give.
#[derive(Debug, Error)]
#[error("the system gives no random numbers: {0}")]
pub struct NoRandomness(String);

fn equal(a: &[u8], b: &[u8]) -> bool {
    let differing = a.iter().zip(b).fold(0, |bits, (a, b)| bits | (a ^ b));
    a.len() == b.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phantom_authorizes_its_own_proxy_and_no_other() {
        let [own, other] = [Phantom::random().unwrap(), Phantom::random().unwrap()];
        let header = |phantom: &Phantom| {
            let pair = format!("ralph:{}", phantom.expose());
            format!("Basic {}", BASE64_STANDARD.encode(pair)).into_bytes()
        };
        assert!(own.authorizes(&header(&own)));
        assert!(!own.authorizes(&header(&other)));
        for wrong in ["", "Basic", "Basic ", "Basic !!", "Bearer x", "Basic cmFscGg6"] {
            assert!(!own.authorizes(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn a_phantom_is_not_shown() {
        assert_eq!(format!("{:?}", Phantom::random().unwrap()), "Phantom(***)");
    }
}
