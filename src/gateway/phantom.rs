//! The worthless credential of a sandbox, which identifies the requests of its run.

use std::fmt;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use thiserror::Error;

use crate::secret::Secret;

/// The user name of the proxy URL. It has no meaning.
const USER: &str = "ralph";

/// The credential that a sandbox has. Only its own gateway accepts it.
#[derive(Clone)]
pub struct Phantom(Secret);

impl Phantom {
    /// A new random phantom.
    pub fn random() -> Result<Self, NoRandomness> {
        let mut bytes = [0_u8; 24];
        getrandom::fill(&mut bytes).map_err(|error| NoRandomness(error.to_string()))?;
        let text = BASE64_URL_SAFE_NO_PAD.encode(bytes);
        Ok(Self(Secret::new(format!("ralph-phantom-{text}"))))
    }

    /// The text, for the environment of the sandbox.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// The URL of the explicit proxy, for `HTTP_PROXY`.
    #[must_use]
    pub fn proxy_url(&self, address: impl fmt::Display) -> String {
        format!("http://{USER}:{}@{address}", self.expose())
    }

    /// Whether this `Proxy-Authorization` value contains the phantom. It is compared in constant time.
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
    /// Compares in constant time.
    fn eq(&self, given: &[u8]) -> bool {
        equal(given, self.expose().as_bytes())
    }
}

impl fmt::Debug for Phantom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Phantom(***)")
    }
}

/// The operating system returned no random bytes.
#[derive(Debug, Error)]
#[error("cannot get random bytes from the operating system: {0}")]
pub struct NoRandomness(String);

fn equal(a: &[u8], b: &[u8]) -> bool {
    let differing = a.iter().zip(b).fold(0, |bits, (a, b)| bits | (a ^ b));
    a.len() == b.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_phantom_of_the_run_authorizes() {
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
    fn a_phantom_is_not_printed() {
        assert_eq!(format!("{:?}", Phantom::random().unwrap()), "Phantom(***)");
    }
}
